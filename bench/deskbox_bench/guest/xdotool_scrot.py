"""A program for each action, in the guest: xdotool for input, scrot to a file for a screenshot."""

from __future__ import annotations

import subprocess
from pathlib import Path

FILE = Path("/tmp/bench-scrot.png")


def click(x: int, y: int) -> None:
    subprocess.run(["xdotool", "mousemove", str(x), str(y), "click", "1"], check=True)


def screenshot() -> bytes:
    subprocess.run(["scrot", "--overwrite", str(FILE)], check=True)
    return FILE.read_bytes()


def click_frame(x: int, y: int) -> bytes:
    click(x, y)
    return screenshot()


def type_text(text: str) -> None:
    subprocess.run(["xdotool", "type", "--", text], check=True)
