"""When a screen counts as quiet, with a clock of our own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from deskbox_guest.protocol import Settle
from deskbox_guest.x11.settle import ANIMATION_S, LOOK_S, Activity, Box, Verdict

SETTLE = Settle(quiet=0.3, cap=3.0)
CONTENT: Box = (0, 100, 1200, 700)
BUTTON: Box = (100, 100, 180, 130)
SPINNER: Box = (500, 300, 548, 348)
CARET: Box = (300, 200, 301, 220)


def run(
    changes: Iterable[tuple[float, Box]], settle: Settle = SETTLE, busy_until: float = 0.0
) -> tuple[Verdict, Any]:
    """The verdict and when it falls, for changes at these seconds after the start."""
    activity = Activity(settle, start=0.0)
    waiting = sorted(changes)
    now = 0.0
    while True:
        while waiting and waiting[0][0] <= now:
            activity.change(waiting.pop(0)[1], now)
        verdict = activity.verdict(now, busy=now < busy_until)
        if verdict is not None:
            return verdict, now
        now = round(now + LOOK_S, 6)


def every(period: float, box: Box, start: float = 0.0, until: float = 10.0) -> list[tuple[float, Box]]:
    return [(start + index * period, box) for index in range(int((until - start) / period))]


def test_nothing_changes() -> None:
    assert run([]) == ("settled", pytest.approx(0.3))


@pytest.mark.parametrize("delay", [0.03, 0.15, 0.28])
def test_a_change_within_the_window_is_waited_for_and_starts_it_anew(delay: float) -> None:
    verdict, when = run([(delay, BUTTON)])
    assert verdict == "settled"
    assert delay + 0.3 <= when <= delay + 0.3 + 2 * LOOK_S


def test_a_change_beyond_the_window_is_not() -> None:
    assert run([(0.4, CONTENT)]) == ("settled", pytest.approx(0.3))


def test_a_chain_of_changes_in_one_small_place_is_followed_to_its_end() -> None:
    verdict, when = run([(at, BUTTON) for at in (0.03, 0.15, 0.4, 0.6)])
    assert verdict == "settled"
    assert when == pytest.approx(0.9, abs=2 * LOOK_S)


def test_a_caret_costs_nothing() -> None:
    assert run(every(0.2, CARET, start=0.1)) == ("settled", pytest.approx(0.3))


@pytest.mark.parametrize("period", [0.016, 0.033, 0.05, 0.1])
def test_a_spinner_costs_little(period: float) -> None:
    verdict, when = run(every(period, SPINNER))
    assert verdict == "settled"
    assert when <= max(0.3, 7 * max(period, LOOK_S)) + 2 * LOOK_S


def test_content_that_changes_beside_a_spinner_is_waited_for() -> None:
    verdict, when = run([*every(0.033, SPINNER), (0.25, CONTENT), (0.5, CONTENT)])
    assert verdict == "settled"
    assert when == pytest.approx(0.8, abs=2 * LOOK_S)


def test_a_fade_is_waited_for() -> None:
    verdict, when = run(every(0.02, CONTENT, until=0.25))
    assert verdict == "settled"
    assert when == pytest.approx(0.25 + 0.3, abs=0.05)


def test_a_large_endless_animation_ends_the_wait_early() -> None:
    verdict, when = run(every(0.033, CONTENT))
    assert verdict == "animating"
    assert when == pytest.approx(ANIMATION_S, abs=0.1)


def test_a_video_that_changes_here_and_there_does_too() -> None:
    places: list[Box] = [(x, y, x + 200, y + 200) for x in (0, 300, 600) for y in (0, 250, 500)]
    verdict, when = run([(index * 0.03, places[index * 5 % 9]) for index in range(100)])
    assert verdict == "animating"
    assert when == pytest.approx(ANIMATION_S, abs=0.1)


def test_the_cap_ends_it_in_any_case() -> None:
    verdict, when = run(every(0.2, CONTENT))
    assert verdict == "cap"
    assert when == pytest.approx(3.0, abs=LOOK_S)


def test_a_busy_application_holds_the_window_open_up_to_the_cap() -> None:
    assert run([], busy_until=1.0) == ("settled", pytest.approx(1.0, abs=LOOK_S))
    assert run([], busy_until=9.0) == ("cap", pytest.approx(3.0))


def test_no_window_at_all() -> None:
    assert run([], Settle(quiet=0.0, cap=0.0)) == ("settled", 0.0)
