"""From a Debian kernel package to what QEMU loads: the kernel itself, and an initramfs. Pure, but for zstd.

The kernel is taken out of its self-extracting file, because an emulated processor would unpack it for
seconds at each boot. The initramfs is not compressed at all, for the same reason: it is small.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deskbox.errors import DeskboxError, Refused

_SETUP_MAGIC = b"HdrS"
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


@dataclass(frozen=True)
class Wanted:
    """A kernel module to load, from `vm/modules.txt`."""

    name: str
    optional: bool


def modules_wanted(text: str) -> list[Wanted]:
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    return [Wanted(words[0], "optional" in words[1:]) for words in lines if words]


def kernel_image(packed: bytes, arch: str) -> bytes:
    """What QEMU boots fastest. Raises DeskboxError if `packed` is no kernel that we know how to unpack."""
    if arch == "x86_64":
        return _vmlinux(packed)
    return gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed


def _vmlinux(bzimage: bytes) -> bytes:
    """The ELF file inside a bzImage: the kernel's documents, x86/boot, fields of protocol 2.08."""
    if bzimage[0x202:0x206] != _SETUP_MAGIC:
        raise DeskboxError("The kernel package holds no kernel for x86: its file has no setup header.")
    setup_sectors = bzimage[0x1F1] or 4
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    # At its end is the unpacked size, which is no part of the compressed stream.
    kernel = unpack(bzimage[start : start + length - 4])
    if not kernel.startswith(b"\x7fELF"):
        raise DeskboxError("The kernel package's file holds something else than a kernel.")
    return kernel


def unpack(data: bytes) -> bytes:
    """Decompress by what the data begins with. Raises Refused if the program for it is missing."""
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"\xfd7zXZ\0"):
        return lzma.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        if shutil.which("zstd") is None:
            raise Refused("The machine's kernel can't be unpacked: run `apt-get install zstd`, then repeat.")
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


def load_order(wanted: Sequence[Wanted], files: Mapping[str, bytes], builtin: set[str]) -> list[str]:
    """The modules to load one after the other, each after those that it needs.

    `files` are the kernel's modules, unpacked, by name. Raises DeskboxError if one is not there.
    """
    order: list[str] = []

    def add(name: str) -> None:
        if name in order or name in builtin:
            return
        if name not in files:
            raise DeskboxError(f"The machine's kernel has no module {name}: look at vm/modules.txt.")
        for needed in depends(files[name]):
            add(needed)
        order.append(name)

    for module in wanted:
        if not (module.optional and module.name not in files):
            add(module.name)
    return order


def depends(module: bytes) -> list[str]:
    """The modules that a module (an ELF file) says it needs."""
    found = _DEPENDS.search(module)
    return [name.replace("-", "_") for name in found[1].decode().split(",") if name] if found else []


def cpio(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """An archive for the kernel ("newc", see the kernel's document on the initramfs buffer format).

    `files` are modes (with the file's type) and contents by path; everything is root's and has no date.
    """
    parts = []
    entries = [*sorted(files.items()), ("TRAILER!!!", (0, b""))]
    for number, (path, (mode, data)) in enumerate(entries, 1):
        name = path.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name's size, checksum
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % value for value in fields)
        parts += [_padded(header + name), _padded(data)]
    return b"".join(parts)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
