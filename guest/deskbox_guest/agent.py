"""The agent's process: `python3 -m deskbox_guest.agent`, started by the session, and again when it dies."""

from __future__ import annotations

import ctypes
import os

from deskbox_guest.server import Dialer
from deskbox_guest.services import Services
from deskbox_guest.x11.desktop import X11Desktop

# Options of glibc's malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX.
_KEEP_MEMORY = {-1: 256 << 20, -3: 32 << 20, -8: 1}


def main() -> None:
    """Release what a dead agent left pressed, then answer the host. Never returns."""
    _keep_memory()
    desktop = X11Desktop()
    desktop.release_all()
    Dialer(os.environ["DESKBOX_SOCKET"], Services(desktop).handlers()).run()


def _keep_memory() -> None:
    """Don't give the memory of one screenshot back to the kernel only to ask for it again for the next.

    Each page of it costs a fault then, and a screenshot takes twice the time. As much is kept as a screenshot
    takes at most: some 100 MB on a screen of 3840x2160.
    """
    libc = ctypes.CDLL(None)
    for option, value in _KEEP_MEMORY.items():
        libc.mallopt(option, value)


if __name__ == "__main__":
    main()
