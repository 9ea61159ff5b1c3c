"""Each computer action as an xdotool script."""

from __future__ import annotations

import shlex
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import computer_action as modern
from openai.types.responses import response_computer_tool_call as legacy

from deskbox.actions import (
    MAX_DRAG_POINTS,
    MAX_PACE,
    MAX_SCROLL,
    MAX_TEXT,
    MIN_PACE,
    NO_REST,
    PIXELS_PER_NOTCH,
    Plan,
    ScrollRest,
    key_script,
    plan,
    type_delay,
    type_script,
)
from deskbox.errors import InvalidInput
from deskbox.geometry import Geometry
from deskbox_guest.x11.script import Type, parse

SCREEN = Geometry.fit((1280, 800))
HALF = Geometry.fit((1280, 800), image=(640, 400))


def action(kind: str, **fields: Any) -> SimpleNamespace:
    return SimpleNamespace(type=kind, **fields)


def script(kind: str, geometry: Geometry = SCREEN, /, **fields: Any) -> str:
    return checked(plan(action(kind, **fields), geometry).script, geometry)


def checked(written: str, geometry: Geometry = SCREEN) -> str:
    """The script, once the guest has accepted it as one of its language."""
    parse(written, geometry.screen)
    return written


def path(*points: tuple[int, int]) -> list[SimpleNamespace]:
    return [SimpleNamespace(x=x, y=y) for x, y in points]


@pytest.mark.parametrize(
    ("button", "number"), [("left", 1), ("wheel", 2), ("right", 3), ("back", 8), ("forward", 9)]
)
def test_five_buttons(button: str, number: int) -> None:
    assert script("click", x=640, y=400, button=button) == f"mousemove 640 400 click {number}"


@pytest.mark.parametrize("button", ["middle", "LEFT", "", None, 1, ["left"]])
def test_other_buttons(button: object) -> None:
    with pytest.raises(InvalidInput, match=r"unknown button .*wheel is the middle button"):
        script("click", x=1, y=1, button=button)


def test_coordinates_go_through_the_geometry() -> None:
    assert script("click", HALF, x=320, y=200, button="left") == "mousemove 640 400 click 1"
    with pytest.raises(InvalidInput, match="x must be 0 to 639"):
        script("click", HALF, x=640, y=200, button="left")


def test_keys_are_held_around_each_pointer_action_and_released_in_reverse() -> None:
    keys = ["CTRL", "SHIFT"]
    down, up = "keydown ctrl keydown shift", "keyup shift keyup ctrl"
    at: dict[str, Any] = {"x": 5, "y": 6, "keys": keys}
    assert script("click", button="left", **at) == f"mousemove 5 6 {down} click 1 {up}"
    assert script("double_click", **at) == f"mousemove 5 6 {down} click --repeat 2 1 {up}"
    assert script("move", **at) == f"{down} mousemove 5 6 {up}"
    scrolled = script("scroll", scroll_x=0, scroll_y=PIXELS_PER_NOTCH, **at)
    assert scrolled == f"mousemove 5 6 {down} click --repeat 1 5 {up}"
    dragged = script("drag", path=path((5, 6), (7, 6)), keys=keys)
    assert dragged.startswith(f"mousemove 5 6 {down} mousedown 1 ")
    assert dragged.endswith(f" mouseup 1 {up}")


@pytest.mark.parametrize("keys", [None, [], ()])
def test_no_keys_to_hold(keys: object) -> None:
    assert script("move", x=1, y=2, keys=keys) == "mousemove 1 2"


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "click", "button": "left", "x": 1, "y": 1},
        {"kind": "double_click", "x": 1, "y": 1},
        {"kind": "move", "x": 1, "y": 1},
        {"kind": "scroll", "x": 1, "y": 1, "scroll_x": 0, "scroll_y": 9},
        {"kind": "drag", "path": path((1, 1), (9, 9))},
    ],
)
@pytest.mark.parametrize("keys", ["CTRL", "", ["NOSUCHKEY"], [1]])
def test_held_keys_are_never_dropped(fields: dict[str, Any], keys: object) -> None:
    with pytest.raises(InvalidInput):
        script(fields["kind"], keys=keys, **{name: fields[name] for name in fields if name != "kind"})


def test_a_keypress_is_one_chord() -> None:
    assert script("keypress", keys=["CTRL", "SHIFT", "T"]) == "key ctrl+shift+t"
    assert script("keypress", keys=["CTRL", "+"]) == "key ctrl+plus"
    assert script("keypress", keys=["CTRL", "SHIFT"]) == "key ctrl+shift"
    assert checked(key_script(["ENTER"])) == "key Return"


@pytest.mark.parametrize("keys", [[], "ENTER", None])
def test_a_keypress_needs_a_list_of_keys(keys: object) -> None:
    with pytest.raises(InvalidInput):
        script("keypress", keys=keys)


