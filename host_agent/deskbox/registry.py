"""The desktops of this user: where their state lives, which ones exist, how each is ended.

    <state>/desktops/NAME/          mode 0700
        desktop.json                the record
        control.sock                the keeper listens here
        guest/guest.sock            the guest dials here; this directory is all that it sees of the host
        keeper.log
    <state>/desktops/NAME.lock      held (flock) by the keeper for as long as it lives

A desktop whose lock is free has lost its keeper: it can be adopted by a new one, or reaped. Whoever looks for
one whose guest has ended, too, reaps it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from deskbox import backends, control
from deskbox.backends.base import SOCKET
from deskbox.errors import DeskboxError, InvalidInput, Refused
from deskbox_guest.protocol import EngineName

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
# The kernel's limit for a unix socket's path is 107 bytes.
_MAX_SOCKET_PATH = 107
STOP_TIMEOUT = 30.0

RecordState = Literal["starting", "running", "paused"]
State = RecordState | Literal["orphaned", "dead"]


class DesktopRecord(msgspec.Struct, kw_only=True):
    """What is written down about a desktop, enough to find its guest after a crash."""

    name: str
    backend: str
    size: tuple[int, int]
    url: str
    packages: tuple[str, ...] = ()  # of Debian, besides those that every guest has
    engine: EngineName = "xtest"
    image: str = ""
    snapshot: str = ""  # that it was started from
    created: float  # seconds since the epoch
    state: RecordState = "starting"
    timings_ms: dict[str, float] = {}
    guest_id: str = ""
    guest_facts: dict[str, str] = {}
    keeper_pid: int = 0


class DesktopInfo(msgspec.Struct):
    """A desktop as `deskbox ls` shows it.

    state: starting, running, paused; orphaned (its keeper died, its guest lives: attach adopts it);
    dead (its keeper died, and what ran its guest does not answer: when it does, `deskbox down` ends it).
    """

    name: str
    backend: str
    size: tuple[int, int]
    url: str
    packages: tuple[str, ...]
    engine: EngineName
    state: State
    timings_ms: dict[str, float]
    created: float
    guest_facts: dict[str, str]


class Home:
    """The directory of one desktop."""

    def __init__(self, name: str) -> None:
        check_name(name)
        self.name = name
        self.path = _desktops() / name
        self.record_file = self.path / "desktop.json"
        self.control_socket = self.path / "control.sock"
        self.guest_dir = self.path / "guest"
        self.log = self.path / "keeper.log"
        self._lock_file = self.path.with_name(f"{name}.lock")
        longest = self.guest_dir / SOCKET
        if len(os.fsencode(longest)) > _MAX_SOCKET_PATH:
            raise Refused(
                f"the path {longest} is longer than the {_MAX_SOCKET_PATH} bytes that a socket may "
                "have: set DESKBOX_STATE_DIR to a shorter directory"
            )

    def exists(self) -> bool:
        return self.path.is_dir()

    def create(self) -> None:
        self.guest_dir.mkdir(mode=0o700, parents=True)
        # The guest's user, not ours, passes through these; the directories above stay closed to others.
        self.guest_dir.chmod(0o755)
        self.path.chmod(0o700)

    def remove(self) -> None:
        """Remove the directory. The caller holds the lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self._lock_file.unlink()

    def read(self) -> DesktopRecord | None:
        """The record; None if there is none (its creator died at once)."""
        try:
            return msgspec.json.decode(self.record_file.read_bytes(), type=DesktopRecord)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def write(self, record: DesktopRecord) -> None:
        part = self.record_file.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(record))
        part.replace(self.record_file)

    def lock(self) -> int | None:
        """Take the keeper's lock; None if a keeper (or its maker) holds it. The caller closes it."""
        while True:
            fd = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            # The last holder may have removed the file between our open and our lock.
            try:
                if os.stat(self._lock_file).st_ino == os.fstat(fd).st_ino:
                    return fd
            except FileNotFoundError:
                pass
            os.close(fd)

    def unlock(self, lock: int) -> None:
        """Give the lock back; its file goes with the desktop."""
        if not self.exists():
            with contextlib.suppress(FileNotFoundError):
                self._lock_file.unlink()
        os.close(lock)


