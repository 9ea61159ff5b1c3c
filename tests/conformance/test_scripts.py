"""The script language on a real desktop: what a script does, what it leaves, and what a step returns."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from PIL import Image, ImageChops, ImageStat
from tests.support.apps import editor, tk
from tests.support.timing import eventually, promptly
from tests.support.tk_witness import TkWitness, only, presses, tk_witness

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled, InvalidInput
from deskbox_guest.protocol import Frame, Held, Settle

pytestmark = pytest.mark.engines("xtest", "xdotool")

ALT = 0x8  # in the state of an X event
DOUBLE_CLICK_S = 0.6  # longer than two presses may be apart for Tk
PLACE = "200 450"  # on the witness's canvas


@pytest.fixture(scope="module")
def window(shared_desktop: Desktop) -> Iterator[TkWitness]:
    with tk_witness(shared_desktop) as witness:
        yield witness


@pytest.fixture
def witness(window: TkWitness, desktop: Desktop) -> TkWitness:
    """With the keyboard's focus, and no press that a next one could make a double click of."""
    desktop.step(f"mousemove {PLACE} click 1")
    time.sleep(DOUBLE_CLICK_S)
    window.clear()
    return window


def test_triple_clicks(desktop: Desktop, witness: TkWitness) -> None:
    """Tk tells the first press as mousedown and those that follow it in time as dblclick."""
    desktop.step("click --repeat 3 --delay 60 1")
    seen = only(witness.saw("mouseup", 3), "mousedown", "dblclick")
    assert [event["type"] for event in seen] == ["mousedown", "dblclick", "dblclick"]
    time.sleep(DOUBLE_CLICK_S)
    witness.clear()
    desktop.step("click 1")
    assert [event["type"] for event in only(witness.saw("mouseup"), "mousedown", "dblclick")] == ["mousedown"]


def test_press_and_release_are_not_at_the_same_time(desktop: Desktop, witness: TkWitness) -> None:
    desktop.step("click 1")
    down, up = only(witness.saw("mouseup"), "mousedown", "mouseup")
    assert up["time"] > down["time"]


def test_relative_moves_and_where_the_pointer_is(desktop: Desktop) -> None:
    outcome = desktop.step("mousemove 100 200\nmousemove_relative -- 30 -40 getmouselocation")
    assert outcome.result.output.startswith("x:130 y:160 screen:0 window:")
    assert outcome.result.pointer == (130, 160)
    with pytest.raises(InvalidInput, match="outside the screen"):
        desktop.step("mousemove_relative -- -131 0")


@pytest.mark.parametrize("gesture", ["click 1", "mousedown 1 mousemove 260 470 mouseup 1"])
def test_alt_and_mouse_belong_to_the_application(desktop: Desktop, witness: TkWitness, gesture: str) -> None:
    desktop.step(f"keydown alt {gesture} keyup alt")
    assert all(event["state"] & ALT for event in only(witness.saw("mouseup"), "mousedown", "mouseup"))
    assert witness.window in desktop.windows()  # it has not been moved


def test_keys_that_the_layout_lacks(desktop: Desktop, witness: TkWitness) -> None:
    desktop.step(
        f"mousemove {witness.window.x + 50} {witness.window.y + 50} click 1\nkey eacute U4E2D U1F600 a"
    )
    witness.until(lambda events: any(event["text"].endswith("é中😀a") for event in only(events, "content")))


def test_keys_and_buttons_stay_down_over_scripts(desktop: Desktop, witness: TkWitness) -> None:
    desktop.step("keydown ctrl keydown shift")
    assert desktop.held_inputs() == Held(keys=("Control_L", "Shift_L"))
    desktop.step("keyup ctrl")
    assert desktop.held_inputs() == Held(keys=("Shift_L",))
    desktop.step("mousedown 1")
    desktop.step("mousemove 260 470")
    desktop.step("mouseup 1 keyup shift")
    assert not desktop.held_inputs()
    assert len(only(witness.saw("mouseup"), "mousemove")) >= 5  # a drag, although over three scripts


