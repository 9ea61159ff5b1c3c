"""What a guest in bubblewrap is started with, and what it leaves to nobody. No guest runs here."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deskbox import processes
from deskbox.backends import bubblewrap, seccomp
from deskbox.backends.bubblewrap import sandbox, tree
from deskbox.backends.cgroups import Cgroup
from deskbox.compiled import SITE
from deskbox.processes import Process
from deskbox_guest import limits

PLACES = sandbox.Places(Path("/cache/root"), Path("/cache/site"), Path("/state/a b/guest"))


def options(**environment: str) -> list[str]:
    return sandbox.arguments(PLACES, environment, open_files=9, seccomp_fd=5, info_fd=6)[0]


def values(option: str, words: list[str], count: int = 1) -> list[tuple[str, ...]]:
    found = [index for index, word in enumerate(words) if word == option]
    return [tuple(words[index + 1 : index + 1 + count]) for index in found]


def test_nothing_is_shared_with_the_host() -> None:
    words = options()
    for option in ("--unshare-all", "--unshare-user", "--new-session", "--die-with-parent", "--clearenv"):
        assert option in words
    assert values("--cap-drop", words) == [("ALL",)]
    assert values("--seccomp", words) == [("5",)]
    assert values("--uid", words) == values("--gid", words) == [("1000",)]
    assert "--share-net" not in words
    # A place of the host is seen read-only, or not at all.
    assert not {"--bind", "--dev-bind", "--bind-try", "--ro-bind-try"} & set(words)
    assert values("--ro-bind", words, 2) == [
        ("/cache/root", "/"),
        ("/cache/site", str(SITE)),
        ("/state/a b/guest", "/rpc"),
    ]


def test_what_can_be_written_to_has_its_limit() -> None:
    words = options()
    for path, (size, mode) in {**limits.TMPFS, "/dev/shm": (limits.SHM, 0o1777)}.items():
        wanted = ["--perms", f"{mode:o}", "--size", str(size), "--tmpfs", path]
        assert any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def test_the_environment_is_what_the_session_needs() -> None:
    found = values("--setenv", options(DESKBOX_SIZE="800x600"), 2)
    assert ("DESKBOX_SIZE", "800x600") in found
    assert {name for name, _ in found} == {"PATH", "LANG", "HOME", "DISPLAY", "DESKBOX_SIZE"}


def test_limits_are_set_inside() -> None:
    _, program = sandbox.arguments(PLACES, {}, open_files=9, seccomp_fd=5, info_fd=6)
    assert program[:5] == ["prlimit", "--nproc=512", "--nofile=9", "--core=0", "--"]
    assert program[5:] == list(sandbox.SESSION)


def test_for_root_the_places_are_passed_as_arguments_and_the_user_has_no_rights() -> None:
    command = sandbox.staging(PLACES, 61200, ["bwrap", "--args", "7"])
    script = command[command.index("-c") + 1]
    assert "/state" not in script  # a path may hold anything, also what a shell would run
    assert "setpriv --reuid 61200 --regid 61200 --clear-groups --no-new-privs" in script
    assert command[-6:] == ["/cache/root", "/cache/site", "/state/a b/guest", "bwrap", "--args", "7"]
    assert PLACES.staged().rpc == Path("/mnt/rpc")


def test_entering_control_groups(tmp_path: Path) -> None:
    entrances = [tmp_path / "a group", tmp_path / "b"]
    command = sandbox.entering(entrances, ["sh", "-c", 'echo "$$" "$@"', "sh", "x y", "--"])
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    pid, rest = done.stdout.split(maxsplit=1)
    assert rest == "x y --\n"
    assert [entrance.read_text().strip() for entrance in entrances] == [pid, pid]
    assert sandbox.entering([], ["true"]) == ["true"]


def test_the_filter_is_a_program_for_the_kernel() -> None:
    program = seccomp.compiled()
    size = struct.calcsize("HBBI")  # struct sock_filter
    assert len(program) % size == 0
    assert 100 < len(program) // size < 4096  # BPF_MAXINSNS
    codes = {struct.unpack_from("HBBI", program, at)[0] for at in range(0, len(program), size)}
    assert 0x06 in codes  # BPF_RET | BPF_K


def test_a_guest_is_found_again_by_its_id() -> None:
    process = Process(12, 345)
    guest_id = bubblewrap._guest_id(process, "owner.a.name")
    assert bubblewrap._parse(guest_id) == (process, "owner.a.name")


def test_all_processes_of_a_namespace_are_stopped_and_go_on() -> None:
    """Our own namespace would be one too many: so a child in one of its own."""
    forking = "sleep 60 & sleep 60 & wait"
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "sh", "-c", forking]
    outer = subprocess.Popen(unshare)
    try:
        children = until_there(outer.pid)
        first = Process.of(children[0])
        sleepers = until_there(first.pid, 2)
        everyone = [first.pid, *sleepers]
        bubblewrap._signal_all(first, signal.SIGSTOP)
        wait_until(lambda: {state(pid) for pid in everyone} == {"T"})  # a signal is heeded by and by
        bubblewrap._signal_all(first, signal.SIGCONT)
        wait_until(lambda: "T" not in {state(pid) for pid in everyone})
    finally:
        outer.kill()
        outer.wait()


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def until_there(parent: int, count: int = 1) -> list[int]:
    deadline = time.monotonic() + 10
    while True:
        found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if len(found) == count:
            return [int(pid) for pid in found]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_control_group_comes_and_goes() -> None:
    group = Cgroup("unit-test.a")
    held = group.make(memory=64 << 20, tasks=50)
    try:
        assert set(held) == {"memory", "tasks"}
        assert bool(group.entrances()) == any(held.values())
        assert ("unit-test.a" in Cgroup.names("unit-test.")) == bool(group.entrances())
    finally:
        group.remove()
    group.remove()
    assert "unit-test.a" not in Cgroup.names("unit-test.")


@pytest.mark.parametrize("name", ["half", "whole"])
def test_a_tree_that_exists_is_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKBOX_CACHE_DIR", str(tmp_path))
    sandbox.trees().mkdir()

    def fill(into: Path) -> None:
        (into / "file").write_text("x")
        if name == "half":
            raise OSError("the disk is full")

    target = sandbox.trees() / "root-1"
    if name == "half":
        with pytest.raises(OSError, match="full"):
            tree._make(target, lambda _: None, "making", fill)
        assert list(tmp_path.rglob("file")) == []
    else:
        tree._make(target, lambda _: None, "making", fill)
        assert (target / "file").read_text() == "x"
        assert target.stat().st_mode & 0o777 == 0o755


def test_pruning_spares_what_is_current_or_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKBOX_CACHE_DIR", str(tmp_path))
    for name in ("root-1", "root-2", "root-3", "site-1", "site-2", "site-3"):
        (sandbox.trees() / name).mkdir(parents=True)
    (sandbox.trees() / "root-3" / "closed").mkdir(mode=0o000)
    told: list[str] = []
    tree.prune("root-1/site-1", ["root-2/site-1"], told.append)
    assert sorted(path.name for path in sandbox.trees().iterdir()) == ["root-1", "root-2", "site-1"]
    assert len(told) == 3


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs guests as others")
def test_users_without_an_account(tmp_path: Path) -> None:
    user = processes.unused_user()
    assert user in processes.NOBODIES
    assert shutil.which("setpriv")
