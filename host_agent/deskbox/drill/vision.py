"""Pure: what the scripted model sees in an image. Coordinates are pixels of that image."""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageChops, ImageFilter, ImageStat

from deskbox.drill.marks import DIGITS, MARKS, NUMBER_DIGITS, TOLERANCE, Colour

# A mark is one solid area, or a row of glyphs with small gaps. Far less of its bounding box means that its
# colour was found in unrelated places.
_SMALLEST_FILL = 0.35
_DIGIT_TOLERANCE = 30  # cells are flat, and sampled away from their edges


@dataclass(frozen=True)
class Spot:
    """The middle of a mark."""

    x: int
    y: int


def last_image(body: dict[str, Any]) -> Image.Image | None:
    """The image of the newest computer_call_output in a request, None if there is none.

    Raises ValueError if that output holds no readable image.
    """
    history = body["input"] if isinstance(body.get("input"), list) else []
    outputs = [item["output"] for item in history if item.get("type") == "computer_call_output"]
    if not outputs:
        return None
    kind, _, data = str(outputs[-1].get("image_url")).partition(";base64,")
    if not kind.startswith("data:image/"):
        raise ValueError("the newest screenshot is not an image in a data URL")
    try:
        return Image.open(io.BytesIO(base64.b64decode(data, validate=True))).convert("RGB")
    except (binascii.Error, OSError) as error:
        raise ValueError(f"the newest screenshot can't be decoded: {error}") from error


def find(image: Image.Image, mark: str) -> Spot | None:
    """Where the mark of that name is; None if it is not to be seen as one area."""
    mask = _mask(image, MARKS[mark])
    if mask.getbbox() is None:
        return None
    # Scaling blends neighbours into thin lines that can come near any colour: only areas count.
    mask = mask.filter(ImageFilter.MinFilter(3))
    box = mask.getbbox()
    if box is None:
        return None
    left, top, right, bottom = box
    fill = mask.histogram()[255] / ((right - left) * (bottom - top))
    if fill < _SMALLEST_FILL:
        return None
    return Spot((left + right) // 2, (top + bottom) // 2)


def read_number(image: Image.Image) -> str | None:
    """The confirmation number that the strip of cells between its end marks shows, if it is legible."""
    start, end = find(image, "code_start"), find(image, "code_end")
    if start is None or end is None:
        return None
    cells = NUMBER_DIGITS + 1
    pitch_x, pitch_y = (end.x - start.x) / (cells + 1), (end.y - start.y) / (cells + 1)
    reach = max(1, round(abs(pitch_x) / 6))
    digits = []
    for cell in range(1, cells + 1):
        x, y = round(start.x + cell * pitch_x), round(start.y + cell * pitch_y)
        middle = image.crop((x - reach, y - reach, x + reach, y + reach))
        digits.append(_digit(tuple(ImageStat.Stat(middle).median)))
    number, check = digits[:-1], digits[-1]
    if None in digits or sum(digit or 0 for digit in number) % 10 != check:
        return None
    return "".join(str(digit) for digit in number)


def _mask(image: Image.Image, colour: Colour) -> Image.Image:
    """255 where a pixel has that colour, 0 elsewhere."""
    channels = [
        channel.point([255 if abs(value - wanted) <= TOLERANCE else 0 for value in range(256)])
        for channel, wanted in zip(image.split(), colour, strict=True)
    ]
    return ImageChops.darker(ImageChops.darker(channels[0], channels[1]), channels[2])


def _digit(colour: tuple[float, ...]) -> int | None:
    distances = [max(abs(a - b) for a, b in zip(colour, known, strict=True)) for known in DIGITS]
    nearest = min(range(len(DIGITS)), key=distances.__getitem__)
    return nearest if distances[nearest] <= _DIGIT_TOLERANCE else None
