"""What the scripted model sees: marks and digits in images as they are, scaled and cropped."""

from __future__ import annotations

import base64
import io
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from deskbox.drill.marks import DIGITS, MARKS, NUMBER_DIGITS, TOLERANCE
from deskbox.drill.vision import Spot, find, last_image, read_number

SCREEN = (1280, 800)
PAPER = (255, 253, 248)
# How the drill looks at the screen, and other ways: crop in screen pixels, size of the image.
VIEWS = [
    pytest.param((0, 0, 1280, 800), (1280, 800), id="full"),
    pytest.param((0, 0, 1280, 800), (640, 400), id="half"),
    pytest.param((24, 16, 1240, 736), (930, 552), id="crop"),
    pytest.param((100, 50, 1000, 700), (1000, 700), id="crop unscaled"),
    pytest.param((0, 0, 1280, 800), (777, 431), id="odd"),
]
FILTERS = [Image.Resampling.BOX, Image.Resampling.BILINEAR, Image.Resampling.LANCZOS]


def screen() -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", SCREEN, PAPER)
    return image, ImageDraw.Draw(image)


def paint(draw: ImageDraw.ImageDraw, mark: str, x: int, y: int, width: int, height: int) -> None:
    draw.rectangle((x, y, x + width - 1, y + height - 1), fill=MARKS[mark])


def paint_number(draw: ImageDraw.ImageDraw, number: str, x: int, y: int, check: int | None = None) -> None:
    digits = [int(digit) for digit in number]
    cells = [DIGITS[digit] for digit in [*digits, sum(digits) % 10 if check is None else check]]
    for index, colour in enumerate([MARKS["code_start"], *cells, MARKS["code_end"]]):
        draw.rectangle((x + 36 * index, y, x + 36 * index + 35, y + 35), fill=colour)


def seen(image: Image.Image, crop: tuple[int, int, int, int], size: tuple[int, int], by: int) -> Image.Image:
    x, y, width, height = crop
    part = image.crop((x, y, x + width, y + height))
    return part if size == part.size else part.resize(size, by)


@pytest.mark.parametrize("by", FILTERS)
@pytest.mark.parametrize(("crop", "size"), VIEWS)
def test_finds_the_middle_of_a_mark_in_every_view(
    crop: tuple[int, int, int, int], size: tuple[int, int], by: int
) -> None:
    image, draw = screen()
    paint(draw, "name", 300, 240, 28, 40)
    spot = find(seen(image, crop, size, by), "name")
    assert spot is not None
    assert abs(spot.x - (314 - crop[0]) * size[0] / crop[2]) <= 1
    assert abs(spot.y - (260 - crop[1]) * size[1] / crop[3]) <= 1


@pytest.mark.parametrize("by", FILTERS)
@pytest.mark.parametrize(("crop", "size"), VIEWS)
def test_no_mark_is_seen_where_none_is(
    crop: tuple[int, int, int, int], size: tuple[int, int], by: int
) -> None:
    """All marks side by side: scaling must not blend two of them into a third."""
    image, draw = screen()
    painted = [mark for index, mark in enumerate(MARKS) if index % 2 == 0]
    for index, mark in enumerate(painted):
        paint(draw, mark, 150 + 28 * index, 300, 28, 28)
    view = seen(image, crop, size, by)
    assert [mark for mark in MARKS if find(view, mark) is not None] == painted


def test_a_mark_under_the_pointer_is_found() -> None:
    image, draw = screen()
    paint(draw, "party", 400, 400, 28, 28)
    draw.polygon(
        [(414, 414), (414, 430), (418, 427), (421, 433), (424, 431), (421, 426), (426, 426)], fill="black"
    )
    assert find(image, "party") == Spot(414, 414)


def test_a_row_of_glyphs_is_one_mark() -> None:
    image, draw = screen()
    for index in range(6):
        paint(draw, "editor", 800 + 20 * index, 100, 17, 17)
    spot = find(image.resize((640, 400), Image.Resampling.BOX), "editor")
    assert spot is not None
    assert abs(spot.x - 429) <= 1
    assert abs(spot.y - 54) <= 1


def test_a_colour_that_is_found_all_over_is_no_mark() -> None:
    image, draw = screen()
    paint(draw, "submit", 10, 10, 12, 12)
    paint(draw, "submit", 1200, 700, 12, 12)
    assert find(image, "submit") is None


def test_single_pixels_are_no_mark() -> None:
    image, draw = screen()
    draw.line((0, 100, 1279, 100), fill=MARKS["more"])
    assert find(image, "more") is None


def test_the_colours_are_far_from_each_other() -> None:
    for (one, a), (other, b) in combinations(MARKS.items(), 2):
        assert max(abs(x - y) for x, y in zip(a, b, strict=True)) > 2 * TOLERANCE, (one, other)
    for digit in DIGITS:
        for mark, colour in MARKS.items():
            assert max(abs(x - y) for x, y in zip(digit, colour, strict=True)) > TOLERANCE, mark


@settings(max_examples=40, deadline=None)
@given(
    number=st.text("0123456789", min_size=NUMBER_DIGITS, max_size=NUMBER_DIGITS),
    view=st.sampled_from([view.values for view in VIEWS]),
    by=st.sampled_from(FILTERS),
)
def test_reads_any_number_in_every_view(
    number: str, view: tuple[tuple[int, int, int, int], tuple[int, int]], by: int
) -> None:
    image, draw = screen()
    paint_number(draw, number, 251, 333)
    assert read_number(seen(image, *view, by)) == number


def test_a_number_whose_check_digit_is_wrong_is_not_read() -> None:
    image, draw = screen()
    paint_number(draw, "12345678", 251, 333, check=0)
    assert read_number(image) is None


def test_half_a_number_is_not_read() -> None:
    image, draw = screen()
    paint_number(draw, "12345678", 251, 333)
    assert read_number(image.crop((0, 0, 500, 800))) is None
    draw.rectangle((330, 330, 370, 400), fill=PAPER)
    assert read_number(image) is None


def output(url: str) -> dict[str, object]:
    return {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": url}}


def data_url(colour: str) -> str:
    data = io.BytesIO()
    Image.new("RGB", (4, 3), colour).save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def test_only_the_newest_image_is_looked_at() -> None:
    body = {"input": [{"role": "user", "content": "x"}, output(data_url("red")), output(data_url("blue"))]}
    image = last_image(body)
    assert image is not None
    assert (image.size, image.getpixel((0, 0))) == ((4, 3), (0, 0, 255))
    assert last_image({"input": "just text"}) is None
    assert last_image({"input": [{"role": "user", "content": "x"}]}) is None


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/x.png", "data:image/png;base64,!!", "data:image/png;base64,AAAA"]
)
def test_an_image_that_cannot_be_read_is_an_error(url: str) -> None:
    with pytest.raises(ValueError, match="the newest screenshot"):
        last_image({"input": [output(url)]})
