"""What a model's actions do in the guest's Firefox: the page reports each event that really arrived."""

from __future__ import annotations

import base64
import io
import itertools
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from openai import ComputerToolset
from openai.types.responses import ResponseComputerToolCall
from PIL import Image
from tests.support.timing import emulated, promptly
from tests.support.web_witness import Event, WebWitness, only, web_witness

from deskbox.actions import PIXELS_PER_NOTCH
from deskbox.desktop import Desktop
from deskbox.driver import DesktopComputerDriver
from deskbox.errors import Cancelled, InvalidInput
from deskbox.geometry import Region, Size

pytestmark = [pytest.mark.engines("xtest", "xdotool"), pytest.mark.slow("qemu")]

# Image size and crop; the pad of the page lies in all of them.
VIEWS: list[tuple[Size | None, Region | None]] = [
    (None, None),
    ((640, 400), None),
    ((300, 301), (600, 100, 607, 500)),
    (None, (600, 100, 680, 500)),
]
PAD = (900, 300)  # a screen pixel on the page's pad
BUTTONS = ["mousedown", "mouseup", "click", "dblclick", "auxclick"]


@pytest.fixture(scope="module")
def page(shared_desktop: Desktop) -> Iterator[WebWitness]:
    with web_witness(shared_desktop) as witness:
        yield witness


@pytest.fixture
def witness(page: WebWitness, desktop: Desktop) -> WebWitness:
    desktop.step("mousemove 1100 150 click 1")  # elsewhere on the pad: lets go of any selection and focus
    page.saw("click")
    page.clear()
    return page


@pytest.fixture
def driver(desktop: Desktop) -> DesktopComputerDriver:
    return desktop.computer_driver()


def act(driver: DesktopComputerDriver, kind: str, **fields: Any) -> None:
    getattr(driver, kind)(SimpleNamespace(type=kind, **{"keys": None, **fields}))


def at(driver: DesktopComputerDriver, screen: tuple[int, int] = PAD) -> dict[str, int]:
    x, y = driver.geometry.to_image(*screen)
    return {"x": x, "y": y}


def points(events: list[Event]) -> set[tuple[int, int]]:
    return {(event["x"], event["y"]) for event in events}


@pytest.mark.parametrize(("image_size", "crop"), VIEWS)
def test_a_click_lands_where_the_geometry_says(
    desktop: Desktop, witness: WebWitness, image_size: Size | None, crop: Region | None
) -> None:
    driver = desktop.computer_driver(image_size, crop)
    where = at(driver)
    act(driver, "click", **where, button="left")
    assert points(only(witness.saw("click"), *BUTTONS)) == {driver.geometry.to_screen(**where)}


