"""From samples to figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class Sample:
    """One turn of one subject at one work. What was not looked at is None."""

    ms: float
    stale: bool | None = None  # the picture showed an older state than it should
    wrong: int | None = None  # characters; see `wrong_characters`
    characters: int | None = None  # that should have arrived
    size: int | None = None  # bytes of the picture
    cpu_ms: float | None = None  # processor time of the whole guest meanwhile
    memory_mb: float | None = None


@dataclass(frozen=True)
class Measured:
    work: str
    subject: str
    sample: Sample


@dataclass(frozen=True)
class Result:
    """The figures of one subject at one work. What it has none of is None."""

    work: str
    subject: str
    n: int
    p50_ms: float
    p95_ms: float
    stale: int | None = None  # of n
    wrong_chars: int | None = None  # in all n turns
    chars: int | None = None  # likewise
    chars_per_s: float | None = None  # at p50
    bytes_per_frame: float | None = None  # mean
    cpu_ms_per_step: float | None = None  # mean
    cpu_percent: float | None = None  # of one processor
    memory_mb: float | None = None  # mean


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation between the two nearest ranks."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def wrong_characters(wanted: str, got: str) -> int:
    """How many characters must be put in, taken out or replaced to make `wanted` of `got`."""
    row = list(range(len(got) + 1))
    for index, want in enumerate(wanted, 1):
        before, row = row, [index]
        for column, have in enumerate(got, 1):
            row.append(min(before[column] + 1, row[-1] + 1, before[column - 1] + (want != have)))
    return row[-1]


def results(measured: Sequence[Measured]) -> list[Result]:
    """One for each subject at each work, in the order of their first turns."""
    groups: dict[tuple[str, str], list[Sample]] = {}
    for each in measured:
        groups.setdefault((each.work, each.subject), []).append(each.sample)
    return [summary(work, subject, samples) for (work, subject), samples in groups.items()]


def summary(work: str, subject: str, samples: Sequence[Sample]) -> Result:
    times = [sample.ms for sample in samples]
    median = percentile(times, 50)
    stale = [sample.stale for sample in samples if sample.stale is not None]
    wrong = [sample.wrong for sample in samples if sample.wrong is not None]
    characters = [sample.characters for sample in samples if sample.characters is not None]
    sizes = [sample.size for sample in samples if sample.size is not None]
    cpu = [sample.cpu_ms for sample in samples if sample.cpu_ms is not None]
    memory = [sample.memory_mb for sample in samples if sample.memory_mb is not None]
    return Result(
        work,
        subject,
        len(samples),
        p50_ms=median,
        p95_ms=percentile(times, 95),
        stale=sum(stale) if stale else None,
        wrong_chars=sum(wrong) if wrong else None,
        chars=sum(characters) if characters else None,
        chars_per_s=fmean(characters) / median * 1000 if characters else None,
        bytes_per_frame=fmean(sizes) if sizes else None,
        cpu_ms_per_step=fmean(cpu) if cpu else None,
        memory_mb=fmean(memory) if memory else None,
    )
