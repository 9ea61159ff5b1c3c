"""Snapshots: what a desktop was at one moment, kept for others to be started from it.

<state>/snaps/NAME/           complete, or not there at all
    snapshot.json             the record
    home.tar                  of a backend that can't freeze programs: the home directory
    …                         of one that can: what it needs to let a copy of the machine go on
<state>/snaps/.part-…/        one that is being made or deleted; once its process has ended, leftovers
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from deskbox import calls, registry
from deskbox.backends.base import HOME_ARCHIVE, Contents
from deskbox.errors import Refused, Unavailable
from deskbox.processes import Process
from deskbox.rpc.async_channel import AsyncChannel
from deskbox_guest import protocol
from deskbox_guest.protocol import EngineName

_RECORD = "snapshot.json"
_PART = ".part-"
_SAVE_S = 300.0
# The locks of a Firefox that runs would keep the next one from starting.
_HOME = (
    "tar",
    "--create",
    "--exclude=./.config/mozilla/*/lock",
    "--exclude=./.config/mozilla/*/.parentlock",
    ".",
)


class Snapshot(msgspec.Struct):
    """A snapshot as `deskbox snaps` shows it.

    contents: "home", the files of the home directory; "machine", all that ran, too.
    """

    name: str
    desktop: str  # that it was made of
    backend: str
    contents: Contents
    size: tuple[int, int]  # of the screen, pixels
    url: str
    packages: tuple[str, ...]
    engine: EngineName
    created: float  # seconds since the epoch
    bytes: int = 0  # on disk

    @property
    def path(self) -> Path:
        return _directory() / self.name


def find(name: str) -> Snapshot:
    """The snapshot of that name. Raises InvalidInput, or Refused if there is none."""
    registry.check_name(name, "snapshot")
    try:
        return _read(_directory() / name)
    except (FileNotFoundError, msgspec.DecodeError):
        there = ", ".join(snapshot.name for snapshot in list_snapshots())
        others = f"there are: {there}" if there else "there is none at all"
        raise Refused(f"there is no snapshot {name!r}; {others}") from None


def list_snapshots() -> list[Snapshot]:
    """All snapshots of this user, by name."""
    found = []
    for path in sorted(_directory().glob("*")):
        if not path.name.startswith(_PART):
            with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
                found.append(_read(path))
    return found


def remove(name: str) -> None:
    """Delete a snapshot; desktops that were started from it go on. Raises Refused if there is none."""
    snapshot = find(name)
    part = _part()
    with contextlib.suppress(FileNotFoundError):  # another process was faster
        snapshot.path.rename(part)
    shutil.rmtree(part, ignore_errors=True)
    sweep()


def leftovers() -> list[Path]:
    """What processes that were killed have left half made."""
    parts = {
        path: path.name.removeprefix(_PART).rpartition("-")[0] for path in _directory().glob(f"{_PART}*")
    }
    return [path for path, owner in parts.items() if not Process.parse(owner).alive()]


def sweep() -> list[Path]:
    """Delete that; returns what it was."""
    left = leftovers()
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):  # there are snapshots
        _directory().rmdir()
    return left


@contextmanager
def writing(snapshot: Snapshot) -> Iterator[Path]:
    """A directory to write a snapshot to; when the block ends without an error, it is there, and whole.

    Raises Refused if there is one of that name already, or if the disk does not take it.
    """
    registry.check_name(snapshot.name, "snapshot")
    taken = Refused(
        f"there is a snapshot {snapshot.name!r} already: `deskbox rm-snap {snapshot.name}` deletes it"
    )
    if snapshot.path.exists():
        raise taken
    sweep()
    part = _part()
    _directory().mkdir(mode=0o700, exist_ok=True)
    part.mkdir(mode=0o700)
    try:
        yield part
        snapshot.bytes = sum(file.stat().st_blocks * 512 for file in part.iterdir())
        (part / _RECORD).write_bytes(msgspec.json.encode(snapshot))
        for file in part.iterdir():
            _sync(file)
        _sync(part)
        try:
            part.rename(snapshot.path)
        except OSError:
            if snapshot.path.exists():
                raise taken from None
            raise
        _sync(_directory())
    except OSError as error:
        raise Refused(f"the snapshot can't be written: {error.strerror}; nothing of it is left") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        sweep()


async def save_home(channel: AsyncChannel, into: Path) -> None:
    """Write the archive of a guest's home directory. Raises Unavailable, OSError."""
    with (into / HOME_ARCHIVE).open("wb") as file:
        problems = bytearray()

        def write(kind: int, data: bytes) -> None:
            if kind == protocol.EXEC_STDOUT:
                file.write(data)
            else:
                problems.extend(data)

        output = calls.ExecOutput(write, keep=False)
        head = calls.exec_head(_HOME, _SAVE_S, 2**40, "", {})
        stream = channel.open(protocol.EXEC, head)
        try:
            await stream.head(timeout=_SAVE_S)
            async for piece in stream.payload(timeout=_SAVE_S):
                if (result := output.feed(piece)) is not None:
                    # 1: a file has changed while it was read, as those of programs that run may.
                    if result.exit_code not in (0, 1):
                        said = problems.decode(errors="replace").strip().splitlines() or ["it said nothing"]
                        raise Unavailable(f"the home directory could not be read: {said[-1]}")
                    return
        except BaseException:
            stream.cancel()
            raise
    raise Unavailable("the guest broke off while its home directory was read")


def _read(path: Path) -> Snapshot:
    return msgspec.json.decode((path / _RECORD).read_bytes(), type=Snapshot)


def _part() -> Path:
    return _directory() / f"{_PART}{Process.of(os.getpid())}-{secrets.token_hex(4)}"


def _directory() -> Path:
    return registry.state_dir() / "snaps"


def _sync(path: Path) -> None:
    """To the disk: what has its final name after a power cut must be whole."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def of(record: registry.DesktopRecord, name: str, contents: Contents) -> Snapshot:
    """What a snapshot of that desktop, taken now, is to say of itself."""
    return Snapshot(
        name=name,
        desktop=record.name,
        backend=record.backend,
        contents=contents,
        size=record.size,
        url=record.url,
        packages=record.packages,
        engine=record.engine,
        created=time.time(),
    )
