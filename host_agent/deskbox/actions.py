"""A computer action of the model → an xdotool script for the guest. Pure.

    click at (320, 200) in an image of half the screen's size, keys ["CTRL"]
        → mousemove 640 400 keydown ctrl click 1 keyup ctrl

An action is any object with the fields of the SDK's classes; `action.type` says which one it is, so the
modern classes, the legacy ones and plain objects are all the same here. Whatever can't be carried out exactly
raises InvalidInput, and nothing has been pressed then.

The scripts say what is done; how fast clicks repeat, a wheel turns and a drag moves is for the guest to know
(`deskbox_guest.x11.timing`).
"""

from __future__ import annotations

import itertools
import math
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deskbox.errors import InvalidInput
from deskbox.geometry import Geometry
from deskbox.keys import chord

BUTTONS = {"left": 1, "wheel": 2, "right": 3, "back": 8, "forward": 9}
WHEEL_UP, WHEEL_DOWN, WHEEL_LEFT, WHEEL_RIGHT = 4, 5, 6, 7

# Screen pixels that a page moves for one notch of the wheel in the guest's Firefox, on both axes and whatever
# its font: the image's preferences `mousewheel.*` say so, and the conformance tests measure it.
PIXELS_PER_NOTCH = 48

MAX_TEXT = 20_000  # characters of one type action
# Characters a second. A script counts the time between two in whole milliseconds, so that up to 20 a second
# the pace is right to 1 %, and to 2.5 % at the fastest.
MIN_PACE, MAX_PACE = 0.1, 50.0
MAX_SCROLL = 24_000  # screen pixels of one scroll action, per axis: 500 notches, 5 s
MAX_DRAG_POINTS = 1_000


@dataclass(frozen=True)
class ScrollRest:
    """Screen pixels that earlier scrolls asked for and whole notches could not give, at most half a notch."""

    x: float = 0.0
    y: float = 0.0


NO_REST = ScrollRest()


@dataclass(frozen=True)
class Plan:
    """What to run for one action, and the rest to keep once it has run."""

    script: str
    rest: ScrollRest


def plan(action: Any, geometry: Geometry, rest: ScrollRest = NO_REST) -> Plan:
    """The script for an action, whose coordinates are image pixels of `geometry`.

    `rest` is that of the plan that ran before. `wait` and `screenshot` touch nothing: their script is empty.
    Raises InvalidInput if the action can't be carried out exactly.
    """
    kind = _field(action, "type")
    if kind == "scroll":
        return _scroll(action, geometry, rest)
    write = _WRITERS.get(kind) if isinstance(kind, str) else None
    if write is None:
        raise InvalidInput(f"unknown action {kind!r}; known are {', '.join(sorted([*_WRITERS, 'scroll']))}")
    return Plan(write(action, geometry), rest)


def key_script(keys: Sequence[str]) -> str:
    """Press one combination: all keys down in order, up in reverse."""
    return f"key {'+'.join(chord(keys))}"


def type_delay(pace: float) -> int:
    """Milliseconds from one character to the next at so many characters a second."""
    if not isinstance(pace, (int, float)) or isinstance(pace, bool) or not MIN_PACE <= pace <= MAX_PACE:
        raise InvalidInput(
            f"a pace of {pace!r} characters a second is not possible: give {MIN_PACE:g} to {MAX_PACE:g}, or "
            "none to type as fast as the application reads"
        )
    return round(1000 / pace)


