"""Templates: a machine booted once for each size, engine and image, and frozen when its desktop is painted.

    <cache>/templates/HASH/         complete, or not there at all; see `frozen`
    <cache>/templates/partial-…/    one that is being made; whoever makes the next one deletes what is left

HASH is of everything that a template depends on, so that one which does not fit any more is never found.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from deskbox import processes
from deskbox.backends.base import ImageSpec, Progress
from deskbox.backends.qemu import command, frozen, memory, process
from deskbox.backends.qemu.command import Machine, Ram
from deskbox.backends.qemu.frozen import Frozen, Kind, Origin
from deskbox.cache import cache_dir
from deskbox.errors import DeskboxError, Refused
from deskbox.machine_image import MachineImage
from deskbox.processes import Process
from deskbox_guest import protocol

OWNER = "template"  # in the command line of a machine that is booted to be frozen

_SPACE_NEEDED = 1_500_000_000  # bytes: twice what a template takes
# Seconds that an emulated boot takes on a busy computer, and as much again.
_BOOT_TIMEOUT = 600.0
# A machine is at rest when its load is at most that during so many seconds. Else each machine that goes on
# from it would first finish what it had begun.
_REST_LOAD, _REST_S, _REST_MOST_S = 0.15, 1.0, 90.0


def ensure(
    image: MachineImage, accelerator: command.Accelerator, wanted: ImageSpec, progress: Progress
) -> Path:
    """The directory of the template for this image, size and engine; made if it is missing.

    Raises Refused if there is no room for it, DeskboxError if the machine does not boot.
    """
    machine = _machine(image, accelerator)
    target = _directory() / _name(machine, image, wanted)
    if _usable(target):
        return target
    with _locked(progress):
        if not _usable(target):
            _check_space()
            shutil.rmtree(target, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=_directory(), prefix="partial-") as directory:
                _make(machine, wanted, Path(directory), progress)
                (Path(directory) / "frozen").rename(target)
    return target


def discard(target: Path) -> None:
    """Delete one template. A machine that has come from it goes on."""
    with _locked(lambda _: None):
        shutil.rmtree(target, ignore_errors=True)


def prune(progress: Progress) -> None:
    """Delete the templates that nothing would be started from any more, and no machine of this user's was."""
    if not _directory().exists():
        return
    with _locked(progress):
        used = _used()
        for path in _directory().iterdir():
            if path.is_dir() and path.resolve() not in used and not _current(path):
                shutil.rmtree(path)
                progress(f"deleted {path}")


def _used() -> set[Path]:
    found = set()
    for running, _ in process.machines():
        with contextlib.suppress(DeskboxError):  # it was not started from files, or has just ended
            found.add(Path(memory.ram_name(running.pid)).parent)
    return found


def _current(path: Path) -> bool:
    """Whether it is whole, and of the QEMU and the image that are there now."""
    try:
        record = Frozen(path).record
        program = command.find_program(record.arch)
    except Refused:
        return False
    images_now = {file.stat().st_ino for file in cache_dir().glob("machine-*/*")}
    images_now |= {file.stat().st_ino for file in cache_dir().glob("machine-*")}
    same_files = all((path / name).stat().st_ino in images_now for name in frozen.BOOT_FILES)
    return same_files and record.kind.program == command.identity(Path(program))


def _machine(image: MachineImage, accelerator: command.Accelerator) -> Machine:
    return Machine(
        program=command.find_program(image.arch),
        arch=image.arch,
        accelerator=accelerator,
        system="linux",
        kernel=image.kernel,
        initramfs=image.initramfs,
        disks=image.disks,
        directory=Path(),
        owner=OWNER,
        name="",
        ram=Ram(file=Path()),
    )


def _name(machine: Machine, image: MachineImage, wanted: ImageSpec) -> str:
    kind = msgspec.json.encode(Kind.of(machine)).decode()
    text = f"{kind}\n{image.digest}\n{wanted.size}\n{wanted.engine}\n"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _usable(target: Path) -> bool:
    try:
        Frozen(target)
    except Refused:
        return False
    return True


