"""The agent's process: `python3 -m deskbox_guest.agent`, started by the session, and again when it dies."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

from deskbox_guest import ports
from deskbox_guest.port_server import PortServer
from deskbox_guest.server import Call, Dialer, Handler
from deskbox_guest.services import Services
from deskbox_guest.x11.desktop import X11Desktop

# Options of glibc's malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX.
_MEMORY = {-1: 8 << 20, -3: 32 << 20, -8: 1}
# Without a call for so long, the agent gives back what it keeps for the next one. A model thinks longer.
AT_REST_S = 2.0


def main() -> None:
    """Release what a dead agent left pressed, then answer the host. Never returns."""
    memory = Memory()
    desktop = X11Desktop(engine=os.environ["DESKBOX_ENGINE"])
    desktop.release_all()
    handlers = Services(desktop).handlers()
    handlers = {path: memory.watch(handler) for path, handler in handlers.items()}
    if directory := os.environ.get("DESKBOX_PORTS"):
        PortServer([Path(directory) / name for name in ports.RPC], handlers).run()
    else:
        Dialer(os.environ["DESKBOX_SOCKET"], handlers).run()


class Memory:
    """While calls come, keep what a picture of a usual screen takes; give it back when none does.

    Left to itself, every thread gets a heap of its own and keeps what its largest picture once took: 130 MB
    after a while. If all were given back, each page of the next picture would cost a fault, and the picture
    twice the time. So there is one heap, also for large buffers, and 8 MB at its end are kept. What lies free
    in its middle, after a long text for example, is given back at rest.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        for option, value in _MEMORY.items():
            self._libc.mallopt(option, value)
        self._called = threading.Event()
        threading.Thread(target=self._give_back_at_rest, name="memory", daemon=True).start()

    def watch(self, handler: Handler) -> Handler:
        """The handler, whose calls count as work from now on."""

        def watched(call: Call) -> None:
            try:
                handler(call)
            finally:
                self._called.set()

        return watched

    def _give_back_at_rest(self) -> None:
        while self._called.wait():
            self._called.clear()
            if not self._called.wait(AT_REST_S):
                self._libc.malloc_trim(0)


if __name__ == "__main__":
    main()
