"""pynput for input, Pillow's ImageGrab for screenshots, and half a second between the two."""

from __future__ import annotations

import io
import time

from PIL import ImageGrab
from pynput.keyboard import Controller as Keyboard
from pynput.mouse import Button
from pynput.mouse import Controller as Mouse

PAUSE_S = 0.5

_mouse, _keyboard = Mouse(), Keyboard()


def click(x: int, y: int) -> None:
    _mouse.position = (x, y)
    _mouse.click(Button.left)


def screenshot() -> bytes:
    picture = io.BytesIO()
    ImageGrab.grab().save(picture, "PNG")
    return picture.getvalue()


def click_frame(x: int, y: int) -> bytes:
    click(x, y)
    time.sleep(PAUSE_S)
    return screenshot()


def type_text(text: str) -> None:
    _keyboard.type(text)
