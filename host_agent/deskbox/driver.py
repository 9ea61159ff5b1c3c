"""The computer driver: what `openai`'s ComputerToolset and ResponsesToolRunner call for a model's actions.

    with Desktop.launch() as desktop:
        ComputerToolset(desktop.computer_driver()).run(client, {...})

Both drivers plan an action with the same pure code (`actions`, `geometry`) and differ only in how they wait
for the desktop. The toolset looks at each method's signature: the return annotation tells it sync from async,
and only a parameter named `cancelled` gets the run's own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from deskbox.actions import NO_REST, Plan, plan
from deskbox.calls import SettlePolicy, policy
from deskbox.errors import InvalidInput, Unavailable
from deskbox.geometry import Geometry, Region, Size
from deskbox_guest.protocol import Frame, Settle, StepResult

if TYPE_CHECKING:
    # Importing openai takes most of a second, and a driver needs its types only on paper.
    from openai.lib.computer import Screenshot
    from openai.types.responses import computer_action as modern
    from openai.types.responses import response_computer_tool_call as legacy

Cancelled = Callable[[], bool]


WAIT = policy("wait")


class StepOutcome(Protocol):
    """What one step gave: its result, and the encoded image if one was asked for."""

    @property
    def result(self) -> StepResult: ...
    @property
    def image(self) -> bytes: ...


class DesktopLike(Protocol):
    """What a driver needs of a `Desktop`."""

    @property
    def size(self) -> Size: ...

    def step(
        self,
        script: str = "",
        *,
        settle: Settle | None = None,
        frame: Frame | None = None,
        cancelled: Cancelled | None = None,
    ) -> StepOutcome: ...


class AsyncDesktopLike(Protocol):
    """What an async driver needs of an `AsyncDesktop`."""

    @property
    def size(self) -> Size: ...

    async def step(
        self,
        script: str = "",
        *,
        settle: Settle | None = None,
        frame: Frame | None = None,
        cancelled: Cancelled | None = None,
    ) -> StepOutcome: ...


class _Planner:
    """The state that both drivers have, and all that they do between two calls of the desktop."""

    def __init__(
        self,
        size: Size,
        image_size: Size | None,
        crop: Region | None,
        settle: SettlePolicy,
        max_image_bytes: int,
    ) -> None:
        self.geometry = Geometry.fit(size, crop, image_size)
        self.settle = policy(settle)
        self._rest = NO_REST
        x, y, width, height = self.geometry.crop
        image_width, image_height = self.geometry.image
        if image_width > width or image_height > height:
            raise InvalidInput(
                f"an image of {image_width}x{image_height} can't show more than the {width}x{height} pixels "
                "of its part of the screen; choose an image of at most that size"
            )
        self.frame = Frame(x, y, width, height, image_width, image_height, "png", max_bytes=max_image_bytes)

    def begin(self, member: str, action: Any) -> Plan:
        if getattr(action, "type", None) != member:
            raise InvalidInput(f"{member}() takes an action of type {member!r}, not {action!r}")
        return plan(action, self.geometry, self._rest)

    def done(self, finished: Plan) -> None:
        """A plan has run. The rest of a scroll that failed stays as it was."""
        self._rest = finished.rest

    def screenshot(self, outcome: StepOutcome) -> Screenshot:
        got, due = _png_size(outcome.image), self.geometry.image
        if got != due:
            # The model would answer in other pixels than the ones that we map back.
            what = "no PNG" if got is None else f"an image of {got[0]}x{got[1]}"
            raise Unavailable(
                f"the desktop sent {what} instead of an image of {due[0]}x{due[1]}; if its screen has "
                "changed size, make a new driver"
            )
        data = base64.b64encode(outcome.image).decode("ascii")
        return {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{data}"}


class DesktopComputerDriver:
    """Fulfils `openai.ComputerDriver` with a desktop.

    image_size  width and height of the image that the model sees and points into; default: the size of what
                it shows, or the largest image of that shape that reaches the model unscaled (see `geometry`);
                never larger than what it shows
    crop        the part of the screen to show: x, y, width, height in screen pixels; default: all of it
    settle      how quiet the screen must be before a screenshot: "settled", "fast", "none", or numbers
    max_image_bytes
                a screenshot that takes more raises ImageTooLarge; 0 for no limit. It is never shrunk, because
                its pixels are what the model's coordinates count

    Each method runs one action and returns when the guest has carried it out. It raises InvalidInput if the
    action can't be carried out exactly (nothing has happened then), Interrupted if it was stopped on the way
    (nothing is held then; Cancelled if by `cancelled`), and Unavailable if the desktop doesn't answer.
    The driver never closes the desktop.
    """

    def __init__(
        self,
        desktop: DesktopLike,
        image_size: Size | None = None,
        crop: Region | None = None,
        *,
        settle: SettlePolicy = "settled",
        max_image_bytes: int = 0,
    ) -> None:
        self._desktop = desktop
        self._planner = _Planner(desktop.size, image_size, crop, settle, max_image_bytes)

    @property
    def geometry(self) -> Geometry:
        """How the image's pixels lie on the screen."""
        return self._planner.geometry

    @property
    def settle(self) -> SettlePolicy:
        """How quiet the screen must be before the next screenshot. May be set at any time."""
        return self._planner.settle

    @settle.setter
    def settle(self, value: SettlePolicy) -> None:
        self._planner.settle = policy(value)

    def click(self, action: modern.Click | legacy.ActionClick, cancelled: Cancelled | None = None) -> None:
        """Press and release one of five buttons at a point, with `keys` held."""
        self._act("click", action, cancelled)

    def double_click(
        self, action: modern.DoubleClick | legacy.ActionDoubleClick, cancelled: Cancelled | None = None
    ) -> None:
        """Click the left button twice, near enough in time to count as one double click."""
        self._act("double_click", action, cancelled)

    def drag(self, action: modern.Drag | legacy.ActionDrag, cancelled: Cancelled | None = None) -> None:
        """Press the left button at the first point, move through every other, release at the last."""
        self._act("drag", action, cancelled)

    def keypress(
        self, action: modern.Keypress | legacy.ActionKeypress, cancelled: Cancelled | None = None
    ) -> None:
        """Press all `keys` as one combination."""
        self._act("keypress", action, cancelled)

    def move(self, action: modern.Move | legacy.ActionMove, cancelled: Cancelled | None = None) -> None:
        """Move the pointer to a point, with `keys` held."""
        self._act("move", action, cancelled)

    def scroll(self, action: modern.Scroll | legacy.ActionScroll, cancelled: Cancelled | None = None) -> None:
        """Turn the wheel over a point: positive is down and right, in pixels of the image."""
        self._act("scroll", action, cancelled)

    def type(self, action: modern.Type | legacy.ActionType, cancelled: Cancelled | None = None) -> None:
        """Type a text exactly into what has the focus."""
        self._act("type", action, cancelled)

    def wait(self, action: modern.Wait | legacy.ActionWait, cancelled: Cancelled | None = None) -> None:
        """Wait until the screen has been quiet for as long as the policy "wait" says."""
        self._act("wait", action, cancelled, settle=WAIT)

    def screenshot(self, cancelled: Cancelled | None = None) -> Screenshot:
        """A PNG of what the geometry says, taken once, when the screen is quiet."""
        outcome = self._desktop.step(
            settle=self._planner.settle, frame=self._planner.frame, cancelled=cancelled
        )
        return self._planner.screenshot(outcome)

    def _act(
        self, member: str, action: Any, cancelled: Cancelled | None, settle: Settle | None = None
    ) -> None:
        planned = self._planner.begin(member, action)
        self._desktop.step(planned.script, settle=settle, cancelled=cancelled)
        self._planner.done(planned)


