"""pyautogui as it is out of the box: it pauses 0.1 s after each call, and lets scrot take screenshots."""

from __future__ import annotations

import io

import pyautogui


def click(x: int, y: int) -> None:
    pyautogui.click(x, y)


def screenshot() -> bytes:
    picture = io.BytesIO()
    pyautogui.screenshot().save(picture, "PNG")
    return picture.getvalue()


def click_frame(x: int, y: int) -> bytes:
    click(x, y)
    return screenshot()


def type_text(text: str) -> None:
    pyautogui.write(text)
