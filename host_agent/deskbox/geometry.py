"""Where a pixel of the model's image lies on the screen, and back. Pure.

    screen ──crop──▶ region ──scale──▶ image

The model sees the image and answers in its pixels. The way back multiplies by the scale first and adds the
crop's offset after it. A pixel is a small area, not a point: pixel i of an axis of n covers [i, i+1), its
centre is i + 1/2. Each map takes the pixel that holds the other pixel's centre; a centre that falls exactly
between two pixels belongs to the lower one, which is why an image of half the size doubles coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

from deskbox.errors import InvalidInput

Size = tuple[int, int]  # width, height
Region = tuple[int, int, int, int]  # x, y, width, height

# An image within both limits reaches the model as it is. A larger one is scaled down on the way there, by the
# strictest rule of the models with the computer tool (detail "auto" of gpt-5.4), and then the model's
# coordinates are not those of the image that we sent.
MAX_IMAGE_SIDE = 2048
PATCH_SIDE = 32
MAX_IMAGE_PATCHES = 2500


@dataclass(frozen=True)
class Geometry:
    """The mapping between one screen and one image of it.

    screen  size of the X screen, screen pixels
    crop    the part of it that the image shows: x, y, width, height in screen pixels
    image   size of the image, image pixels; its two scales may differ

    Raises InvalidInput if the crop is not inside the screen or the image exceeds the limits above.
    """

    screen: Size
    crop: Region
    image: Size

    def __post_init__(self) -> None:
        _require_size("screen", self.screen)
        _require_size("image", self.image)
        _require_integers("crop", self.crop, 4, "(x, y, width, height)")
        x, y, width, height = self.crop
        screen_width, screen_height = self.screen
        within = min(x, y) >= 0 and x + width <= screen_width and y + height <= screen_height
        if min(width, height) < 1 or not within:
            raise InvalidInput(
                f"the crop {self.crop} (x, y, width, height) must have at least one pixel and lie within "
                f"the screen of {screen_width}x{screen_height}"
            )
        if not fits_model(self.image):
            example_width, example_height = largest_image((width, height))
            raise InvalidInput(
                f"an image of {self.image[0]}x{self.image[1]} would be scaled down on its way to the model; "
                f"choose one of at most {MAX_IMAGE_SIDE} pixels a side and {MAX_IMAGE_PATCHES} patches of "
                f"{PATCH_SIDE}x{PATCH_SIDE}, such as {example_width}x{example_height}"
            )

    @classmethod
    def fit(cls, screen: Size, crop: Region | None = None, image: Size | None = None) -> Geometry:
        """Fill in what is not given: the whole screen, and the crop's own size if the model can take it.

        A crop beyond the limits gets the largest image of its shape that is within them.
        """
        if crop is None:
            _require_size("screen", screen)
            crop = (0, 0, *screen)
        if image is None:
            _require_integers("crop", crop, 4, "(x, y, width, height)")
            image = largest_image((max(1, crop[2]), max(1, crop[3])))
        return cls(screen, crop, image)

    def to_screen(self, x: int, y: int) -> tuple[int, int]:
        """The screen pixel at the centre of an image pixel. InvalidInput if that is outside the image."""
        _require_integers("point", (x, y), 2, "(x, y)")
        width, height = self.image
        if not (0 <= x < width and 0 <= y < height):
            raise InvalidInput(
                f"({x}, {y}) is outside the image: x must be 0 to {width - 1} and y 0 to {height - 1}, "
                "in pixels of the last screenshot"
            )
        left, top, crop_width, crop_height = self.crop
        return (
            left + _same_place(x, width, crop_width),
            top + _same_place(y, height, crop_height),
        )

    def to_image(self, x: int, y: int) -> tuple[int, int]:
        """The image pixel that shows a screen pixel. InvalidInput if that is outside the crop."""
        _require_integers("point", (x, y), 2, "(x, y)")
        left, top, width, height = self.crop
        if not (left <= x < left + width and top <= y < top + height):
            raise InvalidInput(
                f"({x}, {y}) is outside the part of the screen that the image shows: x must be {left} to "
                f"{left + width - 1} and y {top} to {top + height - 1}, in pixels of the screen"
            )
        return (
            _same_place(x - left, width, self.image[0]),
            _same_place(y - top, height, self.image[1]),
        )


def fits_model(image: Size) -> bool:
    """Whether an image of this size reaches the model unscaled."""
    width, height = image
    patches = -(-width // PATCH_SIDE) * -(-height // PATCH_SIDE)
    return max(width, height) <= MAX_IMAGE_SIDE and patches <= MAX_IMAGE_PATCHES


def largest_image(region: Size) -> Size:
    """The region's own size if the model can take it, else the largest image of the same shape."""
    width, height = region
    longer, shorter = max(width, height), min(width, height)
    for long_side in range(min(longer, MAX_IMAGE_SIDE), 0, -1):
        short_side = max(1, round(shorter * long_side / longer))
        image = (long_side, short_side) if width >= height else (short_side, long_side)
        if fits_model(image):
            return image
    raise AssertionError("one pixel always fits")


def _same_place(index: int, count: int, other: int) -> int:
    """The pixel, of `other` along an axis, that holds the centre of pixel `index` of `count`.

    The centre lies at (2·index + 1) · other / (2·count); ceiling minus one gives a border to the lower pixel.
    """
    return -((2 * index + 1) * other // (-2 * count)) - 1


def _require_size(what: str, size: Size) -> None:
    _require_integers(f"{what} size", size, 2, "(width, height)")
    if min(size) < 1:
        raise InvalidInput(f"the {what} size {size} must be at least 1x1")


def _require_integers(what: str, value: object, count: int, form: str) -> None:
    if (
        not isinstance(value, tuple)
        or len(value) != count
        or not all(isinstance(part, int) and not isinstance(part, bool) for part in value)
    ):
        raise InvalidInput(f"the {what} must be {count} integers {form}, not {value!r}")
