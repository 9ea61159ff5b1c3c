"""The map between the model's image and the screen, for all sizes and crops."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from deskbox.errors import InvalidInput
from deskbox.geometry import MAX_IMAGE_PATCHES, MAX_IMAGE_SIDE, Geometry, Region, fits_model, largest_image

SIDES = st.integers(1, 3840)


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    """Any screen, any crop of it, any image that the model can take: smaller, equal, larger, distorted."""
    screen = draw(SIDES), draw(SIDES)
    left, top = draw(st.integers(0, screen[0] - 1)), draw(st.integers(0, screen[1] - 1))
    crop = (
        left,
        top,
        draw(st.integers(1, screen[0] - left)),
        draw(st.integers(1, screen[1] - top)),
    )
    image = draw(st.integers(1, MAX_IMAGE_SIDE)), draw(st.integers(1, MAX_IMAGE_SIDE))
    assume(fits_model(image))
    return Geometry(screen, crop, image)


def scales(geometry: Geometry) -> tuple[Fraction, Fraction]:
    """Screen pixels for one image pixel, along each axis."""
    return (
        Fraction(geometry.crop[2], geometry.image[0]),
        Fraction(geometry.crop[3], geometry.image[1]),
    )


def corners(geometry: Geometry) -> tuple[tuple[int, int], tuple[int, int]]:
    left, top, width, height = geometry.crop
    return (left, top), (left + width - 1, top + height - 1)


@given(geometries(), st.data())
def test_a_screen_pixel_comes_back_within_half_an_image_pixel(
    geometry: Geometry, data: st.DataObject
) -> None:
    (left, top), (right, bottom) = corners(geometry)
    point = data.draw(st.integers(left, right)), data.draw(st.integers(top, bottom))
    shown = geometry.to_image(*point)
    back = geometry.to_screen(*shown)
    for axis, scale in enumerate(scales(geometry)):
        # Exactly: the image pixel is the one that shows this screen pixel's centre ...
        centre = point[axis] - geometry.crop[axis] + Fraction(1, 2)
        image_centre = (shown[axis] + Fraction(1, 2)) * scale
        assert abs(centre - image_centre) <= scale / 2
        # ... and in whole pixels: nothing is lost unless several screen pixels share an image pixel.
        distance = abs(back[axis] - point[axis])
        assert distance <= math.ceil(scale / 2)
        if scale <= 1:
            assert distance == 0
        if scale.denominator == 1:
            assert distance <= scale / 2


@given(geometries(), st.data())
def test_an_image_pixel_is_its_own_image(geometry: Geometry, data: st.DataObject) -> None:
    point = tuple(data.draw(st.integers(0, side - 1)) for side in geometry.image)
    back = geometry.to_image(*geometry.to_screen(*point))
    for axis, scale in enumerate(scales(geometry)):
        if scale >= 1:
            assert back[axis] == point[axis]


@given(geometries(), st.data())
def test_to_screen_is_the_pixel_nearest_to_the_centre_and_inside_the_crop(
    geometry: Geometry, data: st.DataObject
) -> None:
    point = tuple(data.draw(st.integers(0, side - 1)) for side in geometry.image)
    (left, top), (right, bottom) = corners(geometry)
    x, y = geometry.to_screen(*point)
    assert left <= x <= right
    assert top <= y <= bottom
    for axis, scale in enumerate(scales(geometry)):
        # Scale first, then the offset of the crop.
        exact = (point[axis] + Fraction(1, 2)) * scale + geometry.crop[axis]
        assert abs((x, y)[axis] + Fraction(1, 2) - exact) <= Fraction(1, 2)


@given(geometries(), st.data())
def test_both_maps_are_monotone(geometry: Geometry, data: st.DataObject) -> None:
    width, height = geometry.image
    xs = sorted(data.draw(st.lists(st.integers(0, width - 1), min_size=2, max_size=8)))
    mapped = [geometry.to_screen(x, height - 1)[0] for x in xs]
    assert mapped == sorted(mapped)
    (left, top), (_, bottom) = corners(geometry)
    ys = sorted(data.draw(st.lists(st.integers(top, bottom), min_size=2, max_size=8)))
    mapped = [geometry.to_image(left, y)[1] for y in ys]
    assert mapped == sorted(mapped)


@given(geometries())
def test_borders_map_to_borders(geometry: Geometry) -> None:
    first, last = corners(geometry)
    image_last = geometry.image[0] - 1, geometry.image[1] - 1
    shown_first, shown_last = geometry.to_image(*first), geometry.to_image(*last)
    near, far = geometry.to_screen(0, 0), geometry.to_screen(*image_last)
    for axis, scale in enumerate(scales(geometry)):
        if scale >= 1:
            assert (shown_first[axis], shown_last[axis]) == (0, image_last[axis])
        if scale <= 1:
            assert (near[axis], far[axis]) == (first[axis], last[axis])
        # Where a pixel at the border covers several of the other side, it maps to the middle of them.
        assert max(near[axis] - first[axis], last[axis] - far[axis]) <= scale / 2
        assert max(shown_first[axis], image_last[axis] - shown_last[axis]) <= 1 / scale / 2


@given(st.integers(1, 1024), st.integers(1, 1024), st.data())
def test_an_image_of_half_the_size_doubles_both_coordinates(
    width: int, height: int, data: st.DataObject
) -> None:
    assume(fits_model((width, height)))
    geometry = Geometry.fit((2 * width, 2 * height), image=(width, height))
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    assert geometry.to_screen(x, y) == (2 * x, 2 * y)


@given(st.integers(1, 700), st.integers(0, 300), st.integers(0, 699))
def test_an_image_of_its_own_size_only_adds_the_offset(width: int, offset: int, x: int) -> None:
    assume(x < width)
    geometry = Geometry((1000, 40), (offset, 7, width, 9), (width, 9))
    assert geometry.to_screen(x, 4) == (x + offset, 11)
    assert geometry.to_image(x + offset, 11) == (x, 4)


def test_the_offset_is_added_after_the_scale() -> None:
    geometry = Geometry((1600, 1200), (100, 50, 800, 600), (400, 300))
    assert geometry.to_screen(10, 20) == (120, 90)
    assert Geometry.fit((1600, 1200), image=(800, 600)).to_screen(320, 200) == (640, 400)


def test_a_third_takes_the_middle_of_three() -> None:
    geometry = Geometry.fit((300, 300), image=(100, 100))
    assert [geometry.to_screen(x, 0)[0] for x in range(3)] == [1, 4, 7]


@pytest.mark.parametrize("point", [(-1, 0), (0, -1), (640, 0), (0, 400), (10**9, 5)])
def test_a_point_outside_the_image_names_the_range(point: tuple[int, int]) -> None:
    geometry = Geometry.fit((1280, 800), image=(640, 400))
    with pytest.raises(InvalidInput, match=r"x must be 0 to 639 and y 0 to 399"):
        geometry.to_screen(*point)


def test_a_point_outside_the_crop_names_the_range() -> None:
    geometry = Geometry.fit((1280, 800), crop=(100, 50, 200, 100))
    with pytest.raises(InvalidInput, match=r"x must be 100 to 299 and y 50 to 149"):
        geometry.to_image(99, 60)


@pytest.mark.parametrize("x", [1.0, True, "1", None])
def test_coordinates_are_whole_numbers(x: object) -> None:
    with pytest.raises(InvalidInput, match="2 integers"):
        Geometry.fit((10, 10)).to_screen(x, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "crop",
    [(0, 0, 0, 5), (0, 0, 5, 0), (-1, 0, 5, 5), (0, -1, 5, 5), (96, 0, 5, 5), (0, 96, 5, 5), (0, 0, 101, 1)],
)
def test_the_crop_lies_within_the_screen(crop: Region) -> None:
    with pytest.raises(InvalidInput, match="within the screen of 100x100"):
        Geometry.fit((100, 100), crop)


@pytest.mark.parametrize("image", [(2049, 10), (10, 2049), (2048, 2048), (1601, 1600)])
def test_an_image_that_the_model_would_not_see_unscaled_is_refused(image: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match="such as 2048x1152"):
        Geometry.fit((3840, 2160), image=image)


@pytest.mark.parametrize(
    ("screen", "image"),
    [
        ((1280, 800), (1280, 800)),
        ((1920, 1080), (1920, 1080)),
        ((3840, 2160), (2048, 1152)),
        ((2160, 3840), (1152, 2048)),
        ((1600, 1600), (1600, 1600)),
        ((3840, 1), (2048, 1)),
    ],
)
def test_the_default_image_is_the_largest_that_fits(screen: tuple[int, int], image: tuple[int, int]) -> None:
    assert Geometry.fit(screen).image == image


@given(SIDES, SIDES)
@example(3840, 3840)
def test_the_largest_image_keeps_the_shape(width: int, height: int) -> None:
    image = largest_image((width, height))
    assert fits_model(image)
    if fits_model((width, height)):
        assert image == (width, height)
    else:
        # The longer side is exact, the other one rounded to it.
        longer = 0 if width >= height else 1
        exact = Fraction(min(width, height) * image[longer], max(width, height))
        assert abs(image[1 - longer] - exact) <= Fraction(1, 2) or image[1 - longer] == 1
        patches = math.ceil((image[0] + 1) / 32) * math.ceil((image[1] + 1) / 32)
        assert max(image) == MAX_IMAGE_SIDE or patches > MAX_IMAGE_PATCHES


@pytest.mark.parametrize("size", [(0, 10), (10, 0), (-1, 5), (1.5, 2), [10, 10], "10x10", None, (1, 2, 3)])
def test_sizes_are_pairs_of_positive_integers(size: object) -> None:
    with pytest.raises(InvalidInput):
        Geometry.fit(size)  # type: ignore[arg-type]
    if size is not None:
        with pytest.raises(InvalidInput):
            Geometry.fit((100, 100), image=size)  # type: ignore[arg-type]
