"""What tests may say about time, such as 'stops within 200 ms', on machines that may be busy, or slow."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.support.guests import backend


def emulated() -> bool:
    """Whether the guest's processor is, or may be."""
    return backend() == "qemu"


def patient(limit: float) -> float:
    """So much time, whatever its unit, for a processor that is real. One that is emulated is ten times slower
    and more."""
    return limit * 10 if emulated() else limit


def promptly(attempt: Callable[[], float], limit: float) -> None:
    """`attempt` returns the seconds it took. One of three must keep the promise."""
    limit = patient(limit)
    took: list[float] = []
    while not took or min(took) >= limit:
        assert len(took) < 3, f"it took {took} s, the limit is {limit} s"
        took.append(attempt())


def eventually(condition: Callable[[], bool], within: float = 10.0) -> None:
    deadline = time.monotonic() + patient(within)
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
