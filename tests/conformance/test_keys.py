"""Keys and chords as a Tk window and a terminal get them, and that none stays down.

What goes wrong elsewhere, and which test watches for it here:

- the keys of a chord are pressed one after the other, so that Ctrl and C are two keys: `test_a_chord_...`
- a second press of a held key is lost or can't be undone, a hold has no duration: `test_a_key_...`
- names of unusual keys are lower-cased and then unknown: `test_keys_by_their_names`
- modifiers are "cleared" and later pressed again, so that Ctrl sticks: `test_two_thousand_actions`
- a viewer or a caller that vanishes leaves its keys down: `test_a_caller_that_vanishes_holds_nothing`
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.apps import running
from tests.support.timing import eventually
from tests.support.tk_witness import TkWitness, only, presses, tk_witness

from deskbox.actions import plan
from deskbox.desktop import Desktop
from deskbox.geometry import Geometry
from deskbox.rpc.channel import Channel
from deskbox_guest import protocol
from deskbox_guest.protocol import Held, Settle, Step

pytestmark = [pytest.mark.engines("xtest", "xdotool"), pytest.mark.slow("qemu")]

# Asks the X server itself, with a connection of its own.
KEYMAP = """
from Xlib.display import Display
display = Display()
pointer = display.screen().root.query_pointer()
print(sum(display.query_keymap()), pointer.mask)
"""


@pytest.fixture(scope="module")
def window(shared_desktop: Desktop) -> Iterator[TkWitness]:
    with tk_witness(shared_desktop) as witness:
        yield witness


@pytest.fixture
def witness(window: TkWitness, desktop: Desktop) -> TkWitness:
    desktop.step("mousemove 300 450 click 1")
    window.saw("mouseup")
    window.clear()
    return window


def press(desktop: Desktop, *keys: str) -> None:
    desktop.computer_driver().keypress(SimpleNamespace(type="keypress", keys=list(keys)))  # type: ignore[arg-type]


def nothing_is_down(desktop: Desktop) -> bool:
    return desktop.exec(["python3", "-c", KEYMAP]).stdout.split() == [b"0", b"0"]


def test_a_chord_goes_down_in_order_and_up_in_reverse(desktop: Desktop, witness: TkWitness) -> None:
    press(desktop, "CTRL", "C")
    press(desktop, "CTRL", "SHIFT", "E")
    events = witness.saw("keyup", 5)
    assert presses(events) == [
        *("+Control_L", "+c", "-c", "-Control_L"),
        *("+Control_L", "+Shift_L", "+E", "-E", "-Shift_L", "-Control_L"),
    ]
    # With which modifiers the letters arrived: Control is 4, Shift is 1.
    assert [e["state"] & 5 for e in only(events, "keydown") if e["detail"] in "cE"] == [4, 5]


def test_a_key_pressed_twice_is_up_after_one_release(desktop: Desktop, witness: TkWitness) -> None:
    desktop.step("keydown a keydown a keyup a")
    assert nothing_is_down(desktop)
    desktop.step("key a")
    events = witness.saw("keyup", 2)
    assert [name for name in presses(events) if name == "-a"] == ["-a", "-a"]
    assert presses(events)[-2:] == ["+a", "-a"]


def test_a_key_released_without_a_press_does_nothing(desktop: Desktop, witness: TkWitness) -> None:
    desktop.step("keyup a keyup ctrl key b")
    assert presses(witness.saw("keyup")) == ["+b", "-b"]


def test_a_key_is_held_as_long_as_asked(desktop: Desktop, witness: TkWitness) -> None:
    desktop.step("keydown Left sleep 0.5 keyup Left")
    events = witness.saw("keyup")
    down, up = only(events, "keydown")[0], only(events, "keyup")[-1]
    assert 500 <= up["time"] - down["time"] < 1500  # the X server's milliseconds


def test_keys_by_their_names(desktop: Desktop, witness: TkWitness) -> None:
    names = ["KP_Enter", "F12", "XF86AudioMute", "Menu", "Print", "less"]
    names += ["KP_0", "F13", "F24", "dead_acute", "eacute", "EuroSign", "U65E5"]
    desktop.step(f"key {' '.join(names)}")
    assert [event["detail"] for event in only(witness.saw("keyup", len(names)), "keyup")] == names


TERMINAL_KEYS = [
    (("CTRL", "C"), b"\x03"),
    (("CTRL", "SPACE"), b"\x00"),
    (("SHIFT", "TAB"), b"\x1b[Z"),
    (("ENTER",), b"\r"),
    (("ESC",), b"\x1b"),
    (("ARROWUP",), b"\x1b[A"),
    (("CTRL", "ARROWLEFT"), b"\x1b[1;5D"),
    (("HOME",), b"\x1b[H"),
    (("PAGEDOWN",), b"\x1b[6~"),
    (("F5",), b"\x1b[15~"),
    (("-",), b"-"),
    (("+",), b"+"),
    (("é",), "é".encode()),
]


def test_a_terminal_gets_the_bytes(desktop: Desktop) -> None:
    """A terminal ignores what a program sends to its window: it takes keys of the X server only."""
    desktop.write_file("keys.log", b"")
    with running(desktop, ["xterm", "-e", "sh", "-c", "stty raw -echo; exec cat > keys.log"], "XTerm"):
        desktop.step(settle=Settle())
        expected = b""
        for keys, received in TERMINAL_KEYS:
            press(desktop, *keys)
            expected += received
        eventually(lambda: len(desktop.read_file("keys.log")) >= len(expected))
        assert desktop.read_file("keys.log") == expected


def test_ctrl_c_interrupts(desktop: Desktop) -> None:
    with running(
        desktop, ["xterm", "-e", "sh", "-c", "trap 'echo got > int.log' INT; sleep 60; cat"], "XTerm"
    ):
        desktop.step(settle=Settle())
        press(desktop, "CTRL", "C")
        eventually(lambda: desktop.exec(["cat", "int.log"]).stdout == b"got\n")


def test_a_caller_that_vanishes_holds_nothing(desktop: Desktop) -> None:
    """The guest finds out by itself: nobody is left who could tell it."""
    caller = Channel(desktop._control.stream(timeout=5))
    head = protocol.to_head(Step("mousemove 300 450 keydown ctrl keydown shift mousedown 1 sleep 20"))
    caller.open(protocol.STEP, head)
    eventually(lambda: desktop.held_inputs() == Held(("Control_L", "Shift_L"), (1,)))
    caller.close()
    eventually(lambda: nothing_is_down(desktop), within=1.5)


CHORDS = {
    "ctrl+b": ["Control_L", "b"],
    "shift+Left": ["Shift_L", "Left"],
    "ctrl+shift+e": ["Control_L", "Shift_L", "E"],
    "super+j": ["Super_L", "j"],
    "Home": ["Home"],
    "F6": ["F6"],
}
LETTERS = {"a": "a", " ": "space", "1": "1", "é": "eacute", "ż": "U017C", "日": "U65E5", "ß": "ssharp"}
MODIFIERS = {"CTRL": "Control_L", "SHIFT": "Shift_L"}
BUTTONS = {"left": 1, "wheel": 2, "right": 3, "back": 8, "forward": 9}


# How often each action comes; a drag takes as long as a hundred others.
SHARES = {"click": 30, "scroll": 15, "keypress": 25, "type": 15, "move": 14, "drag": 1}


def random_action(source: random.Random, geometry: Geometry) -> tuple[str, list[str], list[str]]:
    """A line of a script, and what it has to cause: of keys, of buttons."""
    # On the canvas: in the field, a click with the wheel asks other programs for their selection first.
    x, y = source.randrange(120, 580), source.randrange(400, 500)
    keys = source.choice([[], [], ["CTRL"], ["SHIFT"], ["CTRL", "SHIFT"]])
    held = pressed(MODIFIERS[key] for key in keys)
    point: dict[str, Any] = {"x": x, "y": y, "keys": keys}
    match source.choices(list(SHARES), weights=list(SHARES.values()))[0]:
        case "click":
            button = source.choice(list(BUTTONS))
            action = SimpleNamespace(type="click", button=button, **point)
            return plan(action, geometry).script, held, pressed([BUTTONS[button]])
        case "scroll":
            notches = source.choice([-2, -1, 1, 2])
            action = SimpleNamespace(type="scroll", scroll_x=0, scroll_y=48 * notches, **point)
            return plan(action, geometry).script, held, pressed([5 if notches > 0 else 4]) * abs(notches)
        case "move":
            return plan(SimpleNamespace(type="move", **point), geometry).script, held, []
        case "drag":
            ends = [SimpleNamespace(x=x, y=y), SimpleNamespace(x=x + 2, y=y + 1)]
            action = SimpleNamespace(type="drag", path=ends, keys=keys)
            return plan(action, geometry).script, held, pressed([1])
        case "type":
            text = "".join(source.choices(list(LETTERS), k=source.randrange(1, 6)))
            caused = [change for letter in text for change in pressed([LETTERS[letter]])]
            return plan(SimpleNamespace(type="type", text=text), geometry).script, caused, []
        case _:
            chord = source.choice(list(CHORDS))
            return f"key {chord}", pressed(CHORDS[chord]), []


def pressed(names: Iterable[object]) -> list[str]:
    """All go down, then up in reverse."""
    names = list(names)
    return [f"+{name}" for name in names] + [f"-{name}" for name in reversed(names)]


def test_two_thousand_actions(desktop: Desktop, witness: TkWitness) -> None:
    """Every press arrives, none that nobody asked for, and nothing is down at the end."""
    # By xdotool fewer: it is the same but for how they are injected.
    total = 2000 if desktop.engine == "xtest" else 500
    source = random.Random(7)
    geometry = Geometry.fit(desktop.size, None, None)
    count = 0
    keys: list[str] = []
    buttons: list[str] = []
    while count < total:
        lines = []
        for _ in range(source.randrange(1, 60)):
            line, of_keys, of_buttons = random_action(source, geometry)
            lines.append(line)
            keys += of_keys
            buttons += of_buttons
        desktop.step("\n".join(lines))
        count += len(lines)
    assert nothing_is_down(desktop)
    assert desktop.held_inputs() == Held()
    events = witness.until(lambda events: len(presses(events)) >= len(keys) + len(buttons))
    # Each in its order; a window manager may hold a button's event back behind a key's.
    # Tk asks late for the name of a released key, which by then may have been given back: "??".
    names = zip(presses(only(events, "keydown", "keyup")), keys, strict=True)
    assert [(got, wanted) for got, wanted in names if got not in (wanted, "-??")] == []
    assert presses(only(events, "mousedown", "dblclick", "mouseup")) == buttons
    assert not any(event.get("sent") for event in events)
