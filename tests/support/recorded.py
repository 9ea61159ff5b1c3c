"""Desktops that write down what they are told, for tests of what is sent and not of what it does."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field

from PIL import Image

from deskbox_guest.protocol import Frame, Settle, Step, StepResult


@dataclass(frozen=True)
class Outcome:
    result: StepResult
    image: bytes


def png(size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, "white").save(buffer, "PNG")
    return buffer.getvalue()


@dataclass
class RecordedDesktop:
    """Answers each step at once with a white picture of the size that was asked for.

    `steps` and `cancels` hold what came, in order; `before_step` may raise in place of an answer.
    """

    size: tuple[int, int] = (1280, 800)
    steps: list[Step] = field(default_factory=list)
    cancels: list[Callable[[], bool] | None] = field(default_factory=list)
    before_step: Callable[[Step], None] = lambda step: None
    image: Callable[[Frame], bytes] = lambda frame: png((frame.image_width, frame.image_height))

    def step(
        self,
        script: str = "",
        *,
        settle: Settle | None = None,
        frame: Frame | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Outcome:
        step = Step(script, settle, frame)
        self.before_step(step)
        self.steps.append(step)
        self.cancels.append(cancelled)
        return Outcome(StepResult(), b"" if frame is None else self.image(frame))

    @property
    def scripts(self) -> list[str]:
        """The scripts alone; a screenshot shows as "screenshot"."""
        return ["screenshot" if step.frame else step.script for step in self.steps]


class AsyncRecordedDesktop:
    """The same, awaited."""

    def __init__(self, recorded: RecordedDesktop) -> None:
        self._recorded = recorded
        self.size = recorded.size

    async def step(
        self,
        script: str = "",
        *,
        settle: Settle | None = None,
        frame: Frame | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Outcome:
        return self._recorded.step(script, settle=settle, frame=frame, cancelled=cancelled)
