"""Frozen machines on the disk: whole and as they were written, or refused, with the reason."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from deskbox.backends.qemu import frozen
from deskbox.backends.qemu.backend import QemuBackend
from deskbox.backends.qemu.command import Machine, Ram
from deskbox.backends.qemu.frozen import Frozen, Kind, Origin, Record
from deskbox.errors import Refused


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "qemu"
    path.write_text("QEMU")
    return path


@pytest.fixture
def machine(tmp_path: Path, program: Path) -> Machine:
    return Machine(
        program=str(program),
        arch="x86_64",
        accelerator="tcg",
        system="linux",
        kernel=tmp_path / "vmlinux",
        initramfs=tmp_path / "cpio",
        disks=(tmp_path / "disk0", tmp_path / "disk1"),
        directory=tmp_path,
        owner="owner",
        name="one",
        ram=Ram(64, tmp_path / "memory"),
    )


@pytest.fixture
def directory(tmp_path: Path, machine: Machine) -> Path:
    """A frozen machine as `frozen.write` makes it, without a machine."""
    path = tmp_path / "frozen"
    path.mkdir()
    for name in (*frozen.BOOT_FILES, frozen.RAM, frozen.STATE):
        (path / name).write_text(name)
    origin = Origin.of(machine)
    record = Record(
        kind=origin.kind,
        arch=origin.arch,
        ram_mib=origin.ram_mib,
        ram_changed_ns=(path / frozen.RAM).stat().st_ctime_ns,
        state_bytes=len(frozen.STATE),
        created=0,
    )
    (path / frozen.RECORD).write_bytes(msgspec.json.encode(record))
    return path


def test_it_is_found_again(directory: Path, program: Path, tmp_path: Path) -> None:
    machine = Frozen(directory).machine(str(program), "tcg", tmp_path / "place")
    assert machine.incoming
    assert machine.ram == Ram(64, directory / frozen.RAM)
    assert machine.disks == (directory / "root", directory / "agent")
    assert machine.directory == tmp_path / "place"


@pytest.mark.parametrize("name", [frozen.RECORD, frozen.RAM, frozen.STATE])
def test_with_a_part_missing_it_is_none(directory: Path, name: str) -> None:
    (directory / name).unlink()
    with pytest.raises(Refused, match="holds no frozen machine that is whole"):
        Frozen(directory)


def test_a_state_of_another_size_is_refused(directory: Path) -> None:
    os.truncate(directory / frozen.STATE, 2)
    with pytest.raises(Refused, match="has been changed since it was made: delete it"):
        Frozen(directory)


def test_memory_that_was_written_to_is_refused_even_if_its_times_are_put_back(directory: Path) -> None:
    ram = directory / frozen.RAM
    status = ram.stat()
    with ram.open("r+b") as file:
        file.write(b"RAM")
    os.utime(ram, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(Refused, match="has been changed since it was made: delete it"):
        Frozen(directory)


def test_another_qemu_is_refused(directory: Path, program: Path, tmp_path: Path) -> None:
    program.write_text("another QEMU")
    with pytest.raises(Refused, match=r"its program was '.* of 4 bytes.*, and now is '.* of 12"):
        Frozen(directory).machine(str(program), "tcg", tmp_path)


def test_another_accelerator_is_refused(directory: Path, program: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="its accelerator was 'tcg', and now is 'kvm'"):
        Frozen(directory).machine(str(program), "kvm", tmp_path)


def test_what_differs_between_copies_makes_no_other_kind(machine: Machine, tmp_path: Path) -> None:
    copy = replace(machine, name="two", owner="x", directory=tmp_path / "d", kernel=Path("/k"), incoming=True)
    assert Kind.of(copy) == Kind.of(machine)
    assert Kind.of(replace(machine, cpus=1)) != Kind.of(machine)
    assert Kind.of(replace(machine, ram=Ram(128, Path("/r")))) != Kind.of(machine)


def test_a_template_that_was_discarded_is_gone_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESKBOX_CACHE_DIR", str(tmp_path))
    templates = [tmp_path / "templates" / name for name in ("one", "another")]
    for path in templates:
        path.mkdir(parents=True)
        (path / "ram").touch()
    for _ in range(2):
        QemuBackend().discard(str(templates[0]))
    assert [path.exists() for path in templates] == [False, True]
