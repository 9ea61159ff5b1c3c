"""A picture after an action shows the final state, and what never ends costs little."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest
from PIL import Image
from tests.support.timing import emulated, patient
from tests.support.web_witness import LISTENING

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled
from deskbox_guest.protocol import Frame, Settle, StepResult
from deskbox_guest.x11.activity import WORK_S

pytestmark = pytest.mark.slow("qemu")

WITNESS = Path(__file__).parent.parent / "witness"
PORT = 8766
CLICK = "mousemove 650 300 click 1"
HORIZON_MS = Settle().quiet * 1000
CAP_MS = Settle().cap * 1000
# A nothing costs no more than the horizon and this.
SLACK_MS = patient(50)


@pytest.fixture(scope="module", autouse=True)
def server(shared_desktop: Desktop) -> Iterator[None]:
    """The witness in the guest, which serves the page and answers slowly."""
    desktop = shared_desktop
    desktop.exec(["mkdir", "-p", "settle"])
    for name in ("settle.html", "witness_settle.py"):
        desktop.write_file(f"settle/{name}", (WITNESS / name).read_bytes())
    ended = threading.Event()

    def serve() -> None:
        with suppress(Cancelled):
            command = ["python3", "settle/witness_settle.py", str(PORT)]
            desktop.exec(command, timeout=3600, cancelled=ended.is_set)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert desktop.exec(["python3", "-c", LISTENING, str(PORT)]).exit_code == 0
        yield
    finally:
        desktop.open_url("about:blank")
        ended.set()
        thread.join()


def show(desktop: Desktop, what: str) -> None:
    desktop.open_url("about:blank")
    desktop.step("mousemove 650 300", settle="settled")
    desktop.open_url(f"http://127.0.0.1:{PORT}/?what={what}")
    deadline = time.monotonic() + 10
    while not any(window.title.startswith("Settle") for window in desktop.windows()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    desktop.step(settle="wait")


def click(desktop: Desktop) -> tuple[StepResult, Image.Image]:
    outcome = desktop.step(CLICK, settle="settled", frame=Frame(cursor=False))
    return outcome.result, picture(outcome.image)


def later(desktop: Desktop) -> Image.Image:
    time.sleep(1.0)
    return picture(desktop.step(frame=Frame(cursor=False)).image)


def picture(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def assert_true_after(desktop: Desktop, took_ms: float, clicks: int = 4, slack_ms: float = 60) -> None:
    """Each click's picture shows the final state, and costs that much time, the horizon and little more."""
    costs = []
    for _ in range(clicks):
        result, image = click(desktop)
        assert image.tobytes() == later(desktop).tobytes()
        assert result.settled == "settled"
        costs.append(result.settle_ms)
    # The click's own 25 ms count for the page, too.
    assert took_ms + HORIZON_MS - 50 <= median(costs) <= took_ms + HORIZON_MS + patient(slack_ms), costs


@pytest.mark.parametrize("delays", [(30,), (150,), (250,), (30, 150, 350, 550)], ids=str)
def test_what_changes_within_the_horizon_is_in_the_picture(desktop: Desktop, delays: tuple[int, ...]) -> None:
    show(desktop, "timer-" + "-".join(map(str, delays)))
    assert_true_after(desktop, delays[-1])


@pytest.mark.parametrize("delay", [400, 900])
def test_what_changes_beyond_the_horizon_is_not_and_a_wait_is_for_that(desktop: Desktop, delay: int) -> None:
    show(desktop, f"timer-{delay}")
    result, image = click(desktop)
    assert result.settled == "settled"
    assert result.settle_ms <= HORIZON_MS + SLACK_MS
    assert image.tobytes() != later(desktop).tobytes()

    waited = desktop.step(CLICK, settle="wait", frame=Frame(cursor=False))
    assert picture(waited.image).tobytes() == later(desktop).tobytes()


@pytest.mark.parametrize("ms", [200, 800, 3000])
@pytest.mark.parametrize("kind", ["answer", "spin", "shimmer"])
def test_what_a_server_was_asked_for_is_in_the_picture(desktop: Desktop, kind: str, ms: int) -> None:
    """Whether the page shows nothing meanwhile, a spinner, or a large animation."""
    show(desktop, f"{kind}-{ms}")
    assert_true_after(desktop, ms, clicks=2 if ms == 3000 else 4, slack_ms=100)


def test_an_answer_that_comes_after_the_cap_is_not_waited_for(desktop: Desktop) -> None:
    show(desktop, "answer-1500")
    outcome = desktop.step(CLICK, settle=Settle(cap=1.0))
    assert outcome.result.settled == "cap"
    assert 950 <= outcome.result.settle_ms <= 1000 + SLACK_MS


