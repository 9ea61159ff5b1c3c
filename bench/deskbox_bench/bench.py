"""One run of the bench, from an empty guest to a report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deskbox.errors import DeskboxError
from deskbox_bench import machine
from deskbox_bench.host import Host, find
from deskbox_bench.stage import Stage, set_up
from deskbox_bench.starts import STARTS
from deskbox_bench.statistics import Result
from deskbox_bench.targets import Target, targets
from deskbox_bench.works import WORKS, OnRound, Rounds, Work


@dataclass(frozen=True)
class Report:
    machine: dict[str, str]
    results: list[Result]
    seconds: float
    quick: bool = False
    left_out: list[str] = field(default_factory=list)  # what could not be measured here, and why

    @property
    def targets(self) -> list[Target]:
        return targets(self.results)

    def document(self) -> dict[str, Any]:
        """As JSON: figures that a work does not have are left out."""
        return {
            "machine": self.machine,
            "seconds": round(self.seconds, 1),
            "quick": self.quick,
            "left_out": self.left_out,
            "results": [
                {key: _rounded(value) for key, value in asdict(result).items() if value is not None}
                for result in self.results
            ],
            "targets": [
                {**asdict(target), "value": _rounded(target.value), "met": target.met}
                for target in self.targets
            ],
        }


def from_document(text: str) -> Report:
    """A report that was written with `document`. Raises ValueError for anything else."""
    try:
        document = json.loads(text)
        results = [Result(**result) for result in document["results"]]
        left_out = document.get("left_out", [])
        return Report(document["machine"], results, document["seconds"], document["quick"], left_out)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            "that is no report of the bench: give what `deskbox bench --json` printed"
        ) from error


def run(
    works: Sequence[Work[Stage]] = WORKS,
    starts: Sequence[Work[Host]] = STARTS,
    *,
    quick: bool = False,
    rounds: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure these works on a fresh desktop, then these starts of desktops when it has ended.

    `rounds` is how many turns all have, instead of the usual.
    """
    started = time.monotonic()
    facts = machine.facts()
    results: list[Result] = []
    left_out: list[str] = []

    def turns(work: Work[Any]) -> Rounds:
        usual = work.quick if quick else work.rounds
        return usual if rounds is None else dict.fromkeys(usual, rounds)

    def on_round(work: Work[Any]) -> OnRound:
        return lambda index, of: progress(f"{work.title}: {index} of {of}")

    if works:
        with set_up(progress) as stage:
            facts |= machine.guest_facts(stage)
            for work in works:
                results += work.run(stage, turns(work), on_round(work))
    if starts:
        host = find(progress)
        for start in starts:
            try:
                results += start.run(host, turns(start), on_round(start))
            except DeskboxError as error:  # all that was measured before is worth having
                host.leave_out(f"{start.title}: {error}")
        facts |= host.facts
        left_out = host.left_out
    return Report(facts, results, time.monotonic() - started, quick, left_out)


def _rounded(value: Any) -> Any:
    """Four digits tell more than any measurement knows."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