class AsyncDesktopComputerDriver:
    """Fulfils `openai.AsyncComputerDriver`; for the rest like `DesktopComputerDriver`."""

    def __init__(
        self,
        desktop: AsyncDesktopLike,
        image_size: Size | None = None,
        crop: Region | None = None,
        *,
        settle: SettlePolicy = "settled",
        max_image_bytes: int = 0,
    ) -> None:
        self._desktop = desktop
        self._planner = _Planner(desktop.size, image_size, crop, settle, max_image_bytes)

    @property
    def geometry(self) -> Geometry:
        """How the image's pixels lie on the screen."""
        return self._planner.geometry

    @property
    def settle(self) -> SettlePolicy:
        """How quiet the screen must be before the next screenshot. May be set at any time."""
        return self._planner.settle

    @settle.setter
    def settle(self, value: SettlePolicy) -> None:
        self._planner.settle = policy(value)

    async def click(
        self, action: modern.Click | legacy.ActionClick, cancelled: Cancelled | None = None
    ) -> None:
        await self._act("click", action, cancelled)

    async def double_click(
        self, action: modern.DoubleClick | legacy.ActionDoubleClick, cancelled: Cancelled | None = None
    ) -> None:
        await self._act("double_click", action, cancelled)

    async def drag(self, action: modern.Drag | legacy.ActionDrag, cancelled: Cancelled | None = None) -> None:
        await self._act("drag", action, cancelled)

    async def keypress(
        self, action: modern.Keypress | legacy.ActionKeypress, cancelled: Cancelled | None = None
    ) -> None:
        await self._act("keypress", action, cancelled)

    async def move(self, action: modern.Move | legacy.ActionMove, cancelled: Cancelled | None = None) -> None:
        await self._act("move", action, cancelled)

    async def scroll(
        self, action: modern.Scroll | legacy.ActionScroll, cancelled: Cancelled | None = None
    ) -> None:
        await self._act("scroll", action, cancelled)

    async def type(self, action: modern.Type | legacy.ActionType, cancelled: Cancelled | None = None) -> None:
        await self._act("type", action, cancelled)

    async def wait(self, action: modern.Wait | legacy.ActionWait, cancelled: Cancelled | None = None) -> None:
        await self._act("wait", action, cancelled, settle=WAIT)

    async def screenshot(self, cancelled: Cancelled | None = None) -> Screenshot:
        outcome = await self._desktop.step(
            settle=self._planner.settle, frame=self._planner.frame, cancelled=cancelled
        )
        return self._planner.screenshot(outcome)

    async def _act(
        self, member: str, action: Any, cancelled: Cancelled | None, settle: Settle | None = None
    ) -> None:
        planned = self._planner.begin(member, action)
        await self._desktop.step(planned.script, settle=settle, cancelled=cancelled)
        self._planner.done(planned)


def _png_size(image: bytes) -> Size | None:
    """Width and height from the header that begins every PNG; None if it isn't one."""
    if image[:8] != b"\x89PNG\r\n\x1a\n" or image[12:16] != b"IHDR":
        return None
    return int.from_bytes(image[16:20], "big"), int.from_bytes(image[20:24], "big")
