"""What a picture shows against what `xwd` sees and others draw, on an X server of our own."""

from __future__ import annotations

import io
import os
import subprocess
import threading
from collections.abc import Iterator

import pytest
from PIL import Image, ImageChops
from tests.support import xwd
from Xlib import X
from Xlib.display import Display
from Xlib.ext import xtest

from deskbox_guest.protocol import Fault, Frame
from deskbox_guest.x11 import capture
from deskbox_guest.x11.capture import Screen
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.picture import Cursor, Encoded, Shot, take

Colour = tuple[int, int, int]
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


class Painter:
    """Another client, which draws on the screen and is told nothing of ours."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.display = Display(name)
        screen = self.display.screen()
        self.root = screen.root
        self.size = (screen.width_in_pixels, screen.height_in_pixels)
        self._gc = self.root.create_gc()

    def fill(self, colour: Colour, x: int, y: int, width: int, height: int) -> None:
        self._gc.change(foreground=int.from_bytes(bytes(colour), "big"))
        self.root.fill_rectangle(self._gc, x, y, width, height)
        self.display.sync()

    def mosaic(self) -> None:
        """Rectangles of many colours, over the whole screen."""
        width, height = self.size
        for index in range(400):
            x, y = index * 7919 % width, index * 104729 % height
            colour = tuple((index * 2654435761 & 0xFFFFFF).to_bytes(3, "big"))
            self.fill(colour, x, y, 1 + index * 31 % 700, 1 + index * 17 % 300)  # type: ignore[arg-type]

    def point(self, x: int, y: int) -> None:
        xtest.fake_input(self.display, X.MotionNotify, x=x, y=y)
        self.display.sync()

    def cursor(self, colour: Colour, size: tuple[int, int], hot: tuple[int, int]) -> None:
        """Give the pointer the look of a plain rectangle that points with its pixel `hot`."""
        shape = self.root.create_pixmap(*size, 1)
        shape.fill_rectangle(shape.create_gc(foreground=1), 0, 0, *size)
        shades = tuple(257 * value for value in colour)
        self.root.change_attributes(cursor=shape.create_cursor(shape, shades, shades, *hot))
        self.display.sync()

    def seen_by_xwd(self) -> Image.Image:
        dump = subprocess.run(
            ["xwd", "-root", "-silent", "-display", self.name], capture_output=True, check=True
        )
        return xwd.parse(dump.stdout)


@pytest.fixture(scope="module", params=["1280x800", "3840x2160"])
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a display of that size."""
    read, write = os.pipe()
    server = subprocess.Popen(
        [
            "Xvfb",
            "-displayfd",
            str(write),
            "-screen",
            "0",
            f"{request.param}x24",
            "-nolisten",
            "tcp",
            "-noreset",
        ],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    try:
        with os.fdopen(read) as numbers:
            yield f":{int(numbers.readline())}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def painter(name: str) -> Iterator[Painter]:
    painter = Painter(name)
    yield painter
    painter.display.close()


@pytest.fixture
def screen(name: str) -> Iterator[Screen]:
    screen = Screen(Link(name), name)
    yield screen
    screen.close()


def decoded(encoded: Encoded) -> Image.Image:
    image = Image.open(io.BytesIO(encoded.data)).convert("RGB")
    assert image.size == encoded.size
    return image


def test_a_picture_is_what_xwd_sees(painter: Painter, screen: Screen) -> None:
    painter.mosaic()
    seen = painter.seen_by_xwd()
    assert seen.size == painter.size
    assert len(seen.getcolors(1 << 24) or []) > 50
    assert decoded(screen.picture(Frame(cursor=False))).tobytes() == seen.tobytes()
    assert screen.pixels()[1].tobytes() == seen.tobytes()
    width, height = painter.size
    for x, y, w, h in [(0, 0, 1, 1), (width - 1, height - 1, 1, 1), (7, 5, 301, 99), (0, 40, width, 3)]:
        part = screen.picture(Frame(x, y, w, h, cursor=False))
        assert decoded(part).tobytes() == seen.crop((x, y, x + w, y + h)).tobytes()


def test_the_pointer_is_drawn_by_the_pixel_that_points(painter: Painter, screen: Screen) -> None:
    painter.fill(GREEN, 0, 0, *painter.size)
    width, height = painter.size
    for colour, size, hot in [(RED, (16, 24), (5, 9)), (BLUE, (30, 10), (29, 0)), (RED, (16, 24), (0, 0))]:
        painter.cursor(colour, size, hot)
        for x, y in [(200, 100), (0, 0), (width - 1, height - 1), (640, 3)]:
            painter.point(x, y)
            left, top = x - hot[0], y - hot[1]
            expected = Image.new("RGB", painter.size, GREEN)
            expected.paste(colour, (left, top, left + size[0], top + size[1]))
            image = decoded(screen.picture(Frame()))
            assert ImageChops.difference(image, expected).getbbox() is None
            assert decoded(screen.picture(Frame(cursor=False))).getcolors() == [(width * height, GREEN)]


def test_all_that_was_drawn_is_in_the_next_picture(painter: Painter, screen: Screen) -> None:
    """Also while something else is drawn all the time, and the server reports only the first drawing."""
    ended = threading.Event()

    def disturb() -> None:
        other = Painter(painter.name)
        while not ended.is_set():
            other.fill(RED, 400, 400, 3, 3)
        other.display.close()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        for index in range(150):
            colour = (index, 255 - index, 7)
            painter.fill(colour, 100, 100, 10, 10)
            assert decoded(screen.picture(Frame(105, 105, 1, 1, cursor=False))).getpixel((0, 0)) == colour
    finally:
        ended.set()
        disturber.join()
    assert decoded(screen.picture(Frame(cursor=False))).tobytes() == painter.seen_by_xwd().tobytes()


def test_as_long_as_nothing_changes_nothing_is_done(
    painter: Painter, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    painter.mosaic()
    painter.point(50, 60)
    taken: list[Frame] = []

    def noted(shot: Shot, cursor: Cursor | None, frame: Frame) -> Encoded:
        taken.append(frame)
        return take(shot, cursor, frame)

    monkeypatch.setattr(capture, "take", noted)
    whole = screen.picture(Frame())
    shrink = Frame(max_bytes=len(whole.data) // 2, oversize="shrink")
    for frame in (Frame(), shrink, Frame(10, 10, 30, 30), Frame(format="jpeg")):
        taken.clear()
        first = screen.picture(frame)
        assert screen.picture(frame) is first
        assert screen.picture(frame) is first
        assert taken == ([] if frame == Frame() else [frame])
    taken.clear()
    for _ in range(3):
        with pytest.raises(Fault, match="10 are allowed"):
            screen.picture(Frame(max_bytes=10))
    assert len(taken) == 1
    serial = screen.changes()
    painter.point(51, 60)
    moved = screen.picture(Frame())
    assert moved.data != whole.data
    assert screen.changes() == serial
    painter.fill(BLUE, 5, 5, 1, 1)
    assert screen.picture(Frame()).data != moved.data
    assert screen.changes() > serial
