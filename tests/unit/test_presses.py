"""Which presses of a script toolkits count together, and which must wait until the last one is forgotten."""

from __future__ import annotations

import pytest

from deskbox_guest.x11.presses import NO_PRESS, Press, presses
from deskbox_guest.x11.script import parse
from deskbox_guest.x11.timing import DRAG_MAX_STEPS, DRAG_STEP_PX


def ahead(script: str) -> list[Press]:
    return presses(parse(script, (1280, 800), (100, 100)), (100, 100))


@pytest.mark.parametrize(
    ("script", "clicks"),
    [
        ("click 1", [1]),
        ("click --repeat 2 1", [2]),
        ("click 1 click 1", [2, 2]),
        ("click 1 key a click 1", [2, 2]),
        ("mousedown 1 mouseup 1 mousedown 1 mouseup 1", [2, 2]),
        ("click --repeat 2 1 click 1", [3, 3]),
        ("click 1 sleep 0.3 click 1", [2, 2]),
        ("click 1 sleep 0.6 click 1", [1, 1]),
        ("click --repeat 2 --delay 600 1", [1]),
        ("click 1 click 3", [1, 1]),
        ("click 1 mousemove 105 103 click 1", [2, 2]),
        ("click 1 mousemove 120 100 click 1", [1, 1]),
        ("click 5 click 5 click 4", []),
    ],
)
def test_presses_that_toolkits_count_together(script: str, clicks: list[int]) -> None:
    assert [press.gesture.clicks for press in ahead(script)] == clicks


CLICK, DOUBLE, DRAG = "click 1", "click --repeat 2 1", "mousedown 1 mousemove 300 300 mouseup 1"
ELSEWHERE = "mousemove 500 500"


@pytest.mark.parametrize(
    ("last", "script", "waits"),
    [
        (CLICK, CLICK, False),  # the double click that it may be
        (CLICK, DOUBLE, True),
        (DOUBLE, CLICK, True),
        (DOUBLE, DOUBLE, True),
        (CLICK, DRAG, True),
        (DRAG, CLICK, True),
        (CLICK, "click 1 click 1", True),
        ("click 3", DOUBLE, False),
        (CLICK, f"{ELSEWHERE} {CLICK}", False),
        (DOUBLE, f"{ELSEWHERE} {CLICK}", False),
        (CLICK, f"{ELSEWHERE} {DRAG}", False),
        (CLICK, f"{ELSEWHERE} {DOUBLE}", True),
        (CLICK, f"{ELSEWHERE} click 1 click 1", True),
    ],
)
def test_what_has_to_wait(last: str, script: str, waits: bool) -> None:
    assert ahead(script)[0].waits_for(ahead(last)[-1]) == waits
    assert not ahead(script)[0].waits_for(NO_PRESS)


def test_a_drag_waits_where_the_last_one_ended() -> None:
    """What was dragged is under the pointer as it was when that one began."""
    first, second = ahead(
        "mousemove 0 0 mousedown 1 mousemove 300 0 mouseup 1 mousedown 1 mousemove 0 0 mouseup 1"
    )
    assert second.waits_for(first)


def test_only_the_first_of_a_double_click_waits() -> None:
    first, second = ahead("click 1 click 1")
    assert not second.waits_for(first)
    one, first, second = ahead(f"click 1 {ELSEWHERE} click 1 click 1")
    assert [first.waits_for(one), second.waits_for(first)] == [True, False]


def test_the_pace_of_a_drag() -> None:
    def step(*points: tuple[int, int]) -> float:
        moves = " ".join(f"mousemove {x} {y}" for x, y in points)
        return ahead(f"mousemove 0 0 mousedown 1 {moves} mouseup 1 mousemove 1000 0")[0].drag_step

    assert step((800, 0)) == DRAG_STEP_PX
    assert step((100, 0)) == 5
    assert step((4, 0)) == 1
    assert step(*[(1000, 0), (0, 0)] * 500) == 1_000_000 / DRAG_MAX_STEPS
