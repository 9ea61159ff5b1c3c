"""What each press of a script will have been: a click, part of a double click, the begin of a drag. Pure.

The engine looks ahead, because how it presses depends on what follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deskbox_guest.x11.script import WHEEL, ButtonDown, ButtonUp, Click, Command, MouseMove, Sleep
from deskbox_guest.x11.timing import (
    DOUBLE_CLICK_PX,
    DOUBLE_CLICK_S,
    DRAG_MAX_STEPS,
    DRAG_MIN_STEPS,
    DRAG_STEP_PX,
)


@dataclass
class Gesture:
    """Presses that toolkits count together."""

    clicks: int = 0


@dataclass
class Press:
    """The press of a `mousedown`, or those of a `click`, of a button that is no wheel."""

    button: int
    x: int
    y: int
    path: float = 0.0  # screen pixels to the release; more than none is a drag
    end: tuple[int, int] | None = None  # where a drag ends
    gesture: Gesture = field(default_factory=Gesture)
    first: bool = True  # of its gesture

    @property
    def drag_step(self) -> float:
        """Screen pixels from one motion to the next."""
        return max(1.0, self.path / DRAG_MAX_STEPS, min(DRAG_STEP_PX, self.path / DRAG_MIN_STEPS))

    @property
    def counted(self) -> bool:
        """Whether it is one of a double click or of more."""
        return self.gesture.clicks > 1

    @property
    def simple(self) -> bool:
        return not self.counted and not self.path

    def joins(self, last: Press) -> bool:
        """Whether toolkits that still remember the press `last` count both together."""
        return self.button == last.button and _near((self.x, self.y), (last.x, last.y))

    def waits_for(self, last: Press) -> bool:
        """Whether toolkits have to forget `last`, the press of another gesture, before this one.

        A double click must not become the second and third click of a triple one, nor a drag that of a
        double click, also where the last drag has ended: what it dragged is under the pointer there as it was
        at its begin. And GTK loses a double click that comes soon after a press elsewhere in the same widget:
        its counter starts anew at the first click, forgets the button, and so starts anew at the second.
        """
        if not self.first or self.button != last.button:
            return False
        again = self.joins(last) or (last.end is not None and _near((self.x, self.y), last.end))
        return self.counted or (again and not (self.simple and last.simple))


NO_PRESS = Press(0, 0, 0)


def _near(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return math.dist(one, other) <= DOUBLE_CLICK_PX


def presses(commands: Sequence[Command], pointer: tuple[int, int]) -> list[Press]:
    """One for each `mousedown` and `click`, in order, if the pointer is there when the script begins."""
    found: list[Press] = []
    last, ended = NO_PRESS, 0.0
    for press, clicks, began, ends in _seen(commands, pointer):
        if press.joins(last) and began - ended < DOUBLE_CLICK_S:
            press.gesture, press.first = last.gesture, False
        press.gesture.clicks += clicks
        found.append(press)
        last, ended = press, ends
    return found


def _seen(commands: Sequence[Command], pointer: tuple[int, int]) -> Iterator[tuple[Press, int, float, float]]:
    """Each press, how many clicks it is, and when the first and the last of them come by the script's clock.

    The path of a drag grows while what follows the press is read.
    """
    down: dict[int, Press] = {}
    time = 0.0
    for command in commands:
        match command:
            case MouseMove(x, y):
                for press in down.values():
                    press.path += math.dist(pointer, (x, y))
                    press.end = (x, y)
                pointer = (x, y)
            case ButtonDown(button) if button not in WHEEL:
                down[button] = Press(button, *pointer)
                yield down[button], 1, time, time
            case ButtonUp(button):
                down.pop(button, None)
            case Click(button, repeat, delay) if button not in WHEEL:
                began, time = time, time + (repeat - 1) * delay
                yield Press(button, *pointer), repeat if delay < DOUBLE_CLICK_S else 1, began, time
            case Sleep(seconds):
                time += seconds
            case _:
                pass
