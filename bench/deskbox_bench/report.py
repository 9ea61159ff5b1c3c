"""A report as tables: for the terminal, and as Markdown for the documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deskbox_bench.bench import Report
from deskbox_bench.starts import ALL_WORKS, KINDS, MOMENTS
from deskbox_bench.statistics import Result

SETTLE = "settle "  # before the pad, in the name of a work


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


_COLUMNS: tuple[tuple[str, Callable[[Result], str | None]], ...] = (
    ("p50", lambda result: time(result.p50_ms)),
    ("p95", lambda result: time(result.p95_ms)),
    ("stale", lambda result: None if result.stale is None else f"{result.stale} of {result.n}"),
    ("wrong characters", lambda result: _wrong(result)),
    ("a second", lambda result: _number(result.chars_per_s)),
    ("KB a picture", lambda result: _number(result.bytes_per_frame, per=1000)),
    ("guest CPU", lambda result: None if result.cpu_ms_per_step is None else time(result.cpu_ms_per_step)),
    ("turns", lambda result: str(result.n)),
)


def tables(report: Report) -> list[Table]:
    """One for each work that was done, and the targets."""
    found = report.results
    return [
        *_works(found),
        *_settling(found),
        *_agent(found),
        *_starts(found),
        *_memory(found),
        _targets(report),
    ]


def markdown(table: Table) -> str:
    """With numbers to the right."""
    head = [list(table.columns), ["---", *["---:"] * (len(table.columns) - 1)]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [*head, *map(list, table.rows)]) + "\n"


def machine(report: Report) -> str:
    """The facts as one Markdown list."""
    return "".join(f"- {name}: {value}\n" for name, value in report.machine.items())


def left_out(report: Report) -> str:
    """What could not be measured, likewise."""
    return "".join(f"- {what}\n" for what in report.left_out or ["nothing"])


def time(ms: float) -> str:
    if ms < 10:
        return f"{ms:.1f} ms"
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.2f} s"


def subjects_of(results: Sequence[Result], work: str) -> list[Result]:
    return [result for result in results if result.work == work]


def pads_of(results: Sequence[Result]) -> list[str]:
    """The pads of the work `settle` that there are results for."""
    names = (result.work.removeprefix(SETTLE) for result in results if result.work.startswith(SETTLE))
    return list(dict.fromkeys(names))


def _works(results: Sequence[Result]) -> Iterator[Table]:
    for work in ALL_WORKS:
        found = [result for result in subjects_of(results, work.name) if result.memory_mb is None]
        if found:
            shown = [
                (name, show) for name, show in _COLUMNS if any(show(result) is not None for result in found)
            ]
            rows = [(result.subject, *(show(result) or "" for _, show in shown)) for result in found]
            yield Table(work.name, work.title, ("", *(name for name, _ in shown)), rows)


def _settling(results: Sequence[Result]) -> Iterator[Table]:
    pads = pads_of(results)
    if not pads:
        return
    found = {(result.work.removeprefix(SETTLE), result.subject): result for result in results}
    policies = [result.subject for result in subjects_of(results, SETTLE + pads[0])]
    columns = ("", *policies)

    def rows(show: Callable[[Result], str]) -> list[tuple[str, ...]]:
        return [(pad, *(show(found[pad, policy]) for policy in policies)) for pad in pads]

    stale = rows(lambda result: f"{result.stale} of {result.n}")
    yield Table("settle-stale", "When to take the picture: how many are stale", columns, stale)
    cost = rows(lambda result: time(result.p50_ms))
    yield Table("settle-time", "When to take the picture: from click to picture, p50", columns, cost)


def _agent(results: Sequence[Result]) -> Iterator[Table]:
    rows = [
        (f"{result.cpu_percent:.1f} % of a processor", f"{result.memory_mb:.0f} MB")
        for result in results
        if result.work == "agent"
    ]
    if rows:
        yield Table("agent", "The agent at rest", ("CPU", "memory"), rows)


def _starts(results: Sequence[Result]) -> Iterator[Table]:
    shown = [moment for moment in MOMENTS if moment != "keeper"]
    rows = [
        (
            f"{backend}, {KINDS[work]}",
            *(time(ms) for moment in shown for ms in (found[moment].p50_ms, found[moment].p95_ms)),
            f"{found['picture'].stale or 0} of {found['picture'].n}",
        )
        for backend, work, found in starts_of(results)
    ]
    if rows:
        columns = ("", *(name for moment in shown for name in (moment, "p95")), "stale")
        yield Table("starts", "The start of a desktop: from the call until …, p50 and p95", columns, rows)


def starts_of(results: Sequence[Result]) -> list[tuple[str, str, dict[str, Result]]]:
    """Backend, work and the result for each moment, by backend."""
    found = {(result.work, result.subject): result for result in results}
    return [
        (backend, work, {moment: found[f"{work} {moment}", backend] for moment in MOMENTS})
        for backend in dict.fromkeys(result.subject for result in results)
        for work in KINDS
        if (f"{work} {MOMENTS[0]}", backend) in found
    ]


def _memory(results: Sequence[Result]) -> Iterator[Table]:
    found = {
        (result.work, result.subject): result.memory_mb for result in results if result.memory_mb is not None
    }
    rows = []
    for alone in subjects_of(results, "memory alone"):
        backend, one = alone.subject, found["memory alone", alone.subject]
        of_two, keeper = found["memory of two", backend], found["memory keeper", backend]
        rows.append((backend, *(f"{mb:.0f} MB" for mb in (one, of_two, 2 * of_two - one, keeper))))
    if rows:
        columns = ("", "alone", "each of two", "the second one", "keeper")
        yield Table("memory", "Memory of a desktop at rest", columns, rows)


def _targets(report: Report) -> Table:
    rows = [
        (
            target.what,
            f"{target.value:,.3g}" if target.value < 1000 else f"{target.value:,.0f}",
            f"{'at least' if target.at_least else 'at most'} {target.bound:,g}",
            "met" if target.met else "missed",
        )
        for target in report.targets
    ]
    return Table("targets", "Targets", ("", "is", "must be", ""), rows)


def _wrong(result: Result) -> str | None:
    return None if result.wrong_chars is None else f"{result.wrong_chars:,} of {result.chars:,}"


def _number(value: float | None, per: int = 1) -> str | None:
    return None if value is None else f"{value / per:,.0f}"
