"""A QEMU process: started with no more rights than it needs, spoken to by its sockets, ended without a trace.

Its directory belongs to one machine. QEMU's sockets are there, and it is QEMU's working directory: so whoever
knows the process finds them as /proc/PID/cwd, under a path that is always short.

Started by root, each QEMU runs as another user without an account, so that none may touch another. All
files that it reads are opened here and passed on by their numbers, because the directories above them may
be closed to that user.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from deskbox import processes
from deskbox.backends.qemu import command
from deskbox.backends.qemu.command import Machine
from deskbox.backends.qemu.control import Control
from deskbox.backends.qemu.qmp import Qmp
from deskbox.errors import DeskboxError, Unavailable
from deskbox.processes import Process
from deskbox_guest import protocol

if TYPE_CHECKING:
    from deskbox.rpc.channel import Channel

# The group of every QEMU that root starts: it may read the memory that machines are copies of.
GROUP = processes.NOBODIES[0]
LOG = "qemu.log"  # what QEMU itself says, in the machine's directory
# Bytes that QEMU may write to one file: its log, and the state of its devices (some 100 KB).
_FILE_LIMIT = 16 * 1024 * 1024
_STARTS_WITHIN = 20.0  # seconds; it takes 0.1 s
# Seconds that an agent which listens may say nothing; twice as long after each time. See `ports`.
_PATIENCE = 1.0


def launch(machine: Machine, *, tied: bool = False) -> Process:
    """Start QEMU in `machine.directory`; return once its monitors answer.

    `tied`: it ends with the thread that has started it. Raises DeskboxError with QEMU's words; then nothing
    of it is left.
    """
    directory = machine.directory
    numbers: list[int] = []

    def passed(path: Path, mode: int = os.O_RDONLY) -> Path:
        numbers.append(os.open(path, mode | os.O_CLOEXEC))
        return Path(f"/proc/self/fd/{numbers[-1]}")

    try:
        ram = machine.ram
        if ram.file is not None:
            # QEMU opens it for writing, too, though it maps it so that nothing is written.
            ram = replace(ram, file=passed(ram.file, os.O_RDWR))
        words = command.command(
            replace(
                machine,
                kernel=passed(machine.kernel),
                initramfs=passed(machine.initramfs),
                disks=tuple(passed(disk) for disk in machine.disks),
                directory=Path("."),
                ram=ram,
            )
        )
        user = processes.unused_user() if os.geteuid() == 0 else None
        if user is not None:
            os.chown(directory, user, GROUP)
        with open(directory / LOG, "wb") as log:
            started = subprocess.Popen(
                _limited(tied, words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={"PATH": os.defpath},
                pass_fds=numbers,
                start_new_session=True,
                restore_signals=False,  # SIGXFSZ stays ignored: see `_limited`
                user=user,
                group=GROUP if user is not None else None,
                extra_groups=[] if user is not None else None,
                umask=0o077,
            )
    finally:
        for number in numbers:
            os.close(number)
    process = Process.of(started.pid)
    try:
        _wait_for_monitor(started, directory)
    except BaseException:
        started.kill()
        started.wait()
        clear(directory)
        raise
    return process


def _limited(tied: bool, words: list[str]) -> list[str]:
    """What starts a program within limits of its own: prlimit(1) becomes that program."""
    # Whatever takes over QEMU must not fill the host's disk. A write beyond the limit fails, and no more.
    limited = ["prlimit", f"--fsize={_FILE_LIMIT}", "--", *words]
    return processes.tied_to_us(limited) if tied else limited


def _wait_for_monitor(process: subprocess.Popen[bytes], directory: Path) -> None:
    # QEMU makes its sockets one after the other, and its monitors last.
    last = [*command.monitor_sockets(directory).values()][-1]
    deadline = time.monotonic() + _STARTS_WITHIN
    while not last.exists():
        if process.poll() is not None:
            said = (directory / LOG).read_text(errors="replace").strip().splitlines()
            raise DeskboxError(f"QEMU did not start: {said[-1] if said else 'it said nothing'}")
        if time.monotonic() > deadline:
            raise DeskboxError(f"QEMU did not start within {_STARTS_WITHIN:g} s")
        time.sleep(0.002)  # nothing tells when a socket is made


def directory_of(process: Process) -> Path:
    """A path to the machine's directory for as long as the process lives."""
    return Path(f"/proc/{process.pid}/cwd")