def type_script(text: str, delay: int = 0) -> str:
    """Type text exactly; a newline is the Return key, a tab the Tab key. Empty text types nothing.

    `delay` is the milliseconds from one character to the next.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"the text to type must be a string, not {text!r}")
    if len(text) > MAX_TEXT:
        raise InvalidInput(
            f"{len(text)} characters are too many for one type action, the limit is {MAX_TEXT}; type it in "
            "parts, or write a file"
        )
    for index, character in enumerate(text):
        if character not in "\n\t" and not _typeable(character):
            raise InvalidInput(
                f"no key makes the character U+{ord(character):04X} at position {index} of the text; of "
                "control characters only newline and tab can be typed, surrogates and noncharacters never",
                position=index,
            )
    return f"type {f'--delay {delay} ' if delay else ''}-- {shlex.quote(text)}"


def _click(action: Any, geometry: Geometry) -> str:
    button = _field(action, "button")
    if not isinstance(button, str) or button not in BUTTONS:
        raise InvalidInput(
            f"unknown button {button!r}; known are {', '.join(BUTTONS)} (wheel is the middle button)"
        )
    return _at(action, geometry, _held(action, f"click {BUTTONS[button]}"))


def _double_click(action: Any, geometry: Geometry) -> str:
    return _at(action, geometry, _held(action, f"click --repeat 2 {BUTTONS['left']}"))


def _move(action: Any, geometry: Geometry) -> str:
    return _held(action, _at(action, geometry))


def _drag(action: Any, geometry: Geometry) -> str:
    path = _field(action, "path")
    if isinstance(path, (str, bytes)) or not isinstance(path, Sequence):
        raise InvalidInput(f"the path of a drag must be a list of points, not {path!r}")
    if not 2 <= len(path) <= MAX_DRAG_POINTS:
        raise InvalidInput(
            f"the path of a drag has {len(path)} points; it needs 2 to {MAX_DRAG_POINTS}: the button goes "
            "down at the first and up at the last"
        )
    points = [_point(point, geometry) for point in path]
    if len(set(points)) == 1:
        raise InvalidInput(
            f"all points of the drag lie on screen pixel {points[0]}; use click to press in place"
        )
    moves = [f"mousemove {x} {y}" for (x, y), _ in itertools.groupby(points)]
    down, up = f"mousedown {BUTTONS['left']}", f"mouseup {BUTTONS['left']}"
    return f"{moves[0]} " + _held(action, " ".join([down, *moves[1:], up]))


def _scroll(action: Any, geometry: Geometry, rest: ScrollRest) -> Plan:
    (_, _, crop_width, crop_height), (image_width, image_height) = geometry.crop, geometry.image
    right, rest_x = _notches(_scrolled(action, "scroll_x", crop_width, image_width) + rest.x)
    down, rest_y = _notches(_scrolled(action, "scroll_y", crop_height, image_height) + rest.y)
    turns = [
        f"click --repeat {abs(count)} {forward if count > 0 else back}"
        for count, forward, back in ((down, WHEEL_DOWN, WHEEL_UP), (right, WHEEL_RIGHT, WHEEL_LEFT))
        if count
    ]
    return Plan(_at(action, geometry, _held(action, *turns)), ScrollRest(rest_x, rest_y))


def _keypress(action: Any, geometry: Geometry) -> str:
    return key_script(_field(action, "keys"))


def _type(action: Any, geometry: Geometry) -> str:
    return type_script(_field(action, "text"))


def _nothing(action: Any, geometry: Geometry) -> str:
    return ""


_WRITERS: dict[str, Callable[[Any, Geometry], str]] = {
    "click": _click,
    "double_click": _double_click,
    "drag": _drag,
    "keypress": _keypress,
    "move": _move,
    "screenshot": _nothing,
    "type": _type,
    "wait": _nothing,
}


def _typeable(character: str) -> bool:
    code = ord(character)
    noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    return unicodedata.category(character) not in ("Cc", "Cs") and not noncharacter


def _field(action: Any, name: str) -> Any:
    try:
        return getattr(action, name)
    except AttributeError:
        raise InvalidInput(f"the action {action!r} has no {name!r}") from None


def _point(point: Any, geometry: Geometry) -> tuple[int, int]:
    return geometry.to_screen(_field(point, "x"), _field(point, "y"))


def _at(action: Any, geometry: Geometry, *commands: str) -> str:
    x, y = _point(action, geometry)
    return " ".join([f"mousemove {x} {y}", *(command for command in commands if command)])


def _held(action: Any, *commands: str) -> str:
    """The commands while the action's `keys` are down: pressed in order, released in reverse."""
    keys = getattr(action, "keys", None)
    # An empty list is how some models write "no keys"; only a keypress of nothing makes no sense.
    held = () if keys is None or keys in ([], ()) else chord(keys)
    down = [f"keydown {name}" for name in held]
    up = [f"keyup {name}" for name in reversed(held)]
    return " ".join([*down, *commands, *up])


def _scrolled(action: Any, name: str, crop_side: int, image_side: int) -> float:
    """Screen pixels of one axis: the model measures in its image, the wheel moves pixels of the screen."""
    pixels = _field(action, name)
    limit = MAX_SCROLL * image_side // crop_side
    if not isinstance(pixels, int) or isinstance(pixels, bool) or abs(pixels) > limit:
        raise InvalidInput(
            f"{name} is {pixels!r}; it must be an integer from -{limit} to {limit} pixels; to go to an "
            "end, press HOME or END"
        )
    return pixels * crop_side / image_side


def _notches(pixels: float) -> tuple[int, float]:
    """Whole notches nearest to so many screen pixels, and the pixels that remain."""
    count = math.floor(abs(pixels) / PIXELS_PER_NOTCH + 0.5)
    signed = count if pixels > 0 else -count
    return signed, pixels - signed * PIXELS_PER_NOTCH
