"""The agent's process: `python3 -m deskbox_guest.agent`, started by the session, and again when it dies."""

from __future__ import annotations

import os

from deskbox_guest.server import Dialer
from deskbox_guest.services import Services
from deskbox_guest.x11.desktop import X11Desktop


def main() -> None:
    """Release what a dead agent left pressed, then answer the host. Never returns."""
    desktop = X11Desktop()
    desktop.release_all()
    Dialer(os.environ["DESKBOX_SOCKET"], Services(desktop).handlers()).run()


if __name__ == "__main__":
    main()
