"""A picture after an action shows the final state, and what never ends costs little."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from PIL import Image

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled
from deskbox_guest.protocol import Frame, Settle, StepResult

PAGE = Path(__file__).parent.parent / "witness" / "settle.html"
QUIET = 0.3
SETTLE = Settle(quiet=QUIET, cap=3.0)
CLICK = "mousemove 650 300 click 1"
# A look every 25 ms, one more after the last change, and the guest shares its processors.
SLACK_MS = 100


@pytest.fixture(scope="module", autouse=True)
def blank_at_the_end(shared_desktop: Desktop) -> Iterator[None]:
    yield
    shared_desktop.open_url("about:blank")


def show(desktop: Desktop, what: str) -> None:
    desktop.write_file("settle.html", PAGE.read_bytes())
    desktop.step("mousemove 650 300")
    desktop.open_url(f"file://{desktop.facts().home}/settle.html?what={what}")
    deadline = time.monotonic() + 10
    while not any(window.title.startswith("Settle") for window in desktop.windows()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    desktop.step(settle=Settle(quiet=0.5, cap=5.0))


def click(desktop: Desktop) -> tuple[StepResult, Image.Image]:
    outcome = desktop.step(CLICK, settle=SETTLE, frame=Frame(cursor=False))
    return outcome.result, Image.open(io.BytesIO(outcome.image)).convert("RGB")


def later(desktop: Desktop) -> Image.Image:
    time.sleep(1.0)
    outcome = desktop.step(frame=Frame(cursor=False))
    return Image.open(io.BytesIO(outcome.image)).convert("RGB")


@pytest.mark.parametrize("delays", [(30,), (150,), (250,), (30, 150, 350, 550)], ids=str)
def test_what_changes_within_the_window_is_in_the_picture(desktop: Desktop, delays: tuple[int, ...]) -> None:
    show(desktop, "timer-" + "-".join(map(str, delays)))
    costs = []
    for _ in range(5):
        result, image = click(desktop)
        assert result.settled == "settled"
        assert image.tobytes() == later(desktop).tobytes()
        costs.append(result.settle_ms)
    assert delays[-1] + QUIET * 1000 - 20 <= median(costs) <= delays[-1] + QUIET * 1000 + SLACK_MS


def test_a_fade_is_over_in_the_picture(desktop: Desktop) -> None:
    show(desktop, "fade")
    for _ in range(4):
        result, image = click(desktop)
        assert result.settled == "settled"
        assert image.tobytes() == later(desktop).tobytes()


@pytest.mark.parametrize("what", ["nothing", "caret", "spinner"])
def test_what_blinks_or_turns_in_a_small_place_costs_no_more_than_nothing(
    desktop: Desktop, what: str
) -> None:
    show(desktop, what)
    results = [click(desktop)[0] for _ in range(7)]
    assert {result.settled for result in results} == {"settled"}
    assert median(result.settle_ms for result in results) <= QUIET * 1000 + SLACK_MS


@pytest.mark.parametrize("what", ["sheet", "video"])
def test_a_large_endless_animation_is_said_to_be_one(desktop: Desktop, what: str) -> None:
    show(desktop, what)
    results = [click(desktop)[0] for _ in range(3)]
    assert "animating" in {result.settled for result in results}
    assert all(result.settle_ms <= SETTLE.cap * 1000 + SLACK_MS for result in results)


def test_the_cap_holds(desktop: Desktop) -> None:
    show(desktop, "sheet")
    outcome = desktop.step(settle=Settle(quiet=0.3, cap=0.5))
    assert outcome.result.settled == "cap"
    assert 480 <= outcome.result.settle_ms <= 500 + SLACK_MS


def test_a_wait_can_be_cancelled(desktop: Desktop) -> None:
    stop_at = time.monotonic() + 0.2
    with pytest.raises(Cancelled):
        desktop.step(settle=Settle(quiet=5.0, cap=10.0), cancelled=lambda: time.monotonic() > stop_at)
    assert time.monotonic() - stop_at < 0.2
