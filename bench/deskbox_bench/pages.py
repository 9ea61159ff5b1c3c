"""The two pages that are acted on, seen from outside: by pictures, and by what they report."""

from __future__ import annotations

import io
import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from PIL import Image

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled, DeskboxError
from deskbox_guest.protocol import Settle

PORT = 8642
Spot = tuple[int, int]

# Clicks in a row come to different places, because a second one at the same place would be a double click.
_OFFSETS = (30, 70, 110, 150)
# From a click on the slowest pad to its picture, with much to spare.
_REST_S = 10.0
_LOOK_S = 0.01
# After the last repaint the browser has a little work left, which is not the next subject's.
_BREATH_S = 0.05
_REPORT_S = 20.0


class Site:
    """The server in the guest. Its pages report to us."""

    def __init__(self, desktop: Desktop, reports: queue.Queue[dict[str, Any]]) -> None:
        self._desktop = desktop
        self._reports = reports

    def open(self, page: str, kind: str) -> dict[str, Any]:
        """Show a page and wait until it has reported where its parts are."""
        self._desktop.open_url(f"http://127.0.0.1:{PORT}/{page}")
        report = self.report(kind)
        self._desktop.step(settle=Settle())  # a page takes clicks only once it is painted
        return report

    def report(self, kind: str) -> dict[str, Any]:
        deadline = time.monotonic() + _REPORT_S
        while True:
            try:
                report = self._reports.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise DeskboxError(f"the bench's page has not reported its {kind}") from None
            if report["kind"] == kind:
                return report


@contextmanager
def site(desktop: Desktop, folder: str) -> Iterator[Site]:
    """Serve the pages in the guest for as long as the context is open."""
    reports: queue.Queue[dict[str, Any]] = queue.Queue()
    waiting = bytearray()
    ended = threading.Event()

    def on_output(kind: int, data: bytes) -> None:
        waiting.extend(data if kind == 1 else b"")
        while b"\n" in waiting:
            line, _, rest = waiting.partition(b"\n")
            waiting[:] = rest
            reports.put(json.loads(line))

    def serve() -> None:
        command = ["python3", f"{folder}/site.py", str(PORT)]
        with suppress(Cancelled):
            desktop.exec(
                command, timeout=7200, output_limit=2**30, on_output=on_output, cancelled=ended.is_set
            )

    server = threading.Thread(target=serve)
    server.start()
    try:
        served = Site(desktop, reports)
        served.report("serving")
        yield served
    finally:
        ended.set()
        server.join()


@dataclass(frozen=True)
class Click:
    """Where to click, and the number that a true picture shows afterwards."""

    x: int
    y: int
    number: int


class ClickPage:
    """Every picture of it says which click it shows."""

    def __init__(self, desktop: Desktop, served: Site) -> None:
        self._desktop = desktop
        report = served.open("click.html", "clicks")
        self.points: list[Spot] = [(x + w // 2, y + h // 2) for x, y, w, h in report["squares"]]
        self._pads: dict[str, tuple[int, int, int, int]] = {
            name: tuple(place) for name, place in report["pads"].items()
        }
        self._offsets = cycle(_OFFSETS)
        self._number = 0
        left, top, _, height = report["squares"][0]
        last = report["squares"][-1]
        self._region = (left, top, last[0] + last[2] - left, height)

    def next(self, pad: str) -> Click:
        """The next click, on this pad. It is to be done once, and to be followed by `rest`."""
        x, y, _, height = self._pads[pad]
        if pad != "nothing":
            self._number += 1
        return Click(x + next(self._offsets), y + 2 * height // 3, self._number)

    def shown(self, image: bytes) -> int:
        """The click that a picture of the whole screen shows."""
        return self._read(image, (0, 0))

    def bits(self, number: int) -> list[bool]:
        """The squares that are dark for it."""
        return [bool(number >> bit & 1) for bit in range(len(self.points))]

    def rest(self) -> None:
        """Wait until the last click is shown. One that was lost is given up."""
        deadline = time.monotonic() + _REST_S
        while True:
            image = self._desktop.screenshot(region=self._region, cursor=False)
            shown = self._read(image, self._region[:2])
            if shown == self._number:
                break
            if time.monotonic() > deadline:
                self._number = shown
                break
            time.sleep(_LOOK_S)
        time.sleep(_BREATH_S)

    def _read(self, image: bytes, origin: Spot) -> int:
        with Image.open(io.BytesIO(image)) as picture:
            grey = picture.convert("L")
        dark = [grey.getpixel((x - origin[0], y - origin[1])) < 128 for x, y in self.points]  # type: ignore[operator]
        return sum(bit << index for index, bit in enumerate(dark))


class TextPage:
    """A field to type into."""

    def __init__(self, desktop: Desktop, served: Site) -> None:
        self._desktop = desktop
        self._served = served
        report = served.open("text.html", "field")
        self._field, self._take = report["field"], report["take"]
        self._offsets = cycle(_OFFSETS)

    def ready(self) -> None:
        """Empty and focused, under the keyboard that the guest began with: some peers leave another."""
        self._desktop.exec(["setxkbmap", "us"])
        x, y, _, _ = self._field
        self._desktop.step(f"mousemove {x + 2 * next(self._offsets)} {y + 200} click 1")
        self.take()

    def take(self) -> tuple[str, float]:
        """What has arrived, and when the last of it did (seconds since 1970). The field is empty then.

        The click stands behind all keys in the X server's queue.
        """
        x, y, _, _ = self._take
        self._desktop.step(f"mousemove {x + 40} {y + next(self._offsets)} click 1")
        report = self._served.report("text")
        return report["text"], report["last"]
