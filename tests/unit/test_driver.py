"""What the drivers ask of a desktop, and what they make of its answer."""

from __future__ import annotations

import base64
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.recorded import AsyncRecordedDesktop, RecordedDesktop, png

from deskbox.driver import AsyncDesktopComputerDriver, DesktopComputerDriver
from deskbox.errors import Cancelled, Interrupted, InvalidInput, Unavailable
from deskbox_guest.protocol import POLICIES, Frame, Settle, Step

MEMBERS = ["click", "double_click", "drag", "keypress", "move", "scroll", "type", "wait", "screenshot"]
ACTIONS: list[tuple[dict[str, Any], str]] = [
    ({"type": "click", "x": 4, "y": 5, "button": "left", "keys": None}, "mousemove 8 10 click 1"),
    ({"type": "double_click", "x": 4, "y": 5}, "mousemove 8 10 click --repeat 2 1"),
    ({"type": "keypress", "keys": ["CTRL", "A"]}, "key ctrl+a"),
    ({"type": "move", "x": 4, "y": 5}, "mousemove 8 10"),
    (
        {"type": "scroll", "x": 4, "y": 5, "scroll_x": 0, "scroll_y": 48},
        "mousemove 8 10 click --repeat 2 5",
    ),
    ({"type": "type", "text": "it's\nso"}, "type -- 'it'\"'\"'s\nso'"),
    ({"type": "wait"}, ""),
]


def never() -> bool:
    return False


class Both:
    """One desktop with a sync and an async driver, driven by one call."""

    def __init__(self, asynchronous: bool, **options: Any) -> None:
        self.desktop = RecordedDesktop()
        self.driver: Any = (
            AsyncDesktopComputerDriver(AsyncRecordedDesktop(self.desktop), **options)
            if asynchronous
            else DesktopComputerDriver(self.desktop, **options)
        )

    async def __call__(self, member: str, *arguments: Any, **keywords: Any) -> Any:
        result = getattr(self.driver, member)(*arguments, **keywords)
        return await result if inspect.isawaitable(result) else result


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize(("fields", "script"), ACTIONS, ids=lambda value: str(value)[:20])
async def test_each_action_is_one_step(asynchronous: bool, fields: dict[str, Any], script: str) -> None:
    act = Both(asynchronous, image_size=(640, 400))
    assert await act(fields["type"], SimpleNamespace(**fields), cancelled=never) is None
    settle = POLICIES["wait"] if fields["type"] == "wait" else None
    assert act.desktop.steps == [Step(script, settle, None)]
    assert act.desktop.cancels == [never]


async def test_a_drag_is_one_step(asynchronous: bool) -> None:
    act = Both(asynchronous)
    points = [SimpleNamespace(x=x, y=5) for x in (1, 100, 50)]
    await act("drag", SimpleNamespace(type="drag", path=points, keys=["SHIFT"]))
    (script,) = act.desktop.scripts
    drag = "mousedown 1 mousemove 100 5 mousemove 50 5 mouseup 1"
    assert script == f"mousemove 1 5 keydown shift {drag} keyup shift"


async def test_a_screenshot_is_one_capture_of_what_the_geometry_says(asynchronous: bool) -> None:
    act = Both(asynchronous, image_size=(320, 200), crop=(100, 50, 640, 400))
    shot = await act("screenshot", cancelled=never)
    assert act.desktop.steps == [Step("", Settle(), Frame(100, 50, 640, 400, 320, 200, "png"))]
    assert act.desktop.cancels == [never]
    assert shot == {
        "type": "computer_screenshot",
        "image_url": "data:image/png;base64," + base64.b64encode(png((320, 200))).decode(),
    }


async def test_a_screenshot_has_the_drivers_limit_and_is_not_shrunk(asynchronous: bool) -> None:
    act = Both(asynchronous, max_image_bytes=70_000)
    await act("screenshot")
    frame = act.desktop.steps[0].frame
    assert frame is not None
    assert (frame.max_bytes, frame.oversize) == (70_000, "error")


@pytest.mark.parametrize("settle", [None, Settle(quiet=0.1, cap=1.0)])
async def test_the_settle_policy_is_the_drivers(asynchronous: bool, settle: Settle | None) -> None:
    act = Both(asynchronous, settle=settle)
    await act("screenshot")
    assert act.desktop.steps[0].settle == settle


