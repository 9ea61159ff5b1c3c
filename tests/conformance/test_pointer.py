"""The pointer: clicks, drags and scrolls as windows of three toolkits and a page see them.

What goes wrong elsewhere, and which test watches for it here:

- a move to where the pointer is already waits for a motion that never comes, and stalls each click on the
  same place for seconds; a repeated point stalls a drag: `..._place_at_once`, `..._repeated_points...`
- "wheel" is taken for the left button, "back" and "forward" are dropped: `test_five_buttons`
- a drag is a jump, or a click without a drag; its pace can't be told: `test_a_drag_...`, `test_a_press_...`
- scrolls have a wrong sign, mix up the axes, or take pixels for notches: `test_a_scroll_...`
- events carry the mark of a program's making, which terminals and GTK ignore: `test_no_event_is_marked`
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.apps import editor, running
from tests.support.timing import eventually
from tests.support.tk_witness import Event, TkWitness, only, presses, tk_witness

from deskbox.actions import BUTTONS, PIXELS_PER_NOTCH
from deskbox.desktop import Desktop
from deskbox.driver import DesktopComputerDriver
from deskbox_guest.protocol import Settle

pytestmark = pytest.mark.engines("xtest", "xdotool")

PLACE = (300, 450)  # a screen pixel on the window's canvas


@pytest.fixture(scope="module")
def window(shared_desktop: Desktop) -> Iterator[TkWitness]:
    with tk_witness(shared_desktop) as witness:
        yield witness


@pytest.fixture
def witness(window: TkWitness, desktop: Desktop) -> TkWitness:
    x, y = PLACE
    desktop.step(f"mousemove {x - 50} {y} click 1")
    window.saw("mouseup")
    window.clear()
    return window


@pytest.fixture
def driver(desktop: Desktop) -> DesktopComputerDriver:
    return desktop.computer_driver()


def act(driver: DesktopComputerDriver, kind: str, **fields: Any) -> None:
    getattr(driver, kind)(SimpleNamespace(type=kind, **{"keys": None, **fields}))


def path(*points: tuple[int, int]) -> list[SimpleNamespace]:
    return [SimpleNamespace(x=x, y=y) for x, y in points]


def test_moves_to_the_same_place_end_at_once(driver: DesktopComputerDriver, witness: TkWitness) -> None:
    slowest = 0.0
    for _ in range(50):
        began = time.monotonic()
        act(driver, "move", x=PLACE[0], y=PLACE[1])
        slowest = max(slowest, time.monotonic() - began)
    # 2 ms as a rule. The limit tells a slow machine from a wait for something that does not come.
    assert slowest < 1.0


def test_clicks_on_the_same_place_all_arrive_at_once(
    driver: DesktopComputerDriver, witness: TkWitness
) -> None:
    times = []
    for _ in range(50):
        began = time.monotonic()
        act(driver, "click", x=PLACE[0], y=PLACE[1], button="left")
        times.append(time.monotonic() - began)
    assert presses(witness.saw("mouseup", 50)) == ["+1", "-1"] * 50
    assert sorted(times)[47] < 1.0


def test_five_buttons(driver: DesktopComputerDriver, witness: TkWitness) -> None:
    for button in BUTTONS:
        act(driver, "click", x=PLACE[0], y=PLACE[1], button=button)
    events = witness.saw("mouseup", 5)
    assert presses(events) == ["+1", "-1", "+2", "-2", "+3", "-3", "+8", "-8", "+9", "-9"]
    assert {(event["x"], event["y"]) for event in only(events, "mousedown", "dblclick", "mouseup")} == {PLACE}


def test_a_press_lasts_as_long_as_asked(desktop: Desktop, witness: TkWitness) -> None:
    desktop.step("mousedown 1 sleep 0.5 mouseup 1")
    events = witness.saw("mouseup")
    down, up = only(events, "mousedown", "dblclick", "mouseup")
    assert 500 <= up["time"] - down["time"] < 1500  # the X server's milliseconds


def test_a_drag_with_repeated_points_goes_on(driver: DesktopComputerDriver, witness: TkWitness) -> None:
    began = time.monotonic()
    here, there = (200, 450), (400, 450)
    act(driver, "drag", path=path(*[here] * 20, *[there] * 20, *[here] * 20))
    # 400 pixels in steps of 12, each 8 ms, and two rests.
    assert time.monotonic() - began < 3.0
    assert presses(witness.saw("mouseup")) == ["+1", "-1"]


def test_a_drag_is_motion_with_the_button_down(driver: DesktopComputerDriver, witness: TkWitness) -> None:
    act(driver, "drag", path=path((150, 450), (550, 450), (550, 500)))
    events = only(witness.saw("mouseup"), "mousedown", "mouseup", "mousemove")
    first = next(index for index, event in enumerate(events) if event["type"] in ("mousedown", "dblclick"))
    assert (events[first]["x"], events[first]["y"]) == (150, 450)
    assert (events[-1]["x"], events[-1]["y"]) == (550, 500)
    moves = only(events[first:], "mousemove")
    assert len(moves) >= 20
    assert all(event["state"] & 0x100 for event in moves)
    times = [event["time"] for event in events[first:]]
    assert times == sorted(times)
    assert times[-1] - times[0] >= 300  # a jump would take none


@pytest.mark.slow("qemu")  # the window manager of an emulated machine may be seconds behind
def test_a_drag_moves_a_window(desktop: Desktop, driver: DesktopComputerDriver, witness: TkWitness) -> None:
    def place() -> tuple[int, int]:
        [found] = [window for window in desktop.windows() if window.app == "Tk"]
        return found.x, found.y

    x, y = place()
    bar = (x + 200, y - 12)
    act(driver, "drag", path=path(bar, (bar[0] + 120, bar[1] + 60)))
    eventually(lambda: place() == (x + 120, y + 60))
    act(driver, "drag", path=path((bar[0] + 120, bar[1] + 60), bar))
    eventually(lambda: place() == (x, y))


@pytest.mark.parametrize(
    ("fields", "button", "shifted", "count"),
    [
        ({"scroll_x": 0, "scroll_y": 300}, 5, 0, 6),
        ({"scroll_x": 0, "scroll_y": -300}, 4, 0, 6),
        ({"scroll_x": 300, "scroll_y": 0}, 5, 1, 6),
        ({"scroll_x": -300, "scroll_y": 0}, 4, 1, 6),
        ({"scroll_x": 0, "scroll_y": PIXELS_PER_NOTCH}, 5, 0, 1),
    ],
)
def test_a_scroll_turns_the_wheel_by_notches(
    driver: DesktopComputerDriver,
    witness: TkWitness,
    fields: dict[str, int],
    button: int,
    shifted: int,
    count: int,
) -> None:
    """Tk tells a horizontal wheel (buttons 6 left, 7 right) as the vertical one with Shift."""
    act(driver, "scroll", x=PLACE[0], y=PLACE[1], **fields)
    events = witness.saw("mouseup", count)
    assert presses(events) == [f"+{button}", f"-{button}"] * count
    assert {event["state"] & 1 for event in only(events, "mousedown", "dblclick")} == {shifted}


def test_fast_clicks_and_notches_all_arrive(desktop: Desktop, witness: TkWitness) -> None:
    """Even if nothing comes between them: a window manager that looks at each one first must not lose any."""
    for command in ("click 5", "click 1", "mousemove 310 440 click 4 mousemove 320 450 click 3"):
        witness.clear()
        count = 100 * command.count("click")
        desktop.step("\n".join([command] * 100))
        assert len(only(witness.saw("mouseup", count), "mousedown", "dblclick")) == count


def test_a_double_click_selects_a_word_in_a_terminal(desktop: Desktop, driver: DesktopComputerDriver) -> None:
    with running(desktop, ["xterm", "-e", "sh", "-c", "echo oneword other; cat"], "XTerm") as window:
        desktop.step(settle=Settle())
        act(driver, "double_click", x=window.x + 20, y=window.y + 8)
        assert selected(desktop, "oneword") == "oneword"
        right = window.x + window.width - 30
        act(driver, "drag", path=path((window.x + 3, window.y + 8), (right, window.y + 8)))
        assert selected(desktop, "oneword other").strip() == "oneword other"


def test_a_double_click_selects_a_word_in_an_editor(desktop: Desktop, driver: DesktopComputerDriver) -> None:
    with editor(desktop) as app:
        for _ in range(5):
            app.clear()
            desktop.step("type oneword")
            assert app.got("oneword") == "oneword"
            # Below the menu bar, in the only line of the text.
            act(driver, "double_click", x=app.window.x + 20, y=app.window.y + 40)
            desktop.step("type other")
            assert app.got("other") == "other"


def test_a_double_click_counts_right_after_a_click_elsewhere(
    desktop: Desktop, driver: DesktopComputerDriver
) -> None:
    """GTK's text would take neither of its presses for the second one."""
    with editor(desktop) as app:
        x, y = app.window.x, app.window.y + 40
        word, elsewhere = f"mousemove {x + 20} {y}", f"mousemove {x + 300} {y + 200}"

        def selects_a_word() -> bool:
            desktop.step("type other")
            ended = app.got("other two") == "other two"
            desktop.step("key ctrl+a\ntype 'oneword two'")
            return ended

        desktop.step("type 'oneword two'")
        for script in ("click --repeat 2 1", "click 1 click 1"):
            desktop.step(f"{elsewhere} click 1")
            desktop.step(f"{word} {script}")
            assert selects_a_word(), script
            desktop.step(f"{elsewhere} click 1 {word} {script}")
            assert selects_a_word(), script
        act(driver, "drag", path=path((x + 300, y + 200), (x + 200, y + 200)))
        act(driver, "double_click", x=x + 20, y=y)
        assert selects_a_word()


