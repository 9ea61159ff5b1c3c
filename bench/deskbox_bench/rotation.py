"""Whose turn it is: subjects take turns, so that what disturbs the machine disturbs them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deskbox_bench.statistics import Measured


@dataclass(frozen=True)
class Turn:
    rounds: int
    take: Callable[[], Iterable[Measured]]


def takes_part(index: int, rounds: int, of: int) -> bool:
    """Whether who has `rounds` turns within `of` rounds has one in round `index`: they are spread evenly."""
    return (index + 1) * rounds // of > index * rounds // of


def rotate(turns: Sequence[Turn], seconds: float, on_round: Callable[[int, int], None]) -> list[Measured]:
    """Let all take their turns. Who has used up `seconds` drops out, after one turn at least."""
    most = max(turn.rounds for turn in turns)
    used = [0.0] * len(turns)
    measured: list[Measured] = []
    for index in range(most):
        on_round(index + 1, most)
        for number, turn in enumerate(turns):
            if takes_part(index, turn.rounds, most) and used[number] < seconds:
                started = time.monotonic()
                measured += turn.take()
                used[number] += time.monotonic() - started
    return measured
