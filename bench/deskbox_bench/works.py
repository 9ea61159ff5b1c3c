"""What is measured. A work takes samples of subjects on the stage, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from deskbox_bench.pages import Click, ClickPage, TextPage
from deskbox_bench.program import Done
from deskbox_bench.rotation import Turn, rotate
from deskbox_bench.stage import Stage
from deskbox_bench.statistics import Measured, Result, Sample, results, wrong_characters
from deskbox_bench.subjects import FRAME, Subject, script
from deskbox_bench.texts import ascii_text, mixed_text
from deskbox_guest.protocol import POLICIES, Settle

Rounds = Mapping[str, int]
OnRound = Callable[[int, int], None]
Place = TypeVar("Place")

# On a slow machine: who has used up so much time at one work has no more turns there.
SECONDS = 240.0
# From a click that shows at once until the page is painted and the browser has nothing left to do.
_PAINTED_S = 0.15
# Before the agent is watched at rest.
_CALM_S = 1.0

PADS = (
    "timer-30",
    "timer-150",
    "timer-400",
    "timer-900",
    "answer-200",
    "answer-800",
    "answer-3000",
    "nothing",
)
SLEEPS = {"sleep 0.5 s": 0.5, "sleep 2 s": 2.0}


@dataclass(frozen=True)
class Work(Generic[Place]):
    """`rounds` says who takes part and how many turns they have; `quick` the same for a short run.

    `Place` is where it is measured: on the stage, or on the machine that desktops are started on.
    """

    name: str
    title: str
    measure: Callable[[str, Place, Rounds, OnRound], list[Result]]
    rounds: Rounds
    quick: Rounds

    def run(self, place: Place, rounds: Rounds, on_round: OnRound) -> list[Result]:
        return self.measure(self.name, place, rounds, on_round)


def _turns(
    stage: Stage, name: str, rounds: Rounds, sample: Callable[[Subject], Sample], on_round: OnRound
) -> list[Result]:
    def take(subject: str) -> Iterator[Measured]:
        yield Measured(name, subject, sample(stage.subjects[subject]))

    turns = [Turn(count, partial(take, subject)) for subject, count in rounds.items()]
    return results(rotate(turns, SECONDS, on_round))


def _metered(stage: Stage, act: Callable[[], Done]) -> tuple[Done, float]:
    before = stage.cpu_ms()
    done = act()
    return done, stage.cpu_ms() - before


# --- pictures and clicks ---------------------------------------------------------------------------------
def _screenshots(name: str, stage: Stage, rounds: Rounds, on_round: OnRound) -> list[Result]:
    page = ClickPage(stage.desktop, stage.site)

    def sample(subject: Subject) -> Sample:
        # A screen that has changed since the last picture: an unchanged one would cost us nothing.
        stage.desktop.step(script(page.next("now")))
        time.sleep(_PAINTED_S)
        done, cpu = _metered(stage, subject.screenshot)
        return Sample(done.ms, size=len(done.image), cpu_ms=cpu)

    return _turns(stage, name, rounds, sample, on_round)


def _clicks(name: str, stage: Stage, rounds: Rounds, on_round: OnRound) -> list[Result]:
    page = ClickPage(stage.desktop, stage.site)

    def sample(subject: Subject) -> Sample:
        click = page.next("now")
        done, cpu = _metered(stage, lambda: subject.click(click))
        page.rest()
        return Sample(done.ms, cpu_ms=cpu)

    return _turns(stage, name, rounds, sample, on_round)


def _frames(
    name: str,
    stage: Stage,
    rounds: Rounds,
    on_round: OnRound,
    *,
    pad: str,
    act: Callable[[Subject, Click, ClickPage], Done],
) -> list[Result]:
    page = ClickPage(stage.desktop, stage.site)

    def sample(subject: Subject) -> Sample:
        click = page.next(pad)
        done, cpu = _metered(stage, lambda: act(subject, click, page))
        page.rest()
        stale = page.shown(done.image) != click.number
        return Sample(done.ms, stale, size=len(done.image), cpu_ms=cpu)

    return _turns(stage, name, rounds, sample, on_round)


# --- text ------------------------------------------------------------------------------------------------
def _texts(name: str, stage: Stage, rounds: Rounds, on_round: OnRound, *, text: str) -> list[Result]:
    page = TextPage(stage.desktop, stage.site)

    def sample(subject: Subject) -> Sample:
        page.ready()
        done, cpu = _metered(stage, lambda: subject.type(text))
        arrived, last = page.take()
        # It is typed when the subject says so and the last character is there.
        ms = max(done.ms, (last - done.started) * 1000)
        wrong = wrong_characters(text, arrived)
        return Sample(ms, wrong=wrong, characters=len(text), cpu_ms=cpu)

    return _turns(stage, name, rounds, sample, on_round)


# --- when to take the picture ----------------------------------------------------------------------------
def _settling(name: str, stage: Stage, rounds: Rounds, on_round: OnRound) -> list[Result]:
    """Policies beside fixed sleeps, on pages that show a click at different times."""
    page = ClickPage(stage.desktop, stage.site)
    desktop = stage.desktop

    def policy(pad: str, subject: str, settle: Settle | None) -> Iterator[Measured]:
        click = page.next(pad)
        before, started = stage.cpu_ms(), time.perf_counter()
        image = desktop.step(script(click), settle=settle, frame=FRAME).image
        ms, cpu = (time.perf_counter() - started) * 1000, stage.cpu_ms() - before
        page.rest()
        yield Measured(f"{name} {pad}", subject, Sample(ms, page.shown(image) != click.number, cpu_ms=cpu))

    def sleeps(pad: str) -> Iterator[Measured]:
        """One click serves them all: a picture after each of them."""
        click = page.next(pad)
        started = time.perf_counter()
        desktop.step(script(click))
        slept = time.perf_counter()
        pictures = []
        for subject, seconds in SLEEPS.items():
            time.sleep(max(0.0, slept + seconds - time.perf_counter()))
            image = desktop.step(frame=FRAME).image
            pictures.append((subject, (time.perf_counter() - started) * 1000, image))
        page.rest()
        for subject, ms, image in pictures:
            yield Measured(f"{name} {pad}", subject, Sample(ms, page.shown(image) != click.number))

    turns = [
        Turn(count, take)
        for pad, count in rounds.items()
        for take in (
            *(partial(policy, pad, subject, settle) for subject, settle in POLICIES.items()),
            partial(sleeps, pad),
        )
    ]
    return results(rotate(turns, SECONDS, on_round))


# --- the agent -------------------------------------------------------------------------------------------
def _agent(name: str, stage: Stage, rounds: Rounds, on_round: OnRound) -> list[Result]:
    """What it takes while nothing is asked of it, after all that came before."""
    seconds = rounds["deskbox"]
    time.sleep(_CALM_S)
    before = stage.meter.do("agent")
    for second in range(seconds):
        on_round(second + 1, seconds)
        time.sleep(1)
    after = stage.meter.do("agent")
    elapsed = (after.started - before.started) * 1000
    cpu = after.result["cpu_ms"] - before.result["cpu_ms"]
    memory = after.result["rss_mb"]
    return [Result(name, "deskbox", 1, elapsed, elapsed, cpu_percent=cpu / elapsed * 100, memory_mb=memory)]


# --- all of them -----------------------------------------------------------------------------------------
_PEERS = ("xdotool+scrot", "docker exec", "pyautogui", "pynput")
_ALL = ("deskbox", "limit", *_PEERS)


def each(rounds: int, *subjects: str) -> dict[str, int]:
    return dict.fromkeys(subjects, rounds)


def _frame_work(name: str, title: str, pad: str, rounds: Rounds, *, true: bool) -> Work[Stage]:
    def act(subject: Subject, click: Click, page: ClickPage) -> Done:
        return subject.true_frame(click, page) if true else subject.click_frame(click)

    return Work(name, title, partial(_frames, pad=pad, act=act), rounds, each(1, *rounds))


def _text_work(name: str, title: str, text: str, rounds: Rounds, *quick: str) -> Work[Stage]:
    return Work(name, title, partial(_texts, text=text), rounds, each(1, *quick or rounds))


WORKS: tuple[Work[Stage], ...] = (
    Work(
        "screenshot",
        "Screenshot",
        _screenshots,
        each(30, *_ALL),
        each(2, *_ALL),
    ),
    Work(
        "click",
        "Click",
        _clicks,
        each(30, *_ALL),
        each(2, *_ALL),
    ),
    _frame_work(
        "click+frame",
        "Click, then a picture at once",
        "now",
        each(20, *_ALL),
        true=False,
    ),
    _frame_work(
        "true-frame-timer",
        "Click, then a true picture: the page repaints after 150 ms",
        "timer-150",
        each(200, "deskbox") | each(10, "limit", *_PEERS),
        true=True,
    ),
    _frame_work(
        "true-frame-answer",
        "Click, then a true picture: a server answers after 0.8 s",
        "answer-800",
        each(200, "deskbox") | each(5, "limit", *_PEERS),
        true=True,
    ),
    _text_work(
        "type-ascii-100",
        "100 characters of ASCII",
        ascii_text(100),
        each(10, "deskbox", "limit") | each(3, *_PEERS),
    ),
    # A thousand characters take some peers ten seconds.
    _text_work(
        "type-ascii-1000",
        "1,000 characters of ASCII",
        ascii_text(1000),
        each(10, "deskbox", "limit") | each(2, *_PEERS),
        "deskbox",
        "limit",
    ),
    # The limit has no part in these: a key must be made first for each character that the layout lacks.
    _text_work(
        "type-mixed-100",
        "100 characters of many scripts",
        mixed_text(100),
        each(10, "deskbox") | each(3, *_PEERS),
    ),
    _text_work(
        "type-mixed-1000",
        "1,000 characters of many scripts",
        mixed_text(1000),
        each(10, "deskbox") | each(2, *_PEERS),
        "deskbox",
    ),
    Work(
        "settle",
        "When to take the picture",
        _settling,
        each(3, *PADS),
        each(1, "timer-30", "timer-150", "answer-200", "nothing"),
    ),
    Work("agent", "The agent at rest", _agent, {"deskbox": 5}, {"deskbox": 1}),
)