def check_name(name: str, what: str = "desktop") -> None:
    """Raises InvalidInput if it is no name of a desktop or snapshot."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{what} name {name!r} is not one: use 1 to 40 of a-z, 0-9, '_', '.', '-', "
            "the first a letter or digit"
        )


def state_dir() -> Path:
    """`DESKBOX_STATE_DIR`, or `deskbox` in `XDG_STATE_HOME` (default `~/.local/state`). Made if missing."""
    chosen = os.environ.get("DESKBOX_STATE_DIR")
    if chosen:
        path = Path(chosen).absolute()
    else:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        path = Path(base) / "deskbox"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise Refused(
            f"{path} must belong to you and be closed to others: run `chmod 700 {path}` as its owner"
        )
    return path


def state_id() -> str:
    """Tells guests of this state directory from those of another user or another directory."""
    return hashlib.sha256(os.fsencode(state_dir())).hexdigest()[:12]


def list_desktops() -> list[DesktopInfo]:
    """All desktops of this user, by name."""
    found = []
    for name in _names():
        home = Home(name)
        record = home.read()
        state = _state(home, record)
        if state is not None:
            found.append(_info(record or _unknown(name), state))
    return found


def find(name: str) -> DesktopInfo | None:
    home = Home(name)
    record = home.read()
    state = _state(home, record)
    return None if state is None else _info(record or _unknown(name), state)


def stop(name: str) -> bool:
    """End a desktop and remove all that belongs to it. False if there is none of that name."""
    home = Home(name)
    if not home.exists():
        return False
    with contextlib.suppress(DeskboxError), control.Control(home.control_socket) as keeper:
        keeper.request("stop", timeout=STOP_TIMEOUT)
    deadline = time.monotonic() + STOP_TIMEOUT
    while (lock := home.lock()) is None:
        if time.monotonic() > deadline:
            _kill_keeper(home)
        time.sleep(0.01)  # a lock can be polled, or waited for without a limit
    try:
        if home.exists():
            reap(home)
    finally:
        home.unlock(lock)
    return True


def stop_all() -> list[str]:
    """End all desktops of this user, and guests of ours that no desktop knows. Returns their names."""
    stopped = [name for name in _names() if stop(name)]
    for backend, guest, name in backends.guests(state_id()):
        backend.stop(guest)
        stopped.append(name)
    clear_locks()
    with contextlib.suppress(OSError):  # another process may be starting a desktop
        _desktops().rmdir()
    return stopped


def strays() -> list[tuple[backends.Backend, str, str]]:
    """Guests of this user that belong to no desktop, as after a power cut: backend, id, desktop's name."""
    return [stray for stray in backends.guests(state_id()) if not Home(stray[2]).exists()]


def clear_locks() -> None:
    """Remove the locks of starts that were killed before they made anything."""
    for lock_file in _desktops().glob("*.lock"):
        home = Home(lock_file.stem)
        if (lock := home.lock()) is not None:
            home.unlock(lock)


def reap(home: Home) -> None:
    """Clear away what a dead keeper left. The caller holds the lock."""
    record = home.read()
    if record is not None:
        backends.create(record.backend).stop_named(home.name, state_id())
    home.remove()


def _kill_keeper(home: Home) -> None:
    record = home.read()
    if record is not None and record.keeper_pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.keeper_pid, signal.SIGKILL)


def _state(home: Home, record: DesktopRecord | None) -> State | None:
    if not home.exists():
        return None
    lock = home.lock()
    if lock is None:
        return record.state if record else "starting"
    try:
        if not home.exists():  # it ended while we looked
            return None
        if record and record.guest_id and backends.create(record.backend).alive(record.guest_id):
            return "orphaned"
        reap(home)
        return None
    except DeskboxError:
        return "dead"
    finally:
        home.unlock(lock)


def _info(record: DesktopRecord, state: State) -> DesktopInfo:
    return DesktopInfo(
        name=record.name,
        backend=record.backend,
        size=record.size,
        url=record.url,
        packages=record.packages,
        engine=record.engine,
        state=state,
        timings_ms=record.timings_ms,
        created=record.created,
        guest_facts=record.guest_facts,
    )


def _unknown(name: str) -> DesktopRecord:
    return DesktopRecord(name=name, backend="unknown", size=(0, 0), url="", created=0)


def _desktops() -> Path:
    path = state_dir() / "desktops"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _names() -> Iterator[str]:
    for entry in sorted(_desktops().iterdir()):
        if entry.is_dir() and _NAME.fullmatch(entry.name):
            yield entry.name
