#!/bin/sh
# Makes .venv from the lock file, on a machine that may have nothing but Debian and Python.
# With arguments: installs those Debian packages, as far as they are missing, and does nothing else.
set -eu
cd "$(dirname "$0")"

say() { printf '%s\n' "$*" >&2; }

install() {
    if ! command -v apt-get >/dev/null; then
        say "This machine has no apt-get: install $* with its package manager, then repeat."
        exit 1
    fi
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            say "This needs root, and there is no sudo: run 'apt-get install $*' as root, then repeat."
            exit 1
        fi
        as_root=sudo
    fi
    say "Installing Debian packages: $*"
    set -- env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "$@"
    # In a fresh system the package lists may be missing, and in any other they may be old.
    quietly $as_root "$@" || { quietly $as_root apt-get update --quiet=2; quietly $as_root "$@"; } || {
        say "$said"
        exit 1
    }
}

# What a command says matters only if it fails.
quietly() { said=$("$@" 2>&1); }

installed() {
    dpkg-query --show --showformat='${Status}\n' "$1" 2>/dev/null | grep -q '^install ok installed$'
}

if [ $# -gt 0 ]; then
    missing=
    for package; do
        installed "$package" || missing="$missing $package"
    done
    # shellcheck disable=SC2086  # a list of names
    [ -z "$missing" ] || install $missing
    exit
fi

python=${PYTHON:-python3}
# Debian ships Python without what a virtual environment needs.
"$python" -c 'import ensurepip, venv' 2>/dev/null || install python3-venv
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "Deskbox needs Python 3.11 or newer, not $("$python" --version): set PYTHON=/path/to/a/newer/python3."
    exit 1
fi

# Made anew if its Python is gone, as after an upgrade of the system.
.venv/bin/python -c 'import pip' 2>/dev/null || "$python" -m venv --clear .venv
say "Installing the locked Python packages into .venv (about a minute)"
quiet=$([ -t 1 ] || echo --quiet)
pip() { .venv/bin/python -m pip --disable-pip-version-check $quiet "$@"; }
pip install --require-hashes --requirement requirements.lock
pip install --no-deps --no-build-isolation --editable .
touch .venv/ready
