"""The Tk window in the guest, and each event that it has seen, with the X server's own time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.apps import WITNESS, running
from tests.support.timing import patient

from deskbox.desktop import Desktop
from deskbox_guest.protocol import Window

LOG = "tk-events.log"

Event = dict[str, Any]


class TkWitness:
    """What the window has seen since the last `clear`."""

    def __init__(self, desktop: Desktop, window: Window) -> None:
        self.window = window
        self._desktop = desktop
        self._start = 0

    def clear(self) -> None:
        self._start = len(self._desktop.read_file(LOG))

    def events(self) -> list[Event]:
        # What follows the last newline is still being written.
        lines = self._desktop.read_file(LOG)[self._start :].split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def until(self, condition: Callable[[list[Event]], bool], timeout: float = 5.0) -> list[Event]:
        """Wait for events that arrive behind the action that caused them; the events as they are then."""
        deadline = time.monotonic() + patient(timeout)
        while not condition(events := self.events()):
            assert time.monotonic() < deadline, f"not seen within {timeout} s: {events[-20:]}"
            time.sleep(0.02)
        return events

    def saw(self, kind: str, count: int = 1) -> list[Event]:
        """Wait until so many events of a kind have arrived, and return all that came."""
        return self.until(lambda events: len(only(events, kind)) >= count)


def only(events: list[Event], *kinds: str) -> list[Event]:
    return [event for event in events if event["type"] in kinds]


def presses(events: list[Event]) -> list[str]:
    """Keys and buttons in the order in which they went down (+) and up (-)."""
    # A second press soon after the first is told as a double click only.
    signs = {"keydown": "+", "keyup": "-", "mousedown": "+", "dblclick": "+", "mouseup": "-"}
    return [f"{signs[event['type']]}{event['detail']}" for event in only(events, *signs)]


@contextmanager
def tk_witness(desktop: Desktop, geometry: str = "500x400+100+100") -> Iterator[TkWitness]:
    """Show the window, with the keyboard's focus, for as long as the context is open.

    Its upper part is a field of text, the lower 150 pixels are an empty canvas.
    """
    desktop.write_file("witness_tk.py", (WITNESS / "witness_tk.py").read_bytes())
    with running(desktop, ["python3", "witness_tk.py", LOG, geometry], "Tk") as window:
        yield TkWitness(desktop, window)
