"""Regions, sizes, formats, limits and the pointer in a picture."""

from __future__ import annotations

import io
import math
import random
from dataclasses import replace
from typing import Literal

import pytest
from PIL import Image, ImageChops, ImageDraw, ImageStat

from deskbox_guest.protocol import Fault, Frame
from deskbox_guest.x11 import picture as pictures
from deskbox_guest.x11.picture import (
    FORMATS,
    MIN_SHRUNK,
    Cursor,
    Encoded,
    Shot,
    check_limit,
    compose,
    region,
    scale,
    take,
)

SIZE = (1280, 800)
PAGE = (640, 400)


def test_regions() -> None:
    assert region(Frame(), SIZE) == (0, 0, 1280, 800)
    assert region(Frame(x=100, y=50), SIZE) == (100, 50, 1280, 800)
    assert region(Frame(x=1, y=2, width=3, height=4), SIZE) == (1, 2, 4, 6)
    assert region(Frame(x=1279, y=799, image_width=1, image_height=1), SIZE) == (1279, 799, 1280, 800)


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (Frame(x=-1), "must lie inside the screen of 1280x800"),
        (Frame(x=1280), "must lie inside"),
        (Frame(width=1281), "must lie inside"),
        (Frame(y=700, height=101), "must lie inside"),
        (Frame(width=-5), "must lie inside"),
        (Frame(image_width=1281), "can't be made of a region of 1280x800"),
        (Frame(width=100, height=100, image_height=101), "can't be made of a region of 100x100"),
        (Frame(image_width=-1), "can't be made"),
        (Frame(max_bytes=-1), "can't have at most -1 bytes: give 1 or more, or 0 for no limit"),
        (Frame(oversize="crop"), "'crop' is no way with a large image: use error, shrink"),  # type: ignore[arg-type]
        (Frame(format="gif"), "'gif' is no image format: use png, jpeg, webp"),  # type: ignore[arg-type]
    ],
)
def test_what_is_refused(frame: Frame, says: str) -> None:
    with pytest.raises(Fault, match=says) as caught:
        region(frame, SIZE)
    assert caught.value.kind == "refused"


def screen() -> Image.Image:
    """Each pixel says where it is."""
    image = Image.new("RGB", (64, 48))
    for y in range(48):
        for x in range(64):
            image.putpixel((x, y), (x, y, 7))
    return image


def arrow(x: int, y: int) -> Cursor:
    """A red 4x4 pointer whose right half is transparent."""
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    image.paste((255, 0, 0, 255), (0, 0, 2, 4))
    return Cursor(image, x, y, (1, x, y))


def test_a_region_is_cut_out() -> None:
    image = compose(screen(), None, (10, 20, 30, 40))
    assert image.size == (20, 20)
    assert image.getpixel((0, 0)) == (10, 20, 7)
    assert image.getpixel((19, 19)) == (29, 39, 7)


def test_the_pointer_is_drawn_where_it_is_and_only_in_the_picture() -> None:
    original = screen()
    image = compose(original, arrow(12, 22), (10, 20, 30, 40))
    assert image.getpixel((2, 2)) == (255, 0, 0)
    assert image.getpixel((3, 5)) == (255, 0, 0)
    assert image.getpixel((4, 2)) == (14, 22, 7)
    whole = compose(original, arrow(-2, 46), (0, 0, 64, 48))
    assert whole.getpixel((0, 47)) == (0, 47, 7)
    assert original.tobytes() == screen().tobytes()


def test_half_the_size_is_the_mean_of_four_pixels() -> None:
    image = scale(screen(), (32, 24))
    assert image.size == (32, 24)
    assert image.getpixel((5, 3)) in [(10, 6, 7), (11, 7, 7), (10, 7, 7), (11, 6, 7)]


def test_any_smaller_size() -> None:
    assert scale(screen(), (50, 30)).size == (50, 30)


def prose() -> Image.Image:
    """A page of text: shrunk a little its PNG takes more bytes than in full, because its edges get soft."""
    image = Image.new("RGB", PAGE, "white")
    draw, source = ImageDraw.Draw(image), random.Random(1)
    for y in range(0, PAGE[1], 14):
        draw.text((5, y), "".join(source.choices("the quick brown fox ", k=200)), "black")
    return image


PICTURES = {
    "prose": prose(),
    "photograph": Image.effect_noise(PAGE, 60).convert("RGB"),
    "gradient": Image.radial_gradient("L").resize(PAGE).convert("RGB"),
}


Format = Literal["png", "jpeg", "webp"]


def shot(image: Image.Image) -> Shot:
    """As if the X server had given it, with a fourth byte that means nothing."""
    rgb = image.tobytes()
    pixels = bytearray(b"\x5a") * (4 * image.width * image.height)
    pixels[0::4], pixels[1::4], pixels[2::4] = rgb[2::3], rgb[1::3], rgb[0::3]
    return Shot(image.size, pixels)


def decoded(encoded: Encoded) -> Image.Image:
    return Image.open(io.BytesIO(encoded.data)).convert("RGB")


def noise(image: Image.Image, other: Image.Image) -> float:
    """Decibels by which the picture exceeds the difference (PSNR)."""
    squares = ImageStat.Stat(ImageChops.difference(image, other)).sum2
    return 10 * math.log10(255**2 * 3 * image.width * image.height / max(1, sum(squares)))


