"""Binds Deskbox to cua-auto-harness: what the harness asks for, as calls of `deskbox.Desktop`.

The harness owns all that judges: its window in the guest logs the events that reach an application, its tap
on the X server those that the server dispatched, and its checker compares them with the catalogue. From here
it gets a desktop, commands and files in it, one action at a time, a screenshot, and an end.

There are two ways in, which the harness calls runners: `script` says an action in the language of
`Desktop.step`, which has words for all of them; `driver` in the actions of the OpenAI SDK, which lacks some.
"""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from autoharness.adapters import SutExecutionError, UnsupportedActionError
from autoharness.backend import Adapter
from autoharness.contracts import (
    Action,
    ButtonPress,
    ButtonRelease,
    Click,
    Drag,
    KeyChord,
    Move,
    Scroll,
    TypeText,
)

from deskbox.actions import (
    PIXELS_PER_NOTCH,
    WHEEL_DOWN,
    WHEEL_LEFT,
    WHEEL_RIGHT,
    WHEEL_UP,
    key_script,
    type_script,
)
from deskbox.desktop import Desktop
from deskbox.driver import DesktopComputerDriver
from deskbox.errors import DeskboxError, InvalidInput
from deskbox.keys import chord

SIZE = (1920, 1080)  # what the catalogue's coordinates are made for
# What the harness runs in the guest besides Python with Tk and python-xlib: it asks its two observers over
# HTTP with curl, and looks with xset whether a lock key is on.
PACKAGES = ("curl", "x11-xserver-utils")

BUTTONS = {"left": 1, "middle": 2, "right": 3, "back": 8, "forward": 9}


def script(action: Action) -> str:
    """One action of the catalogue as a script for `Desktop.step`."""
    match action:
        case Move(x, y):
            return f"mousemove {x} {y}"
        case Click(x, y, button, count, modifiers):
            repeat = f"--repeat {count} " if count > 1 else ""
            return f"mousemove {x} {y} {_held(modifiers, f'click {repeat}{BUTTONS[button]}')}"
        case ButtonPress(x, y, button):
            return f"mousemove {x} {y} mousedown {BUTTONS[button]}"
        case ButtonRelease(x, y, button):
            return f"mousemove {x} {y} mouseup {BUTTONS[button]}"
        case Drag([(x, y), *rest], button, modifiers, step_delay_ms):
            moves = " ".join(f"sleep {step_delay_ms / 1000} mousemove {to_x} {to_y}" for to_x, to_y in rest)
            drag = f"mousedown {BUTTONS[button]} {moves} mouseup {BUTTONS[button]}"
            return f"mousemove {x} {y} {_held(modifiers, drag)}"
        case Scroll(x, y, down, right, modifiers):
            turns = [_turn(down, WHEEL_DOWN, WHEEL_UP), _turn(right, WHEEL_RIGHT, WHEEL_LEFT)]
            return f"mousemove {x} {y} {_held(modifiers, ' '.join(turns))}"
        case KeyChord(keys):
            return key_script(keys)
        case TypeText(text):
            return type_script(text)
    raise UnsupportedActionError(f"no script for {action!r}")


def _turn(notches: int, forward: int, back: int) -> str:
    if not notches:
        return ""
    button = forward if notches > 0 else back
    return f"click --repeat {abs(notches)} {button}"


def _held(modifiers: list[str], commands: str) -> str:
    names = chord(modifiers) if modifiers else ()
    down = [f"keydown {name}" for name in names]
    up = [f"keyup {name}" for name in reversed(names)]
    return " ".join([*down, commands, *up])


def sdk_actions(action: Action) -> list[Any]:
    """One action of the catalogue as actions of the SDK."""
    match action:
        case Move(x, y):
            return [_sdk("move", x=x, y=y)]
        case Click(x, y, "left", 2, modifiers):
            return [_sdk("double_click", x=x, y=y, keys=modifiers)]
        case Click(x, y, button, count, modifiers):
            named = "wheel" if button == "middle" else button
            return [_sdk("click", x=x, y=y, button=named, keys=modifiers)] * count
        case Drag(path, "left", modifiers):
            points = [SimpleNamespace(x=x, y=y) for x, y in path]
            return [_sdk("drag", path=points, keys=modifiers)]
        case Scroll(x, y, down, right, modifiers):
            pixels = {"scroll_x": right * PIXELS_PER_NOTCH, "scroll_y": down * PIXELS_PER_NOTCH}
            return [_sdk("scroll", x=x, y=y, keys=modifiers, **pixels)]
        case KeyChord(keys):
            return [_sdk("keypress", keys=keys)]
        case TypeText(text):
            return [_sdk("type", text=text)]
    raise UnsupportedActionError(f"the SDK has no words for {action.kind}, {action.button} button")


def _sdk(kind: str, **fields: Any) -> Any:
    return SimpleNamespace(type=kind, **{"keys": None, **fields})


class Deskbox(Adapter):  # type: ignore[misc]  # the harness is not there where types are checked
    guest_display = ":0"
    supports_raw_tap = True
    runners = ("script", "driver")
    default_runner = "script"

    def __init__(self, env_dir: str | None = None, runner: str = default_runner) -> None:
        """`env_dir` is where the harness's own guests are described; ours needs no description."""
        self._runner = runner
        self._desktop: Desktop | None = None
        self._driver: DesktopComputerDriver | None = None

    @property
    def desktop(self) -> Desktop:
        assert self._desktop is not None, "the harness boots before it acts"
        return self._desktop

    def boot(self) -> None:
        self._desktop = Desktop.launch(size=SIZE, packages=PACKAGES, progress=print)
        if self._runner == "driver":
            self._driver = self._desktop.computer_driver()

    def teardown(self) -> None:
        if self._desktop is not None:
            self._desktop.close()

    def exec(self, cmd: str, timeout: int = 120) -> tuple[int, str]:
        result = self.desktop.exec(["sh", "-c", cmd], timeout=timeout)
        assert not result.truncated, f"the output of {cmd!r} is too long"
        return result.exit_code, result.stdout.decode()

    def copy_in(self, local_path: str, guest_path: str) -> None:
        self.desktop.write_file(guest_path, Path(local_path).read_bytes())

    def supports(self, action: Action) -> str | None:
        """Why an action can't be said; None if it can."""
        try:
            (script if self._runner == "script" else sdk_actions)(action)
        except (InvalidInput, UnsupportedActionError) as error:
            return str(error)
        return None

    def inject(self, action: Action) -> None:
        try:
            if self._driver is None:
                self.desktop.step(script(action))
                return
            for said in sdk_actions(action):
                getattr(self._driver, said.type)(said)
        except DeskboxError as error:
            raise SutExecutionError(str(error)) from error

    def screenshot(self, dst_path: str) -> None:
        if self._driver is None:
            picture = self.desktop.screenshot()
        else:
            picture = b64decode(self._driver.screenshot()["image_url"].partition(",")[2])
        Path(dst_path).write_bytes(picture)
