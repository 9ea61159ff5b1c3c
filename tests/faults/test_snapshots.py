"""Snapshots: what they hold, and that one is whole or not there, whatever happens while it is made."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.guests import backend, guests_named
from tests.support.timing import eventually

from deskbox import backends, registry, snapshots
from deskbox.desktop import Desktop
from deskbox.errors import DeskboxError, InvalidInput, Refused
from deskbox.processes import Process
from deskbox_guest.protocol import Held

FORM = b"""<!doctype html><title>Form</title>
<textarea autofocus style="position: fixed; inset: 0; width: 100%; height: 100%"></textarea>"""


@pytest.fixture
def own(launch: Callable[..., Desktop]) -> Desktop:
    return launch("origin", url="about:blank")


@pytest.fixture(autouse=True)
def no_snapshots_left(state_dir: Path) -> Iterator[None]:
    yield
    for snapshot in snapshots.list_snapshots():
        snapshots.remove(snapshot.name)
    assert not (state_dir / "snaps").exists()


def test_a_fork_begins_with_what_was_saved(own: Desktop) -> None:
    own.exec(
        ["sh", "-c", "mkdir -m 700 kept; printf 'as it was' >kept/a; ln -s a kept/link; chmod 600 kept/a"]
    )
    own.step("mousemove 100 100 keydown ctrl")
    saved = own.save("one")
    assert own.held_inputs() == Held()
    assert (saved.name, saved.desktop, saved.backend) == ("one", "origin", backend())
    assert saved.contents == backends.create(backend()).saves
    assert saved.bytes > 0
    assert [found.name for found in snapshots.list_snapshots()] == ["one"]
    own.write_file("kept/a", b"changed since")
    with Desktop.fork("one", "copy") as first, Desktop.fork("one") as second:
        for copy in (first, second):
            assert copy.read_file("kept/a") == b"as it was"
            listed = copy.exec(["stat", "-c", "%a %N", "kept", "kept/a", "kept/link"]).stdout.decode()
            assert listed.splitlines() == ["700 'kept'", "600 'kept/a'", "777 'kept/link' -> 'a'"]
            assert copy.held_inputs() == Held()
            assert copy.size == own.size
            assert copy.url == own.url
        first.write_file("kept/a", b"the first's own")
        assert second.read_file("kept/a") == b"as it was"
        assert first.screenshot().startswith(b"\x89PNG")
        # A snapshot is no part of the desktops that were started from it.
        snapshots.remove("one")
        assert second.read_file("kept/a") == b"as it was"
    assert own.read_file("kept/a") == b"changed since"


@pytest.mark.backends("qemu")
def test_a_saved_machine_goes_on_in_the_middle_of_a_word(own: Desktop) -> None:
    """With its windows, the text in a form that nobody has sent, and the clipboard, which Firefox holds."""
    own.write_file("form.html", FORM)
    own.open_url("file:///home/user/form.html")
    eventually(lambda: any(window.title.startswith("Form") for window in own.windows()))
    own.step("mousemove 640 400 click 1")
    own.type_text("half fi")
    own.step("key ctrl+a ctrl+c key End")
    eventually(lambda: clipboard(own) == "half fi")
    windows = own.windows()
    assert own.save("one").contents == "machine"
    own.type_text(", but nothing of that is saved")
    with Desktop.fork("one") as copy:
        assert clipboard(copy) == "half fi"
        assert copy.windows() == windows
        copy.type_text("lled")
        copy.step("key ctrl+a ctrl+c")
        eventually(lambda: clipboard(copy) == "half filled")
    own.step("key ctrl+a ctrl+c")
    eventually(lambda: clipboard(own) == "half fi, but nothing of that is saved")


def clipboard(desktop: Desktop) -> str:
    return desktop.exec(["xclip", "-o", "-selection", "clipboard"], timeout=60).stdout.decode()


def test_firefox_starts_with_the_profile_of_a_snapshot(launch: Callable[..., Desktop]) -> None:
    launch("origin").save("one")
    with Desktop.fork("one") as copy:
        [firefox] = [window for window in copy.windows() if "Firefox" in window.title]
        assert firefox.title.startswith("Deskbox")  # its start page; no notice of a crash, no second window


def test_a_snapshot_is_not_replaced_and_a_bad_name_is_refused(own: Desktop) -> None:
    own.save("one")
    with pytest.raises(Refused, match="rm-snap one"):
        own.save("one")
    for name in ("", "Über", "../one", ".part-1"):
        with pytest.raises((InvalidInput, Refused), match="snapshot name"):
            own.save(name)
    with pytest.raises(Refused, match=r"no snapshot 'two'; there are: one"):
        Desktop.fork("two")
    with pytest.raises(Refused, match="runs already"):
        Desktop.fork("one", "origin")
    assert [found.name for found in snapshots.list_snapshots()] == ["one"]


def test_what_is_half_made_is_cleared_away(state_dir: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    part = state_dir / "snaps" / f".part-{dead.pid}:1-00"
    part.mkdir(parents=True)
    (part / "home.tar").write_bytes(b"half")
    ours = state_dir / "snaps" / f".part-{Process.of(os.getpid())}-01"
    ours.mkdir()
    assert snapshots.list_snapshots() == []
    assert snapshots.sweep() == [part]
    assert ours.exists()
    ours.rmdir()
    snapshots.sweep()


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15, 0.4])
def test_keeper_killed_while_it_saves(state_dir: Path, delay: float) -> None:
    with Desktop.launch("origin", url="about:blank", detach=True) as desktop:
        desktop.exec(["sh", "-c", "head -c 200M /dev/urandom >large"])
    record = registry.Home("origin").read()
    assert record is not None
    saver = subprocess.Popen(
        [sys.executable, "-c", "from deskbox import Desktop; Desktop.attach('origin').save('cut')"],
        stderr=subprocess.DEVNULL,
    )
    while not list((state_dir / "snaps").glob("*")) and saver.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(record.keeper_pid, signal.SIGKILL)
    saver.wait(30)
    whole = [found.name for found in snapshots.list_snapshots()]
    assert whole in ([], ["cut"])
    if whole:
        with Desktop.fork("cut") as copy:
            assert copy.exec(["stat", "-c", "%s", "large"]).stdout == b"209715200\n"
    elif backend() != "bwrap":
        with Desktop.attach("origin") as desktop:
            assert desktop.held_inputs() == Held()
            desktop.save("whole")
    registry.stop("origin")
    snapshots.sweep()
    assert guests_named("origin") == []
    left = {path.name for path in (state_dir / "snaps").glob("*")}
    assert left <= {"cut", "whole"}


def test_desktop_stopped_while_it_is_saved(state_dir: Path) -> None:
    with Desktop.launch("origin", url="about:blank", detach=True) as desktop:
        desktop.exec(["sh", "-c", "head -c 300M /dev/urandom >large"])
        stopper = threading.Timer(0.1, registry.stop, ("origin",))
        stopper.start()
        with contextlib.suppress(DeskboxError):  # it may have been faster
            desktop.save("cut")
        stopper.join()
    assert registry.find("origin") is None
    assert guests_named("origin") == []
    assert [found.name for found in snapshots.list_snapshots()] in ([], ["cut"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a small disk")
def test_a_full_disk_leaves_nothing(own: Desktop, state_dir: Path) -> None:
    own.exec(["sh", "-c", "head -c 50M /dev/urandom >large"])
    small = state_dir / "snaps"
    small.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=700", "small", str(small)], check=True)
    try:
        with pytest.raises(Refused, match="No space left on device; nothing of it is left"):
            own.save("large")
        assert list(small.iterdir()) == []
        assert snapshots.list_snapshots() == []
        assert own.held_inputs() == Held()
        assert own.screenshot().startswith(b"\x89PNG")
    finally:
        subprocess.run(["umount", str(small)], check=True)
        snapshots.sweep()