@pytest.mark.parametrize("image", [png((640, 400)), b"", b"\xff\xd8\xff\xe0" + bytes(40)])
async def test_a_picture_of_another_size_is_no_screenshot(asynchronous: bool, image: bytes) -> None:
    act = Both(asynchronous)
    act.desktop.image = lambda frame: image
    with pytest.raises(Unavailable, match="instead of an image of 1280x800"):
        await act("screenshot")


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "click", "x": 1280, "y": 5, "button": "left"},
        {"type": "click", "x": 5, "y": 5, "button": "middle"},
        {"type": "keypress", "keys": "ENTER"},
        {"type": "keypress", "keys": []},
        {"type": "keypress", "keys": ["NOSUCHKEY"]},
        {"type": "drag", "path": []},
        {"type": "scroll", "x": 1, "y": 1, "scroll_x": 0, "scroll_y": 10**6},
        {"type": "type", "text": "\x00"},
    ],
)
async def test_what_cannot_be_done_reaches_no_desktop(asynchronous: bool, fields: dict[str, Any]) -> None:
    act = Both(asynchronous)
    with pytest.raises(InvalidInput):
        await act(fields["type"], SimpleNamespace(**fields))
    assert act.desktop.steps == []


async def test_an_action_of_another_type_is_refused(asynchronous: bool) -> None:
    act = Both(asynchronous)
    for wrong in (SimpleNamespace(type="move", x=1, y=1), SimpleNamespace(x=1, y=1, button="left")):
        with pytest.raises(InvalidInput, match=r"click\(\) takes an action of type 'click'"):
            await act("click", wrong)
    assert act.desktop.steps == []


async def test_the_rest_of_a_scroll_is_kept_only_if_it_ran(asynchronous: bool) -> None:
    act = Both(asynchronous)
    scroll = SimpleNamespace(type="scroll", x=4, y=5, scroll_x=0, scroll_y=20)

    def fail(step: Step) -> None:
        raise Interrupted("cut")

    act.desktop.before_step = fail
    with pytest.raises(Interrupted):
        await act("scroll", scroll)
    act.desktop.before_step = lambda step: None
    for _ in range(3):
        await act("scroll", scroll)
    # 20, 40 and 60 pixels in all: the nearest whole numbers of notches are 0, 1 and 1.
    turned = ["mousemove 4 5", "mousemove 4 5 click --repeat 1 5", "mousemove 4 5"]
    assert act.desktop.scripts == turned


@pytest.mark.parametrize("error", [Cancelled("stopped"), Unavailable("gone"), KeyboardInterrupt()])
async def test_what_the_desktop_raises_comes_through(asynchronous: bool, error: BaseException) -> None:
    act = Both(asynchronous)

    def fail(step: Step) -> None:
        raise error

    act.desktop.before_step = fail
    for member, arguments in (("wait", [SimpleNamespace(type="wait")]), ("screenshot", [])):
        with pytest.raises(type(error)):
            await act(member, *arguments)


def test_the_geometry_is_checked_when_the_driver_is_made() -> None:
    with pytest.raises(InvalidInput, match="within the screen of 1280x800"):
        DesktopComputerDriver(RecordedDesktop(), crop=(1000, 0, 500, 100))
    with pytest.raises(InvalidInput, match="would be scaled down"):
        AsyncDesktopComputerDriver(AsyncRecordedDesktop(RecordedDesktop()), (4000, 3000))


@pytest.mark.parametrize("image_size", [(1281, 800), (1280, 801), (320, 801)])
def test_an_image_is_no_larger_than_what_it_shows(image_size: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match="at most that size"):
        DesktopComputerDriver(RecordedDesktop(), image_size)


def test_a_large_screen_gets_an_image_that_the_model_can_take() -> None:
    driver = DesktopComputerDriver(RecordedDesktop(size=(3840, 2160)))
    assert driver.geometry.image == (2048, 1152)
    assert driver.geometry.crop == (0, 0, 3840, 2160)


@pytest.mark.parametrize("driver", [DesktopComputerDriver, AsyncDesktopComputerDriver])
@pytest.mark.parametrize("member", MEMBERS)
def test_the_toolset_can_tell_the_flavour_and_pass_cancelled(driver: type[Any], member: str) -> None:
    method = getattr(driver, member)
    signature = inspect.signature(method)
    assert signature.return_annotation not in (inspect.Signature.empty, "Any", "object")
    assert signature.parameters["cancelled"].default is None
    assert inspect.iscoroutinefunction(method) is (driver is AsyncDesktopComputerDriver)


def test_both_drivers_have_the_same_methods() -> None:
    for member in MEMBERS:
        sync, other = (getattr(each, member) for each in (DesktopComputerDriver, AsyncDesktopComputerDriver))
        assert inspect.signature(sync) == inspect.signature(other)
