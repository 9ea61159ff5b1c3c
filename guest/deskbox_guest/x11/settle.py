"""Waiting for a quiet screen.

The X server says *when* something was drawn, comparing pixels says *what* has changed. The wait ends when
nothing has changed for a window of time. What repeats in a small place (a caret, a spinner) does not hold it
open; a large endless animation ends it early, and a cap ends it in any case.

The window is a horizon: a change that comes later than that after the last one is not waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from PIL import ImageChops

from deskbox_guest.protocol import Fault, Settle
from deskbox_guest.x11.capture import Screen

Verdict = Literal["settled", "animating", "cap"]
Box = tuple[int, int, int, int]  # left, top, right, bottom in screen pixels

# Between two looks at a screen that keeps changing: faster finds nothing more and costs the guest's CPU.
LOOK_S = 0.025

# A text caret is a line this thin and this high. It blinks too slowly to be found repeating in time.
CARET_WIDTH, CARET_HEIGHT = 3, 64

# What repeats in a place up to this large is a spinner, a clock, an icon; beyond, it is the content.
SMALL_WIDTH, SMALL_HEIGHT = 160, 160

# Changes at even intervals after which a place is said to repeat. Fewer may be the steps of one effect.
REPEATS = 6

# What has kept changing for this long, never pausing for longer than that, won't stop for us.
ANIMATION_S, ANIMATION_PAUSE_S = 1.0, 0.1


@dataclass
class _Spot:
    """A place on the screen and when it changed."""

    box: Box
    times: list[float] = field(default_factory=list)

    def takes(self, box: Box) -> bool:
        """Whether a change there belongs to this place: they overlap by half of the larger one."""
        width = min(box[2], self.box[2]) - max(box[0], self.box[0])
        height = min(box[3], self.box[3]) - max(box[1], self.box[1])
        return width > 0 and height > 0 and 2 * width * height >= max(_area(box), _area(self.box))

    def add(self, box: Box, now: float) -> None:
        mine = self.box
        self.box = (min(mine[0], box[0]), min(mine[1], box[1]), max(mine[2], box[2]), max(mine[3], box[3]))
        self.times.append(now)

    def repeats(self, now: float, least: float) -> bool:
        """Whether it has changed for `least` seconds, lately at even intervals, and goes on doing so."""
        latest = self.times[-REPEATS:]
        if len(latest) < REPEATS or now - self.times[0] < least:
            return False
        gaps = [after - before for before, after in pairwise(latest)]
        # Looks come every LOOK_S, so a gap is known no better than that.
        even = max(gaps) <= 2 * min(gaps) + 2 * LOOK_S
        return even and now - latest[-1] <= max(gaps) + 2 * LOOK_S


class Activity:
    """Decides, from the changes it is told of, whether the screen is quiet. Pure; times in seconds."""

    def __init__(self, settle: Settle, start: float) -> None:
        self._settle = settle
        self._start = start
        self._spots: list[_Spot] = []

    def change(self, box: Box, now: float) -> None:
        spot = next((spot for spot in self._spots if spot.takes(box)), None)
        if spot is None:
            spot = _Spot(box)
            self._spots.append(spot)
        spot.add(box, now)

    def verdict(self, now: float, busy: bool = False) -> Verdict | None:
        """None to wait on. `busy`: something else says that the screen will still change."""
        times = self._changes_that_count(now)
        if not busy and now - max(times, default=self._start) >= self._settle.quiet:
            return "settled"
        if now - self._start >= self._settle.cap:
            return "cap"
        return "animating" if _keeps_changing(times, now) else None

    def _changes_that_count(self, now: float) -> list[float]:
        """When anything changed that we wait for."""
        return sorted(time for spot in self._spots if not self._ignored(spot, now) for time in spot.times)

    def _ignored(self, spot: _Spot, now: float) -> bool:
        return _caret(spot.box) or (_small(spot.box) and spot.repeats(now, self._settle.quiet))


def _keeps_changing(times: Sequence[float], now: float) -> bool:
    last = [time for time in times if now - time <= ANIMATION_S + ANIMATION_PAUSE_S]
    moments = [*last, now]
    return now - moments[0] >= ANIMATION_S and all(
        after - before <= ANIMATION_PAUSE_S for before, after in pairwise(moments)
    )


def _area(box: Box) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def _small(box: Box) -> bool:
    return box[2] - box[0] <= SMALL_WIDTH and box[3] - box[1] <= SMALL_HEIGHT


def _caret(box: Box) -> bool:
    return box[2] - box[0] <= CARET_WIDTH and box[3] - box[1] <= CARET_HEIGHT


def wait_for_quiet(
    screen: Screen,
    settle: Settle,
    busy: Sequence[Callable[[], bool]],
    cancelled: Callable[[], bool],
) -> Verdict:
    """Wait as `settle` says. While any of `busy` says so, the screen does not count as quiet."""
    activity = Activity(settle, time.monotonic())
    serial, before = screen.pixels()
    while True:
        if cancelled():
            raise Fault("interrupted", "cancelled while waiting for a quiet screen", {"cancelled": True})
        looked = time.monotonic()
        if screen.changes() != serial:
            serial, now = screen.pixels()
            box = ImageChops.difference(before, now).getbbox()
            before = now
            if box is not None:
                activity.change(box, time.monotonic())
        verdict = activity.verdict(time.monotonic(), any(signal() for signal in busy))
        if verdict is not None:
            return verdict
        # Not until the next drawing: who is busy, and what has stopped repeating, no event tells.
        time.sleep(max(0.0, looked + LOOK_S - time.monotonic()))