def commands(process: Process) -> Qmp:
    """Raises Unavailable if the machine has ended."""
    return Qmp(command.monitor_sockets(directory_of(process))["commands"])


def control(process: Process) -> Control:
    """Raises Unavailable if the machine has ended."""
    return Control(command.control_socket(directory_of(process)))


def own_channel(process: Process, timeout: float) -> Channel:
    """Calls on the agent by the port that no client uses. Close it soon: others wait for it.

    Raises Unavailable if the agent does not listen there within `timeout` seconds.
    """
    from deskbox.rpc.channel import Channel  # HTTP/2, which no start needs

    path = command.port_sockets(directory_of(process))[-1]
    deadline = time.monotonic() + timeout
    patience = _PATIENCE
    while True:
        stream = _listened_to(path, min(patience, deadline - time.monotonic()))
        if stream is not None:
            return Channel(stream)
        if time.monotonic() > deadline or not process.alive():
            raise Unavailable(f"the guest's agent did not listen within {timeout:g} s")
        # It did not notice that the last connection had ended, so close was this one behind it. Now it can.
        time.sleep(patience / 4)
        patience *= 2


def _listened_to(path: Path, patience: float) -> socket.socket | None:
    """A connection on which the agent has said that it listens; None if it has not."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        deadline = time.monotonic() + patience
        heard = b""
        stream.settimeout(max(0.001, patience))
        stream.connect(str(path))
        while heard != protocol.LISTENING:
            stream.settimeout(max(0.001, deadline - time.monotonic()))
            data = stream.recv(4096)
            if not data:
                raise ConnectionError
            heard = (heard + data)[-len(protocol.LISTENING) :]
    except OSError:
        stream.close()
        return None
    except BaseException:
        stream.close()
        raise
    return stream


def machines() -> Iterator[tuple[Process, str]]:
    """All machines that this user may see, each with the marker in its command line."""
    for running, arguments in processes.all_running():
        for option, value in itertools.pairwise(arguments):
            named = option == b"-name" and value.startswith(command.MARKER.encode())
            # What runs in a container may have such arguments, too.
            if named and len(processes.numbers(running.pid)) == 1:
                yield running, value.decode(errors="replace")


def power_off(process: Process, within: float) -> None:
    """Have the machine switch itself off, and wait for that; without effect if it is paused or too busy."""
    deadline = time.monotonic() + within
    with contextlib.suppress(DeskboxError):
        with commands(process) as qmp:
            if qmp.execute("query-status")["status"] != "running":
                return
        asking = control(process)
        try:
            asking.ask("poweroff", timeout=within)
        finally:
            asking.close()
        with commands(process) as qmp:
            while qmp.execute("query-status")["status"] == "running" and time.monotonic() < deadline:
                time.sleep(0.01)  # its event goes to who waits for the machine's end


def end(process: Process) -> None:
    """Kill the machine and remove its files. Idempotent."""
    try:
        directory = Path(os.readlink(directory_of(process))) if process.alive() else None
    except OSError:
        directory = None  # it has just ended
    process.send(signal.SIGKILL)
    process.wait()
    with contextlib.suppress(ChildProcessError):  # it was started by another process
        os.waitpid(process.pid, 0)
    if directory is not None:
        clear(directory)


def clear(directory: Path) -> None:
    """Remove what a machine that has ended left in its directory."""
    for path in _files(directory):
        path.unlink(missing_ok=True)


def _files(directory: Path) -> Iterable[Path]:
    return [
        *command.monitor_sockets(directory).values(),
        command.control_socket(directory),
        *command.port_sockets(directory),
        directory / LOG,
    ]
