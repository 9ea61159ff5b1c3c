"""Kernels, modules and initramfs archives, made of what a package holds."""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from deskbox import machine_image, machine_kernel
from deskbox.errors import DeskboxError
from deskbox.machine_kernel import Wanted

ELF = b"\x7fELF" + bytes(range(256)) * 40


def bzimage(payload: bytes, *, setup_sectors: int = 3, offset: int = 100) -> bytes:
    """As much of one as says where the kernel is."""
    setup = bytearray((setup_sectors + 1) * 512)
    setup[0x1F1] = setup_sectors
    setup[0x202:0x206] = b"HdrS"
    payload += struct.pack("<I", len(ELF))
    struct.pack_into("<II", setup, 0x248, offset, len(payload))
    return bytes(setup) + b"\xcc" * offset + payload + b"what follows"


def module_file(*needed: str) -> bytes:
    return ELF + b"\0license=GPL\0depends=" + ",".join(needed).encode() + b"\0name=x\0"


@pytest.mark.parametrize(
    "pack", [lzma.compress, gzip.compress, lambda data: data], ids=["xz", "gzip", "plain"]
)
def test_the_kernel_is_taken_out_of_its_file(pack) -> None:  # type: ignore[no-untyped-def]
    assert machine_kernel.kernel_image(bzimage(pack(ELF)), "x86_64") == ELF


def test_a_kernel_packed_with_zstd() -> None:
    packed = subprocess.run(["zstd", "-qc"], input=ELF, stdout=subprocess.PIPE, check=True).stdout
    assert machine_kernel.kernel_image(bzimage(packed), "x86_64") == ELF


def test_what_is_no_kernel_is_told() -> None:
    with pytest.raises(DeskboxError, match="no setup header"):
        machine_kernel.kernel_image(b"\0" * 4096, "x86_64")
    with pytest.raises(DeskboxError, match="something else than a kernel"):
        machine_kernel.kernel_image(bzimage(gzip.compress(b"MZ")), "x86_64")


def test_on_arm_the_kernel_is_unpacked_if_it_is_packed() -> None:
    assert machine_kernel.kernel_image(gzip.compress(b"image"), "aarch64") == b"image"
    assert machine_kernel.kernel_image(b"MZimage", "aarch64") == b"MZimage"


def test_modules_are_loaded_after_what_they_need_and_once() -> None:
    files = {
        "blk": module_file("virtio", "virtio_ring"),
        "console": module_file("virtio"),
        "virtio": module_file(),
        "virtio_ring": module_file("virtio"),
    }
    wanted = [Wanted("blk", False), Wanted("console", False), Wanted("fs", False), Wanted("gone", True)]
    assert machine_kernel.load_order(wanted, files, {"fs"}) == ["virtio", "virtio_ring", "blk", "console"]


def test_names_with_hyphens_are_one_name() -> None:
    assert machine_kernel.depends(module_file("virtio-ring", "b")) == ["virtio_ring", "b"]
    assert machine_kernel.depends(ELF) == []


def test_a_module_that_is_missing_is_named() -> None:
    with pytest.raises(DeskboxError, match="no module squashfs: look at"):
        machine_kernel.load_order([Wanted("squashfs", False)], {}, set())
    with pytest.raises(DeskboxError, match="no module virtio"):
        machine_kernel.load_order([Wanted("blk", False)], {"blk": module_file("virtio")}, set())


def test_another_program_reads_the_archive(tmp_path: Path) -> None:
    data = machine_kernel.cpio(
        {
            "bin": (stat.S_IFDIR | 0o755, b""),
            "bin/tool": (stat.S_IFREG | 0o755, b"#!/bin/sh\n"),
            "bin/sh": (stat.S_IFLNK | 0o777, b"tool"),
            "empty": (stat.S_IFREG | 0o644, b""),
        }
    )
    assert len(data) % 4 == 0
    done = subprocess.run(["cpio", "-id", "--quiet"], input=data, cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "bin/sh").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "bin/sh").is_symlink()
    assert (tmp_path / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "empty").read_bytes() == b""


def test_packages_become_a_kernel_and_an_initramfs(tmp_path: Path) -> None:
    names = [
        wanted.name
        for wanted in machine_kernel.modules_wanted(machine_image.recipe()["modules.txt"].decode())
    ]
    folder = "./usr/lib/modules/6.12.1-cloud-amd64"
    files = {
        "./boot/vmlinuz-6.12.1-cloud-amd64": bzimage(gzip.compress(ELF)),
        "./usr/bin/busybox": b"static",
        "./usr/share/doc/busybox": b"another file of that name",
        f"{folder}/modules.builtin": b"kernel/fs/squashfs/squashfs.ko\nkernel/drivers/virtio/virtio-pci.ko\n",
        f"{folder}/kernel/virtio.ko.xz": lzma.compress(module_file()),
    }
    for name in names:
        files[f"{folder}/kernel/{name}.ko.xz"] = lzma.compress(module_file("virtio"))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    made = machine_image.kernel_files(tmp_path / "a.tar", "x86_64")
    assert made["kernel"] == ELF
    (tmp_path / "out").mkdir()
    subprocess.run(["cpio", "-id", "--quiet"], input=made["initramfs"], cwd=tmp_path / "out", check=True)
    order = (tmp_path / "out/modules/order").read_text().split()
    assert order == ["virtio.ko", *(f"{name}.ko" for name in names if name not in ("squashfs", "virtio_pci"))]
    assert sorted(path.name for path in (tmp_path / "out/modules").iterdir()) == sorted([*order, "order"])
    assert (tmp_path / "out/bin/busybox").read_bytes() == b"static"
    assert (tmp_path / "out/init").stat().st_mode & 0o111


def test_packages_without_a_kernel_are_told(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    with pytest.raises(DeskboxError, match="hold no kernel"):
        machine_image.kernel_files(tmp_path / "a.tar", "x86_64")
