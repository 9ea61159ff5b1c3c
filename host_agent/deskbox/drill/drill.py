"""The whole drill: three runs on one desktop, each of them proved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from deskbox.drill.endpoint import Endpoint
from deskbox.drill.job import JOBS, Job
from deskbox.drill.script import SAFETY_CHECK, ScriptedModel
from deskbox.drill.stage import Stage, set_stage, site_source
from deskbox.drill.verify import differences
from deskbox.errors import Cancelled, DeskboxError
from deskbox.runs import RunEvent, RunOutcome, model_client, run_task

if TYPE_CHECKING:
    from openai.types.responses import ResponseComputerToolCall

    from deskbox.desktop import Desktop

_CROP = (24, 16, 1240, 736)


@dataclass(frozen=True)
class Pass:
    """One run of the drill: how the model sees the screen, and which loop of the SDK it runs in."""

    view: str  # in words
    loop: Literal["runner", "toolset"]
    image_size: tuple[int, int]
    crop: tuple[int, int, int, int] | None
    job: Job


@dataclass(frozen=True)
class PassReport:
    planned: Pass
    outcome: RunOutcome
    wrong: tuple[str, ...]  # a sentence each; none: the record and the file are exact
    seconds: float
    screenshot: bytes  # PNG of the screen at the end

    @property
    def verified(self) -> bool:
        return not self.wrong


@dataclass(frozen=True)
class DrillReport:
    passes: tuple[PassReport, ...]
    seconds: float

    @property
    def verified(self) -> bool:
        return all(each.verified for each in self.passes)


def plan(screen: tuple[int, int]) -> tuple[Pass, ...]:
    """The screen as it is, at half its size, and a part of it at three quarters."""
    width, height = screen
    x, y, crop_width, crop_height = _CROP
    half = (width // 2, height // 2)
    part = (crop_width * 3 // 4, crop_height * 3 // 4)
    return (
        Pass(f"{width}x{height}", "toolset", screen, None, JOBS[0]),
        Pass("{}x{}".format(*half), "runner", half, None, JOBS[1]),
        Pass(
            f"crop {crop_width}x{crop_height}+{x}+{y} as {part[0]}x{part[1]}", "runner", part, _CROP, JOBS[2]
        ),
    )


def run_drill(
    desktop: Desktop,
    *,
    on_pass: Callable[[Pass], None] = lambda planned: None,
    on_event: Callable[[RunEvent], None] = lambda event: None,
    cancelled: Callable[[], bool] = lambda: False,
    site: bytes | None = None,
) -> DrillReport:
    """Run every pass and verify it; what it puts into the guest is gone afterwards.

    on_pass, on_event  told of each pass before it starts, and of what happens in it
    site               another site in place of the drill's own

    Raises Cancelled, InvalidInput for a screen that is too small, and Unavailable if the stage can't be set.
    """
    started = time.monotonic()
    reports = []
    for planned in plan(desktop.size):
        on_pass(planned)
        reports.append(_run_pass(desktop, planned, site or site_source(), on_event, cancelled))
    return DrillReport(tuple(reports), time.monotonic() - started)


def _run_pass(
    desktop: Desktop,
    planned: Pass,
    site: bytes,
    on_event: Callable[[RunEvent], None],
    cancelled: Callable[[], bool],
) -> PassReport:
    started = time.monotonic()
    approval = _Approval()
    with (
        set_stage(desktop, site) as stage,
        Endpoint(ScriptedModel(planned.job)) as endpoint,
        model_client(endpoint.base_url, endpoint.api_key) as client,
    ):
        outcome = run_task(
            desktop,
            planned.job.task(),
            client=client,
            model="scripted",
            approve=approval,
            image_size=planned.image_size,
            crop=planned.crop,
            on_event=on_event,
            cancelled=cancelled,
            loop=planned.loop,
        )
        if outcome.status == "cancelled":
            raise Cancelled("The drill was cancelled; what it had put into the desktop is removed.")
        wrong = _wrong(planned.job, stage, outcome, approval)
        screenshot = desktop.screenshot()
    return PassReport(planned, outcome, tuple(wrong), time.monotonic() - started, screenshot)


class _Approval:
    """Approves the drill's own safety check, once, and nothing else."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, call: ResponseComputerToolCall, cancelled: Callable[[], bool]) -> bool:
        self.asked += 1
        checks = [check.id for check in call.pending_safety_checks or ()]
        return self.asked == 1 and checks == [SAFETY_CHECK["id"]]


def _wrong(job: Job, stage: Stage, outcome: RunOutcome, approval: _Approval) -> list[str]:
    """Everything that is not as it must be. The model's word counts for nothing."""
    try:
        wrong = differences(job, stage.database(), stage.saved_file())
    except DeskboxError as error:
        wrong = [f"The evidence can't be read: {error}"]
    if outcome.status != "done":
        wrong.append(outcome.error)
    if approval.asked != 1:
        wrong.append(
            f"The safety check before the submit was put to the user {approval.asked} times, not once."
        )
    return wrong
