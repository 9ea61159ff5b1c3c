"""A picture of the desktop for people: one x11vnc per viewer, on a socket pair, with no port."""

from __future__ import annotations

import os
import socket
import subprocess

from .protocol import Fault

_X11VNC = (
    "x11vnc",
    # Talks on file descriptors 0 and 1 and exits when its viewer leaves. They must be a socket: a pipe fails.
    "-inetd",
    "-shared",  # another viewer has its own x11vnc: nobody is thrown out
    "-nopw",  # who may look is decided on the host, before a byte comes here
    # Whoever looks on changes nothing: no input, no clipboard, no keymap, no auto-repeat, no bell, no
    # protocol extension that could.
    *("-viewonly", "-nosel", "-repeat", "-nobell", "-noultraext"),
    # It finds out nothing and does nothing on its own: no configuration file, no name look-ups, no remote
    # control through X properties, no commands, no watching of other clients' requests, no port.
    *("-norc", "-nolookup", "-safer", "-nocmds", "-noxrecord", "-noipv6"),
    *("-rfbport", "0"),
    # The pointer is part of the picture. As a shape for the viewer's own pointer it would show where the
    # person's mouse is, not where the desktop's pointer is.
    "-nocursorshape",
    # Guesses about windows that its own viewer drags: there is none.
    *("-nowireframe", "-noscrollcopyrect"),
    "-quiet",
)


def open_view(display: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start an x11vnc for one viewer of the X display: (the socket on which it speaks RFB, the process).

    The banner comes after 0.2 s, the first full frame after 0.9 s. End it with `close_view`, also after it
    ended by itself (then the socket reads an end of file). Raises Fault (unavailable) if there is no x11vnc.
    """
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            [*_X11VNC, "-display", display],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            start_new_session=True,
            env={**os.environ, "DISPLAY": display},
        )
    except OSError as error:
        ours.close()
        raise Fault("unavailable", f"x11vnc can't run in this desktop: {error.strerror}.") from None
    finally:
        theirs.close()
    return ours, process


def close_view(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Hang up, and reap the process: it exits within milliseconds, or it is killed after a second."""
    ours.close()
    try:
        process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
