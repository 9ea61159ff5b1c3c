"""Whichever process of the host is killed, at whatever step: a usable desktop that `ls` shows, or nothing."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import read
from tests.support.guests import backend, guests_named

from deskbox import processes, registry, snapshots
from deskbox.desktop import Desktop
from deskbox.errors import Unavailable
from deskbox.processes import Process

pytestmark = pytest.mark.slow("qemu")

NAME = "victim"
LAUNCH = f"from deskbox import Desktop; Desktop.launch({NAME!r}, url='about:blank', detach=True)"
FORK = f"from deskbox import Desktop; Desktop.fork('seed', {NAME!r}, detach=True)"
STOP = f"from deskbox import registry; registry.stop({NAME!r})"


def _record() -> registry.DesktopRecord | None:
    return registry.Home(NAME).read()


# What can be seen of a start, in this order.
STEPS: dict[str, Callable[[], object]] = {
    "its lock is taken": lambda: registry.Home(NAME).path.with_name(f"{NAME}.lock").exists(),
    "it is written down": _record,
    "it has a keeper": lambda: list(_keepers()),
    "its keeper listens": lambda: registry.Home(NAME).control_socket.exists(),
    "its guest is there": lambda: guests_named(NAME),
    "its guest is known": lambda: (record := _record()) and record.guest_id,
    "it runs": lambda: (record := _record()) and record.state == "running",
}


def _keepers() -> Iterator[Process]:
    for process in processes.running(b"deskbox.keeper"):
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        if NAME.encode() in arguments:
            yield process


def start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)


def kill(whom: str, caller: subprocess.Popen[bytes]) -> None:
    if whom in ("caller", "both"):
        caller.kill()
    if whom in ("keeper", "both"):
        for keeper in _keepers():
            keeper.send(signal.SIGKILL)
            assert keeper.wait(10)
    caller.wait(180)


def usable_or_nothing() -> None:
    """Of what is left, once it has come to rest: a keeper that lives may still be starting or ending it."""
    deadline = time.monotonic() + 180
    while (found := registry.find(NAME)) is not None:
        try:
            if found.state != "starting":
                with Desktop.attach(NAME, wait=10) as desktop:
                    assert desktop.screenshot().startswith(b"\x89PNG")
                    desktop.step("mousemove 10 10 click 1")
                    return
        except Unavailable:
            if not list(_keepers()):  # nobody is left who could end it
                raise
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert guests_named(NAME) == []
    assert not registry.Home(NAME).exists()


@pytest.fixture(autouse=True)
def nothing_left(state_dir: Path) -> Iterator[None]:
    yield
    registry.stop(NAME)
    assert guests_named(NAME) == []
    for keeper in _keepers():
        assert keeper.wait(10)
    assert registry.find(NAME) is None


@pytest.fixture(scope="module")
def seed(state_dir: Path) -> Iterator[None]:
    """A snapshot to fork from."""
    with Desktop.launch("origin", url="about:blank") as desktop:
        desktop.save("seed")
    yield
    snapshots.remove("seed")


def wait_for(step: str, caller: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 180
    while not STEPS[step]() and caller.poll() is None:
        assert time.monotonic() < deadline


def at_step(code: str, step: str, whom: str) -> None:
    caller = start(code)
    wait_for(step, caller)
    kill(whom, caller)
    usable_or_nothing()


@pytest.mark.parametrize("whom", ["caller", "keeper", "both"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_while_a_desktop_starts(step: str, whom: str) -> None:
    at_step(LAUNCH, step, whom)


@pytest.mark.parametrize(
    "step", ["it has a keeper", "its guest is there", "its keeper listens", "its guest is known"]
)
def test_asked_to_end_while_a_desktop_starts(step: str) -> None:
    """The keeper ends its guest itself, however early it is asked."""
    caller = start(LAUNCH)
    wait_for(step, caller)
    for keeper in _keepers():
        keeper.send(signal.SIGTERM)
    assert caller.wait(180) != 0
    usable_or_nothing()
    assert registry.find(NAME) is None


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize("whom", ["keeper", "both"])
@pytest.mark.parametrize("step", ["it is written down", "it has a keeper", "its guest is there", "it runs"])
def test_killed_while_a_desktop_is_forked(step: str, whom: str) -> None:
    at_step(FORK, step, whom)
    assert [snapshot.name for snapshot in snapshots.list_snapshots()] == ["seed"]


@pytest.mark.parametrize("whom", ["caller", "keeper", "both"])
@pytest.mark.parametrize("delay", [0.25, 0.3, 0.4, 0.6])
def test_killed_while_a_desktop_stops(delay: float, whom: str) -> None:
    with Desktop.launch(NAME, url="about:blank", detach=True):
        pass
    caller = start(STOP)
    time.sleep(delay)  # Python takes most of the first quarter of a second
    kill(whom, caller)
    usable_or_nothing()


def test_doctor_clears_away_what_a_power_cut_left(state_dir: Path) -> None:
    """And the records with it, as where they are in memory."""
    with Desktop.launch(NAME, url="about:blank", detach=True):
        pass
    for keeper in _keepers():
        keeper.send(signal.SIGKILL)
        assert keeper.wait(10)
    home = registry.Home(NAME)
    shutil.rmtree(home.path)
    lock = home.path.with_name(f"{NAME}.lock")
    lock.touch()
    ended = subprocess.Popen(["true"])
    ended.wait()
    part = state_dir / "snaps" / f".part-{ended.pid}:1-00"
    part.mkdir(parents=True)
    # In bubblewrap a guest ends with its keeper, and what is left of it is a control group, if it had one.
    stray = [f"a guest of a desktop {NAME} on {backend()}"] * len(guests_named(NAME))
    assert len(stray) == 1 or (backend() == "bwrap" and not stray)
    what = [*stray, f"a half-made snapshot {part.name}"]

    assert leftovers(read("doctor", code=1)) == [(text, False) for text in what]
    fixed = read("doctor", "--fix")
    assert leftovers(fixed) == [(f"{text}, cleared away", True) for text in what]
    assert leftovers(read("doctor")) == []
    assert guests_named(NAME) == []
    assert not part.exists()
    assert not lock.exists()


def leftovers(report: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(check["detail"], check["ok"]) for check in report["checks"] if check["name"] == "leftovers"]
