"""The figures, as SVG: how long each subject takes, what each policy of waiting catches and costs, and how
long a desktop takes to start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import fmean

from deskbox_bench.report import SETTLE, pads_of, starts_of, subjects_of, time
from deskbox_bench.starts import KINDS, MOMENTS
from deskbox_bench.statistics import Result
from deskbox_bench.works import WORKS

_INK, _PALE, _GRID = "#1f2933", "#6b7785", "#e4e8ec"
_OURS, _LIMIT, _PEER, _WRONG = "#1f6feb", "#1f2933", "#9aa7b5", "#c62828"
# Words stay readable where a line of the grid runs behind them.
_HALO = "paint-order='stroke' stroke='#ffffff' stroke-width='3'"
_KEY = "bar: p50 · line: p95 · pale: some of it was stale or wrong"
_FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"

# Bars. Pixels.
_WIDTH, _LEFT, _RIGHT, _TOP = 960, 150, 250, 66
_ROW, _GAP, _HEAD = 19, 20, 24
_FROM_MS, _TO_MS = 0.2, 20_000.0
_TICKS = {1: "1 ms", 10: "10 ms", 100: "0.1 s", 1000: "1 s", 10_000: "10 s"}
# Of the works on text the long ones say it all.
_SHOWN = tuple(
    work for work in WORKS if work.name not in ("settle", "agent", "type-ascii-100", "type-mixed-100")
)


def bars(results: Sequence[Result]) -> str:
    """A bar to p50 and a line to p95 for every subject, on one logarithmic scale for all works."""
    parts: list[str] = []
    y = _TOP
    for work in _SHOWN:
        found = subjects_of(results, work.name)
        if not found:
            continue
        parts.append(_text(_LEFT, y + 13, work.title, weight="bold"))
        y += _HEAD
        for result in found:
            parts += _bar(result, y)
            y += _ROW
        y += _GAP
    end = y - _GAP
    grid = [
        _line(_x(ms), _TOP - 8, _x(ms), end, _GRID)
        + _text(_x(ms), _TOP - 14, label, fill=_PALE, anchor="middle", size=11)
        for ms, label in _TICKS.items()
    ]
    title = [
        _text(20, 26, "Time to act, to look, to type", weight="bold", size=16),
        _text(
            _WIDTH - 20,
            26,
            _KEY,
            fill=_PALE,
            anchor="end",
            size=11,
        ),
    ]
    return _svg(_WIDTH, end + 16, [*title, *grid, *parts])


def _bar(result: Result, y: int) -> list[str]:
    ours, limit = result.subject == "deskbox", result.subject == "limit"
    colour = _OURS if ours else _LIMIT if limit else _PEER
    start, middle, end = _x(_FROM_MS), _x(result.p50_ms), _x(result.p95_ms)
    centre = y + _ROW / 2
    trouble = _trouble(result)
    shown = time(result.p50_ms)
    after = max(middle, end) + 8
    parts = [
        _text(_LEFT - 10, centre + 4, result.subject, anchor="end", weight="bold" if ours else "", size=12),
        _rectangle(start, y + 3, middle - start, _ROW - 6, colour, 0.3 if trouble else 1),
        _line(middle, centre, end, centre, colour),
        _text(after, centre + 4, shown, size=11, weight="bold" if ours else ""),
    ]
    if trouble:
        parts.append(_text(after + 7.2 * len(shown) + 6, centre + 4, trouble, size=11, fill=_WRONG))
    return parts


def _trouble(result: Result) -> str:
    if result.stale:
        return f"{result.stale} of {result.n} pictures stale"
    if result.wrong_chars and result.chars:
        return f"{100 * result.wrong_chars / result.chars:.2g} % of the characters wrong"
    return ""


def _x(ms: float) -> float:
    share = math.log(max(ms, _FROM_MS) / _FROM_MS) / math.log(_TO_MS / _FROM_MS)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


# --- settling --------------------------------------------------------------------------------------------
_SETTLE_WIDTH, _SETTLE_HEIGHT = 720, 400
_PLOT = (80, 64, 660, 340)  # left, top, right, bottom


def settling(results: Sequence[Result]) -> str:
    """Stale pictures against time, over all pads: a policy for a point."""
    left, top, right, bottom = _PLOT
    points = _policies(results)
    longest = max(1.0, math.ceil(max((cost for cost, _ in points.values()), default=0) / 500) / 2)

    def at(cost_ms: float, stale: float) -> tuple[float, float]:
        return left + cost_ms / 1000 / longest * (right - left), bottom - stale * (bottom - top)

    parts = [
        _text(20, 26, "When to take the picture", weight="bold", size=16),
        _text(20, 46, f"pages that change {_pages(results)} after a click", fill=_PALE, size=11),
    ]
    for percent in (0, 25, 50, 75, 100):
        _, y = at(0, percent / 100)
        parts.append(_line(left, y, right, y, _GRID))
        parts.append(_text(left - 8, y + 4, f"{percent} %", anchor="end", fill=_PALE, size=11))
    for half in range(int(longest * 2) + 1):
        x, _ = at(half * 500, 0)
        parts.append(_text(x, bottom + 18, f"{half / 2:g} s", anchor="middle", fill=_PALE, size=11))
    parts.append(
        _text((left + right) / 2, bottom + 40, "from click to picture, mean", anchor="middle", size=12)
    )
    parts.append(
        f"<text x='24' y='{(top + bottom) / 2}' font-size='12' fill='{_INK}' text-anchor='middle' "
        f"transform='rotate(-90 24 {(top + bottom) / 2})'>stale pictures</text>"
    )
    for name, (cost, stale) in points.items():
        x, y = at(cost, stale)
        colour = _PEER if name.startswith("sleep") else _OURS
        parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='6' fill='{colour}'/>")
        parts.append(_text(x + 11, y - 10, name, weight="bold", size=12))
        parts.append(_text(x + 11, y + 4, f"{100 * stale:.0f} %, {time(cost)}", fill=_PALE, size=11))
    return _svg(_SETTLE_WIDTH, _SETTLE_HEIGHT, parts)


def _policies(results: Sequence[Result]) -> dict[str, tuple[float, float]]:
    """For each policy the mean over all pads: milliseconds, and the share of stale pictures."""
    found: dict[str, list[Result]] = {}
    for pad in pads_of(results):
        for result in subjects_of(results, SETTLE + pad):
            found.setdefault(result.subject, []).append(result)
    return {
        name: (
            fmean(result.p50_ms for result in each),
            sum(result.stale or 0 for result in each) / sum(result.n for result in each),
        )
        for name, each in found.items()
    }


def _pages(results: Sequence[Result]) -> str:
    pads = [pad.split("-") for pad in pads_of(results)]
    timers = ", ".join(delay for kind, *rest in pads if kind == "timer" for delay in rest)
    answers = ", ".join(
        f"{int(delay) / 1000:g}" for kind, *rest in pads if kind == "answer" for delay in rest
    )
    nothing = ", or not at all," if ["nothing"] in pads else ""
    return f"by a timer ({timers} ms), when a server answers ({answers} s){nothing}"


# --- starts ----------------------------------------------------------------------------------------------
_STARTS_LEFT, _STARTS_RIGHT, _STARTS_TOP = 130, 80, 92
_STAGES = {
    "keeper": ("its keeper runs", "#9aa7b5"),
    "agent": ("the agent answers", "#12448f"),
    "painted": ("painted", "#1f6feb"),
    "picture": ("a picture is there", "#9cc3f7"),
}


def starts(results: Sequence[Result]) -> str:
    """A bar to the first picture, in pieces for what comes before, for every backend and kind of start."""
    found = starts_of(results)
    longest = max([1000.0, *(moments["picture"].p95_ms for _, _, moments in found)])
    step = next(step for step in (0.5, 1, 2, 5, 10, 60) if longest / 1000 / step <= 8 or step == 60)

    def at(ms: float) -> float:
        return _STARTS_LEFT + ms / longest * (_WIDTH - _STARTS_LEFT - _STARTS_RIGHT)

    parts: list[str] = []
    y, before = _STARTS_TOP, ""
    for backend, work, moments in found:
        y += _GAP // 2 if before not in ("", backend) else 0
        before = backend
        label = f"{backend}, {KINDS[work]}"
        parts.append(_text(_STARTS_LEFT - 10, y + _ROW / 2 + 4, label, anchor="end", size=12))
        start = 0.0
        for moment in MOMENTS:
            end = moments[moment].p50_ms
            parts.append(_rectangle(at(start), y + 3, at(end) - at(start), _ROW - 6, _STAGES[moment][1], 1))
            start = end
        picture = moments["picture"]
        last = at(max(picture.p50_ms, picture.p95_ms))
        parts.append(_line(at(picture.p50_ms), y + _ROW / 2, last, y + _ROW / 2, _PALE))
        parts.append(_text(last + 8, y + _ROW / 2 + 4, time(picture.p50_ms), size=11))
        y += _ROW
    grid = []
    for index in range(int(longest / 1000 / step) + 1):
        x = at(index * step * 1000)
        grid.append(_line(x, _STARTS_TOP - 6, x, y + 4, _GRID))
        label = f"{index * step:g} s"
        grid.append(_text(x, _STARTS_TOP - 12, label, fill=_PALE, anchor="middle", size=11))
    title = [_text(20, 26, "From the call to a desktop", weight="bold", size=16)]
    x = _STARTS_LEFT
    for words, colour in _STAGES.values():
        title += [_rectangle(x, 44, 12, 12, colour, 1), _text(x + 18, 54, words, size=12)]
        x += 36 + 7 * len(words)
    title.append(_text(_WIDTH - 20, 26, "bars: p50 · line: p95", fill=_PALE, anchor="end", size=11))
    return _svg(_WIDTH, y + 16, [*title, *grid, *parts])


def _text(
    x: float,
    y: float,
    words: str,
    *,
    fill: str = _INK,
    anchor: str = "start",
    weight: str = "",
    size: int = 13,
) -> str:
    bold = f" font-weight='{weight}'" if weight else ""
    look = f"font-size='{size}' fill='{fill}' text-anchor='{anchor}'{bold} {_HALO}"
    return f"<text x='{x:.1f}' y='{y:.1f}' {look}>{escape(words)}</text>"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    ends = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {ends} stroke='{colour}' stroke-width='1.5'/>"


def _rectangle(x: float, y: float, width: float, height: float, colour: str, opacity: float) -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}'"
    return f"<rect {place} rx='2' fill='{colour}' fill-opacity='{opacity}'/>"


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
        f"height='{height}' {_FONT}>"
    )
    return "\n".join([head, f"<rect width='{width}' height='{height}' fill='#ffffff'/>", *parts, "</svg>\n"])
