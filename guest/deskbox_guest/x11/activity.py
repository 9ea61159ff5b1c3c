"""What counts as a quiet screen. Pure: told what has changed and when, it says whether to wait on.

Times are in seconds of one monotonic clock, boxes are (left, top, right, bottom) in screen pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from PIL import Image, ImageChops

from deskbox_guest.protocol import Settle

Verdict = Literal["settled", "animating", "cap"]
# What an application does: it has not handled all that it got, or it takes a processor, or neither.
Work = Literal["behind", "works", "rests"]
Box = tuple[int, int, int, int]

# Between two looks at a screen that keeps changing: faster finds nothing more and costs the guest's CPU.
LOOK_S = 0.025

# A text caret is a line this thin and this high. It blinks too slowly to be found repeating in time.
CARET_WIDTH, CARET_HEIGHT = 3, 64

# What repeats in a place up to this large is a spinner, a clock, an icon; beyond, it is the content.
SMALL_WIDTH, SMALL_HEIGHT = 160, 160

# What has kept changing for this long, never pausing for longer than that, won't stop for us.
ENDLESS_S, PAUSE_S = 1.0, 0.2

# What takes a processor for longer than that and shows nothing is no answer to an action.
WORK_S = 2.0

# A small place that changes so often in a row, so long after the last action that it is no effect of it, is
# one that always does.
SPINS = 6

# After so many changes in a row at even intervals a small place is said to tick. How far from even (two looks
# and a busy browser); how many beats may go unseen; and how different the times since the last action must
# be, because what an action causes comes at even intervals, too, if the action does.
TICKS, TICK_JITTER_S, TICK_BEATS, TICK_LEADS_S = 4, 0.08, 3, 0.25

# Changes that lie this many pixels apart are told from each other, up to so many; more are one change.
TILE, MAX_CHANGES = 16, 8

# What is remembered for longer than it takes to tell an animation.
MOST_PLACES, MOST_TIMES = 64, 128


def changed(before: Image.Image, now: Image.Image) -> list[Box]:
    """Where two RGB images differ: one box for each place."""
    difference = ImageChops.difference(before, now)
    everything = difference.getbbox()
    if everything is None:
        return []
    if _small(everything):
        return [everything]
    red, green, blue = difference.crop(everything).split()
    any_band = ImageChops.lighter(ImageChops.lighter(red, green), blue).point([0] + [255] * 255)
    tiles = any_band.reduce(TILE)
    places = _groups(tiles)
    if len(places) > MAX_CHANGES:
        return [everything]
    left, top = everything[:2]
    boxes = []
    for x0, y0, x1, y1 in places:
        inner = any_band.crop((x0 * TILE, y0 * TILE, x1 * TILE, y1 * TILE)).getbbox()
        assert inner is not None
        x, y = left + x0 * TILE, top + y0 * TILE
        boxes.append((x + inner[0], y + inner[1], x + inner[2], y + inner[3]))
    return boxes


def _groups(tiles: Image.Image) -> list[Box]:
    """The boxes, in tiles, of the non-zero ones that touch each other, also by a corner."""
    width = tiles.width
    data = tiles.tobytes()
    left = {index for index, value in enumerate(data) if value}
    boxes: list[Box] = []
    while left and len(boxes) <= MAX_CHANGES:
        reached = [left.pop()]
        for index in reached:
            x = index % width
            for step in (-width - 1, -width, -width + 1, -1, 1, width - 1, width, width + 1):
                other = index + step
                if other in left and abs(other % width - x) <= 1:
                    left.remove(other)
                    reached.append(other)
        xs, ys = [index % width for index in reached], [index // width for index in reached]
        boxes.append((min(xs), min(ys), max(xs) + 1, max(ys) + 1))
    return boxes


@dataclass
class Place:
    """A place on the screen, and when it changed."""

    box: Box
    times: list[float] = field(default_factory=list)
    leads: list[float] = field(default_factory=list)  # seconds since the last action began
    spins: bool = False  # changes many times a second, for ever
    ticks: bool = False  # changes at a pace of its own, whatever is done and when

    def takes(self, box: Box) -> bool:
        """Whether a change there belongs to this place: they overlap by half of the larger one, or are small
        and touch."""
        width = min(box[2], self.box[2]) - max(box[0], self.box[0])
        height = min(box[3], self.box[3]) - max(box[1], self.box[1])
        if width <= 0 or height <= 0:
            return False
        return 2 * width * height >= max(_area(box), _area(self.box)) or _small(_union(box, self.box))

    def add(self, box: Box, now: float, lead: float) -> None:
        self.box = _union(self.box, box)
        self.times = [*self.times[-MOST_TIMES:], now]
        self.leads = [*self.leads[-MOST_TIMES:], lead]
        self.spins = self.spins or self._has_kept_changing()
        self.ticks = self.ticks or self._has_own_pace()

    def swallow(self, other: Place) -> None:
        changes = sorted(zip(self.times + other.times, self.leads + other.leads, strict=True))
        self.times, self.leads = [time for time, _ in changes], [lead for _, lead in changes]

    def goes_on_anyway(self, now: float) -> bool:
        """Whether its changes say nothing about what an action has led to."""
        return _caret(self.box) or (_small(self.box) and self.ticks) or self.moves_anyway(now)

    def moves_anyway(self, now: float) -> bool:
        """Whether it is a spinner, which costs whoever paints it some of a processor."""
        return _small(self.box) and self.spins and self._still_spins(now)

    def _still_spins(self, now: float) -> bool:
        """Whether the next change of a place that spins is not overdue."""
        latest = self.times[-SPINS:]
        pause = max((after - before for before, after in pairwise(latest)), default=0.0)
        return now - latest[-1] <= min(pause, PAUSE_S) + 2 * LOOK_S

    def _has_kept_changing(self) -> bool:
        run = 1
        while run < len(self.times) and self.times[-run] - self.times[-run - 1] <= PAUSE_S:
            run += 1
        unprovoked = run >= SPINS and self.leads[-run] >= ENDLESS_S
        return unprovoked or self.times[-1] - self.times[-run] >= ENDLESS_S

    def _has_own_pace(self) -> bool:
        times, leads = self.times[-TICKS:], self.leads[-TICKS:]
        if len(times) < TICKS or max(leads) - min(leads) < TICK_LEADS_S:
            return False
        gaps = [after - before for before, after in pairwise(times)]
        beat = min(gaps)
        return beat > 2 * TICK_JITTER_S and all(
            abs(gap - beat * round(gap / beat)) <= TICK_JITTER_S and round(gap / beat) <= TICK_BEATS
            for gap in gaps
        )


class Places:
    """Where the screen has changed lately. Remembered from one wait to the next."""

    def __init__(self) -> None:
        self._places: list[Place] = []  # the latest change last

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def change(self, box: Box, now: float, lead: float) -> None:
        """Something has changed there, `lead` seconds after the last action."""
        place = next((place for place in self._places if place.takes(box)), None) or Place(box)
        others = [other for other in self._places if other is not place]
        # What lay inside a larger change is not there any more; but that it changed is still true.
        swallowed = [other for other in others if _inside(other.box, box)]
        for other in swallowed:
            others.remove(other)
            place.swallow(other)
        place.add(box, now, lead)
        old = others[:-MOST_PLACES]
        kept = [other for other in old if now - other.times[-1] <= ENDLESS_S + PAUSE_S]
        self._places = [*kept, *others[-MOST_PLACES:], place]


class Activity:
    """One wait for a quiet screen: whether it is over."""

    def __init__(
        self, settle: Settle, start: float, since: float, places: Places, *, hums: bool = False
    ) -> None:
        """It starts now and is about all that has changed after `since`. `hums`: an application that works
        does so without end, as the wait before has found."""
        self._settle = settle
        self._start = start
        self._since = since
        self._places = places
        self._hums = hums

    def quiet_at(self, now: float, news: float = -1.0) -> float:
        """When the screen will count as quiet, if nothing happens until then. `news`: when something other
        than a drawing last happened that will show."""
        return max([*self._changes_that_count(now)[-1:], self._since, news]) + self._settle.quiet

    def verdict(self, now: float, *, news: float = -1.0, work: Work = "rests") -> Verdict | None:
        """None to wait on. While an application works the screen will still change."""
        late = now - self.quiet_at(now, news)
        if late >= 0 and not self._awaited(work, late, now):
            return "settled"
        if now - self._start >= self._settle.cap:
            return "cap"
        # What moves while an answer is on its way is not what comes of it.
        times = [time for time in self._changes_that_count(now) if time > news]
        return "animating" if _keeps_changing(times, now) else None

    def _awaited(self, work: Work, late: float, now: float) -> bool:
        """Whether something will come of that work, on a screen that could have been quiet for `late` s."""
        if work == "works":
            endless = self._hums or any(place.moves_anyway(now) for place in self._places)
            return late < WORK_S and not endless
        return work == "behind"

    def _changes_that_count(self, now: float) -> list[float]:
        """When anything changed that we wait for."""
        return sorted(
            time
            for place in self._places
            if not place.goes_on_anyway(now)
            for time in place.times
            if time >= self._since
        )


def _keeps_changing(times: Sequence[float], now: float) -> bool:
    last = [time for time in times if now - time <= ENDLESS_S + PAUSE_S]
    moments = [*last, now]
    return now - moments[0] >= ENDLESS_S and all(
        after - before <= PAUSE_S for before, after in pairwise(moments)
    )


def _union(one: Box, other: Box) -> Box:
    left, top, right, bottom = one
    return min(left, other[0]), min(top, other[1]), max(right, other[2]), max(bottom, other[3])


def _area(box: Box) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def _inside(inner: Box, outer: Box) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def _small(box: Box) -> bool:
    return box[2] - box[0] <= SMALL_WIDTH and box[3] - box[1] <= SMALL_HEIGHT


def _caret(box: Box) -> bool:
    return box[2] - box[0] <= CARET_WIDTH and box[3] - box[1] <= CARET_HEIGHT
