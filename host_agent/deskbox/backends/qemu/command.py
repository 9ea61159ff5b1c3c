"""The QEMU command line of a machine, and the reason for every word in it. Pure: starts nothing.

A machine is one process: RAM, processors, two read-only disks, a clock and ten ports. It has no network
card, no graphics card, no USB, no sound and no writable disk, so that little of QEMU is within its reach. The
screen is in the guest's memory (Xvfb), and comes out as pictures through a port.

Options are those of QEMU 7.2 (Debian 12) and later; see qemu(1) and "QEMU QMP Reference Manual".
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from deskbox.errors import InvalidInput, Refused
from deskbox_guest import limits, ports

Accelerator = Literal["kvm", "hvf", "tcg"]
Architecture = Literal["x86_64", "aarch64"]
System = Literal["linux", "darwin"]  # what the host runs, as sys.platform says

# A monitor has one client at a time, and whoever waits for events keeps it: one for commands, one for the
# ports' openings and closings, one for the machine's end.
Monitor = Literal["commands", "ports", "end"]

MONITORS: tuple[Monitor, ...] = get_args(Monitor)
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)
MARKER = "deskbox:"  # see `marker`
CONSOLE_BYTES = 64 * 1024  # of the machine's console that QEMU keeps in memory: a power of two
# Translated code that TCG keeps. A booted desktop with Firefox fills 200 MB; with less it translates again.
_TCG_CACHE_MIB = 512

_PACKAGES: dict[Architecture, str] = {"x86_64": "qemu-system-x86", "aarch64": "qemu-system-arm"}
# What machines call themselves -> what we and QEMU call it.
_NAMES: dict[str, Architecture] = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
}


@dataclass(frozen=True)
class Ram:
    """A machine's memory, as it is when the machine starts: what the machine changes is its own.

    The file must have that size.
    """

    mib: int = limits.MEMORY >> 20
    file: Path | None = None  # None: zeros


@dataclass(frozen=True)
class Machine:
    program: str  # the path of QEMU: see `find_program`
    arch: Architecture
    accelerator: Accelerator
    system: System
    kernel: Path
    initramfs: Path
    disks: tuple[Path, ...]  # read-only; in this order /dev/vda, /dev/vdb
    directory: Path  # where its sockets are made; nobody else may enter it
    owner: str
    name: str
    ram: Ram = field(default_factory=Ram)
    cpus: int = 2
    incoming: bool = False  # wait for the state of another machine instead of booting
    # Where the console goes. "memory": QEMU keeps the end of it, and stays when the machine has ended, so
    # that `ringbuf-read` can get it. "output": QEMU's standard output, and QEMU ends with the machine.
    console: Literal["memory", "output"] = "memory"
    kernel_words: tuple[str, ...] = ()  # more of them for the kernel's command line


def architecture(name: str) -> Architecture:
    """Raises InvalidInput if no machine of that architecture can be made."""
    try:
        return _NAMES[name.lower()]
    except KeyError:
        raise InvalidInput(
            f"a machine's architecture can't be {name!r}: it is {' or '.join(ARCHITECTURES)}"
        ) from None


def find_program(arch: Architecture) -> str:
    """The path of the QEMU for this architecture. Raises Refused."""
    name = f"qemu-system-{arch}"
    found = shutil.which(name)
    if found is None:
        raise Refused(
            f"A machine can't be started because {name} is not installed: run "
            f"`apt-get install {_PACKAGES[arch]}`, or `brew install qemu` on a Mac."
        )
    return found


def identity(program: Path) -> str:
    """Its path, size and time of change stand for its version: to ask for that takes 30 ms each time."""
    status = program.resolve().stat()
    return f"{program} of {status.st_size} bytes, changed {status.st_mtime_ns}"


def marker(owner: str, name: str = "") -> str:
    """What a machine's process has as a word of its command line; without `name`, what that begins with."""
    return f"{MARKER}{owner}:{name}"


def monitor_sockets(directory: Path) -> dict[Monitor, Path]:
    return {name: directory / f"{name}.qmp" for name in MONITORS}


def control_socket(directory: Path) -> Path:
    return directory / "control.sock"


def port_sockets(directory: Path) -> list[Path]:
    """Of the RPC ports, in the order of `ports.RPC`. The last one is not for clients: see `ports`."""
    return [directory / f"port{number}.sock" for number in range(len(ports.RPC))]


def command(machine: Machine) -> list[str]:
    """The whole command line. Two machines of which one continues the other differ only in paths, in `ram`,
    `incoming` and the name: the devices are the same, in the same order.
    """
    return [
        machine.program,
        # How `deskbox` finds its machines among all processes, with or without a record of them.
        *("-name", marker(machine.owner, machine.name)),
        # Nothing that is not asked for here: no network, no display, no floppy, no configuration files.
        *("-nodefaults", "-no-user-config", "-display", "none"),
        *_sandbox(machine),
        *_board(machine),
        *_memory(machine),
        *("-smp", str(machine.cpus)),
        # Straight into the kernel: no firmware's boot menu, no boot loader.
        *("-kernel", str(machine.kernel), "-initrd", str(machine.initramfs)),
        *("-append", " ".join(kernel_words(machine))),
        *_disks(machine),
        # Random numbers for the kernel's first moments, from the host's getrandom(2).
        *("-object", "rng-builtin,id=random", "-device", "virtio-rng-pci,rng=random"),
        *_generation(machine),
        *_ports(machine),
        *_console(machine),
        *_monitors(machine),
        *_state(machine),
    ]


