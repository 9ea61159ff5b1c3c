"""What the figures have to be. Mostly ratios within one run, which a slower machine does not change. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deskbox_bench.statistics import Result

# The window of a settled picture, and what may come on top of it.
HORIZON_MS, SLACK_MS = 300, 60


@dataclass(frozen=True)
class Target:
    what: str
    value: float
    bound: float
    at_least: bool = False  # else at most

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def targets(results: Sequence[Result]) -> list[Target]:
    """Those that these results can tell of."""
    return list(_targets({(result.work, result.subject): result for result in results}))


def _targets(found: dict[tuple[str, str], Result]) -> Iterator[Target]:
    def have(*names: tuple[str, str]) -> bool:
        return all(name in found for name in names)

    def ratio(work: str, subject: str, to: str) -> float:
        return found[work, subject].p50_ms / found[work, to].p50_ms

    if have(("screenshot", "deskbox"), ("screenshot", "limit")):
        yield Target("screenshot: multiple of the limit", ratio("screenshot", "deskbox", "limit"), 2.5)
    if have(("screenshot", "deskbox"), ("screenshot", "xdotool+scrot")):
        faster = ratio("screenshot", "xdotool+scrot", "deskbox")
        yield Target("screenshot: times as fast as scrot", faster, 5, at_least=True)
    if have(("click+frame", "deskbox"), ("click+frame", "limit")):
        value = ratio("click+frame", "deskbox", "limit")
        yield Target("click and picture at once: multiple of the limit", value, 3)
    for work, delay, what in (
        ("true-frame-timer", 150, "true picture, timer of 150 ms"),
        ("true-frame-answer", 800, "true picture, answer of 0.8 s"),
    ):
        if have((work, "deskbox")):
            result = found[work, "deskbox"]
            yield Target(f"{what}: p50 in ms", result.p50_ms, delay + HORIZON_MS + SLACK_MS)
            yield Target(f"{what}: stale of {result.n}", result.stale or 0, 0)
    for work, what, least in (
        ("type-ascii-1000", "ASCII", 2000),
        ("type-mixed-1000", "many scripts", 600),
    ):
        if have((work, "deskbox")):
            result = found[work, "deskbox"]
            yield Target(f"{what}: characters a second", result.chars_per_s or 0, least, at_least=True)
            yield Target(f"{what}: wrong of {result.chars or 0:,}", result.wrong_chars or 0, 0)
    for backend, moment, what, most in (
        ("bwrap", "agent", "bwrap: until the agent answers, p50 in ms", 300),
        ("bwrap", "painted", "bwrap: until it is painted, p50 in ms", 2000),
        ("qemu", "agent", "qemu: until the agent answers, p50 in ms", 500),
        ("qemu", "picture", "qemu: until a picture is there, p50 in ms", 1000),
    ):
        if have((f"start-warm {moment}", backend)):
            yield Target(what, found[f"start-warm {moment}", backend].p50_ms, most)
    if have(("agent", "deskbox")):
        agent = found["agent", "deskbox"]
        yield Target("agent at rest: % of a processor", agent.cpu_percent or 0, 1)
        yield Target("agent: memory in MB", agent.memory_mb or 0, 60)
