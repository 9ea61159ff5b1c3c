"""The agent's process: `python3 -m deskbox_guest.agent`, started by the session, and again when it dies."""

from __future__ import annotations

import ctypes
import os

from deskbox_guest.server import Dialer
from deskbox_guest.services import Services
from deskbox_guest.x11.desktop import X11Desktop

# Options of glibc's malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX.
_MEMORY = {-1: 8 << 20, -3: 32 << 20, -8: 1}


def main() -> None:
    """Release what a dead agent left pressed, then answer the host. Never returns."""
    _limit_memory()
    desktop = X11Desktop(engine=os.environ["DESKBOX_ENGINE"])
    desktop.release_all()
    Dialer(os.environ["DESKBOX_SOCKET"], Services(desktop).handlers()).run()


def _limit_memory() -> None:
    """Keep what a picture of a usual screen takes, and give back the rest.

    Left to itself, every thread gets a heap of its own and keeps what its largest picture once took: 130 MB
    after a while. If all were given back, each page of the next picture would cost a fault, and the picture
    twice the time. So there is one heap, also for large buffers, and 8 MB at its end are kept.
    """
    libc = ctypes.CDLL(None)
    for option, value in _MEMORY.items():
        libc.mallopt(option, value)


if __name__ == "__main__":
    main()
