"""Text arrives character for character: in each toolkit, under each layout, on a busy machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import pairwise

import pytest
from tests.support.apps import App, editor, tk
from tests.support.characters import ASCII, SEQUENCES
from tests.support.timing import emulated, eventually, promptly
from tests.support.tk_witness import only, tk_witness
from tests.support.typed import APPS, FAST, PACKAGES, SLOW, Round, keyboard, keyboard_of, taken, type_rounds
from tests.support.web_witness import web_witness

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled, DeskboxError, Interrupted, InvalidInput, Refused
from deskbox_guest.protocol import EngineName

pytestmark = pytest.mark.slow("qemu")

TEXT = ASCII + " ".join(SEQUENCES)
SOME_ROUNDS = (
    Round("us", "Caps_Lock", FAST, 4),
    Round("de", "", FAST, 0),
    Round("fr", "Num_Lock", SLOW, 4),
    Round("es", "Caps_Lock", FAST, 0),
    Round("ru", "", SLOW, 0),
)
# Text that is far from typed when something happens to it: most of its characters need spare keys.
LONG = "".join(f"é{chr(code)}" for code in range(0x4E00, 0x7000))
MEANWHILE_S = 1.2
TYPED_BY_HAND = "The quick brown fox jumps over the lazy dog; Zażółć gęślą jaźń."
# A keyboard that must be found again as it was.
MARKED = Round("de", "Caps_Lock", (200, 100), 0)


@pytest.fixture(scope="module")
def desktops(state_dir: object) -> Iterator[Callable[[EngineName], Desktop]]:
    """With Qt, for this module."""
    with ExitStack() as running:

        @cache
        def desktop(engine: EngineName) -> Desktop:
            launched = Desktop.launch(engine=engine, url="about:blank", packages=PACKAGES)
            return running.enter_context(launched)

        yield desktop


@pytest.fixture(scope="module")
def shared_desktop(desktops: Callable[[EngineName], Desktop], engine: EngineName) -> Desktop:
    return desktops(engine)


@pytest.fixture(scope="module", params=APPS)
def named_app(request: pytest.FixtureRequest, shared_desktop: Desktop) -> Iterator[tuple[str, App]]:
    with APPS[request.param](shared_desktop) as app:
        yield request.param, app


@pytest.fixture
def app(named_app: tuple[str, App], desktop: Desktop) -> App:
    """Empty, and focused by a click."""
    _, app = named_app
    desktop.step(app.click)
    app.clear()
    return app


def share_of(characters: int) -> int:
    """An emulated processor types in the same way, but it and the page take half a second for a character."""
    return characters // 10 if emulated() else characters


def test_text_is_exact(named_app: tuple[str, App], app: App) -> None:
    """Random characters from everywhere, under every keyboard, on an idle and on a busy machine."""
    name, _ = named_app
    text = "".join(filter(taken(name), TEXT))
    app.desktop.type_text(text)
    assert app.got(text) == text
    if taken(name)("\n"):
        app.clear()
        app.desktop.step("type -- 'one\r\ntwo\rthree\n\n'")
        assert app.got("one\ntwo\nthree\n\n") == "one\ntwo\nthree\n\n"
    assert len(list(type_rounds(app, name, SOME_ROUNDS, share_of(700), seed=1))) == len(SOME_ROUNDS)


@pytest.mark.engines("xdotool")
def test_text_is_exact_with_the_other_engine(named_app: tuple[str, App], app: App) -> None:
    """The same code decides which key is pressed when: one round shows that xdotool does it."""
    name, _ = named_app
    assert len(list(type_rounds(app, name, SOME_ROUNDS[:1], share_of(500), seed=2))) == 1


@pytest.mark.engines("xtest", "xdotool")
def test_a_script_may_click_into_another_window_and_type(desktop: Desktop) -> None:
    """The keys wait until the window manager has moved the focus, and the application knows it."""
    with editor(desktop) as left, tk(desktop) as right:
        for number in range(10):
            for app in (left, right):
                clear = "key ctrl+a Delete" if app is left else "key ctrl+slash Delete"
                desktop.step(f"{app.click}\n{clear}\ntype -- 'ß {number}'")
                assert app.got(f"ß {number}") == f"ß {number}"


def test_the_second_layout_may_be_active(desktop: Desktop) -> None:
    with editor(desktop) as app:
        desktop.exec(["setxkbmap", "us,de", "-option", "grp:shifts_toggle"])
        try:
            desktop.step("keydown Shift_L keydown Shift_R keyup Shift_R keyup Shift_L")
            assert "group=1" in keyboard(desktop)
            before = keyboard(desktop)
            desktop.type_text(TEXT)
            assert keyboard(desktop) == before
        finally:
            desktop.exec(["setxkbmap", "-layout", "us", "-option", ""])
        assert app.got(TEXT) == TEXT


@pytest.mark.engines("xtest", "xdotool")
def test_a_shortcut_and_the_text_behind_it(desktop: Desktop) -> None:
    """The address bar gets the text although the page is asked about Ctrl+L first."""
    desktop.open_url("about:blank")
    for number in range(5):
        desktop.write_file(f"page{number}.html", f"<title>Page {number}</title>".encode())
        home = desktop.facts().home
        desktop.step(f"key ctrl+l\ntype -- file://{home}/page{number}.html\nkey Return")
        deadline = time.monotonic() + 10
        while not any(window.title.startswith(f"Page {number}") for window in desktop.windows()):
            assert time.monotonic() < deadline, desktop.windows()


@pytest.mark.engines("xtest", "xdotool")
def test_text_under_a_held_modifier_is_refused(desktop: Desktop) -> None:
    with editor(desktop) as app:
        with pytest.raises(Refused, match="while Control_L is down") as caught:
            desktop.step("keydown ctrl\ntype -- abc")
        assert not isinstance(caught.value, InvalidInput)  # it is the state that is wrong
        desktop.step("keydown shift")
        with pytest.raises(Refused, match="while Shift_L is down"):
            desktop.type_text("abc")
        desktop.step("keyup shift")
        assert app.read() == ""


@pytest.mark.parametrize("character", ["\x07", "\x1b", "\x7f", "\x85", "\ud800", "\ufffe", "\U0001ffff"])
def test_what_no_key_can_type_is_refused_before_anything_is_typed(desktop: Desktop, character: str) -> None:
    """By the host, and by the guest where the host leaves the script as it is."""
    where = rf"U\+{ord(character):04X} at position 3"
    with editor(desktop) as app:
        with pytest.raises(InvalidInput, match=where):
            desktop.type_text(f"abc{character}")
        with pytest.raises(InvalidInput, match=where):
            desktop.step(f"type -- 'abc{character}'")
        assert app.read() == ""


@contextmanager
def unharmed(desktop: Desktop) -> Iterator[None]:
    """Whatever happens inside, the keyboard is what it was, and nothing is held."""
    with keyboard_of(desktop, MARKED):
        before = keyboard(desktop)
        yield
        assert keyboard(desktop) == before
        assert not desktop.held_inputs()


@pytest.mark.parametrize("name", ["firefox-textarea", "gtk", "xterm"])
def test_a_window_that_loses_the_focus_got_what_is_said_to_have_arrived(desktop: Desktop, name: str) -> None:
    with APPS[name](desktop) as app, ExitStack() as stack:
        desktop.step(app.click)
        app.clear()
        with unharmed(desktop):
            opener = threading.Timer(MEANWHILE_S, lambda: stack.enter_context(tk(desktop)))
            opener.start()
            with pytest.raises(Interrupted, match="lost the keyboard focus") as caught:
                desktop.type_text(LONG)
            opener.join()
        stack.close()
        desktop.step(app.click)
        # Firefox has handled keys that the process of the page still works on.
        eventually(lambda: len(app.read()) >= caught.value.data["characters"])
        arrived = app.read()
    assert 0 < caught.value.data["characters"] < len(LONG)
    assert LONG.startswith(arrived)
    assert len(arrived) < len(LONG)


BLINK = """
import sys, time
from Xlib import X, display
d = display.Display()
window = d.get_input_focus().focus
d.set_input_focus(d.screen().root, X.RevertToParent, X.CurrentTime)
d.set_input_focus(window, X.RevertToParent, X.CurrentTime)
d.sync()
"""


def test_a_focus_that_was_away_and_is_back_ends_the_typing(desktop: Desktop) -> None:
    """Keys of that time went elsewhere, and no later look at the focus would tell."""
    with editor(desktop) as app:
        blinker = threading.Timer(MEANWHILE_S, lambda: desktop.exec(["python3", "-c", BLINK]))
        blinker.start()
        with pytest.raises(Interrupted, match="lost the keyboard focus") as caught:
            desktop.type_text(LONG)
        blinker.join()
        assert app.read().startswith(LONG[: caught.value.data["characters"]])


@pytest.mark.engines("xtest", "xdotool")
@pytest.mark.parametrize(("name", "program"), [("gtk", "l3afpad"), ("xterm", "xterm"), ("tk", "witness_tk")])
def test_a_killed_application_ends_the_typing(desktop: Desktop, name: str, program: str) -> None:
    with APPS[name](desktop) as app:
        with unharmed(desktop):
            kill = ["pkill", "-KILL", "-f", f"^([^ ]*python3 )?{program}"]
            killer = threading.Timer(MEANWHILE_S, lambda: desktop.exec(kill))
            killer.start()
            with pytest.raises(Interrupted, match="lost the keyboard focus") as caught:
                desktop.type_text(LONG)
            killer.join()
        said = caught.value.data["characters"]
        assert 0 < said < len(LONG)
        if name == "tk":  # which has logged what it had before it was idle
            arrived = app.read()
            assert said <= len(arrived)
            assert LONG.startswith(arrived)


def test_an_application_that_hangs_ends_the_typing(desktop: Desktop) -> None:
    with editor(desktop), unharmed(desktop):
        signal = ["pkill", "-f", "l3afpad", "--signal"]
        desktop.exec([*signal, "STOP"])
        try:
            with pytest.raises(Interrupted, match="has not handled its keys for 40 s: it hangs") as caught:
                desktop.type_text("ß and more")
        finally:
            desktop.exec([*signal, "CONT"])
        assert caught.value.data["characters"] == 0


# An emulated processor takes more than 20 ms for a key.
FASTEST = pytest.param(50, TYPED_BY_HAND * 3, marks=pytest.mark.backends("docker", "bwrap"))


@pytest.mark.parametrize(("pace", "text"), [(5, "by hand, é"), (20, TYPED_BY_HAND), FASTEST])
def test_text_has_the_pace_asked_for(desktop: Desktop, pace: float, text: str) -> None:
    """By the X server's own clock, to 1 %."""
    due = (len(text) - 1) / pace
    with tk_witness(desktop) as witness:

        def attempt() -> float:
            desktop.step("key ctrl+slash Delete")
            witness.clear()
            desktop.type_text(text, pace=pace)
            events = witness.until(lambda events: [e["text"] for e in only(events, "content")][-1:] == [text])
            times = [
                e["time"] / 1000 for e in only(events, "keydown") if e["detail"] not in ("Shift_L", "??")
            ]
            assert len(times) == len(text)
            gaps = sorted(after - before for before, after in pairwise(times))
            assert gaps[len(gaps) // 2] == pytest.approx(1 / pace, rel=0.1)
            return float(abs(times[-1] - times[0] - due))

        promptly(attempt, 0.01 * due)


def test_a_pace_out_of_range_is_refused_before_anything_is_typed(desktop: Desktop) -> None:
    with tk_witness(desktop) as witness:
        with pytest.raises(InvalidInput, match=r"give 0\.1 to 50"):
            desktop.type_text("abc", pace=0)
        assert only(witness.events(), "keydown") == []


def test_a_slow_text_stops_at_once(desktop: Desktop) -> None:
    with editor(desktop) as app:

        def attempt() -> float:
            app.clear()
            stop_at = time.monotonic() + 1.5
            with pytest.raises(Cancelled):
                desktop.type_text("slowly", pace=1, cancelled=lambda: time.monotonic() > stop_at)
            took = time.monotonic() - stop_at
            assert app.read() == "sl"
            return took

        promptly(attempt, 0.2)


@pytest.mark.engines("xtest", "xdotool")
def test_a_cancelled_text_says_how_much_arrived(desktop: Desktop) -> None:
    with editor(desktop) as app:

        def attempt() -> float:
            app.clear()
            with unharmed(desktop):
                stop_at = time.monotonic() + MEANWHILE_S
                with pytest.raises(Cancelled) as caught:
                    desktop.type_text(LONG, cancelled=lambda: time.monotonic() > stop_at)
                took = time.monotonic() - stop_at
            arrived = app.read()
            assert LONG.startswith(arrived)
            assert 0 < caught.value.data["characters"] <= len(arrived)
            return took

        promptly(attempt, 0.2)


def test_an_agent_that_dies_while_it_types_leaves_the_keyboard_to_the_next_one(desktop: Desktop) -> None:
    def kill() -> None:
        with suppress(DeskboxError):  # it kills who runs it
            desktop.exec(["pkill", "-KILL", "-f", "deskbox_guest.agent"])

    desktop.open_url("about:blank")
    with unharmed(desktop):
        desktop.step("key ctrl+l")
        killer = threading.Timer(MEANWHILE_S, kill)
        killer.start()
        with pytest.raises(Interrupted, match="connection to the guest broke"):
            desktop.type_text(LONG)
        killer.join()


def test_a_closed_browser_ends_the_typing(desktop: Desktop) -> None:
    with web_witness(desktop) as page:
        page.clear(focus="textarea")
        closer = threading.Timer(MEANWHILE_S, lambda: desktop.exec(["pkill", "-TERM", "firefox"]))
        with unharmed(desktop):
            closer.start()
            with pytest.raises(Interrupted, match="lost the keyboard focus") as caught:
                desktop.type_text(LONG)
            closer.join()
        arrived = str(page.state().get("textarea", ""))
    assert LONG.startswith(arrived)
    assert 0 < caught.value.data["characters"] < len(LONG)