# --- text ------------------------------------------------------------------------------------------------
@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]) | st.sampled_from("\n\t'\"\\$`;|&#")))
def test_text_is_one_token_whatever_it_says(text: str) -> None:
    assert shlex.split(script("type", text=text)) == ["type", "--", text]


@pytest.mark.parametrize("character", ["\0", "\r", "\x1b", "\x7f", "\x9f", "\ud83d", "\uffff"])
def test_text_that_no_key_makes(character: str) -> None:
    with pytest.raises(InvalidInput, match=f"U\\+{ord(character):04X} at position 3"):
        type_script(f"abc{character}def")


def test_text_has_a_limit() -> None:
    assert type_script("x" * MAX_TEXT)
    with pytest.raises(InvalidInput, match=f"the limit is {MAX_TEXT}"):
        type_script("x" * (MAX_TEXT + 1))


@given(st.floats(MIN_PACE, MAX_PACE))
def test_a_pace_is_right_to_a_hundredth_as_people_type(pace: float) -> None:
    delay = type_delay(pace)
    assert 1000 / delay == pytest.approx(pace, rel=0.0101 if pace <= 20 else 0.026)
    [typed] = parse(type_script("a b", delay), (1280, 800))
    assert typed == Type("a b", delay / 1000)


@pytest.mark.parametrize("pace", [0, -1, 0.09, 50.1, float("nan"), float("inf"), True, "5"])
def test_a_pace_has_limits(pace: Any) -> None:
    with pytest.raises(InvalidInput, match=r"give 0\.1 to 50, or none"):
        type_delay(pace)


@pytest.mark.parametrize("text", [None, 5, b"text", ["text"]])
def test_text_is_a_string(text: object) -> None:
    with pytest.raises(InvalidInput, match="must be a string"):
        script("type", text=text)


# --- scroll ----------------------------------------------------------------------------------------------
def notches(written: str) -> tuple[int, int]:
    """What a scroll script turns: notches to the right and down."""
    words, turned = written.split(), {4: 0, 5: 0, 6: 0, 7: 0}
    for index, word in enumerate(words):
        if word == "--repeat":
            turned[int(words[index + 2])] += int(words[index + 1])
    return turned[7] - turned[6], turned[5] - turned[4]


def scroll(x: int, y: int, geometry: Geometry = SCREEN, rest: ScrollRest = NO_REST) -> Plan:
    planned = plan(action("scroll", x=10, y=20, scroll_x=x, scroll_y=y), geometry, rest)
    checked(planned.script, geometry)
    return planned


def test_positive_is_down_and_right() -> None:
    one = PIXELS_PER_NOTCH
    assert scroll(0, 3 * one).script == "mousemove 10 20 click --repeat 3 5"
    assert scroll(0, -3 * one).script == "mousemove 10 20 click --repeat 3 4"
    assert scroll(2 * one, 0).script == "mousemove 10 20 click --repeat 2 7"
    assert scroll(-2 * one, 0).script == "mousemove 10 20 click --repeat 2 6"
    assert notches(scroll(-one, 2 * one).script) == (-1, 2)


def test_a_scroll_of_nothing_still_moves_the_pointer() -> None:
    assert scroll(0, 0).script == "mousemove 10 20"


def test_pixels_of_the_image_become_pixels_of_the_screen() -> None:
    assert notches(scroll(0, PIXELS_PER_NOTCH, HALF).script) == (0, 2)


AMOUNTS = st.integers(-MAX_SCROLL, MAX_SCROLL)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=30))
def test_no_pixel_is_lost_between_scrolls(amounts: list[tuple[int, int]]) -> None:
    rest, turned = NO_REST, [0, 0]
    for x, y in amounts:
        planned = scroll(x, y, rest=rest)
        rest = planned.rest
        right, down = notches(planned.script)
        turned[0] += right
        turned[1] += down
    for axis in (0, 1):
        asked = sum(amount[axis] for amount in amounts)
        assert abs(turned[axis] * PIXELS_PER_NOTCH - asked) <= PIXELS_PER_NOTCH / 2


@pytest.mark.parametrize("amount", [MAX_SCROLL + 1, -MAX_SCROLL - 1, 10**12, 1.5, True, None])
def test_a_scroll_has_a_limit(amount: object) -> None:
    with pytest.raises(InvalidInput, match="to go to an end, press HOME or END"):
        script("scroll", x=1, y=1, scroll_x=0, scroll_y=amount)
    with pytest.raises(InvalidInput, match="scroll_x"):
        script("scroll", x=1, y=1, scroll_x=amount, scroll_y=0)


def test_the_limit_of_a_scroll_is_that_of_the_screen() -> None:
    half = MAX_SCROLL // 2
    assert notches(scroll(-half, half, HALF).script) == (-500, 500)
    with pytest.raises(InvalidInput, match=f"from -{half} to {half} pixels"):
        scroll(0, half + 1, HALF)