def test_a_request_of_the_action_before_is_waited_for_too(desktop: Desktop) -> None:
    """As the driver does: every action by itself, and a picture at the end."""
    show(desktop, "answer-800")
    desktop.step(CLICK)
    desktop.step("mousemove 660 310")
    outcome = desktop.step(settle="settled", frame=Frame(cursor=False))
    assert picture(outcome.image).tobytes() == later(desktop).tobytes()


@pytest.mark.parametrize("ms", [400, 1000])
def test_what_another_thread_computes_is_in_the_picture(desktop: Desktop, ms: int) -> None:
    show(desktop, f"work-{ms}")
    assert_true_after(desktop, ms, slack_ms=150)


def test_what_computes_without_end_is_waited_for_a_little_and_only_once(desktop: Desktop) -> None:
    show(desktop, "work-8000")
    result, _ = click(desktop)
    assert result.settled == "settled"
    assert result.settle_ms <= HORIZON_MS + WORK_S * 1000 + SLACK_MS
    again = desktop.step("mousemove 660 310", settle="settled").result
    assert again.settled == "settled"
    assert again.settle_ms <= HORIZON_MS + SLACK_MS
    time.sleep(patient(6))


@pytest.mark.parametrize("name", ["slow", "drip"])
def test_a_page_that_loads_slowly_is_whole_in_the_picture(desktop: Desktop, name: str) -> None:
    for _ in range(2):
        show(desktop, f"page-{name}")
        result, image = click(desktop)
        assert result.settled == "settled"
        assert image.tobytes() == later(desktop).tobytes()


def test_a_fade_is_over_in_the_picture(desktop: Desktop) -> None:
    show(desktop, "fade")
    assert_true_after(desktop, 250, slack_ms=100)


@pytest.mark.parametrize("what", ["nothing", "caret", "clock", "spinner", "small", "poll"])
def test_what_goes_on_in_a_small_place_costs_no_more_than_nothing(desktop: Desktop, what: str) -> None:
    """Nor does a request that is always open."""
    show(desktop, what)
    if what == "clock":
        time.sleep(5)  # a new clock is known after four ticks
    results = [click(desktop)[0] for _ in range(12)]
    assert {result.settled for result in results} == {"settled"}
    costs = sorted(result.settle_ms for result in results)
    assert costs[6 if emulated() else -2] <= HORIZON_MS + SLACK_MS, costs


@pytest.mark.parametrize("what", ["sheet", "video"])
def test_a_large_endless_animation_is_said_to_be_one(desktop: Desktop, what: str) -> None:
    show(desktop, what)
    results = [click(desktop)[0] for _ in range(4)]
    assert {result.settled for result in results} == {"animating"}
    assert max(result.settle_ms for result in results) <= patient(1500)


def test_a_picture_of_a_screen_that_is_quiet_anyway_is_there_at_once(desktop: Desktop) -> None:
    show(desktop, "nothing")
    if emulated():  # half a second after it was shown, the page may still be worked on
        desktop.step(settle="wait")
    time.sleep(0.5)
    assert desktop.step(settle="settled", frame=Frame()).result.settle_ms <= patient(20)
    assert desktop.step(settle="wait").result.settle_ms >= 1000


def test_the_policies_differ_in_their_horizon(desktop: Desktop) -> None:
    show(desktop, "timer-200")
    truths = {}
    for policy in ("none", "fast", "settled", Settle(quiet=0.15, cap=1.0)):
        outcome = desktop.step(CLICK, settle=policy, frame=Frame(cursor=False))
        truths[policy] = picture(outcome.image).tobytes() == later(desktop).tobytes()
    assert list(truths.values()) == [False, False, True, False]


def test_the_cap_holds(desktop: Desktop) -> None:
    show(desktop, "sheet")
    outcome = desktop.step(CLICK, settle=Settle(quiet=0.3, cap=0.5))
    assert outcome.result.settled == "cap"
    assert 480 <= outcome.result.settle_ms <= 500 + SLACK_MS


def test_a_wait_can_be_cancelled(desktop: Desktop) -> None:
    stop_at = time.monotonic() + 0.2
    with pytest.raises(Cancelled):
        desktop.step(
            settle=Settle(quiet=5.0, cap=10.0, anew=True), cancelled=lambda: time.monotonic() > stop_at
        )
    assert time.monotonic() - stop_at < patient(0.2)
