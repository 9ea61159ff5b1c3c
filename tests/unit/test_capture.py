"""Regions, sizes and the pointer in a picture."""

from __future__ import annotations

import io
import random
from typing import Literal

import pytest
from PIL import Image, ImageDraw

from deskbox_guest.protocol import Fault, Frame
from deskbox_guest.x11 import capture
from deskbox_guest.x11.capture import MIN_SHRUNK, Cursor, Encoded, compose, encode, region, scale

SIZE = (1280, 800)


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
    image = Image.new("RGB", SIZE, "white")
    draw, source = ImageDraw.Draw(image), random.Random(1)
    for y in range(0, SIZE[1], 14):
        draw.text((5, y), "".join(source.choices("the quick brown fox ", k=200)), "black")
    return image


PICTURES = {
    "prose": prose(),
    "photograph": Image.effect_noise(SIZE, 60).convert("RGB"),
    "gradient": Image.radial_gradient("L").resize(SIZE).convert("RGB"),
}


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[Encoded]:
    """Every image that was encoded."""
    encode_one, made = capture._encode, []

    def counted(image: Image.Image, size: tuple[int, int], image_format: str) -> Encoded:
        made.append(encode_one(image, size, image_format))
        return made[-1]

    monkeypatch.setattr(capture, "_encode", counted)
    return made


@pytest.mark.parametrize("image_format", ["png", "jpeg", "webp"])
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("part", [0.95, 0.5, 0.1])
def test_an_image_is_shrunk_to_what_just_fits(
    tries: list[Encoded], picture: str, image_format: Literal["png", "jpeg", "webp"], part: float
) -> None:
    image = PICTURES[picture]
    limit = int(len(encode(image, SIZE, Frame(format=image_format)).data) * part)
    tries.clear()
    shrunk = encode(image, SIZE, Frame(format=image_format, max_bytes=limit, oversize="shrink"))
    assert 0.9 * limit <= len(shrunk.data) <= limit
    assert len(tries) <= 9
    width, height = shrunk.size
    assert abs(height - width * SIZE[1] / SIZE[0]) <= 0.5
    opened = Image.open(io.BytesIO(shrunk.data))
    assert (opened.format, opened.size) == (image_format.upper(), shrunk.size)


def test_an_image_that_fits_is_left_alone(tries: list[Encoded]) -> None:
    frame = Frame(max_bytes=len(encode(prose(), SIZE, Frame()).data), oversize="shrink")
    tries.clear()
    assert encode(prose(), SIZE, frame).size == SIZE
    assert len(tries) == 1


def test_an_image_is_not_shrunk_to_nothing(tries: list[Encoded]) -> None:
    image = PICTURES["photograph"]
    smallest = encode(image, SIZE, Frame(max_bytes=100, oversize="shrink"))
    assert (smallest.size, len(smallest.data) > 100) == ((MIN_SHRUNK, 40), True)
    assert len(tries) == 2
    tall = encode(image, (30, 640), Frame(max_bytes=100, oversize="shrink"))
    assert tall.size == (3, MIN_SHRUNK)
    tiny = encode(image, (30, 20), Frame(max_bytes=100, oversize="shrink"))
    assert tiny.size == (30, 20)


def test_without_leave_to_shrink_the_image_keeps_its_size(tries: list[Encoded]) -> None:
    assert encode(PICTURES["photograph"], SIZE, Frame(max_bytes=100)).size == SIZE
    assert len(tries) == 1