def kernel_words(machine: Machine) -> list[str]:
    words = [
        f"console={_SERIAL[machine.arch]}",
        "quiet",  # each line costs the serial port's time; errors are shown all the same
        "panic=-1",  # after a panic restart at once, which ends the machine: see -action
        "random.trust_cpu=on",  # where the processor has random numbers, begin with them
    ]
    if machine.arch == "x86_64":
        words += [
            "no_timer_check",  # an emulated timer on a busy host may fail the kernel's test of it
            "8250.nr_uarts=1",  # do not look for serial ports that are not there
        ]
    if machine.accelerator == "tcg":
        # Against processors that speculate; an emulated one does not, and pays for them in each call.
        words.append("mitigations=off")
    return [*words, *machine.kernel_words]


_SERIAL: dict[Architecture, str] = {"x86_64": "ttyS0", "aarch64": "ttyAMA0"}


# On ARM: KVM can offer only the version that the host has, and HVF took long to learn the third.
_INTERRUPT_CONTROLLERS: dict[Accelerator, str] = {"kvm": "host", "hvf": "2", "tcg": "3"}


def _sandbox(machine: Machine) -> list[str]:
    """On Linux, QEMU gives up the system calls that it has no use for (seccomp): those that are obsolete,
    those that raise privileges, fork or exec, and those that change its own scheduling.
    """
    if machine.system != "linux":
        return []
    return ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]


def _board(machine: Machine) -> list[str]:
    """The board, what runs its instructions, and the processor."""
    if machine.arch == "x86_64":
        # PCI Express and no legacy: no timer that ticks without need (HPET), no system management mode, no
        # VMware port, no keyboard controller.
        board = "q35,hpet=off,smm=off,vmport=off,i8042=off"
        # Emulated, a plain processor is faster than one with wide vectors: programs then choose SSE.
        cpu = "Nehalem,+rdrand"
    else:
        board = f"virt,gic-version={_INTERRUPT_CONTROLLERS[machine.accelerator]}"
        # Emulated, pointer authentication by its prescribed cipher would take half of the time.
        cpu = "max,pauth-impdef=on"
    if machine.accelerator != "tcg":
        cpu = "host"
    accelerator: str = machine.accelerator
    if accelerator == "tcg":
        # A thread for each processor.
        accelerator += f",thread=multi,tb-size={_TCG_CACHE_MIB}"
    return ["-machine", f"{board},memory-backend=ram", "-accel", accelerator, "-cpu", cpu]


def _memory(machine: Machine) -> list[str]:
    ram = machine.ram
    size = f"id=ram,size={ram.mib}M"
    if ram.file is None:
        backend = f"memory-backend-ram,{size}"
    else:
        # A page that the machine writes to becomes its own: copies cost what they change.
        backend = f"memory-backend-file,{size},mem-path={_value(ram.file)},share=off"
    return ["-m", f"{ram.mib}M", "-object", backend]


def _disks(machine: Machine) -> list[str]:
    """Files that any number of machines read at once."""
    words = []
    for number, path in enumerate(machine.disks):
        words += ["-blockdev", f"driver=file,node-name=disk{number},filename={_value(path)},read-only=on"]
        words += ["-device", f"virtio-blk-pci,drive=disk{number}"]
    return words


def _generation(machine: Machine) -> list[str]:
    """A number that is new for each process: by it the kernel of a copy notices that it is one, and makes new
    random numbers before anyone can ask for them. QEMU has the device for x86 only.
    """
    return ["-device", "vmgenid,guid=auto"] if machine.arch == "x86_64" else []


def _ports(machine: Machine) -> list[str]:
    """Byte streams to the host: each a socket on which QEMU listens, for one client at a time."""
    # One more than there are, for number 0 is reserved.
    words = ["-device", f"virtio-serial-pci,max_ports={len(ports.RPC) + 2}"]
    names = [("control", ports.CONTROL), *((f"rpc{number}", name) for number, name in enumerate(ports.RPC))]
    sockets = [control_socket(machine.directory), *port_sockets(machine.directory)]
    for number, ((own, name), path) in enumerate(zip(names, sockets, strict=True), 1):
        words += ["-chardev", f"socket,id={own},path={_value(path)},server=on,wait=off"]
        words += ["-device", f"virtserialport,id={own},chardev={own},name={name},nr={number}"]
    return words


def _monitors(machine: Machine) -> list[str]:
    """The keeper's ways in: state, pause, copies. In a directory that only this user may enter."""
    words = []
    for path in monitor_sockets(machine.directory).values():
        words += ["-qmp", f"unix:{_value(path)},server=on,wait=off"]
    return words


def _state(machine: Machine) -> list[str]:
    """How the state of another machine gets into this one. It is that of the devices alone, without what QEMU
    would say first about the machine's kind: it comes from `xen-save-devices-state`, which leaves that out.
    """
    words = ["-global", "migration.send-configuration=off"]
    return [*words, "-incoming", "defer"] if machine.incoming else words


def _console(machine: Machine) -> list[str]:
    """What the kernel and process 1 say. A file of it could fill the host's disk: QEMU keeps only the end."""
    if machine.console == "memory":
        # Ended means stopped: who looks after it reads its last words, and ends QEMU then.
        chardev, action = f"ringbuf,id=console,size={CONSOLE_BYTES}", "reboot=shutdown,shutdown=pause"
    else:
        chardev, action = "stdio,id=console,signal=off", "reboot=shutdown,shutdown=poweroff"
    return ["-chardev", chardev, "-serial", "chardev:console", "-action", action]


def _value(path: Path) -> str:
    """In a list of options a comma is written twice."""
    return str(path).replace(",", ",,")
