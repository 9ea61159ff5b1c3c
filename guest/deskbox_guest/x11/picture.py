"""From the screen's pixels to an image file: region, pointer, size, format, limit. Pure."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

from PIL import Image

from deskbox_guest.protocol import Fault, Frame
from deskbox_guest.x11 import png

FORMATS = ("png", "jpeg", "webp")
OVERSIZE = ("error", "shrink")
_JPEG_QUALITY = 85
_WEBP_QUALITY = 85
_WEBP_EFFORT = 2  # of 6: a tenth of the time for some 5 % more bytes

# An image that is shrunk to fit keeps so many pixels on its longer side: with fewer it would show nothing.
MIN_SHRUNK = 64
# How full the limit must be for the search to end, where it aims, and how many encodings it may take.
SHRUNK_FULL, SHRUNK_AIM, SHRINK_TRIES = 0.9, 0.95, 7

Box = tuple[int, int, int, int]  # left, top, right, bottom in screen pixels
Size = tuple[int, int]


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
    size: Size


NO_PICTURE = Encoded(b"", (0, 0))


@dataclass(frozen=True)
class Shot:
    """The screen's pixels as the X server gives them: blue, green, red and a byte that means nothing."""

    size: Size
    pixels: bytes | bytearray

    @cached_property
    def image(self) -> Image.Image:
        return Image.frombuffer("RGB", self.size, self.pixels, "raw", "BGRX", 0, 1)

    def bands(self, box: Box, cursor: Cursor | None) -> Iterator[Image.Image]:
        """The region in bands from top to bottom, red and blue exchanged, the pointer drawn on one of them.

        What need not be is not copied: a megabyte more costs a millisecond.
        """
        screen = Image.frombuffer("RGBX", self.size, self.pixels, "raw", "RGBX", 0, 1)
        left, top, right, bottom = box
        edges = [top, bottom]
        if cursor:
            edges[1:1] = [min(max(y, top), bottom) for y in (cursor.y, cursor.y + cursor.image.height)]
        for index, (start, end) in enumerate(pairwise(edges)):
            if start == end:
                continue
            whole_rows = (left, right) == (0, self.size[0])
            band = self._rows(start, end) if whole_rows else screen.crop((left, start, right, end))
            if cursor and index == 1:
                red, green, blue, alpha = cursor.image.split()
                exchanged = Image.merge("RGBA", (blue, green, red, alpha))
                band.paste(exchanged, (cursor.x - left, cursor.y - start), alpha)
            yield band

    def _rows(self, start: int, end: int) -> Image.Image:
        width = self.size[0]
        rows = memoryview(self.pixels)[4 * width * start : 4 * width * end]
        # Pillow's types don't say that any buffer will do.
        return Image.frombuffer("RGBX", (width, end - start), cast(bytes, rows), "raw", "RGBX", 0, 1)


def region(frame: Frame, size: Size) -> Box:
    """The region of a frame on a screen of that size.

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


def take(shot: Shot, cursor: Cursor | None, frame: Frame) -> Encoded:
    """The image that `frame` asks for; `region` says what is refused.

    If it exceeds the frame's limit, then it is not to be shrunk, or is the smallest there may be.
    """
    box = region(frame, shot.size)
    full = (box[2] - box[0], box[3] - box[1])
    size = (frame.image_width or full[0], frame.image_height or full[1])
    if frame.format == "png" and size == full:
        whole = Encoded(png.encode_bands(size, shot.bands(box, cursor), "BGR"), size)
    else:
        whole = encode(compose(shot.image, cursor, box), size, frame.format)
    if not frame.max_bytes or len(whole.data) <= frame.max_bytes or frame.oversize == "error":
        return whole
    return shrink(compose(shot.image, cursor, box), whole, frame)


def check_limit(encoded: Encoded, frame: Frame) -> None:
    """Raise Fault "too_large" if the image exceeds the frame's limit."""
    if not frame.max_bytes or len(encoded.data) <= frame.max_bytes:
        return
    width, height = encoded.size
    even = "even the smallest image" if frame.oversize == "shrink" else "the image"
    advice = "" if frame.oversize == "shrink" else ", or let it be shrunk"
    raise Fault(
        "too_large",
        f"{even}, of {width}x{height} as {frame.format}, takes {len(encoded.data)} bytes and "
        f"{frame.max_bytes} are allowed: allow more, or ask for a smaller region or size or another "
        f"format{advice}",
        {"bytes": len(encoded.data), "limit": frame.max_bytes, "image_size": [width, height]},
    )


def compose(image: Image.Image, cursor: Cursor | None, box: Box) -> Image.Image:
    """The region `box` of the screen with the pointer drawn on it."""
    if box != (0, 0, *image.size):
        image = image.crop(box)
    elif cursor:
        image = image.copy()
    if cursor:
        image.paste(cursor.image, (cursor.x - box[0], cursor.y - box[1]), cursor.image)
    return image


def scale(image: Image.Image, size: Size) -> Image.Image:
    if size == image.size:
        return image
    factor = image.width // size[0]
    if image.size == (factor * size[0], factor * size[1]):
        # The mean of whole blocks of pixels is the best there is, and takes a tenth of the time.
        return image.reduce(factor)
    return image.resize(size, Image.Resampling.LANCZOS)


def encode(image: Image.Image, size: Size, image_format: str) -> Encoded:
    """An RGB image at that size in that format."""
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


def shrink(image: Image.Image, whole: Encoded, frame: Frame) -> Encoded:
    """About the largest image of the shape of `whole`, which exceeds the frame's limit, that does not.

    If none does, the smallest there may be. The search is for the longer side: each try supposes that bytes
    grow with the area, going by the try before. They don't quite; shrunk text is less even than text, so that
    a slightly smaller image may even take more bytes.
    """
    fits, exceeds = MIN_SHRUNK - 1, max(whole.size)  # the answer is a side in between
    last, best = whole, None
    for _ in range(SHRINK_TRIES):
        if exceeds - fits <= 1:
            break
        side = int(max(last.size) * math.sqrt(SHRUNK_AIM * frame.max_bytes / len(last.data)))
        if not fits < side < exceeds:
            side = MIN_SHRUNK if side <= MIN_SHRUNK else (fits + exceeds) // 2
        last = encode(image, _shaped(whole.size, side), frame.format)
        if len(last.data) > frame.max_bytes:
            exceeds = side
            continue
        fits, best = side, last
        if len(last.data) >= SHRUNK_FULL * frame.max_bytes:
            break
    if best is None and exceeds > MIN_SHRUNK:
        last = encode(image, _shaped(whole.size, MIN_SHRUNK), frame.format)
    return best or last


def _shaped(size: Size, longer: int) -> Size:
    """That shape, with so many pixels on its longer side."""
    ratio = longer / max(size)
    return max(1, round(size[0] * ratio)), max(1, round(size[1] * ratio))
