"""A computer driver that reports what it is asked to do, and does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from openai.lib.computer import ComputerActionInput, Screenshot

from deskbox.runs.events import RunEvent
from deskbox.runs.wording import describe

if TYPE_CHECKING:
    from openai.types.responses import computer_action as modern
    from openai.types.responses import response_computer_tool_call as legacy

Cancelled = Callable[[], bool] | None


class CancellableDriver(Protocol):
    """The SDK's driver whose methods also take `cancelled`, which the SDK passes by name."""

    def click(self, action: Any, *, cancelled: Cancelled = None) -> None: ...
    def double_click(self, action: Any, *, cancelled: Cancelled = None) -> None: ...
    def drag(self, action: Any, *, cancelled: Cancelled = None) -> None: ...
    def keypress(self, action: Any, *, cancelled: Cancelled = None) -> None: ...
    def move(self, action: Any, *, cancelled: Cancelled = None) -> None: ...
    def scroll(self, action: Any, *, cancelled: Cancelled = None) -> None: ...
    def type(self, action: Any, *, cancelled: Cancelled = None) -> None: ...
    def wait(self, action: Any, *, cancelled: Cancelled = None) -> None: ...
    def screenshot(self, *, cancelled: Cancelled = None) -> Screenshot: ...


class ObservedDriver:
    """Wraps a driver; tells `on_event` of each action before it is carried out and of each screenshot after.

    A computer call ends with exactly one screenshot, so counting those numbers the steps.
    """

    def __init__(self, driver: CancellableDriver, on_event: Callable[[RunEvent], None]) -> None:
        self._driver = driver
        self._on_event = on_event
        self.step = 1  # the one that is being worked on
        self.begun = False  # whether any action of it was

    def _tell(self, action: ComputerActionInput) -> None:
        self.begun = True
        self._on_event(RunEvent("action", self.step, describe(action)))

    def click(self, action: modern.Click | legacy.ActionClick, *, cancelled: Cancelled = None) -> None:
        self._tell(action)
        self._driver.click(action, cancelled=cancelled)

    def double_click(
        self, action: modern.DoubleClick | legacy.ActionDoubleClick, *, cancelled: Cancelled = None
    ) -> None:
        self._tell(action)
        self._driver.double_click(action, cancelled=cancelled)

    def drag(self, action: modern.Drag | legacy.ActionDrag, *, cancelled: Cancelled = None) -> None:
        self._tell(action)
        self._driver.drag(action, cancelled=cancelled)

    def keypress(
        self, action: modern.Keypress | legacy.ActionKeypress, *, cancelled: Cancelled = None
    ) -> None:
        self._tell(action)
        self._driver.keypress(action, cancelled=cancelled)

    def move(self, action: modern.Move | legacy.ActionMove, *, cancelled: Cancelled = None) -> None:
        self._tell(action)
        self._driver.move(action, cancelled=cancelled)

    def scroll(self, action: modern.Scroll | legacy.ActionScroll, *, cancelled: Cancelled = None) -> None:
        self._tell(action)
        self._driver.scroll(action, cancelled=cancelled)

    def type(self, action: modern.Type | legacy.ActionType, *, cancelled: Cancelled = None) -> None:
        self._tell(action)
        self._driver.type(action, cancelled=cancelled)

    def wait(self, action: modern.Wait | legacy.ActionWait, *, cancelled: Cancelled = None) -> None:
        self._tell(action)
        self._driver.wait(action, cancelled=cancelled)

    def screenshot(self, *, cancelled: Cancelled = None) -> Screenshot:
        taken = self._driver.screenshot(cancelled=cancelled)
        self._on_event(RunEvent("screenshot", self.step, image_url=taken.get("image_url") or ""))
        self.step += 1
        self.begun = False
        return taken
