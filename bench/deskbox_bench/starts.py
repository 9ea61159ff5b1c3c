"""How long a desktop takes to start on each backend, and how much memory it takes.

The backends take turns, and each desktop is ended before the next one starts.
"""

from __future__ import annotations

import io
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from PIL import Image, ImageChops

from deskbox import backends, registry, snapshots
from deskbox.backends import NAMES, ImageSpec
from deskbox.desktop import Desktop
from deskbox.registry import DesktopRecord
from deskbox_bench import memory
from deskbox_bench.host import Host, drop_page_cache
from deskbox_bench.rotation import Turn, rotate
from deskbox_bench.statistics import Measured, Result, Sample, results
from deskbox_bench.works import SECONDS, WORKS, OnRound, Rounds, Work, each

# Each counted from the call: the keeper runs, the guest's agent has answered, the desktop is painted, and its
# first picture is in the caller's hands.
MOMENTS = ("keeper", "agent", "painted", "picture")
KINDS = {"start-cold": "cold", "start-warm": "warm", "start-fork": "fork"}
MEMORY = ("alone", "of two")  # how many there are: a page that both have is half in the figure of each

_REST_S = 5.0
# A picture of another state than the painted one differs in the browser, at least, from what comes next.
_OTHER_SHARE = 0.05
_OTHER_LEVEL = 16


def _turns(
    host: Host, rounds: Rounds, take: Callable[[str], Iterator[Measured]], on_round: OnRound
) -> list[Result]:
    turns = [Turn(count, partial(take, name)) for name, count in rounds.items() if name in host.backends]
    return results(rotate(turns, SECONDS, on_round)) if turns else []


# --- time ------------------------------------------------------------------------------------------------
def _start(name: str, backend: str, launch: Callable[[], Desktop]) -> Iterator[Measured]:
    """One start, and the end of what was started."""
    called = time.perf_counter()

    def since() -> float:
        return (time.perf_counter() - called) * 1000

    with launch() as desktop:
        painted = since()
        first = desktop.screenshot()
        picture = since()
        stale = differ(first, desktop.screenshot(settle="settled"))
        told = desktop.timings_ms
    # The keeper counts from its own begin. That it is painted we hear a few milliseconds late.
    keeper = painted - told["painted"]
    for moment, ms in zip(MOMENTS, (keeper, keeper + told["agent"], painted, picture), strict=True):
        yield Measured(f"{name} {moment}", backend, Sample(ms, stale if moment == "picture" else None))


def differ(one: bytes, other: bytes) -> bool:
    """Whether two pictures of one size show different things; a caret does not count."""
    pictures = [Image.open(io.BytesIO(data)).convert("L") for data in (one, other)]
    changed = ImageChops.difference(*pictures).point(lambda level: 255 * (level > _OTHER_LEVEL))
    return changed.histogram()[255] > _OTHER_SHARE * changed.width * changed.height


def _cold(name: str, host: Host, rounds: Rounds, on_round: OnRound) -> list[Result]:
    try:
        drop_page_cache()
    except OSError as error:
        host.leave_out(f"cold starts: the page cache can't be dropped here ({error.strerror}), only root may")
        return []

    def take(backend: str) -> Iterator[Measured]:
        drop_page_cache()
        yield from _start(name, backend, partial(Desktop.launch, backend=backend))

    return _turns(host, rounds, take, on_round)


def _warm(name: str, host: Host, rounds: Rounds, on_round: OnRound) -> list[Result]:
    """Every backend has started a desktop before: see `host.find`."""
    return _turns(
        host,
        rounds,
        lambda backend: _start(name, backend, partial(Desktop.launch, backend=backend)),
        on_round,
    )


def _fork(name: str, host: Host, rounds: Rounds, on_round: OnRound) -> list[Result]:
    saved = {backend: f"bench-{secrets.token_hex(4)}" for backend in host.backends if backend in rounds}
    with ExitStack() as stack:
        for backend, snapshot in saved.items():
            with Desktop.launch(backend=backend) as desktop:
                desktop.save(snapshot)
            stack.callback(snapshots.remove, snapshot)
        return _turns(
            host,
            rounds,
            lambda backend: _start(name, backend, partial(Desktop.fork, saved[backend])),
            on_round,
        )


def _template(name: str, host: Host, rounds: Rounds, on_round: OnRound) -> list[Result]:
    """On backends that start desktops as copies of a frozen one: the boot of that one, until it is frozen."""

    def take(backend: str) -> Iterator[Measured]:
        runner = backends.create(backend)
        # There is none of this size yet: nobody uses one so odd.
        wanted = ImageSpec(size=(random.randrange(961, 1280, 2), 800))
        called = time.perf_counter()
        image = runner.prepare(wanted, host.progress)
        ms = (time.perf_counter() - called) * 1000
        runner.discard(image)
        yield Measured(name, backend, Sample(ms))

    freezing = {
        backend: count
        for backend, count in rounds.items()
        if backend in host.backends and backends.create(backend).saves == "machine"
    }
    return _turns(host, freezing, take, on_round)


# --- memory ----------------------------------------------------------------------------------------------
def _memory(name: str, host: Host, rounds: Rounds, on_round: OnRound) -> list[Result]:
    def take(backend: str) -> Iterator[Measured]:
        """The time of a sample is how long the desktops had been left alone."""
        with ExitStack() as running:
            records: list[DesktopRecord] = []
            for kind in MEMORY:
                records.append(_record(running.enter_context(Desktop.launch(backend=backend))))
                time.sleep(_REST_S)
                for record in records:
                    mb = memory.of_guest(backend, record.guest_id)
                    yield Measured(f"{name} {kind}", backend, Sample(_REST_S * 1000, memory_mb=mb))
            for record in records:
                mb = memory.of_process(record.keeper_pid)
                yield Measured(f"{name} keeper", backend, Sample(_REST_S * 1000, memory_mb=mb))

    def take_what_may_be_seen(backend: str) -> Iterator[Measured]:
        try:
            yield from take(backend)
        except PermissionError:
            host.leave_out(f"memory of a desktop on {backend}: only root may see it")

    return _turns(host, rounds, take_what_may_be_seen, on_round)


def _record(desktop: Desktop) -> DesktopRecord:
    record = registry.Home(desktop.name).read()
    assert record is not None, "it runs"
    return record


# --- all of them -----------------------------------------------------------------------------------------
STARTS: tuple[Work[Host], ...] = (
    Work("start-warm", "A warm start", _warm, each(10, *NAMES), each(1, *NAMES)),
    Work("start-fork", "A start from a snapshot", _fork, each(5, *NAMES), each(1, *NAMES)),
    # A minute or more where machines are emulated: left out of a quick run.
    Work("template", "The boot of a machine that others are copies of", _template, each(1, *NAMES), {}),
    Work("memory", "Memory of a desktop at rest", _memory, each(2, *NAMES), each(1, *NAMES)),
    # The last one: nothing is warm after it.
    Work("start-cold", "A cold start", _cold, each(3, *NAMES), each(1, *NAMES)),
)
ALL_WORKS: tuple[Work[Any], ...] = (*WORKS, *STARTS)