@pytest.mark.parametrize("part", [{}, {"x": 20, "y": 10, "width": 30, "height": 20}, {"y": 20, "height": 9}])
@pytest.mark.parametrize("at", [None, (12, 22), (-2, 46), (62, -3), (0, 0), (100, 100), (30, 18)])
def test_a_png_is_the_composed_image_to_the_pixel(part: dict[str, int], at: tuple[int, int] | None) -> None:
    cursor = arrow(*at) if at else None
    if cursor:
        cursor.image.putpixel((1, 1), (250, 130, 10, 77))
    pixels = shot(screen())
    before = bytes(pixels.pixels)
    frame = Frame(**part)  # type: ignore[arg-type]
    expected = compose(screen(), cursor, region(frame, (64, 48)))
    assert decoded(take(pixels, cursor, frame)).tobytes() == expected.tobytes()
    assert pixels.pixels == before


@pytest.mark.parametrize(("image_format", "least"), [("jpeg", 30), ("webp", 28)])
@pytest.mark.parametrize("picture", ["prose", "gradient"])
def test_formats_with_loss_lose_little(picture: str, image_format: Format, least: float) -> None:
    part = PICTURES[picture].crop((0, 0, 400, 300))
    taken = take(shot(part), None, Frame(format=image_format))
    assert noise(decoded(taken), part) > least


@pytest.mark.parametrize(
    ("size", "filter_"),
    [
        ((320, 200), Image.Resampling.BOX),
        ((160, 100), Image.Resampling.BOX),
        ((500, 313), Image.Resampling.LANCZOS),
        ((639, 399), Image.Resampling.LANCZOS),
        ((50, 350), Image.Resampling.LANCZOS),
    ],
)
@pytest.mark.parametrize("picture", ["prose", "photograph"])
def test_a_smaller_image_is_filtered(picture: str, size: tuple[int, int], filter_: Image.Resampling) -> None:
    """Of the whole picture at once: every pixel of the screen counts."""
    image = PICTURES[picture]
    frame = Frame(image_width=size[0], image_height=size[1])
    taken = decoded(take(shot(image), None, frame))
    difference = ImageChops.difference(taken, image.resize(size, filter_))
    assert max(difference.tobytes()) <= 1  # means of bytes may be rounded up or down


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[Encoded]:
    """Every image of the search for one that fits."""
    encode_one, made = pictures.encode, []

    def counted(image: Image.Image, size: tuple[int, int], image_format: str) -> Encoded:
        made.append(encode_one(image, size, image_format))
        return made[-1]

    monkeypatch.setattr(pictures, "encode", counted)
    return made


@pytest.mark.parametrize("image_format", FORMATS)
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("part", [0.95, 0.5, 0.2])
def test_an_image_is_shrunk_to_what_just_fits(
    tries: list[Encoded], picture: str, image_format: Format, part: float
) -> None:
    pixels = shot(PICTURES[picture])
    limit = int(len(take(pixels, None, Frame(format=image_format)).data) * part)
    tries.clear()
    shrunk = take(pixels, None, Frame(format=image_format, max_bytes=limit, oversize="shrink"))
    assert 0.9 * limit <= len(shrunk.data) <= limit
    assert len(tries) <= 9
    width, height = shrunk.size
    assert abs(height - width * PAGE[1] / PAGE[0]) <= 0.5
    opened = Image.open(io.BytesIO(shrunk.data))
    assert (opened.format, opened.size) == (image_format.upper(), shrunk.size)


def test_an_image_that_fits_is_left_alone(tries: list[Encoded]) -> None:
    pixels = shot(PICTURES["prose"])
    limit = len(take(pixels, None, Frame()).data)
    assert take(pixels, None, Frame(max_bytes=limit, oversize="shrink")).size == PAGE
    assert tries == []


def test_an_image_is_not_shrunk_to_nothing(tries: list[Encoded]) -> None:
    pixels = shot(PICTURES["photograph"])
    least = Frame(max_bytes=100, oversize="shrink")
    smallest = take(pixels, None, least)
    assert (smallest.size, len(smallest.data) > 100) == ((MIN_SHRUNK, 40), True)
    assert len(tries) == 1
    with pytest.raises(
        Fault, match=r"even the smallest image, of 64x40 as png, takes .* and 100 are"
    ) as caught:
        check_limit(smallest, least)
    assert caught.value.kind == "too_large"
    assert take(pixels, None, replace(least, width=30, height=400)).size == (5, MIN_SHRUNK)
    assert take(pixels, None, replace(least, width=30, height=20)).size == (30, 20)


def test_without_leave_to_shrink_the_image_keeps_its_size(tries: list[Encoded]) -> None:
    frame = Frame(max_bytes=100)
    taken = take(shot(PICTURES["photograph"]), None, frame)
    assert taken.size == PAGE
    assert tries == []
    with pytest.raises(Fault, match="the image, of 640x400 as png") as caught:
        check_limit(taken, frame)
    assert caught.value.data == {"bytes": len(taken.data), "limit": 100, "image_size": [640, 400]}