@pytest.mark.parametrize(("image_size", "crop"), VIEWS)
def test_what_the_image_shows_is_what_a_click_hits(
    desktop: Desktop, witness: WebWitness, image_size: Size | None, crop: Region | None
) -> None:
    """Find the red box of the page in the screenshot, as a model would, and click it."""
    driver = desktop.computer_driver(image_size, crop)
    image = screenshot(driver)
    assert image.size == driver.geometry.image
    red = [index for index, pixel in enumerate(pixels(image)) if pixel == (0xCC, 0x33, 0x33)]
    x, y = red[len(red) // 2] % image.width, red[len(red) // 2] // image.width
    act(driver, "click", x=x, y=y, button="left")
    assert {event["on"] for event in only(witness.saw("mouseup"), *BUTTONS)} == {"box"}


@pytest.mark.parametrize(("button", "number"), [("left", 0), ("wheel", 1), ("right", 2)])
def test_buttons(driver: DesktopComputerDriver, witness: WebWitness, button: str, number: int) -> None:
    act(driver, "click", **at(driver), button=button)
    seen = only(witness.saw("mouseup"), "mousedown", "mouseup")
    assert [(event["type"], event["button"]) for event in seen] == [
        ("mousedown", number),
        ("mouseup", number),
    ]
    assert all(event["trusted"] for event in seen)


@pytest.mark.parametrize("key", ["CTRL", "SHIFT", "ALT", "SUPER"])
@pytest.mark.parametrize("kind", ["click", "double_click", "move", "scroll", "drag"])
def test_keys_are_held_around_an_action(
    desktop: Desktop, driver: DesktopComputerDriver, witness: WebWitness, kind: str, key: str
) -> None:
    where = at(driver)
    each: dict[str, dict[str, Any]] = {
        "click": {**where, "button": "left"},
        "double_click": where,
        "move": where,
        "scroll": {**where, "scroll_x": 0, "scroll_y": PIXELS_PER_NOTCH},
        "drag": {"path": [SimpleNamespace(**where), SimpleNamespace(x=where["x"] + 40, y=where["y"])]},
    }
    kinds = {"move": "mousemove", "scroll": "wheel", "drag": "mouseup"}.get(kind, "mouseup")
    if kind == "move":
        act(driver, "move", **at(driver, (PAD[0] - 50, PAD[1])))
        witness.clear()
    act(driver, kind, **each[kind], keys=[key])
    modifier = {"SUPER": "meta"}.get(key, key.lower())
    assert all(event["mods"] == [modifier] for event in only(witness.saw(kinds), kinds))
    assert not desktop.held_inputs()
    if (kind, key) == ("scroll", "CTRL"):
        act(driver, "keypress", keys=["CTRL", "0"])  # the page was zoomed
    elif (kind, key) == ("move", "ALT"):
        act(driver, "keypress", keys=["ESC"])  # Alt alone opens the menu bar


def test_a_double_click_is_one(driver: DesktopComputerDriver, witness: WebWitness) -> None:
    act(driver, "double_click", **at(driver))
    seen = only(witness.saw("dblclick"), *BUTTONS)
    assert [event["type"] for event in seen] == [*["mousedown", "mouseup", "click"] * 2, "dblclick"]
    assert [event["detail"] for event in only(seen, "click")] == [1, 2]


def test_a_drag_is_one_press_through_every_point(driver: DesktopComputerDriver, witness: WebWitness) -> None:
    path = [(700, 200), (1000, 200), (1000, 350), (1000, 350), (750, 350)]
    act(driver, "drag", path=[SimpleNamespace(x=x, y=y) for x, y in path])
    seen = only(witness.saw("mouseup"), "mousedown", "mouseup", "mousemove")
    pressed = list(itertools.dropwhile(lambda event: event["type"] != "mousedown", seen))
    assert [event["type"] for event in only(pressed, "mousedown", "mouseup")] == ["mousedown", "mouseup"]
    assert pressed[-1]["type"] == "mouseup"
    moves = only(pressed, "mousemove")
    assert all(event["buttons"] == 1 for event in moves)
    assert (pressed[0]["x"], pressed[0]["y"]) == path[0]
    if not emulated():  # a browser that is slow merges motions
        assert len(moves) >= 20
        assert set(path[1:]) <= points(moves)
    assert points(pressed[-1:]) == {path[-1]}


def test_a_drag_drops(driver: DesktopComputerDriver, witness: WebWitness) -> None:
    _, state = witness.log()
    left, top = (round(value) for value in state["view"][:2])
    box, target = (left + 730, top + 450), (left + 960, top + 450)
    act(driver, "drag", path=[SimpleNamespace(x=x, y=y) for x, y in (box, target)])
    seen = only(witness.saw("dragend"), "dragstart", "drop", "dragend")
    assert [(event["type"], event["on"]) for event in seen] == [
        ("dragstart", "box"),
        ("drop", "target"),
        ("dragend", "box"),
    ]


@pytest.mark.parametrize(("x", "y"), [(0, 300), (300, 0), (0, 100), (100, 100)])
@pytest.mark.parametrize(("image_size", "crop"), VIEWS[:3])
def test_a_scroll_moves_the_page_by_its_pixels(
    desktop: Desktop, witness: WebWitness, image_size: Size | None, crop: Region | None, x: int, y: int
) -> None:
    driver = desktop.computer_driver(image_size, crop)
    act(driver, "scroll", **at(driver), scroll_x=x, scroll_y=y)
    witness.saw("wheel")
    _, _, width, height = driver.geometry.crop
    asked = x * width / driver.geometry.image[0], y * height / driver.geometry.image[1]

    def arrived(_: list[Event], state: dict[str, Any]) -> bool:
        offsets = zip(state["scroll"], asked, strict=True)
        return all(abs(got - want) <= PIXELS_PER_NOTCH / 2 + 1 for got, want in offsets)

    witness.until(arrived)


def test_scrolls_add_up_and_come_back(driver: DesktopComputerDriver, witness: WebWitness) -> None:
    for amount in (20, 20, 20, 20, 20, 20, 20, 4):
        act(driver, "scroll", **at(driver), scroll_x=0, scroll_y=amount)
    witness.until(lambda _, state: state["scroll"] == [0, 3 * PIXELS_PER_NOTCH])
    act(driver, "scroll", **at(driver), scroll_x=0, scroll_y=-144)
    witness.until(lambda _, state: state["scroll"] == [0, 0])


def released_control(events: list[Event], _: dict[str, Any]) -> bool:
    return any(event["key"] == "Control" for event in only(events, "keyup"))


def test_a_keypress_is_one_chord(driver: DesktopComputerDriver, witness: WebWitness) -> None:
    witness.clear(focus="input")
    act(driver, "type", text="abc")
    witness.until(lambda _, state: state["input"] == "abc")
    act(driver, "keypress", keys=["CTRL", "A"])
    seen = only(witness.until(released_control), "keydown", "keyup")
    assert [(event["type"], event["key"]) for event in seen[-4:]] == [
        ("keydown", "Control"),
        ("keydown", "a"),
        ("keyup", "a"),
        ("keyup", "Control"),
    ]
    act(driver, "type", text="x")  # replaces what is selected
    witness.until(lambda _, state: state["input"] == "x")


KEYS = {
    "F13": "F13",
    "F24": "F24",
    "KP_5": "5",
    "é": "é",
    "日": "日",
    "ENTER": "Enter",
    "ESC": "Escape",
    "PGDN": "PageDown",
    "ARROWLEFT": "ArrowLeft",
    "SPACE": " ",
    "INSERT": "Insert",
    "HOME": "Home",
    "BACKSPACE": "Backspace",
    "+": "+",
    "-": "-",
    "?": "?",
}


@pytest.mark.parametrize(("name", "key"), KEYS.items())
def test_keys_by_name(driver: DesktopComputerDriver, witness: WebWitness, name: str, key: str) -> None:
    witness.clear(focus="input")
    act(driver, "keypress", keys=[name])
    witness.until(lambda events, _: key in [event["key"] for event in only(events, "keydown")])


@pytest.mark.parametrize("field", ["input", "textarea", "rich"])
def test_text_is_exact(
    desktop: Desktop, driver: DesktopComputerDriver, witness: WebWitness, field: str
) -> None:
    text = "Zażółć \"gęślą\" jaźń — 'ß' ÀÉÎ `~^ $(rm) 日本語 Ελλάδα 👍"
    if field == "textarea":
        text += "\nsecond line\n"
    witness.clear(focus=field)
    act(driver, "type", text=text)
    witness.until(lambda _, state: state[field] == text)


def test_empty_text_types_nothing(driver: DesktopComputerDriver, witness: WebWitness) -> None:
    witness.clear(focus="input")
    act(driver, "type", text="")
    act(driver, "type", text="x")
    witness.until(lambda _, state: state["input"] == "x")


def test_what_is_refused_has_no_effect(driver: DesktopComputerDriver, witness: WebWitness) -> None:
    witness.clear(focus="input")
    for kind, fields in (
        ("keypress", {"keys": ["CTRL", "NOSUCHKEY"]}),
        ("type", {"text": "abc\x00"}),
        ("click", {"x": 900, "y": 10_000, "button": "left"}),
        ("drag", {"path": [SimpleNamespace(x=900, y=300), SimpleNamespace(x=-1, y=300)]}),
    ):
        with pytest.raises(InvalidInput):
            act(driver, kind, **fields)
    act(driver, "keypress", keys=["END"])
    seen = only(witness.saw("keydown"), "keydown", "mousedown", "mousemove")
    assert [event["key"] for event in seen] == ["End"]


@pytest.mark.parametrize("kind", ["type", "drag", "wait"])
def test_cancelled_stops_within_200_ms(desktop: Desktop, witness: WebWitness, kind: str) -> None:
    driver = desktop.computer_driver()
    actions = {
        "type": SimpleNamespace(type="type", text="All work and no play. " * 900),
        "drag": SimpleNamespace(
            type="drag", keys=["CTRL"], path=[SimpleNamespace(x=x, y=300) for x in (700, 1100) * 200]
        ),
        "wait": SimpleNamespace(type="wait"),
    }

    def attempt() -> float:
        witness.clear(focus="textarea")
        stop_at = time.monotonic() + 0.25
        with pytest.raises(Cancelled):
            getattr(driver, kind)(actions[kind], cancelled=lambda: time.monotonic() >= stop_at)
        took = time.monotonic() - stop_at
        assert not desktop.held_inputs()
        return took

    promptly(attempt, 0.2)


def test_back_and_forward_walk_through_the_history(desktop: Desktop, driver: DesktopComputerDriver) -> None:
    desktop.write_file(
        "first.html", b"<title>First</title><body onclick=\"location='second.html'\" style='height:90vh'>"
    )
    desktop.write_file("second.html", b"<title>Second</title><body style='height:90vh'>")
    facts = desktop.facts()
    desktop.open_url(f"file://{facts.home}/first.html")
    shows(desktop, "First")
    driver.screenshot()  # once the page is still it takes a click
    act(driver, "click", **at(driver), button="left")
    shows(desktop, "Second")
    act(driver, "click", **at(driver), button="back")
    shows(desktop, "First")
    act(driver, "click", **at(driver), button="forward")
    shows(desktop, "Second")


def shows(desktop: Desktop, title: str) -> None:
    deadline = time.monotonic() + 10
    while not any(window.title.startswith(title) for window in desktop.windows()):
        assert time.monotonic() < deadline, desktop.windows()


def test_the_sdk_runs_a_call(desktop: Desktop) -> None:
    actions = [{"type": "move", "x": 5, "y": 5}, {"type": "wait"}]
    call = ResponseComputerToolCall.model_validate(
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "call_1",
            "status": "completed",
            "pending_safety_checks": [],
            "actions": actions,
        }
    )
    driver = desktop.computer_driver(image_size=(640, 400))
    output = ComputerToolset(driver).execute(call)
    assert decode(output["output"]["image_url"]).size == (640, 400)
    assert desktop.step().result.pointer == (10, 10)


def screenshot(driver: DesktopComputerDriver) -> Image.Image:
    shot = driver.screenshot()
    return decode(shot["image_url"])


def pixels(image: Image.Image) -> Iterator[tuple[int, ...]]:
    data = image.tobytes()
    return (tuple(data[index : index + 3]) for index in range(0, len(data), 3))


def decode(data_url: str) -> Image.Image:
    kind, encoded = data_url.split(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
