"""Read and write one file of the desktop, as the desktop's user, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from .protocol import Fault

_CHUNK = 256 * 1024
# Files in /proc and /sys say that they have 0 bytes. They are read ahead, to know better, up to this size.
_UNSIZED_LIMIT = 4 * 1024 * 1024


def open_for_read(path: str) -> tuple[BinaryIO, int, int]:
    """Open a regular file: (the file, its size in bytes, its permission bits). Symbolic links are followed.

    `path` is absolute or relative to the home directory; "~/" means the home directory too.
    Send it with `read_exactly`: a file may change while it is read. Raises Fault (refused).
    """
    full = _absolute(path)
    with _refusing(full, "read"):
        _require_regular(full, os.stat(full))
        # A fifo put there in the meantime must not hold us up.
        fd = os.open(full, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        file = os.fdopen(fd, "rb")
        try:
            facts = os.fstat(fd)
            _require_regular(full, facts)
            mode = stat.S_IMODE(facts.st_mode)
            if facts.st_size:
                return file, facts.st_size, mode
            content = file.read(_UNSIZED_LIMIT + 1)
        except BaseException:
            file.close()
            raise
        file.close()
        if len(content) > _UNSIZED_LIMIT:
            raise Fault(
                "refused", f"{full!r} does not tell its size and has more than {_UNSIZED_LIMIT} bytes."
            )
        return io.BytesIO(content), len(content), mode


def read_exactly(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes of `file` in pieces. Raises Fault (interrupted) if there are fewer."""
    left = size
    while left:
        data = file.read(min(_CHUNK, left))
        if not data:
            raise Fault(
                "interrupted",
                f"The file became shorter while it was read: {size - left} of {size} bytes. Read it again.",
            )
        left -= len(data)
        yield data


def put(path: str, size: int, mode: int, chunks: Iterable[bytes]) -> int:
    """Write a file of `size` bytes: it appears whole, in place of an older one, or nothing has changed.

    `path` is absolute or relative to the home directory, its directory exists; a symbolic link is followed,
    and the file that it leads to is replaced. `mode` are permission bits, 0 to 0o777.
    Returns the number of bytes written. Raises Fault (refused; for a directory with data
    {"is_directory": True}, for one that doesn't fit {"needed", "free"}), and whatever `chunks` raises.
    """
    if size < 0:
        raise Fault("refused", f"A file can't have {size} bytes.")
    if not 0 <= mode <= 0o777:
        raise Fault("refused", f"The mode {mode:#o} is not possible: give permission bits, 0 to 0o777.")
    asked = _absolute(path)
    if asked.endswith("/"):
        raise Fault("refused", f"{path!r} is a directory: name the file.", {"is_directory": True})
    with _refusing(asked, "write"):
        full = os.path.realpath(asked)
        with contextlib.suppress(FileNotFoundError):
            _require_regular(full, os.stat(full))
        parent = os.open(os.path.dirname(full), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _write(parent, full, size, mode, chunks)
        finally:
            os.close(parent)
    return size


def _write(parent: int, full: str, size: int, mode: int, chunks: Iterable[bytes]) -> None:
    room = os.fstatvfs(parent)
    free = room.f_bavail * room.f_frsize
    if size > free:
        raise Fault(
            "refused",
            f"{full!r} does not fit: {size} bytes are needed, {free} are free. Delete something there, "
            "or choose another place.",
            {"needed": size, "free": free},
        )
    part = f".deskbox-{secrets.token_hex(8)}.part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
    try:
        with os.fdopen(fd, "wb") as file:
            came = 0
            for data in chunks:
                came += len(data)
                if came > size:
                    break
                file.write(data)
            if came != size:
                raise Fault(
                    "refused",
                    f"{full!r} was announced with {size} bytes, but {'more' if came > size else came} came: "
                    "nothing was written.",
                )
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.replace(part, os.path.basename(full), src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(part, dir_fd=parent)
        raise
    os.fsync(parent)


def _absolute(path: str) -> str:
    if not path:
        raise Fault("refused", "The path is empty: give an absolute one, or one relative to the home.")
    if "\0" in path:
        raise Fault("refused", "A path may not contain a NUL character.")
    home = os.path.expanduser("~")
    return os.path.join(home, path.removeprefix("~/").lstrip("/") if path.startswith("~/") else path)


def _require_regular(full: str, facts: os.stat_result) -> None:
    if stat.S_ISDIR(facts.st_mode):
        raise Fault("refused", f"{full!r} is a directory: name one file.", {"is_directory": True})
    if not stat.S_ISREG(facts.st_mode):
        raise Fault("refused", f"{full!r} is not a regular file: devices, pipes and sockets are not copied.")


@contextlib.contextmanager
def _refusing(full: str, verb: str) -> Iterator[None]:
    """Turn the system's error numbers into sentences. In all these cases nothing has changed."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise  # of the stream that the bytes come from, not of the file
    except OSError as error:
        folder = os.path.dirname(full) or "/"
        sentences = {
            errno.ENOENT: f"There is no file {full!r} in the desktop."
            if verb == "read"
            else f"There is no directory {folder!r} in the desktop: create it first.",
            errno.ENOTDIR: f"A part of {full!r} is not a directory.",
            errno.EACCES: f"The desktop's user may not {verb} {full!r}.",
            errno.EPERM: f"The desktop's user may not {verb} {full!r}.",
            errno.EROFS: f"{full!r} is on a read-only file system: write below the home directory or /tmp.",
            errno.ENOSPC: f"The file system of {full!r} became full: nothing was written.",
            errno.EDQUOT: f"The quota for {full!r} is used up: nothing was written.",
            errno.ENAMETOOLONG: f"The path {full[:80]!r}… is too long.",
            errno.ELOOP: f"{full!r} goes round in symbolic links.",
        }
        sentence = sentences.get(error.errno or 0, f"The system would not {verb} {full!r}: {error.strerror}.")
        raise Fault("refused", sentence) from None
