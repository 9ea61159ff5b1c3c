"""Pictures of the screen: the pixels, the pointer drawn where it is, a region, a size, a format."""

from __future__ import annotations

import io
import math
import select
import threading
from dataclasses import dataclass

import mss
from mss.exception import ScreenShotError
from PIL import Image
from Xlib.ext import damage, xfixes

from deskbox_guest.protocol import Fault, Frame
from deskbox_guest.x11 import png
from deskbox_guest.x11.display import Link

FORMATS = ("png", "jpeg", "webp")
OVERSIZE = ("error", "shrink")
_JPEG_QUALITY = 85
_WEBP_QUALITY = 85
_WEBP_EFFORT = 2  # of 6: a tenth of the time for some 5 % more bytes

# An image that is shrunk to fit keeps so many pixels on its longer side: with fewer it would show nothing.
MIN_SHRUNK = 64
# How full the limit must be for the search to end, where it aims, and how many encodings it may take.
SHRUNK_FULL, SHRUNK_AIM, SHRINK_TRIES = 0.9, 0.95, 7


@dataclass(frozen=True)
class Cursor:
    """The pointer's picture, where its top left corner is on the screen."""

    image: Image.Image  # RGBA
    x: int
    y: int
    key: tuple[int, int, int]  # the same for the same picture at the same place


@dataclass(frozen=True)
class Encoded:
    """An image file and its size in pixels."""

    data: bytes
    size: tuple[int, int]


NO_PICTURE = Encoded(b"", (0, 0))


