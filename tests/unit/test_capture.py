"""Regions, sizes and the pointer in a picture."""

from __future__ import annotations

import pytest
from PIL import Image

from deskbox_guest.protocol import Fault, Frame
from deskbox_guest.x11.capture import Cursor, compose, region

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
    image = compose(screen(), None, (10, 20, 30, 40), (20, 20))
    assert image.size == (20, 20)
    assert image.getpixel((0, 0)) == (10, 20, 7)
    assert image.getpixel((19, 19)) == (29, 39, 7)


def test_the_pointer_is_drawn_where_it_is_and_only_in_the_picture() -> None:
    original = screen()
    image = compose(original, arrow(12, 22), (10, 20, 30, 40), (20, 20))
    assert image.getpixel((2, 2)) == (255, 0, 0)
    assert image.getpixel((3, 5)) == (255, 0, 0)
    assert image.getpixel((4, 2)) == (14, 22, 7)
    whole = compose(original, arrow(-2, 46), (0, 0, 64, 48), (64, 48))
    assert whole.getpixel((0, 47)) == (0, 47, 7)
    assert original.tobytes() == screen().tobytes()


def test_half_the_size_is_the_mean_of_four_pixels() -> None:
    image = compose(screen(), None, (0, 0, 64, 48), (32, 24))
    assert image.size == (32, 24)
    assert image.getpixel((5, 3)) in [(10, 6, 7), (11, 7, 7), (10, 7, 7), (11, 6, 7)]


def test_any_smaller_size() -> None:
    assert compose(screen(), None, (0, 0, 64, 48), (50, 30)).size == (50, 30)
