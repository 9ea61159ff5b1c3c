"""The recipe and what is built from it, with stand-ins for the programs and the engine that build."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
import threading
import time
import zipfile
from importlib import resources
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from docker.errors import ImageNotFound

from deskbox import images
from deskbox.errors import DeskboxError, Refused

RECIPE = Path(str(resources.files("deskbox_images")))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    monkeypatch.setenv("DESKBOX_CACHE_DIR", str(path))
    monkeypatch.delenv("DESKBOX_BASE_IMAGE", raising=False)
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all of PATH: what a test does not put there is not installed."""
    path = tmp_path / "bin"
    path.mkdir()
    for name in ("sh", "cat", "printf", "sleep", "env"):
        (path / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(path))
    return path


def program(directory: Path, name: str, script: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


def apt(directory: Path, *targets: str) -> None:
    lines = "\n".join(targets)
    program(directory, "apt-get", f"case $* in *indextargets*) cat <<'END'\n{lines}\nEND\nesac")
    program(directory, "apt-config", """printf 'Acquire::http::Proxy "http://p:1";\\nAPT::Other "1";\\n'""")


DEBIAN = "Debian|Debian|main|http://mirror.test/debian/"
SECURITY = "Debian|Debian-Security|main|http://mirror.test/security/"


# --- the recipe ------------------------------------------------------------------------------------------
def test_every_package_has_a_reason() -> None:
    for line in (RECIPE / "packages.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition("#")
            assert re.fullmatch(r"[a-z0-9.+-]+ +", name), line
            assert len(reason.split()) > 1, line


def test_the_recipe_names_no_mirror_and_no_secret() -> None:
    for path in RECIPE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            text = path.read_text()
            assert not re.search(r"https?://(?!www\.w3\.org)[a-z0-9-]+\.[a-z]", text), path


def test_configuration_files_parse() -> None:
    overlay = RECIPE / "overlay"
    policies = json.loads((overlay / "etc/firefox/policies/policies.json").read_text())
    assert policies["policies"]["OverrideFirstRunPage"] == ""
    jwm = ElementTree.parse(overlay / "etc/jwm/system.jwmrc").getroot()
    assert [button.get("label") for button in jwm.iter("TrayButton")] == ["Firefox", "Editor", "Terminal"]
    for line in (overlay / "etc/firefox-esr/zz-deskbox.js").read_text().splitlines():
        assert re.fullmatch(r'(//.*|pref\("[A-Za-z0-9_.-]+", (true|false|-?\d+|".*")\);)?', line), line


def test_the_sandbox_of_firefox_is_not_touched() -> None:
    for path in (RECIPE / "overlay").rglob("*"):
        if path.is_file():
            assert "sandbox" not in path.read_text(), path


def test_the_seccomp_profile_lets_firefox_build_its_sandbox_and_little_else() -> None:
    profile = json.loads(resources.files("deskbox.backends").joinpath("seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed = [rule for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    free = {name for rule in allowed if "args" not in rule for name in rule["names"]}
    limited = {name for rule in allowed if "args" in rule for name in rule["names"]}
    assert limited == {"clone", "unshare", "personality", "socket"}
    assert "chroot" in free
    for name in ("mount", "setns", "pivot_root", "keyctl", "bpf", "ptrace", "io_uring_setup", "userfaultfd"):
        assert name not in free | limited
    assert not free & limited


def test_hashes_change_with_what_they_stand_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = {name: tmp_path / name for name in ("deskbox_images", "deskbox_guest")}
    for name, copy in copies.items():
        shutil.copytree(str(resources.files(name)), copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(images, "_package", lambda name: copies[name])
    recipe, guest = images.recipe_hash(), images.guest_hash("base")
    assert recipe == images.recipe_hash()
    # Compiled files and modes of a checkout are no part of either.
    (copies["deskbox_guest"] / "__pycache__").mkdir()
    (copies["deskbox_guest"] / "__pycache__" / "agent.pyc").write_bytes(b"compiled")
    (copies["deskbox_images"] / "configure.sh").chmod(0o700)
    assert (images.recipe_hash(), images.guest_hash("base")) == (recipe, guest)
    # The agent is in the thin layer only, and so are its wheels.
    (copies["deskbox_guest"] / "agent.py").write_text("")
    assert images.recipe_hash() == recipe
    assert images.guest_hash("base") != guest
    guest = images.guest_hash("base")
    (copies["deskbox_images"] / "guest-requirements.lock").write_text("")
    assert images.recipe_hash() == recipe
    assert images.guest_hash("base") != guest
    assert images.guest_hash("base") != images.guest_hash("another")
    # A file that moves is another recipe.
    (copies["deskbox_images"] / "overlay" / "new").write_text("")
    assert images.recipe_hash() != recipe


def test_what_is_copied_into_the_root_belongs_to_root() -> None:
    file = io.BytesIO()
    images.write_tar(file, images._overlay_files())
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        members = {member.name: member for member in archive}
    assert "etc/jwm/system.jwmrc" in members
    assert "tmp/deskbox/configure.sh" in members
    assert {(member.uid, member.gid, member.mode) for member in members.values()} == {(0, 0, 0o644)}


# --- where Debian comes from -----------------------------------------------------------------------------
def test_mirrors_are_those_of_this_machine(programs: Path) -> None:
    apt(
        programs,
        "Another|Another|main|http://other.test/",
        "Debian|Debian|contrib|http://mirror.test/wrong/",
        DEBIAN,
        "Debian|Debian|main|http://mirror.test/second/",
        SECURITY,
    )
    assert images.debian_sources(print) == [
        "deb http://mirror.test/debian/ trixie main",
        "deb http://mirror.test/security/ trixie-security main",
    ]


def test_a_machine_without_package_lists_reads_them_aside(programs: Path) -> None:
    script = f"""case $* in
*Dir::State::lists=*update*) ;;
*Dir::State::lists=*indextargets*) echo '{DEBIAN}' ;;
*update*) echo 'the lists of the machine were changed' >&2; exit 1 ;;
esac"""
    program(programs, "apt-get", script)
    said: list[str] = []
    assert images.debian_sources(said.append) == ["deb http://mirror.test/debian/ trixie main"]
    assert len(said) == 1


@pytest.mark.parametrize("installed", [True, False])
def test_a_machine_without_debian_mirrors_is_told_what_to_do(programs: Path, installed: bool) -> None:
    if installed:
        apt(programs, "Another|Another|main|http://other.test/")
    with pytest.raises(Refused, match="DESKBOX_BASE_IMAGE"):
        images.debian_sources(lambda line: None)


# --- the root --------------------------------------------------------------------------------------------
def test_without_mmdebstrap_the_sentence_says_how_to_get_it(cache: Path, programs: Path) -> None:
    with pytest.raises(Refused, match="apt-get install mmdebstrap"):
        images.build_rootfs(lambda line: None)


def test_without_room_nothing_is_started(
    cache: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "mmdebstrap", "exit 1")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**9))
    with pytest.raises(Refused, match=r"1\.0 GB free .* needs 2\.5 GB"):
        images.build_rootfs(lambda line: None)


def test_a_root_is_built_once(cache: Path, programs: Path) -> None:
    apt(programs, DEBIAN)
    arguments = cache / "arguments"
    program(
        programs, "mmdebstrap", f"printf '%s\\n' \"$@\" >>{arguments}; echo 'I: working...' >&2; printf root"
    )
    said: list[str] = []
    path = images.build_rootfs(said.append)
    assert path.read_bytes() == b"root"
    assert "working" in said
    words = arguments.read_text().splitlines()
    assert words[words.index("--include") + 1].split(",")[0] == "python3"
    assert 'Acquire::http::Proxy "http://p:1"' in words
    assert "deb http://mirror.test/debian/ trixie main" in words
    assert images.build_rootfs(said.append) == path
    assert arguments.read_text().splitlines() == words
    images.build_rootfs(said.append, fresh=True)
    assert len(arguments.read_text().splitlines()) == 2 * len(words)


def test_a_build_that_fails_leaves_nothing_and_names_the_cause(cache: Path, programs: Path) -> None:
    apt(programs, DEBIAN)
    program(
        programs, "mmdebstrap", "printf half; echo 'E: no such mirror' >&2; echo 'E: failed' >&2; exit 25"
    )
    with pytest.raises(DeskboxError, match=r"no such mirror.*mmdebstrap\.log"):
        images.build_rootfs(lambda line: None)
    assert sorted(path.name for path in cache.iterdir()) == ["lock", "mmdebstrap.log"]


def test_a_build_that_is_interrupted_may_clean_up(cache: Path, programs: Path) -> None:
    apt(programs, DEBIAN)
    trap = f"trap 'echo cleaned >{cache}/state; exit 1' INT"
    program(programs, "mmdebstrap", f"{trap}; echo 'I: working...' >&2; sleep 20 2>/dev/null & wait")

    def interrupt(line: str) -> None:
        if line == "working":
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        images.build_rootfs(interrupt)
    assert (cache / "state").read_text() == "cleaned\n"
    assert time.monotonic() - started < 10
    assert not list(cache.glob("rootfs-*")) + list(cache.glob("partial-*"))


def test_what_a_killed_builder_left_is_deleted(cache: Path, programs: Path) -> None:
    (cache / "partial-abc").mkdir()
    (cache / "partial-abc" / "rootfs.tar").write_text("half")
    apt(programs, DEBIAN)
    program(programs, "mmdebstrap", "printf root")
    images.build_rootfs(lambda line: None)
    assert not list(cache.glob("partial-*"))


def test_two_builders_build_one_root(cache: Path, programs: Path) -> None:
    apt(programs, DEBIAN)
    program(programs, "mmdebstrap", f"echo built >>{cache}/count; sleep 0.3; printf root")
    said: list[str] = []
    builders = [threading.Thread(target=images.build_rootfs, args=(said.append,)) for _ in range(3)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert (cache / "count").read_text() == "built\n"
    assert "another process is building the image; waiting for it" in said


# --- the engine ------------------------------------------------------------------------------------------
class Engine:
    """As much of a Docker engine as the images need."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}
        self.built: list[dict[str, Any]] = []
        self.used: list[str] = []
        self.pruned: list[dict[str, Any]] = []
        self.images = SimpleNamespace(get=self._get, list=self._list, remove=self._remove, prune=self._prune)
        self.api = SimpleNamespace(
            import_image_from_file=self._import,
            build=self._build,
            containers=lambda all: [{"ImageID": image} for image in self.used],
        )

    def _get(self, tag: str) -> Any:
        if tag not in self.tags:
            raise ImageNotFound(tag)
        return SimpleNamespace(id=self.tags[tag], tags=[tag])

    def _list(self, name: str) -> list[Any]:
        return [self._get(tag) for tag in sorted(self.tags) if tag.startswith(name + ":")]

    def _remove(self, tag: str) -> None:
        del self.tags[tag]

    def _prune(self, filters: dict[str, Any]) -> None:
        self.pruned.append(filters)

    def _import(self, path: str, repository: str, tag: str, changes: list[str]) -> None:
        assert Path(path).read_bytes() == b"root"
        self.tags[f"{repository}:{tag}"] = f"sha256:{len(self.tags)}"

    def _build(
        self, fileobj: Any, tag: str, buildargs: dict[str, str], **options: Any
    ) -> list[dict[str, str]]:
        with tarfile.open(fileobj=fileobj) as archive:
            names = archive.getnames()
        self.built.append({"tag": tag, "from": buildargs["BASE"], "names": names, **options})
        self.tags[tag] = f"sha256:{len(self.tags)}"
        return [{"stream": "Step 1/2 : FROM\n"}, {"stream": "\n"}]


@pytest.fixture
def engine(cache: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    apt(programs, DEBIAN)
    program(programs, "mmdebstrap", "printf root")
    wheel = cache / "mss.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("mss/__init__.py", "")
    monkeypatch.setattr(images, "_wheels", lambda progress: [wheel])
    return Engine()


def ensure(engine: Engine, **options: Any) -> str:
    return images.ensure_docker_image(engine, lambda line: None, **options)  # type: ignore[arg-type]


def test_an_image_is_made_of_the_root_and_a_thin_layer(engine: Engine) -> None:
    tag = ensure(engine)
    assert re.fullmatch(r"deskbox/guest:[0-9a-f]{12}", tag)
    (layer,) = engine.built
    assert layer["tag"] == tag
    assert layer["from"] == f"deskbox/base:{images.recipe_hash()[:12]}"
    assert layer["network_mode"] == "none"
    assert {"Dockerfile", "site/mss/__init__.py", "site/deskbox_guest/session.py"} <= set(layer["names"])
    assert not any("__pycache__" in name for name in layer["names"])
    assert ensure(engine) == tag
    assert len(engine.built) == 1


def test_a_fresh_root_makes_a_new_layer(engine: Engine) -> None:
    assert ensure(engine) != ensure(engine, fresh=True)


def test_a_stock_image_takes_the_place_of_mmdebstrap(
    engine: Engine, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs / "mmdebstrap").unlink()
    monkeypatch.setenv("DESKBOX_BASE_IMAGE", "stock:1")
    ensure(engine)
    root, layer = engine.built
    assert (root["from"], layer["from"]) == ("stock:1", root["tag"])
    assert {"packages.txt", "configure.sh", "overlay/etc/jwm/system.jwmrc"} <= set(root["names"])
    assert engine.pruned == [{"dangling": True, "label": "deskbox.stage"}]


def test_a_failed_step_is_told_in_one_sentence(engine: Engine) -> None:
    engine.api.build = lambda **options: [{"error": "The command returned a non-zero code: 1\n"}]
    with pytest.raises(DeskboxError, match=r"could not build deskbox/guest:.* non-zero code: 1$"):
        ensure(engine)


def test_pruning_spares_what_is_current_or_in_use(engine: Engine, cache: Path) -> None:
    current = ensure(engine)
    engine.tags |= {
        "deskbox/base:old": "sha256:a",
        "deskbox/guest:old": "sha256:b",
        "deskbox/guest:used": "sha256:c",
    }
    engine.used = ["sha256:c"]
    (cache / "rootfs-old.tar").write_text("old")
    images.prune(engine, lambda line: None)  # type: ignore[arg-type]
    assert set(engine.tags) == {current, f"deskbox/base:{images.recipe_hash()[:12]}", "deskbox/guest:used"}
    assert [path.name for path in cache.glob("rootfs-*")] == [f"rootfs-{images.recipe_hash()[:12]}.tar"]


def test_wheels_are_checked_by_their_hash() -> None:
    text = (RECIPE / "guest-requirements.lock").read_text()
    for name in re.findall(r"^(\S+==\S+)", text, re.MULTILINE):
        assert re.search(re.escape(name) + r" \\\n    --hash=sha256:[0-9a-f]{64}", text)
    assert PurePosixPath("deskbox_guest/session.py") in images._agent_sources()
