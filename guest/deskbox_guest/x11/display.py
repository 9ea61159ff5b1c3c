"""A connection to the X server, with errors that say what to do and one place that reads its events."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import Any

from Xlib import X
from Xlib.display import Display
from Xlib.error import BadDrawable, BadMatch, BadWindow, DisplayError, XError
from Xlib.xobject.drawable import Window as XWindow

from deskbox_guest.protocol import Fault

# Windows belong to other clients and may go away between any two requests.
_VANISHED = (BadWindow, BadDrawable, BadMatch)


class Link:
    """One connection. Not safe for threads: whoever shares a link guards it with a lock."""

    def __init__(self, name: str | None = None) -> None:
        """Connect to the display `name` (None: `$DISPLAY`); Fault "unavailable" if there is none."""
        shown = name or os.environ.get("DISPLAY") or ""
        try:
            self.display = Display(name)
        except (DisplayError, OSError, ValueError) as error:
            raise Fault(
                "unavailable",
                f"no X server answers on display {shown!r} ({error}): start one, or set DISPLAY",
            ) from error
        screen = self.display.screen()
        self.root: XWindow = screen.root
        self.size: tuple[int, int] = (screen.width_in_pixels, screen.height_in_pixels)
        self._atoms: dict[str, int] = {}
        self._handlers: dict[int, Callable[[Any], None]] = {}
        self._error: XError | None = None
        self.display.set_error_handler(self._note_error)

    def close(self) -> None:
        self.display.close()

    def atom(self, name: str) -> int:
        if name not in self._atoms:
            self._atoms[name] = self.display.intern_atom(name)
        return self._atoms[name]

    def socket_inode(self) -> int:
        """The inode number of our end of the connection."""
        return os.fstat(self.display.fileno()).st_ino

    def window(self, window_id: int) -> XWindow:
        window: XWindow = self.display.create_resource_object("window", window_id)
        return window

    def cardinals(self, window: XWindow, name: str) -> list[int]:
        """The 32-bit values of a window's property: none if the property or the window is not there."""
        try:
            found = window.get_full_property(self.atom(name), X.AnyPropertyType)
        except _VANISHED:
            return []
        return [int(value) for value in found.value] if found is not None and found.value else []

    def sync(self) -> None:
        """Wait until the server has done all that was asked; raise what failed on the way."""
        self.display.sync()
        if self._error is not None:
            error, self._error = self._error, None
            raise Fault("unavailable", f"the X server refused a request: {error}")

    def on(self, event_type: int, handler: Callable[[Any], None]) -> None:
        """Call `handler` with each event of that type while `pump` runs."""
        self._handlers[event_type] = handler

    def pump(self, timeout: float = 0.0) -> None:
        """Hand out the events that have come; if none has, wait up to `timeout` seconds for one."""
        if not self.display.pending_events() and timeout > 0:
            select.select([self.display.fileno()], [], [], timeout)
        for _ in range(self.display.pending_events()):
            event = self.display.next_event()
            handler = self._handlers.get(event.type)
            if handler is not None:
                handler(event)

    def pump_until(
        self, done: Callable[[], bool], timeout: float, cancelled: Callable[[], bool], every: float = 0.025
    ) -> bool:
        """Hand out events until `done()`; False if `timeout` seconds pass or `cancelled()` first.

        Both are asked after each event, and every `every` seconds when there is none.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.pump()
            if done():
                return True
            left = deadline - time.monotonic()
            if left <= 0 or cancelled():
                return False
            self.pump(min(left, every))

    def _note_error(self, error: XError, _request: object) -> None:
        if not isinstance(error, _VANISHED):
            self._error = error
