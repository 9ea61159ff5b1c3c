"""A machine's RAM: what of it the process has written to, and how that becomes a file.

A machine maps its RAM from a file, privately: pages that it writes to become its own, all others are those
of the file, which any number of machines share. To save a machine is to copy the file and write over the
copy those pages that the process has of its own. How Linux tells which these are:
Documentation/admin-guide/mm/pagemap.rst.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deskbox.errors import DeskboxError, Refused

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY = 8  # bytes that pagemap has for each page
_CHUNK = 256 * 1024  # bytes read at once
_ZEROS = bytes(_CHUNK)

# The highest byte of an entry: bit 63 says present, 62 swapped out, 61 a page of a file or shared. A page
# is the process's own if one of the first two is set and the last one is not.
_OWN = bytes(bool(byte & 0xC0) and not byte & 0x20 for byte in range(256))
_RUN = re.compile(rb"\x01+")


@dataclass(frozen=True)
class Mapping:
    """A part of a process's memory that comes from the file."""

    start: int  # address
    size: int  # bytes
    offset: int  # in the file


@contextmanager
def ram_file(pid: int) -> Iterator[int]:
    """Open the file that the process has its memory from; it may have been deleted meanwhile.

    Raises DeskboxError if there is none.
    """
    file = os.open(_ram(pid), os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def ram_name(pid: int) -> str:
    """The path of that file; with " (deleted)" behind it, if that is so. Raises DeskboxError."""
    return os.readlink(_ram(pid))


def _ram(pid: int) -> Path:
    """Among the files that a machine has open, it is the one that is mapped from its beginning to its end."""
    mapped: dict[str, int] = {}
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, _, _, _, _, *path = line.split(None, 5)
            if path:
                start, end = (int(text, 16) for text in addresses.split("-"))
                mapped[path[0]] = mapped.get(path[0], 0) + end - start
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            status = entry.stat()
            if stat.S_ISREG(status.st_mode) and mapped.get(os.readlink(entry)) == status.st_size:
                return entry
    except (FileNotFoundError, ProcessLookupError):
        pass
    raise DeskboxError(f"process {pid} is no machine with its memory in a file, or has ended")


def mappings(pid: int, file: int) -> list[Mapping]:
    """Where the process has mapped that open file."""
    # By its name, as the kernel gives it: on some file systems it has a number here and another one there.
    name = os.readlink(f"/proc/self/fd/{file}")
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, _, offset, _, _, *path = line.split(None, 5)
        if path == [name]:
            start, end = (int(text, 16) for text in addresses.split("-"))
            found.append(Mapping(start, end - start, int(offset, 16)))
    return found


def own_pages(pid: int, mapping: Mapping) -> Iterator[tuple[int, int]]:
    """Address and size in bytes of each stretch of pages that the process has of its own."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        data = os.pread(file.fileno(), mapping.size // _PAGE * _ENTRY, mapping.start // _PAGE * _ENTRY)
    for run in _RUN.finditer(data[_ENTRY - 1 :: _ENTRY].translate(_OWN)):
        yield mapping.start + run.start() * _PAGE, (run.end() - run.start()) * _PAGE


def copy_own_pages(pid: int, file: int, into: int) -> int:
    """Write the pages that the process has of its own over `into`; return their bytes. Both files are open.

    The process must be at rest. Pages of zeros that are a hole in `into` stay one.
    Raises Refused if the system does not let us read the process, OSError if the disk is full.
    """
    found = mappings(pid, file)
    if not found:
        raise DeskboxError(f"process {pid} does not have that file as its memory")
    total = 0
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for mapping in found:
                for address, size in own_pages(pid, mapping):
                    _copy(memory.fileno(), address, size, into, address - mapping.start + mapping.offset)
                    total += size
    except PermissionError as error:
        raise Refused(
            "the machine can't be saved: this system lets a process be read only by the one that started it "
            "(kernel.yama.ptrace_scope), and that one has ended; save it as root, or start the desktop anew"
        ) from error
    return total


def copy_sparse(source: int, target: int) -> None:
    """Copy an open file into an empty one, with its holes. Raises OSError."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        at = os.lseek(source, start, os.SEEK_HOLE)
        while start < at:
            copied = os.copy_file_range(source, target, at - start, start, start)
            if not copied:
                raise OSError(errno.EIO, "the file ended while it was copied")
            start += copied


def _copy(memory: int, address: int, size: int, into: int, offset: int) -> None:
    end = address + size
    while address < end:
        data = os.pread(memory, min(_CHUNK, end - address), address)
        if not data:
            raise OSError(errno.EIO, "the machine's memory ended while it was read")
        # A page of zeros over a hole would take room on the disk.
        if data != _ZEROS[: len(data)] or not _is_hole(into, offset, len(data)):
            _write(into, data, offset)
        address += len(data)
        offset += len(data)


def _is_hole(file: int, offset: int, size: int) -> bool:
    try:
        return os.lseek(file, offset, os.SEEK_DATA) >= offset + size
    except OSError:
        return True


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