def test_whatever_is_down_is_known_and_released(desktop: Desktop) -> None:
    """Buttons 8 and 9 too, of which the core protocol knows nothing; and a key on a spare keycode."""
    desktop.step(f"mousemove {PLACE} keydown super keydown eacute mousedown 1 mousedown 8 mousedown 9")
    held = desktop.held_inputs()
    assert set(held.keys) == {"Super_L", "eacute"}
    assert held.buttons == (1, 8, 9)
    assert desktop.release_inputs() == held
    assert not desktop.held_inputs()


def test_a_cancelled_script_holds_nothing(desktop: Desktop) -> None:
    def attempt() -> float:
        stop_at = time.monotonic() + 0.2
        with pytest.raises(Cancelled):
            desktop.step(
                f"mousemove {PLACE} keydown ctrl mousedown 9 sleep 20",
                cancelled=lambda: time.monotonic() > stop_at,
            )
        took = time.monotonic() - stop_at
        assert not desktop.held_inputs()
        return took

    promptly(attempt, 0.2)


def test_a_mistake_in_the_last_command_means_no_effect_at_all(desktop: Desktop, witness: TkWitness) -> None:
    with pytest.raises(InvalidInput, match="'Foo' is no key name"):
        desktop.step("mousemove 10 10 click 1 keydown ctrl\nkey Foo")
    with pytest.raises(InvalidInput, match="must lie inside the screen"):
        desktop.step("mousemove 10 10 click 1", frame=Frame(width=1281))
    with pytest.raises(InvalidInput, match="the cap must be at least"):
        desktop.step("mousemove 10 10 click 1", settle=Settle(quiet=2.0, cap=1.0))
    assert f"{desktop.step().result.pointer}" == "(200, 450)"
    assert presses(witness.events()) == []


def test_the_middle_button_pastes_what_is_selected(desktop: Desktop) -> None:
    text = "pasted ß"
    with editor(desktop) as source, tk(desktop) as target:
        desktop.step(source.click)
        desktop.type_text(text)
        desktop.step("key shift+Home")
        desktop.step(target.click.replace("click 1", "click 2"))
        assert target.got(text) == text


@pytest.mark.engines("xtest")
def test_windows_are_listed_from_the_top(desktop: Desktop) -> None:
    with editor(desktop) as left, tk(desktop) as right:
        for app in (left, right, left):
            desktop.step(app.click)
            listed = desktop.windows()
            assert listed[0] == replace(app.window, title=listed[0].title, active=True)
            assert [window.active for window in listed].count(True) == 1
            assert listed[-1].app.startswith("firefox")


def test_a_menu_is_opened_and_an_item_chosen_in_one_script(desktop: Desktop) -> None:
    """The last item of the editor's last menu shows a window of its own."""
    with editor(desktop):
        desktop.step("key alt+h Up Return")
        eventually(lambda: any("About" in window.title for window in desktop.windows()))
        desktop.step("key Escape")


@pytest.mark.engines("xtest")
@pytest.mark.parametrize("image_format", ["jpeg", "webp"])
def test_other_image_formats_look_the_same(desktop: Desktop, image_format: str) -> None:
    desktop.step(settle=Settle())
    data = desktop.screenshot(format=image_format, cursor=False)  # type: ignore[arg-type]
    image = Image.open(io.BytesIO(data))
    assert image.format == image_format.upper()
    exact = Image.open(io.BytesIO(desktop.screenshot(cursor=False))).convert("RGB")
    assert max(ImageStat.Stat(ImageChops.difference(image.convert("RGB"), exact)).mean) < 3


@pytest.mark.engines("xtest")
def test_half_the_size_is_the_mean_of_four_pixels(desktop: Desktop) -> None:
    desktop.step(settle=Settle())
    half = Image.open(io.BytesIO(desktop.screenshot(image_size=(640, 400), cursor=False))).convert("RGB")
    whole = Image.open(io.BytesIO(desktop.screenshot(cursor=False))).convert("RGB")
    assert max(ImageStat.Stat(ImageChops.difference(half, whole.reduce(2))).mean) < 0.01