def _make(machine: Machine, wanted: ImageSpec, directory: Path, progress: Progress) -> None:
    began = time.monotonic()
    progress(f"booting a machine of {'{}x{}'.format(*wanted.size)} once, to be frozen: up to a minute or two")
    place = directory / "machine"
    place.mkdir(mode=0o700)
    ram = directory / "ram"
    with ram.open("wb") as file:
        file.truncate(machine.ram.mib << 20)
        if os.geteuid() == 0:
            os.fchown(file.fileno(), 0, process.GROUP)
            os.fchmod(file.fileno(), 0o660)
    ram_of_its_own = Ram(machine.ram.mib, ram)
    machine = replace(machine, directory=place, name=directory.name, ram=ram_of_its_own)
    running = process.launch(machine, tied=True)
    try:
        _boot(running, wanted, progress)
        into = directory / "frozen"
        into.mkdir(mode=0o700)
        record = frozen.write(running, Origin.of(machine), into)
        took = time.monotonic() - began
        room = (into / frozen.RAM).stat().st_blocks * 512 + record.state_bytes
        progress(f"froze it ({room / 1e6:.0f} MB) after {took:.0f} s")
    finally:
        process.end(running)


def _boot(running: Process, wanted: ImageSpec, progress: Progress) -> None:
    """Bring the desktop up and wait until it is painted and at rest. Nobody is connected any more then."""
    environment = {"DESKBOX_SIZE": "{}x{}".format(*wanted.size), "DESKBOX_ENGINE": wanted.engine}
    control = process.control(running)
    try:
        control.ask("start", timeout=_BOOT_TIMEOUT, environment=environment)
    finally:
        control.close()
    channel = process.own_channel(running, _BOOT_TIMEOUT)
    try:
        progress("waiting for the desktop to be painted")
        ready = {"timeout_s": _BOOT_TIMEOUT}
        channel.call(protocol.READY, ready, timeout=_BOOT_TIMEOUT + 5)
    finally:
        channel.close()
    deadline = time.monotonic() + _REST_MOST_S
    while _load(running, _REST_S) > _REST_LOAD and time.monotonic() < deadline:
        pass  # if it goes on working for ever, it is usable all the same


def _load(running: Process, seconds: float) -> float:
    """The processors it would keep busy during that time, if it had them for itself: 1 is one."""
    began, before = time.monotonic(), _processor_seconds(running)
    time.sleep(seconds)
    took, now = time.monotonic() - began, _processor_seconds(running)
    return sum(spent - before.get(thread, 0.0) for thread, spent in now.items()) / took


def _processor_seconds(running: Process) -> dict[str, float]:
    """How long each of its threads has run or stood in line for a processor: the scheduler's statistics."""
    seconds = {}
    for thread in Path(f"/proc/{running.pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            ran, waited, _ = thread.read_text().split()
            seconds[thread.parent.name] = (int(ran) + int(waited)) / 1e9
    if not seconds:
        raise DeskboxError("the machine ended before it could be frozen")
    return seconds


def _check_space() -> None:
    free = shutil.disk_usage(_directory()).free
    if free < _SPACE_NEEDED:
        raise Refused(
            f"a machine can't be frozen for the next ones: {_directory()} has {free / 1e9:.1f} GB free and "
            f"{_SPACE_NEEDED / 1e9:.1f} GB are needed; free some or set DESKBOX_CACHE_DIR to another disk"
        )


def _directory() -> Path:
    return cache_dir() / "templates"


@contextmanager
def _locked(progress: Progress) -> Iterator[None]:
    """One builder at a time. What one that was killed left behind is ended and deleted by the next one."""
    _directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    with (_directory() / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is freezing a machine; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        for path in _directory().glob("partial-*"):
            for running in processes.running(command.marker(OWNER, path.name).encode()):
                process.end(running)
            shutil.rmtree(path, ignore_errors=True)
        yield
