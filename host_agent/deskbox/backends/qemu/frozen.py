"""A machine that was frozen while it ran: files from which any number of machines go on at once.

ram             its memory; machines map it privately, so that they share what they don't change
state           of its processor and devices, as QEMU's `xen-save-devices-state` writes it, Xen or not
root, agent, kernel, initramfs
                what it was booted from: the same files as in the cache, under a second name
machine.json    what it is; the rest is worth nothing with another QEMU, processor or devices
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from deskbox.backends.qemu import command, memory, process
from deskbox.backends.qemu.command import Machine, Ram
from deskbox.errors import DeskboxError, Refused
from deskbox.processes import Process
from deskbox_guest import limits, protocol

RECORD, RAM, STATE = "machine.json", "ram", "state"
BOOT_FILES = ("kernel", "initramfs", "root", "agent")
# Seconds for what takes a fraction of one when the computer is not busy.
_LOAD_TIMEOUT, _WAKE_TIMEOUT = 30.0, 30.0


class Kind(msgspec.Struct, frozen=True):
    """What a machine must be to go on from a frozen one."""

    program: str  # QEMU and its version
    accelerator: command.Accelerator
    processor: str  # of this computer, if the machine has the same; else ""
    devices: str  # digest of all that the command line says about the machine

    @classmethod
    def of(cls, machine: Machine) -> Kind:
        neutral = replace(
            machine,
            program="",
            kernel=Path("kernel"),
            initramfs=Path("initramfs"),
            disks=tuple(Path(str(number)) for number, _ in enumerate(machine.disks)),
            directory=Path("."),
            owner="",
            name="",
            ram=replace(machine.ram, file=Path("ram")),
            incoming=False,
        )
        words = json.dumps(command.command(neutral))
        return cls(
            program=command.identity(Path(machine.program)),
            accelerator=machine.accelerator,
            processor="" if machine.accelerator == "tcg" else _processor(),
            devices=hashlib.sha256(words.encode()).hexdigest(),
        )


class Record(msgspec.Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    kind: Kind
    arch: command.Architecture
    ram_mib: int
    ram_changed_ns: int  # the file's time of change: nobody can set it to what they like
    state_bytes: int
    created: float  # seconds since the epoch


@dataclass(frozen=True)
class Origin:
    """What a machine was made of."""

    kind: Kind
    arch: command.Architecture
    ram_mib: int
    boot_files: tuple[Path, ...]

    @classmethod
    def of(cls, machine: Machine) -> Origin:
        files = (machine.kernel, machine.initramfs, *machine.disks)
        return cls(Kind.of(machine), machine.arch, machine.ram.mib, files)


def write(running: Process, origin: Origin, into: Path) -> Record:
    """Freeze a machine for as long as that takes, and write its files to the directory `into`.

    Whether it is complete shows in `machine.json`, which comes last.
    Raises OSError if the disk is full, Refused if we may not read the process, Unavailable if it has ended.
    """
    for name, path in zip(BOOT_FILES, origin.boot_files, strict=True):
        _second_name(path, into / name)
    with (
        memory.ram_file(running.pid) as base,
        open(into / RAM, "x+b", buffering=0) as ram,
        open(into / STATE, "xb", buffering=0) as state,
    ):
        memory.copy_sparse(base, ram.fileno())
        _freeze(running, base, ram.fileno(), state.fileno())
        for file in (ram, state):
            os.fsync(file.fileno())
        state_bytes = os.fstat(state.fileno()).st_size
        if os.geteuid() == 0:
            # QEMU opens it for writing, though it never does that.
            os.fchown(ram.fileno(), 0, process.GROUP)
            os.fchmod(ram.fileno(), 0o660)
        changed = os.fstat(ram.fileno()).st_ctime_ns
    record = Record(
        kind=origin.kind,
        arch=origin.arch,
        ram_mib=origin.ram_mib,
        ram_changed_ns=changed,
        state_bytes=state_bytes,
        created=time.time(),
    )
    (into / RECORD).write_bytes(msgspec.json.encode(record))
    return record


def _freeze(running: Process, base: int, ram: int, state: int) -> None:
    with process.commands(running) as qmp:
        went = bool(qmp.execute("query-status")["running"])
        qmp.execute("stop")
        try:
            memory.copy_own_pages(running.pid, base, ram)
            number = qmp.execute("add-fd", fd=state)["fdset-id"]
            try:
                file = f"/dev/fdset/{number}"
                qmp.execute("xen-save-devices-state", filename=file, live=False, timeout=_LOAD_TIMEOUT)
            finally:
                qmp.execute("remove-fd", fdset_id=number)
        finally:
            if went:
                qmp.execute("cont")


class Frozen:
    """The files of a frozen machine."""

    def __init__(self, directory: Path) -> None:
        """Raises Refused if they are not there, not whole, or not as they were written."""
        self.path = directory
        try:
            self.record = msgspec.json.decode((directory / RECORD).read_bytes(), type=Record)
            ram, state = (directory / RAM).stat(), (directory / STATE).stat()
        except (OSError, msgspec.DecodeError) as error:
            raise Refused(f"{directory} holds no frozen machine that is whole: {error}") from error
        if ram.st_ctime_ns != self.record.ram_changed_ns or state.st_size != self.record.state_bytes:
            raise Refused(f"the frozen machine in {directory} has been changed since it was made: delete it")

    @classmethod
    def source(cls, running: Process) -> Frozen:
        """The one that a running machine has come from. Raises Refused if it has been deleted."""
        ram = Path(memory.ram_name(running.pid))
        if ram.name != RAM:
            raise Refused(f"what the machine was started from has been deleted: {ram}")
        return cls(ram.parent)

    @property
    def origin(self) -> Origin:
        files = tuple(self.path / name for name in BOOT_FILES)
        return Origin(self.record.kind, self.record.arch, self.record.ram_mib, files)

    def machine(self, program: str, accelerator: command.Accelerator, directory: Path) -> Machine:
        """The machine that goes on from it, in a directory of its own. Raises Refused if none can here."""
        kernel, initramfs, *disks = (self.path / name for name in BOOT_FILES)
        machine = Machine(
            program=program,
            arch=self.record.arch,
            accelerator=accelerator,
            system="linux",
            kernel=kernel,
            initramfs=initramfs,
            disks=tuple(disks),
            directory=directory,
            owner="",
            name="",
            ram=Ram(self.record.ram_mib, self.path / RAM),
            incoming=True,
        )
        kind = Kind.of(machine)
        if kind != self.record.kind:
            then, now = msgspec.structs.asdict(self.record.kind), msgspec.structs.asdict(kind)
            what = next(name for name in now if then[name] != now[name])
            raise Refused(
                f"the machine in {self.path} can't go on here: its {what} was {then[what]!r}, "
                f"and now is {now[what]!r}"
            )
        return machine

    def load(self, running: Process) -> None:
        """Give the process, which waits for it, the state. It does not run yet. Raises DeskboxError."""
        with process.commands(running) as qmp, open(self.path / STATE, "rb") as state:
            qmp.execute("migrate-set-capabilities", capabilities=[{"capability": "events", "state": True}])
            qmp.execute("getfd", fd=state.fileno(), fdname="state")
            qmp.execute("migrate-incoming", uri="fd:state")
            ended = qmp.wait_for(
                "MIGRATION",
                lambda data: data["status"] in ("completed", "failed"),
                timeout=_LOAD_TIMEOUT,
            )
            if ended["data"]["status"] == "failed":
                raise DeskboxError(f"QEMU could not take over the state of the machine in {self.path}")


def wake(running: Process, *, url: str) -> None:
    """Let a machine that was loaded go on, as one of its own: with its time, random numbers and identity.

    Its first page is `url`, or the one that it shows already if that is "". Raises DeskboxError.
    """
    control = process.control(running)
    machine_id = secrets.token_hex(16)
    try:
        question = control.send(
            "wake",
            time_ns=time.time_ns(),
            seed=secrets.token_hex(64),
            hostname=f"{limits.HOSTNAME}-{machine_id[:8]}",
            machine_id=machine_id,
        )
        with process.commands(running) as qmp:
            qmp.execute("cont")
        control.answer(question, "wake", timeout=_WAKE_TIMEOUT)
    finally:
        control.close()
    channel = process.own_channel(running, _WAKE_TIMEOUT)
    try:
        channel.call(protocol.WAKE, {"url": url}, timeout=_WAKE_TIMEOUT)
    finally:
        channel.close()


def _second_name(path: Path, name: Path) -> None:
    try:
        os.link(path.resolve(), name)
    except OSError:  # on another disk
        shutil.copyfile(path, name)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"
