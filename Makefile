# Each target is one line for the command line of Deskbox or for a test runner; `make help` lists them.
DESKBOX := .venv/bin/deskbox
# What the tests need of Debian besides what desktops need: a browser, a screen of their own, and `ss`.
TEST_PACKAGES := chromium xvfb x11vnc x11-apps x11-utils x11-xkb-utils iproute2 cpio \
    bubblewrap qemu-system-x86 squashfs-tools zstd dbus-daemon
# The tests that every backend must pass.
SHARED_TESTS := tests/conformance tests/faults tests/security tests/e2e/test_drill.py

.DEFAULT_GOAL := help
.PHONY: up down test test-all soak conformance-external drill bench view image check help

up: .venv/ready  ## Set up what is missing and start the desktop (NAME= BACKEND= SIZE=WxH URL=)
	@$(DESKBOX) up --setup $(NAME:%=--name %) $(BACKEND:%=--backend %) $(SIZE:%=--size %) $(if $(URL),--url '$(URL)')

down: .venv/ready  ## Stop every desktop and leave nothing of them
	@$(DESKBOX) down --all

view: .venv/ready  ## Print an address at which a browser shows the desktop (NAME=)
	@$(DESKBOX) view $(NAME:%=--name %)

drill: .venv/ready  ## Do a real job on a fresh desktop, and prove it, without a model
	@$(DESKBOX) drill

bench: .venv/ready  ## Measure it beside others, in twenty minutes (DOCS=1 renews the documents)
	@$(DESKBOX) image --setup --backend docker
	@$(DESKBOX) bench $(if $(DOCS),--docs docs) $(ARGS)

image: .venv/ready  ## Build the guest's image
	@$(DESKBOX) image

test: .venv/ready .venv/ready-for-tests  ## Run the tests on docker (BACKEND=bwrap or qemu; ARGS= for pytest)
	@$(DESKBOX) image --setup --backend $(or $(BACKEND),docker)
	@.venv/bin/python -m pytest $(BACKEND:%=--backend %) $(if $(BACKEND),$(SHARED_TESTS)) $(ARGS)

test-all: .venv/ready  ## Run the tests on every backend, also those that take long, for hours
	@./bootstrap.sh qemu-system-arm && $(DESKBOX) image --setup --backend qemu --arch arm64
	@$(MAKE) test ARGS=--slow && $(MAKE) test BACKEND=bwrap ARGS=--slow && $(MAKE) test BACKEND=qemu ARGS='--slow --timeout=1800'

conformance-external: build/autoharness/ready  ## Let an independent harness judge the input (ARGS= for it)
	@$(DESKBOX) image --setup --backend docker
	@PYTHONPATH=build/autoharness .venv/bin/python -m tests.conformance.external $(ARGS)

soak: .venv/ready  ## Type random text into many applications and compare what arrived (SEED= CHARS=)
	@$(DESKBOX) image --setup --backend docker
	@.venv/bin/python -m tests.soak.soak $(SEED:%=--seed %) $(CHARS:%=--chars %)

check: .venv/ready  ## Check style, format and types
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' Makefile | expand --tabs=29

.venv/ready: requirements.lock pyproject.toml bootstrap.sh
	@./bootstrap.sh

.venv/ready-for-tests: .venv/ready
	@./bootstrap.sh $(TEST_PACKAGES) && touch $@

build/autoharness/ready: tests/conformance/external/requirements.lock | .venv/ready
	@rm -rf build/autoharness
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	    --target build/autoharness --requirement $<
	@touch $@
