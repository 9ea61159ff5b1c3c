"""How the input events of a script get into the X server: the one thing in which the engines differ.

`input.Engine` decides which events come when; an injector makes them happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from Xlib.ext import xtest

from deskbox_guest.protocol import EngineName
from deskbox_guest.x11.display import Link


class InputEvent(NamedTuple):
    type: int  # KeyPress, KeyRelease, ButtonPress, ButtonRelease or MotionNotify of Xlib.X
    detail: int = 0  # the keycode or the button
    x: int = 0  # screen pixels, of a motion
    y: int = 0
    after: float = 0.0  # seconds that pass before


class Injector(Protocol):
    name: EngineName
    # The keyboard layout in which its keys are pressed, where several are configured; None: the active one.
    group: int | None

    def inject(self, events: Sequence[InputEvent]) -> None:
        """Make the events happen, behind what the link has asked of the server and before what it will."""

    def close(self) -> None: ...


class XTest:
    """By requests of our own to the XTEST extension. They leave with the link's next flush."""

    name: EngineName = "xtest"
    group: int | None = None

    def __init__(self, link: Link) -> None:
        self._link = link

    def inject(self, events: Sequence[InputEvent]) -> None:
        for event in events:
            delay = round(event.after * 1000)  # by the server's clock
            xtest.fake_input(self._link.display, event.type, event.detail, delay, x=event.x, y=event.y)

    def close(self) -> None:
        pass