@pytest.mark.parametrize("button", ["left", "wheel", "right"])
def test_keys_are_held_until_a_click_has_ended(
    desktop: Desktop, driver: DesktopComputerDriver, witness: TkWitness, button: str
) -> None:
    """A window manager sees a click first and may be slow to pass it on: the keys must wait for it."""
    pause = "kill -STOP $(pgrep -x jwm); sleep 0.3; kill -CONT $(pgrep -x jwm)"
    pausing = threading.Thread(target=desktop.exec, args=(["sh", "-c", pause],))
    pausing.start()
    eventually(lambda: b"T" in desktop.exec(["ps", "-C", "jwm", "-o", "stat="]).stdout)
    act(driver, "click", x=PLACE[0], y=PLACE[1], button=button, keys=["CTRL"])
    pausing.join()
    events = only(witness.saw("mouseup"), "mousedown", "dblclick", "mouseup")
    assert [event["state"] & 4 for event in events] == [4, 4]  # Control


def test_no_event_is_marked(desktop: Desktop, driver: DesktopComputerDriver, witness: TkWitness) -> None:
    """What a program sends to a window says so, and many programs ignore it; our events are the server's."""
    act(driver, "click", x=PLACE[0], y=PLACE[1], button="left", keys=["SHIFT"])
    act(driver, "double_click", x=PLACE[0], y=PLACE[1])
    act(driver, "drag", path=path(PLACE, (400, 450)))
    act(driver, "scroll", x=PLACE[0], y=PLACE[1], scroll_x=0, scroll_y=PIXELS_PER_NOTCH)
    act(driver, "type", text="aé日")
    act(driver, "keypress", keys=["CTRL", "END"])

    def ended(events: list[Event]) -> bool:
        return any(event["detail"] == "Control_L" for event in only(events, "keyup"))

    events = witness.until(ended)
    kinds = {event["type"] for event in events}
    assert {"mousedown", "mouseup", "mousemove", "dblclick", "keydown", "keyup"} <= kinds
    assert not any(event.get("sent") for event in events)


def selected(desktop: Desktop, expected: str, timeout: float = 5.0) -> str:
    """What is selected in the terminal, which copies it at once; waits until that is `expected`."""
    deadline = time.monotonic() + timeout
    while True:
        text = desktop.exec(["xclip", "-o", "-selection", "clipboard"], timeout=10).stdout.decode()
        if text.strip() == expected or time.monotonic() > deadline:
            return text


def test_a_double_click_is_one_whatever_comes_before_and_after(
    driver: DesktopComputerDriver, witness: TkWitness
) -> None:
    """Clicks and double clicks at one place, as fast as they can come: no triple click, no double drag."""
    at = {"x": PLACE[0], "y": PLACE[1]}
    for kind in ("click", "double_click", "double_click", "click"):
        act(driver, kind, **at, **({"button": "left"} if kind == "click" else {}))
    act(driver, "drag", path=path(PLACE, (PLACE[0] + 50, PLACE[1])))
    act(driver, "click", **at, button="left")
    events = only(witness.saw("mouseup", 8), "mousedown", "dblclick")
    double = ["mousedown", "dblclick"]
    assert [event["type"] for event in events] == ["mousedown", *double * 2, *["mousedown"] * 3]
