"""Whether an X client has read and handled everything that the server sent it, asked of the kernel.

The ping that toolkits answer is unknown to xterm, Tk and other old ones. A client with nothing left to do
sleeps, no byte waits in its socket, and it is not the server's answer that it sleeps for: the server sleeps,
too, and has no byte to read from it. `sock_diag` tells the bytes to anyone, `/proc` who sleeps.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from deskbox_guest.x11.sockets import SocketDiag

_STATUS = re.compile(rb"^State:\t(.).*^voluntary_ctxt_switches:\t(\d+)", re.MULTILINE | re.DOTALL)


def process_behind(diag: SocketDiag, inode: int) -> int:
    """The process at the other end of a connection, 0 if it is not in sight.

    Not the peer's credentials: they name who created the socket that it listens on.
    """
    peer = diag.peer(inode)
    return next((pid for pid in _processes() if peer and peer in _sockets_of(pid)), 0)


class ClientWatch:
    """Watches one client of the X server."""

    def __init__(self, diag: SocketDiag, client_pid: int, server_pid: int) -> None:
        self._diag = diag
        self._client = client_pid
        self._server = server_pid
        pairs = [(inode, diag.peer(inode)) for inode in _sockets_of(client_pid)]
        self._connections = [pair for pair in pairs if b"/.X11-unix/X" in diag.name(pair[1])]

    @property
    def possible(self) -> bool:
        """Whether the client's connections to an X server can be seen."""
        return bool(self._connections)

    def gone(self) -> bool:
        return not _exists(self._client)

    def idle(self) -> bool:
        """True if at one moment both the client and the server slept and neither had a byte to read.

        The moment is when the server is looked at; the client slept then if it has not been switched to
        between the looks before and after. True also if the client is gone.
        """
        before = _sleep(self._client)
        if before is None:
            return self.gone()
        if _sleep(self._server) is None:
            return False
        if any(self._diag.unread(inode) for pair in self._connections for inode in pair):
            return False
        return _sleep(self._client) == before


class FamilyWatch:
    """Watches processes and all their descendants, by looking at them again and again.

    A browser answers a ping while the process that shows the page still has the keys. Nothing tells when that
    one is done with them; but until then some main thread runs, or will in a moment. And what it shows is
    painted by other threads after that, so that processor time tells how long they work.
    """

    def __init__(self, *pids: int, looks: int) -> None:
        """`looks`: how many looks in a row it takes to be sure."""
        self._pids = _families(pids)
        self._looks = looks
        self._last: dict[int, bytes] = {}
        self._unchanged = 0
        self._running: dict[int, int] = {}  # in how many looks in a row a process was found running
        self._taken: deque[tuple[int, dict[int, int]]] = deque(maxlen=looks)  # when, and by whom, in ns

    def quiet(self) -> bool:
        """True if no main thread has run in the time between this look and the first of the last ones."""
        now = {pid: _main_thread(pid) for pid in self._pids}
        asleep = all(state.startswith(b"S") for state in now.values() if state)
        self._unchanged = self._unchanged + 1 if asleep and now == self._last else 0
        self._last = now
        return self._unchanged >= self._looks

    def works(self) -> bool:
        """True if a main thread was found running by this look and all of the last ones."""
        for pid in self._pids:
            runs = _main_thread(pid)[:1] in (b"R", b"D")
            self._running[pid] = self._running.get(pid, 0) + 1 if runs else 0
        return any(count >= self._looks for count in self._running.values())

    def load(self) -> float:
        """The processors they have kept busy between the first of the last looks and this one: 1 is one."""
        now, taken = time.monotonic_ns(), {pid: _processor_time(pid) for pid in self._pids}
        self._taken.append((now, taken))
        then, before = self._taken[0]
        if len(self._taken) < self._looks:
            return 0.0
        return sum(taken[pid] - before[pid] for pid in self._pids if taken[pid]) / (now - then)


def _sockets_of(pid: int) -> list[int]:
    inodes = []
    with suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                if target.startswith("socket:["):
                    inodes.append(int(target[8:-1]))
    return inodes


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def _sleep(pid: int) -> dict[str, bytes] | None:
    """How often each thread of a process has gone to sleep so far; None if one is not asleep."""
    switches: dict[str, bytes] = {}
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/status", "rb") as status:
                found = _STATUS.search(status.read())
            if found is None or found[1] != b"S":
                return None
            switches[thread] = found[2]
    except OSError:
        return None
    return switches


def _main_thread(pid: int) -> bytes:
    """Its state's letter and how often it was switched to; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            found = _STATUS.search(status.read())
            return found[1] + found[2] if found else b""
    except OSError:
        return b""


def _processor_time(pid: int) -> int:
    """Nanoseconds that all its threads have run; 0 if it is gone.

    Its processor clock, as clock_getcpuclockid(3) names it: any process may read that of any other.
    """
    try:
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return 0


def _families(pids: Iterable[int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for process in _processes():
        with suppress(OSError), open(f"/proc/{process}/stat", "rb") as stat:
            parent = int(stat.read().rpartition(b") ")[2].split()[1])
            children.setdefault(parent, []).append(process)
    family = list(dict.fromkeys(pids))
    for member in family:
        family += [child for child in children.get(member, []) if child not in family]
    return family