def region(frame: Frame, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of a frame's region in screen pixels.

    Raises Fault "refused" if it leaves the screen, if the image would be larger than the region, or if the
    format, the limit or what to do beyond it is none that there is.
    """
    screen_width, screen_height = size
    width = frame.width or screen_width - frame.x
    height = frame.height or screen_height - frame.y
    right, bottom = frame.x + width, frame.y + height
    if not (0 <= frame.x < right <= screen_width and 0 <= frame.y < bottom <= screen_height):
        raise Fault(
            "refused",
            f"the region {frame.x},{frame.y} {width}x{height} must lie inside the screen of "
            f"{screen_width}x{screen_height} and not be empty",
        )
    if not (0 <= frame.image_width <= width and 0 <= frame.image_height <= height):
        raise Fault(
            "refused",
            f"an image of {frame.image_width}x{frame.image_height} can't be made of a region of "
            f"{width}x{height}: it may be as large or smaller",
        )
    if frame.format not in FORMATS:
        raise Fault("refused", f"{frame.format!r} is no image format: use {', '.join(FORMATS)}")
    if frame.max_bytes < 0:
        raise Fault(
            "refused",
            f"an image can't have at most {frame.max_bytes} bytes: give 1 or more, or 0 for no limit",
        )
    if frame.oversize not in OVERSIZE:
        raise Fault("refused", f"{frame.oversize!r} is no way with a large image: use {', '.join(OVERSIZE)}")
    return frame.x, frame.y, right, bottom


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
        self._pixels: tuple[int, Image.Image] = (0, Image.new("RGB", link.size))
        self._encoded: tuple[object, Encoded] = (None, NO_PICTURE)

    def close(self) -> None:
        with self._lock:
            self._grabber.close()
            self._link.close()

    def changes(self) -> int:
        """A number that grows when something has been drawn."""
        with self._lock:
            self._link.sync()
            self._link.pump()
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
            return self._current()

    def picture(self, frame: Frame) -> Encoded:
        """The image that `frame` asks for; `region` says what is refused. Fault "too_large" if it exceeds the
        limit.

        As long as nothing has changed the same answer comes again, without work.
        """
        box = region(frame, self._link.size)
        with self._lock:
            serial, image = self._current()
            cursor = self._cursor() if frame.cursor else None
            key = (serial, frame, cursor.key if cursor else None)
            size = (frame.image_width or box[2] - box[0], frame.image_height or box[3] - box[1])
            if self._encoded[0] != key:
                self._encoded = (key, encode(compose(image, cursor, box), size, frame))
            encoded = self._encoded[1]
        if frame.max_bytes and len(encoded.data) > frame.max_bytes:
            raise _too_large(encoded, frame)
        return encoded

    # The lock is held below.

    def _current(self) -> tuple[int, Image.Image]:
        self._link.sync()
        self._link.pump()
        if self._pixels[0] != self._changes:
            serial = self._changes
            try:
                shot = self._grabber.grab(self._everything)
            except ScreenShotError as error:
                raise Fault("unavailable", f"the screen can't be read: {error}") from error
            self._pixels = (serial, Image.frombuffer("RGB", self._link.size, shot.raw, "raw", "BGRX", 0, 1))
        return self._pixels

    def _damaged(self, _event: object) -> None:
        self._changes += 1
        # The server reports the next drawing only after this one is acknowledged.
        damage.damage_subtract(self._link.display, self._damage)
        self._link.display.flush()

    def _cursor(self) -> Cursor:
        found = xfixes.get_cursor_image(self._link.display, self._link.root)
        size = (found.width, found.height)
        data = b"".join(pixel.to_bytes(4, "little") for pixel in found.cursor_image)
        # X multiplies the colours by alpha.
        image = (
            Image.frombuffer("RGBA", size, data, "raw", "BGRa", 0, 1) if data else Image.new("RGBA", (1, 1))
        )
        x, y = found.x - found.xhot, found.y - found.yhot
        return Cursor(image, x, y, (found.cursor_serial, x, y))


def compose(image: Image.Image, cursor: Cursor | None, box: tuple[int, int, int, int]) -> Image.Image:
    """The region `box` of the screen with the pointer drawn on it."""
    if box != (0, 0, *image.size):
        image = image.crop(box)
    elif cursor:
        image = image.copy()
    if cursor:
        image.paste(cursor.image, (cursor.x - box[0], cursor.y - box[1]), cursor.image)
    return image


def encode(image: Image.Image, size: tuple[int, int], frame: Frame) -> Encoded:
    """The image at that size, in the frame's format.

    If that exceeds the frame's limit and is to be shrunk: about the largest of the same shape that fits, and
    if none does, the smallest there may be, which exceeds the limit.
    """
    whole = _encode(image, size, frame.format)
    if not frame.max_bytes or len(whole.data) <= frame.max_bytes or frame.oversize == "error":
        return whole
    return _shrink(image, whole, frame)


def _shrink(image: Image.Image, whole: Encoded, frame: Frame) -> Encoded:
    """Search for the longer side with which the image just fits.

    Each try supposes that bytes grow with the area, going by the try before. They don't quite: shrunk text is
    less even than text, so that a first, slightly smaller image may even take more bytes.
    """
    fits, exceeds = MIN_SHRUNK - 1, max(whole.size)  # the answer is a side in between
    last, best = whole, None
    for _ in range(SHRINK_TRIES):
        if exceeds - fits <= 1:
            break
        side = int(max(last.size) * math.sqrt(SHRUNK_AIM * frame.max_bytes / len(last.data)))
        if not fits < side < exceeds:
            side = MIN_SHRUNK if side <= MIN_SHRUNK else (fits + exceeds) // 2
        last = _encode(image, _shaped(whole.size, side), frame.format)
        if len(last.data) > frame.max_bytes:
            exceeds = side
            continue
        fits, best = side, last
        if len(last.data) >= SHRUNK_FULL * frame.max_bytes:
            break
    if best is None and exceeds > MIN_SHRUNK:
        last = _encode(image, _shaped(whole.size, MIN_SHRUNK), frame.format)
    return best or last


def _shaped(size: tuple[int, int], longer: int) -> tuple[int, int]:
    """That shape, with so many pixels on its longer side."""
    scale = longer / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _too_large(encoded: Encoded, frame: Frame) -> Fault:
    width, height = encoded.size
    even = "even the smallest image" if frame.oversize == "shrink" else "the image"
    advice = "" if frame.oversize == "shrink" else ", or let it be shrunk"
    return Fault(
        "too_large",
        f"{even}, of {width}x{height} as {frame.format}, takes {len(encoded.data)} bytes and "
        f"{frame.max_bytes} are allowed: allow more, or ask for a smaller region or size or another "
        f"format{advice}",
        {"bytes": len(encoded.data), "limit": frame.max_bytes, "image_size": [width, height]},
    )


def scale(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    if size == image.size:
        return image
    factor = image.width // size[0]
    if image.size == (factor * size[0], factor * size[1]):
        # The mean of whole blocks of pixels is the best there is, and takes a tenth of the time.
        return image.reduce(factor)
    return image.resize(size, Image.Resampling.LANCZOS)


def _encode(image: Image.Image, size: tuple[int, int], image_format: str) -> Encoded:
    image = scale(image, size)
    if image_format == "png":
        return Encoded(png.encode(image), size)
    buffer = io.BytesIO()
    if image_format == "jpeg":
        # Full colour resolution: coloured text is unreadable without.
        image.save(buffer, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    else:
        image.save(buffer, "WEBP", quality=_WEBP_QUALITY, method=_WEBP_EFFORT)
    return Encoded(buffer.getvalue(), size)
