"""The limit: what X, this machine and this deflate allow. One loop in the guest, no call from outside.

Input by XTEST, pixels by XShmGetImage, PNG by the agent's own encoder. It checks nothing and waits for
nothing; only `true_frame` waits, and that one is told what to wait for.
"""

from __future__ import annotations

import ctypes
import time

import mss
from PIL import Image
from Xlib import XK, X, display
from Xlib.ext import xtest

from deskbox_guest.x11 import png

# Memory of pictures is kept for the next one. Given back to the system each time, as the C library does by
# itself, it has to be mapped again a page at a time, and a screenshot takes three times as long.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_libc = ctypes.CDLL(None)
_libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
_libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)

LOOK_S = 0.005

_display = display.Display()
_grabber = mss.MSS()
_screen = _display.screen()
_size = (_screen.width_in_pixels, _screen.height_in_pixels)
_everything = {"left": 0, "top": 0, "width": _size[0], "height": _size[1]}
_shift = _display.keysym_to_keycode(XK.XK_Shift_L)


def click(x: int, y: int) -> None:
    xtest.fake_input(_display, X.MotionNotify, x=x, y=y)
    xtest.fake_input(_display, X.ButtonPress, 1)
    xtest.fake_input(_display, X.ButtonRelease, 1)
    _display.sync()


def screenshot() -> bytes:
    return _encode(_grab())


def click_frame(x: int, y: int) -> bytes:
    click(x, y)
    return screenshot()


def true_frame(x: int, y: int, points: list[list[int]], bits: list[bool]) -> bytes:
    """Click, then look until these points are dark where the bits are set."""
    click(x, y)
    while True:
        looked = time.monotonic()
        pixels = _grab()
        if [pixels[4 * (py * _size[0] + px)] < 128 for px, py in points] == bits:
            return _encode(pixels)
        time.sleep(max(0.0, looked + LOOK_S - time.monotonic()))


def type_text(text: str) -> None:
    """ASCII, on the keys that the layout has."""
    for character in text:
        keycode, column = next(iter(_display.keysym_to_keycodes(ord(character))))
        if column == 1:
            xtest.fake_input(_display, X.KeyPress, _shift)
        xtest.fake_input(_display, X.KeyPress, keycode)
        xtest.fake_input(_display, X.KeyRelease, keycode)
        if column == 1:
            xtest.fake_input(_display, X.KeyRelease, _shift)
    _display.sync()


def _grab() -> bytearray:
    return _grabber.grab(_everything).raw


def _encode(pixels: bytearray) -> bytes:
    # Red and blue are exchanged on the way into the rows.
    band = Image.frombuffer("RGBX", _size, pixels, "raw", "RGBX", 0, 1)
    return png.encode_bands(_size, [band], "BGR")
