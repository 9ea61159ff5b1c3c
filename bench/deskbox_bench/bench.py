"""One run of the bench, from an empty guest to a report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deskbox_bench import machine
from deskbox_bench.stage import set_up
from deskbox_bench.statistics import Result
from deskbox_bench.targets import Target, targets
from deskbox_bench.works import WORKS, Work


@dataclass(frozen=True)
class Report:
    machine: dict[str, str]
    results: list[Result]
    seconds: float
    quick: bool = False

    @property
    def targets(self) -> list[Target]:
        return targets(self.results)

    def document(self) -> dict[str, Any]:
        """As JSON: figures that a work does not have are left out."""
        return {
            "machine": self.machine,
            "seconds": round(self.seconds, 1),
            "quick": self.quick,
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
        return Report(document["machine"], results, document["seconds"], document["quick"])
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            "that is no report of the bench: give what `deskbox bench --json` printed"
        ) from error


def run(
    works: Sequence[Work] = WORKS,
    *,
    quick: bool = False,
    rounds: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure these works on a fresh desktop. `rounds` is how many turns all have, instead of the usual."""
    started = time.monotonic()
    results: list[Result] = []
    with set_up(progress) as stage:
        facts = machine.facts(stage)
        for work in works:
            usual = work.quick if quick else work.rounds
            turns = usual if rounds is None else dict.fromkeys(usual, rounds)

            def on_round(index: int, of: int, title: str = work.title) -> None:
                progress(f"{title}: {index} of {of}")

            results += work.run(stage, turns, on_round)
    return Report(facts, results, time.monotonic() - started, quick)


def _rounded(value: Any) -> Any:
    """Four digits tell more than any measurement knows."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