# --- drag ------------------------------------------------------------------------------------------------
def motions(written: str) -> list[tuple[int, int]]:
    words = written.split()
    return [
        (int(words[index + 1]), int(words[index + 2]))
        for index, word in enumerate(words)
        if word == "mousemove"
    ]


POINTS = st.tuples(st.integers(0, 1279), st.integers(0, 799))


@given(st.lists(POINTS, min_size=2, max_size=20).filter(lambda points: len(set(points)) > 1))
def test_a_drag_goes_through_every_point_with_one_press(points: list[tuple[int, int]]) -> None:
    written = script("drag", path=path(*points), keys=None)
    assert written.count("mousedown 1") == written.count("mouseup 1") == 1
    assert "sleep" not in written  # the guest paces it
    moves = motions(written)
    assert moves == [point for point, _ in groupby(points)]


@pytest.mark.parametrize("count", [0, 1, MAX_DRAG_POINTS + 1])
def test_a_drag_needs_two_points_and_has_a_limit(count: int) -> None:
    with pytest.raises(InvalidInput, match=f"has {count} points; it needs 2 to {MAX_DRAG_POINTS}"):
        script("drag", path=path(*[(index % 100, 5) for index in range(count)]))


def test_a_drag_goes_somewhere() -> None:
    with pytest.raises(InvalidInput, match="use click"):
        script("drag", path=path((5, 5), (5, 5)))


@pytest.mark.parametrize("points", [None, "12", 5, [[1, 2], [3, 4]], [None, None]])
def test_a_path_is_a_list_of_points(points: object) -> None:
    with pytest.raises(InvalidInput):
        script("drag", path=points)


def test_a_drag_stays_within_the_image() -> None:
    with pytest.raises(InvalidInput, match="outside the image"):
        script("drag", path=path((5, 5), (5000, 5)))


# --- all -------------------------------------------------------------------------------------------------
CLASSES: list[tuple[type[Any], type[Any], dict[str, Any]]] = [
    (modern.Click, legacy.ActionClick, {"type": "click", "x": 4, "y": 5, "button": "right", "keys": ["ALT"]}),
    (modern.DoubleClick, legacy.ActionDoubleClick, {"type": "double_click", "x": 4, "y": 5, "keys": None}),
    (modern.Drag, legacy.ActionDrag, {"type": "drag", "path": [{"x": 4, "y": 5}, {"x": 9, "y": 5}]}),
    (modern.Keypress, legacy.ActionKeypress, {"type": "keypress", "keys": ["CTRL", "A"]}),
    (modern.Move, legacy.ActionMove, {"type": "move", "x": 4, "y": 5}),
    (modern.Screenshot, legacy.ActionScreenshot, {"type": "screenshot"}),
    (modern.Scroll, legacy.ActionScroll, {"type": "scroll", "x": 4, "y": 5, "scroll_x": 0, "scroll_y": 96}),
    (modern.Type, legacy.ActionType, {"type": "type", "text": "Zażółć"}),
    (modern.Wait, legacy.ActionWait, {"type": "wait"}),
]


@pytest.mark.parametrize(("new", "old", "fields"), CLASSES, ids=lambda value: getattr(value, "__name__", ""))
def test_modern_legacy_and_plain_objects_are_the_same(
    new: type[Any], old: type[Any], fields: dict[str, Any]
) -> None:
    plain = SimpleNamespace(**fields)
    if "path" in fields:
        plain.path = path(*[(point["x"], point["y"]) for point in fields["path"]])
    written = {plan(each, SCREEN).script for each in (new(**fields), old(**fields), plain)}
    assert len(written) == 1


def test_wait_and_screenshot_touch_nothing() -> None:
    assert script("wait") == script("screenshot") == ""


@pytest.mark.parametrize("kind", ["hover", "", None, 5, ["click"]])
def test_unknown_actions(kind: Any) -> None:
    with pytest.raises(InvalidInput, match=r"unknown action .* known are click, double_click"):
        script(kind)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InvalidInput, match="has no 'button'"):
        script("click", x=1, y=1)
    with pytest.raises(InvalidInput, match="has no 'type'"):
        plan(object(), SCREEN)


@given(
    POINTS,
    st.sampled_from(["click", "double_click", "move"]),
    st.lists(st.sampled_from(["CTRL", "SHIFT", "ALT", "é"]), unique=True),
)
def test_a_script_is_one_line_that_leaves_nothing_down(
    point: tuple[int, int], kind: str, keys: list[str]
) -> None:
    written = script(kind, x=point[0], y=point[1], button="left", keys=keys)
    assert "\n" not in written
    words = written.split()
    down = [words[index + 1] for index, word in enumerate(words) if word == "keydown"]
    up = [words[index + 1] for index, word in enumerate(words) if word == "keyup"]
    assert down == up[::-1]
    assert len(down) == len(keys)
