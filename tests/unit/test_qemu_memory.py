"""What a process has of its own of a file that it maps, with a process that is no machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskbox.backends.qemu import memory
from deskbox.errors import DeskboxError

PAGE = os.sysconf("SC_PAGE_SIZE")
PAGES = 4096
# Maps the file privately, as QEMU does, writes to some pages and reads others.
PROGRAM = """
import mmap, os, sys
page = os.sysconf("SC_PAGE_SIZE")
file = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE)
for number in (3, 4, 1000, 4095):
    memory[number * page : number * page + 5] = b"mine!"
memory[2000 * page : 2001 * page] = bytes(page)
read = [memory[number * page] for number in range(500, 600)]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ram"
    with path.open("wb") as file:
        file.truncate(PAGES * PAGE)
        for number in (1, 3, 500, 2000):
            file.seek(number * PAGE)
            file.write(b"file!")
    return path


@pytest.fixture
def process(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.stdin.close()
    process.stdout.close()
    process.wait()


def saved(process: subprocess.Popen[bytes], into: Path) -> int:
    with memory.ram_file(process.pid) as base, into.open("x+b", buffering=0) as target:
        memory.copy_sparse(base, target.fileno())
        return memory.copy_own_pages(process.pid, base, target.fileno())


def page(file: Path, number: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(number * PAGE)
        return opened.read(5)


def test_pages_written_to_are_saved_over_those_of_the_file(
    process: subprocess.Popen[bytes], file: Path, tmp_path: Path
) -> None:
    before = file.read_bytes()
    assert saved(process, tmp_path / "saved") == 5 * PAGE
    for number in (3, 4, 1000, 4095):
        assert page(tmp_path / "saved", number) == b"mine!"
    for number in (1, 500):
        assert page(tmp_path / "saved", number) == b"file!"
    assert page(tmp_path / "saved", 2000) == bytes(5)  # zeros over something are no hole
    assert (tmp_path / "saved").stat().st_size == PAGES * PAGE
    assert (tmp_path / "saved").stat().st_blocks * 512 <= 12 * PAGE
    assert file.read_bytes() == before


def test_a_file_that_was_deleted_is_still_found(
    process: subprocess.Popen[bytes], file: Path, tmp_path: Path
) -> None:
    assert memory.ram_name(process.pid) == str(file)
    file.unlink()
    saved(process, tmp_path / "saved")
    assert page(tmp_path / "saved", 1) == b"file!"
    assert page(tmp_path / "saved", 3) == b"mine!"
    assert memory.ram_name(process.pid) == f"{file} (deleted)"


def test_another_process_is_refused() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(DeskboxError, match="is no machine with its memory in a file, or has ended"):
            memory.ram_name(process.pid)
        process.kill()


def test_copies_keep_their_holes(file: Path, tmp_path: Path) -> None:
    with file.open("rb") as source, (tmp_path / "copy").open("x+b") as target:
        memory.copy_sparse(source.fileno(), target.fileno())
    assert (tmp_path / "copy").read_bytes() == file.read_bytes()
    assert (tmp_path / "copy").stat().st_blocks <= file.stat().st_blocks


def test_a_file_of_nothing_but_a_hole(tmp_path: Path) -> None:
    with (tmp_path / "empty").open("w+b") as source, (tmp_path / "copy").open("x+b") as target:
        source.truncate(1 << 20)
        memory.copy_sparse(source.fileno(), target.fileno())
    assert (tmp_path / "copy").stat().st_size == 1 << 20
    assert (tmp_path / "copy").stat().st_blocks == 0
