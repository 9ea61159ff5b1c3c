"""What the screen shows now: its pixels and its pointer, grabbed only when something has been drawn."""

from __future__ import annotations

import select
import struct
import threading
from dataclasses import dataclass

import mss
from mss.exception import ScreenShotError
from PIL import Image
from Xlib.ext import damage, xfixes

from deskbox_guest.protocol import Fault, Frame
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.picture import NO_PICTURE, Cursor, Encoded, Shot, check_limit, region, take


@dataclass(frozen=True)
class _Look:
    """The pointer's picture, and which of its pixels points."""

    image: Image.Image  # RGBA
    hot_x: int
    hot_y: int
    serial: int


class Screen:
    """The screen's pixels. Safe for threads."""

    def __init__(self, link: Link, name: str | None) -> None:
        """`link` is for this object's use alone; `name` is its display's."""
        self._link = link
        self._lock = threading.Lock()
        self._grabber = mss.MSS(display=name)
        self._everything = {"left": 0, "top": 0, "width": link.size[0], "height": link.size[1]}
        xfixes.query_version(link.display)
        damage.query_version(link.display)
        self._damage = damage.damage_create(link.root, damage.DamageReportNonEmpty)
        link.on(link.display.extension_event.DamageNotify, self._damaged)
        self._changes = 1
        self._shot = (0, Shot((0, 0), b""))
        xfixes.SelectCursorInput(
            display=link.display.display,
            opcode=link.display.display.get_extension_major(xfixes.extname),
            window=link.root,
            mask=xfixes.XFixesDisplayCursorNotifyMask,
        )
        cursor_event, _ = link.display.extension_event.DisplayCursorNotify
        link.on(cursor_event, self._cursor_changed)
        self._cursor: _Look | None = None  # None: it has become another one
        self._encoded: tuple[object, Encoded] = (None, NO_PICTURE)

    def close(self) -> None:
        with self._lock:
            self._grabber.close()
            self._link.close()

    def changes(self) -> int:
        """A number that grows when something has been drawn."""
        with self._lock:
            self._catch_up()
            return self._changes

    def wait_for_drawing(self, timeout: float) -> bool:
        """Wait until something has been drawn that `changes` does not count yet; False after `timeout` s."""
        with self._lock:
            waiting = self._link.display.pending_events()
        # Not under the lock: others may take pictures meanwhile, and then they count the change.
        return bool(waiting) or bool(
            select.select([self._link.display.fileno()], [], [], max(0.0, timeout))[0]
        )

    def pixels(self) -> tuple[int, Image.Image]:
        """The whole screen as RGB without the pointer, and the number of changes it shows. Do not modify it:
        the same image is returned until something is drawn."""
        with self._lock:
            self._catch_up()
            serial, shot = self._current()
            return serial, shot.image

    def picture(self, frame: Frame) -> Encoded:
        """The image that `frame` asks for; `region` says what is refused. Fault "too_large" if it exceeds the
        frame's limit.

        As long as nothing has changed the same answer comes again, without work.
        """
        region(frame, self._link.size)
        with self._lock:
            cursor = None
            if frame.cursor:
                cursor = self._catch_up_with_pointer()
            else:
                self._catch_up()
            serial, shot = self._current()
            key = (serial, frame, cursor.key if cursor else None)
            if self._encoded[0] != key:
                self._encoded = (key, take(shot, cursor, frame))
            encoded = self._encoded[1]
        check_limit(encoded, frame)
        return encoded

    # The lock is held below.

    def _catch_up(self) -> None:
        """Hear of all that has been drawn until now."""
        self._link.sync()
        self._link.pump()

    def _catch_up_with_pointer(self) -> Cursor:
        """The same, and the pointer where it is now, in one round trip to the X server."""
        at = self._link.root.query_pointer()
        self._link.pump()
        if self._cursor is None:
            self._cursor = self._fetch_cursor()
        look = self._cursor
        x, y = at.root_x - look.hot_x, at.root_y - look.hot_y
        return Cursor(look.image, x, y, (look.serial, x, y))

    def _current(self) -> tuple[int, Shot]:
        """The number of changes heard of, and the pixels with all of them."""
        if self._shot[0] != self._changes:
            # What is drawn before the server has taken the acknowledgement is not reported: it must be seen.
            self._link.sync()
            serial = self._changes
            try:
                grabbed = self._grabber.grab(self._everything)
            except ScreenShotError as error:
                raise Fault("unavailable", f"the screen can't be read: {error}") from error
            self._shot = (serial, Shot(self._link.size, grabbed.raw))
        return self._shot

    def _damaged(self, _event: object) -> None:
        self._changes += 1
        # The server reports the next drawing only after this one is acknowledged.
        damage.damage_subtract(self._link.display, self._damage)
        self._link.display.flush()

    def _cursor_changed(self, _event: object) -> None:
        self._cursor = None

    def _fetch_cursor(self) -> _Look:
        found = xfixes.get_cursor_image(self._link.display, self._link.root)
        size = (found.width, found.height)
        data = struct.pack(f"<{len(found.cursor_image)}I", *found.cursor_image)
        # X multiplies the colours by alpha.
        image = (
            Image.frombuffer("RGBA", size, data, "raw", "BGRa", 0, 1) if data else Image.new("RGBA", (1, 1))
        )
        return _Look(image, found.xhot, found.yhot, found.cursor_serial)
