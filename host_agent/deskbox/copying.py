"""`deskbox cp`: one file into a desktop or out of it.

The guest is not trusted: it delivers the bytes of a file and nothing else. Where they go on the host, under
which name and with which mode, is decided here, from what the user asked for.
"""

from __future__ import annotations

import os
import posixpath
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .errors import InvalidInput, Refused

_GUEST_SPEC = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)?:(.*)", re.DOTALL)
_USAGE = "give NAME:/path on exactly one side, such as `notes.txt default:/tmp/` or `default:notes.txt .`"


class Files(Protocol):
    """What copying needs of a desktop."""

    def read_file(self, path: str) -> bytes: ...
    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None: ...


@dataclass(frozen=True)
class CopyIn:
    name: str
    source: Path
    destination: str


@dataclass(frozen=True)
class CopyOut:
    name: str
    source: str
    destination: str  # as given: a "/" at its end asks for a directory


def parse(source: str, destination: str) -> CopyIn | CopyOut:
    """Read the two sides of a copy, of which one is in a desktop. Raises InvalidInput.

    `NAME:PATH` is a file in the desktop NAME (`:PATH` in `default`), its path absolute or relative to the
    guest's home. Anything else is a path on this machine; one with a colon is written `./a:b`.
    """
    if not source or not destination:
        raise InvalidInput(f"One side of the copy is empty: {_USAGE}.")
    inside_source, inside_destination = _GUEST_SPEC.fullmatch(source), _GUEST_SPEC.fullmatch(destination)
    if inside_source and inside_destination:
        raise InvalidInput(f"Both sides of the copy are in a desktop: {_USAGE}.")
    if inside_source:
        name, path = inside_source.groups()
        if posixpath.basename(path) in ("", ".", ".."):
            raise InvalidInput(f"{source!r} is not a file: name the file to copy, such as default:notes.txt.")
        return CopyOut(name or "default", path, destination)
    if inside_destination:
        name, path = inside_destination.groups()
        return CopyIn(name or "default", Path(source), path)
    raise InvalidInput(f"Neither side of the copy is in a desktop: {_USAGE}.")


def copy_in(desktop: Files, source: Path, destination: str) -> int:
    """Copy a file of this machine into the guest, with its permission bits; return its size in bytes.

    A destination that is a directory, ends in "/" or is empty (the home) receives the file under its name.
    """
    try:
        facts = source.stat()
        if stat.S_ISDIR(facts.st_mode):
            raise Refused(f"{str(source)!r} is a directory: copy one file at a time.")
        if not stat.S_ISREG(facts.st_mode):
            raise Refused(f"{str(source)!r} is not a regular file.")
        data = source.read_bytes()
    except FileNotFoundError:
        raise Refused(f"There is no file {str(source)!r} on this machine.") from None
    except OSError as error:
        raise Refused(f"{str(source)!r} could not be read: {error.strerror}.") from None
    mode = stat.S_IMODE(facts.st_mode) & 0o777
    inside = posixpath.join(destination, source.resolve().name if source.name in ("", "..") else source.name)
    if destination == "" or destination.endswith("/"):
        desktop.write_file(inside, data, mode=mode)
        return len(data)
    try:
        desktop.write_file(destination, data, mode=mode)
    except Refused as refused:
        # Refused means that nothing has happened, so trying again can't repeat anything.
        if not refused.data.get("is_directory"):
            raise
        desktop.write_file(inside, data, mode=mode)
    return len(data)


def copy_out(desktop: Files, source: str, destination: Path | str) -> Path:
    """Copy a file of the guest to this machine; return the path that was written.

    A destination that is a directory receives the file under the last part of `source`, as it was asked for.
    The file appears whole or not at all, with this user's default mode. A symbolic link at the destination
    is refused: replacing it and following it would both surprise someone.
    """
    target = Path(destination)
    if target.is_dir() or str(destination).endswith("/"):
        target /= posixpath.basename(source)
    try:
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(f"{str(target.parent)!r} is no directory to write to: {error.strerror}.") from None
    try:
        _require_replaceable(target, folder)
        data = desktop.read_file(source)
        _write(target, folder, data)
    finally:
        os.close(folder)
    return target


def _require_replaceable(target: Path, folder: int) -> None:
    try:
        mode = os.stat(target.name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise Refused(f"{str(target)!r} is a symbolic link: name the file it leads to, or remove the link.")
    if not stat.S_ISREG(mode):
        raise Refused(f"{str(target)!r} is not a regular file: choose another destination.")


def _write(target: Path, folder: int, data: bytes) -> None:
    part = f".deskbox-{secrets.token_hex(8)}.part"
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            # The name is looked up in the directory that was opened, whatever its path leads to by now.
            os.replace(part, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(part, dir_fd=folder)
            raise
        os.fsync(folder)
    except OSError as error:
        raise Refused(f"Nothing was written to {str(target)!r}: {error.strerror}.") from None
