"""Processes that must be found again later, perhaps by another process than the one that started them."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# The users that systemd keeps for services without an account: https://systemd.io/UIDS-GIDS/
NOBODIES = range(61184, 65520)


@dataclass(frozen=True)
class Process:
    """A process that is surely the same one later: numbers are used again, with another time of start."""

    pid: int
    started: int  # clock ticks since boot; 0: it had ended already

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(pid, _start_ticks(pid))

    @classmethod
    def parse(cls, text: str) -> Process:
        """What `str` made of it: PID:TICKS."""
        pid, _, started = text.partition(":")
        return cls(int(pid), int(started))

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}"

    def alive(self) -> bool:
        return self.started != 0 and _start_ticks(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send a signal, without effect if it has ended. Raises PermissionError."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False after `timeout` seconds. It need not be a child of ours."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            # Older kernels, such as 6.12, say EINVAL of one that has ended while others are in its session.
            if error.errno not in (errno.ESRCH, errno.EINVAL):
                raise
            return True
        try:
            # Of a process with threads the first may be a zombie while others still close their files: the
            # descriptor knows when all have ended.
            if _state_and_ticks(self.pid)[1] != self.started:  # another process of the same number
                return True
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            return bool(poll.poll(None if timeout is None else timeout * 1000))
        finally:
            os.close(pidfd)

    def end(self, within: float, kill: Callable[[Process, signal.Signals], None] | None = None) -> None:
        """SIGTERM, then SIGKILL after `within` seconds. `kill` sends signals where we may not."""
        for number, patience in ((signal.SIGTERM, within), (signal.SIGKILL, 1.0)):
            if self.alive():
                (kill or Process.send)(self, number)
            deadline = time.monotonic() + patience
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.05)  # it may not be our child: then there is no event to wait for


def tied_to_us(command: Sequence[str]) -> list[str]:
    """`command` so that it is killed when the thread of ours that starts it ends, and we with it."""
    # We may be killed before the signal is asked for: then the parent is another process by now.
    guard = ["sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]
    return ["setpriv", "--pdeathsig", "KILL", "--", *guard, *command]


def unused_user() -> int:
    """The number of a user without an account who has no process now. For root, to start one as that."""
    used = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                used.add(entry.stat().st_uid)
    return random.choice([user for user in NOBODIES if user not in used])


def running(marker: bytes) -> Iterator[Process]:
    """The processes that have `marker` as one of their arguments, and may be looked at by us."""
    return (process for process, arguments in all_running() if marker in arguments)


def all_running() -> Iterator[tuple[Process, list[bytes]]]:
    """All processes that may be looked at by us, with their arguments."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            process = Process.of(int(entry.name))
            if process.started:
                yield process, arguments


def namespace(pid: int) -> int:
    """What tells a process's PID namespace from others. Raises OSError if it has ended or is not ours."""
    return os.stat(f"/proc/{pid}/ns/pid").st_ino


def numbers(pid: int) -> list[int]:
    """What a process is called in each PID namespace that it is in, from ours inwards; [] if it has ended.

    So what runs in a guest can be told from what runs on the host, whatever its arguments say.
    """
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return [int(word) for word in line.split()[1:]]
    return []


def members(namespace: int) -> Iterator[int]:
    """The processes of a PID namespace that may be looked at by us."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(entry / "ns/pid").st_ino == namespace:
                    yield int(entry.name)


def _start_ticks(pid: int) -> int:
    """When a process started; 0 if it has ended."""
    state, ticks = _state_and_ticks(pid)
    return 0 if state in "ZX" else ticks


def _state_and_ticks(pid: int) -> tuple[str, int]:
    """Of proc_pid_stat(5): the letter of its state, and when it started; X and 0 if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return fields[0], int(fields[19])
