"""When a screen counts as quiet, with a clock of our own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from PIL import Image

from deskbox_guest.protocol import Settle
from deskbox_guest.x11.activity import (
    ENDLESS_S,
    LOOK_S,
    WORK_S,
    Activity,
    Box,
    Places,
    Verdict,
    Work,
    changed,
)

SETTLE = Settle(quiet=0.3, cap=3.0)
CONTENT: Box = (0, 0, 1200, 700)
BELOW: Box = (0, 500, 1200, 700)
BUTTON: Box = (100, 100, 180, 130)
SPINNER: Box = (500, 300, 548, 348)
CLOCK: Box = (1000, 20, 1080, 40)
CARET: Box = (300, 200, 301, 220)


def run(
    changes: Iterable[tuple[float, Box]],
    settle: Settle = SETTLE,
    busy_until: float = 0.0,
    work: Work = "behind",
    answer_at: float = 0.0,
    places: Places | None = None,
    start: float = 0.0,
    hums: bool = False,
) -> tuple[Verdict, Any]:
    """The verdict and when it falls, for changes at these seconds after the start."""
    places = places or Places()
    activity = Activity(settle, start, start, places, hums=hums)
    waiting = sorted(changes)
    now = start
    while True:
        while waiting and start + waiting[0][0] <= now:
            places.change(waiting.pop(0)[1], now, lead=now - start)
        does: Work = work if now < start + busy_until else "rests"
        verdict = activity.verdict(now, news=min(now, start + answer_at), work=does)
        if verdict is not None:
            return verdict, round(now - start, 6)
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
def test_a_new_spinner_is_one_when_it_has_turned_for_a_while(period: float) -> None:
    verdict, when = run(every(period, SPINNER))
    assert verdict == "settled"
    assert when == pytest.approx(ENDLESS_S, abs=2 * period + LOOK_S)


@pytest.mark.parametrize("period", [0.016, 0.033, 0.05, 0.1])
def test_a_spinner_that_turned_before_costs_nothing(period: float) -> None:
    assert run(every(period, SPINNER), places=spinning()) == ("settled", pytest.approx(0.3, abs=LOOK_S))


def test_a_spinner_that_stops_is_none_any_more() -> None:
    verdict, when = run(every(0.033, SPINNER, until=0.2), places=spinning())
    assert verdict == "settled"
    assert when == pytest.approx(0.2 + 0.3, abs=0.033 + LOOK_S)


def test_a_small_effect_is_no_spinner() -> None:
    verdict, when = run(every(0.02, BUTTON, until=0.6))
    assert verdict == "settled"
    assert when == pytest.approx(0.6 + 0.3, abs=2 * LOOK_S)


def test_content_that_changes_beside_a_spinner_is_waited_for() -> None:
    verdict, when = run([*every(0.033, SPINNER), (0.25, BELOW), (0.5, BELOW)], places=spinning())
    assert verdict == "settled"
    assert when == pytest.approx(0.8, abs=2 * LOOK_S)


def spinning() -> Places:
    """What is known when a spinner has been watched for a while."""
    places = Places()
    for index in range(12):
        places.change(SPINNER, -0.5 + index * 0.033, lead=2 + index * 0.033)
    return places


def test_a_fade_is_waited_for() -> None:
    verdict, when = run(every(0.02, CONTENT, until=0.25))
    assert verdict == "settled"
    assert when == pytest.approx(0.25 + 0.3, abs=0.05)


def test_a_large_endless_animation_ends_the_wait_early() -> None:
    verdict, when = run(every(0.033, CONTENT))
    assert verdict == "animating"
    assert when == pytest.approx(ENDLESS_S, abs=0.1)


def test_an_animation_that_leaves_what_it_changed_is_one_too() -> None:
    """A sheet that moves changes at its edges only, and never twice in one place."""
    edges: list[tuple[float, Box]] = [
        (step * 0.025, (x + step * 10, y, x + step * 10 + 10, y + 170))
        for step in range(60)
        for x in (0, 600)
        for y in (0, 200, 400)
    ]
    verdict, when = run(edges)
    assert verdict == "animating"
    assert when == pytest.approx(ENDLESS_S, abs=0.1)


def test_a_video_that_changes_here_and_there_does_too() -> None:
    places: list[Box] = [(x, y, x + 200, y + 200) for x in (0, 300, 600) for y in (0, 250, 500)]
    verdict, when = run([(index * 0.03, places[index * 5 % 9]) for index in range(100)])
    assert verdict == "animating"
    assert when == pytest.approx(ENDLESS_S, abs=0.1)


def test_the_cap_ends_it_in_any_case() -> None:
    verdict, when = run(every(0.2, CONTENT))
    assert verdict == "cap"
    assert when == pytest.approx(3.0, abs=LOOK_S)


def test_a_busy_application_holds_the_window_open_up_to_the_cap() -> None:
    assert run([], busy_until=1.0) == ("settled", pytest.approx(1.0, abs=LOOK_S))
    assert run([], busy_until=9.0) == ("cap", pytest.approx(3.0))


def test_what_takes_a_processor_is_waited_for_but_not_for_long() -> None:
    assert run([], work="works", busy_until=1.0) == ("settled", pytest.approx(1.0, abs=LOOK_S))
    late = run([(0.8, CONTENT)], work="works", busy_until=0.85)
    assert late == ("settled", pytest.approx(0.8 + 0.3, abs=2 * LOOK_S))
    assert run([], work="works", busy_until=9.0) == ("settled", pytest.approx(0.3 + WORK_S, abs=2 * LOOK_S))


def test_work_that_goes_on_since_the_wait_before_is_not_waited_for() -> None:
    assert run([], work="works", busy_until=9.0, hums=True) == run([])
    assert run([], work="behind", busy_until=9.0, hums=True) == ("cap", pytest.approx(3.0))


def test_what_paints_a_spinner_is_not_waited_for() -> None:
    spinner = every(0.05, SPINNER)
    verdict, when = run(spinner, work="works", busy_until=9.0)
    assert (verdict, when) == run(spinner)
    assert when < 0.3 + WORK_S


def test_an_awaited_answer_holds_the_window_open_and_starts_it_anew() -> None:
    assert run([], answer_at=0.8) == ("settled", pytest.approx(0.8 + 0.3, abs=LOOK_S))
    verdict, when = run([*every(0.033, SPINNER, until=0.8), (0.85, CONTENT)], answer_at=0.8)
    assert verdict == "settled"
    assert when == pytest.approx(0.85 + 0.3, abs=2 * LOOK_S)
    assert run([], answer_at=9.0) == ("cap", pytest.approx(3.0))


def test_an_animation_while_an_answer_is_awaited_is_not_the_end() -> None:
    verdict, when = run([*every(0.033, CONTENT, until=1.5), (1.55, CONTENT)], answer_at=1.5)
    assert verdict == "settled"
    assert when == pytest.approx(1.55 + 0.3, abs=2 * LOOK_S)


def clock_known_from(ticks: Iterable[float], actions: Iterable[float]) -> Places:
    places = Places()
    begun = sorted(actions)
    for tick in ticks:
        places.change(CLOCK, tick, lead=tick - max([time for time in begun if time <= tick]))
    return places


@pytest.mark.parametrize("ticks", [(1, 2, 3, 4), (1, 2, 4, 5), (1.02, 1.98, 3.01, 4.0)])
def test_a_clock_that_was_watched_costs_nothing(ticks: tuple[float, ...]) -> None:
    places = clock_known_from(ticks, [0.0])
    verdict, when = run([(0.2, CLOCK)], places=places, start=7.8)
    assert (verdict, when) == ("settled", pytest.approx(0.3, abs=LOOK_S))


@pytest.mark.parametrize("ticks", [(1, 2, 3), (1, 2, 3.3, 4), (1, 1.7, 3, 4)])
def test_what_has_not_kept_its_pace_is_no_clock(ticks: tuple[float, ...]) -> None:
    places = clock_known_from(ticks, [0.0])
    assert run([(0.2, CLOCK)], places=places, start=7.8) == ("settled", pytest.approx(0.5, abs=LOOK_S))


def test_what_follows_each_of_many_even_actions_is_no_clock() -> None:
    places = clock_known_from([0.15, 1.15, 2.15, 3.15, 4.15], [0, 1, 2, 3, 4])
    assert run([(0.15, CLOCK)], places=places, start=5.0) == ("settled", pytest.approx(0.45, abs=LOOK_S))


def test_a_clock_is_forgotten_when_the_page_is_another() -> None:
    places = clock_known_from([1, 2, 3, 4], [0.0])
    places.change(CONTENT, 4.5, lead=4.5)
    assert run([(0.2, CLOCK)], places=places, start=5.8) == ("settled", pytest.approx(0.5, abs=LOOK_S))


def test_changes_in_several_places_are_told_apart() -> None:
    before = Image.new("RGB", (640, 400), "white")
    now = before.copy()
    boxes = [(10, 10, 40, 30), (300, 200, 348, 248), (639, 399, 640, 400)]
    for box in boxes:
        now.paste((255, 255, 254), box)
    assert sorted(changed(before, now)) == sorted(boxes)
    assert changed(before, before) == []


def test_very_many_places_are_one_change() -> None:
    before = Image.new("RGB", (640, 400))
    now = before.copy()
    for x in range(0, 640, 64):
        now.paste((9, 9, 9), (x, 0, x + 4, 400 - x // 2))
    assert changed(before, now) == [(0, 0, 580, 400)]


def test_no_window_at_all() -> None:
    assert run([], Settle(quiet=0.0, cap=0.0)) == ("settled", 0.0)
