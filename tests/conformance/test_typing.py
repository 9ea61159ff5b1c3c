"""Text arrives character for character: in each toolkit, under each layout, on a busy machine."""

from __future__ import annotations

import random
import shlex
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise

import pytest
from tests.support.apps import App, editor, running, terminal, tk
from tests.support.promptly import promptly
from tests.support.tk_witness import only, tk_witness
from tests.support.web_witness import web_witness

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled, Interrupted, InvalidInput, Refused

ASCII = "".join(map(chr, range(32, 127)))
WORDS = (
    'Spaß ÀÉÎÕÜ øØ Ñandú 5`GgT-S%U~tG{H~XU?`^:$`~M te"st \'it\' <a href="x"> $(rm -rf) ; | & \\ '
    "“smart” ‘quotes’ — – … € µ²³ ﬁ ĳ Zażółć gęślą jaźń İıŞş Ελλάδα Привет עברית العربية हिन्दी ไทย 한국어 "
    "日本語のテキスト 美国降息新闻 \u0301e\u0301 a\u00a0b\u00adc"
)
TYPED_BY_HAND = "The quick brown fox jumps over the lazy dog; Zażółć gęślą jaźń."
EMOJI = "😀🎉 👩‍👩‍👧 🇫🇷 👍🏽 ❤️"


def random_text(length: int, seed: int) -> str:
    """Lines of characters from everywhere; most of them need a spare key."""
    ranges = [
        (0x20, 0x7F),
        (0xA1, 0x250),
        (0x370, 0x590),
        (0x3041, 0x3100),
        (0x4E00, 0x9FA0),
        (0x1F300, 0x1F650),
    ]
    source = random.Random(seed)
    text = ""
    while len(text) < length:
        character = chr(source.randrange(*source.choice(ranges)))
        if unicodedata.category(character) not in ("Cn", "Cc", "Cs", "Co", "Mn"):
            text += character
        if len(text) % 60 == 59:
            text += "\n"
    return text


@contextmanager
def firefox(desktop: Desktop) -> Iterator[App]:
    with web_witness(desktop) as page:
        window = next(window for window in desktop.windows() if window.app.startswith("firefox"))
        yield App(
            desktop,
            window,
            clear=lambda: page.clear(focus="textarea"),
            read=lambda: str(page.log()[1].get("textarea", "")),
        )


APPS: dict[str, Callable[[Desktop], AbstractContextManager[App]]] = {
    "firefox": firefox,
    "editor": editor,
    "terminal": terminal,
    "tk": tk,
}


@pytest.fixture(scope="module", params=APPS)
def open_app(request: pytest.FixtureRequest, shared_desktop: Desktop) -> Iterator[App]:
    with APPS[request.param](shared_desktop) as app:
        yield app


@pytest.fixture
def app(open_app: App, desktop: Desktop) -> App:
    """Empty, and focused by a click."""
    open_app.desktop.step(open_app.click)
    open_app.clear()
    return open_app


KEYBOARD = """
import subprocess, sys
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.xkb import Xkb
print(Xkb(Link().display).state())
print(subprocess.run(["xkbcomp", "-xkb", ":0", "-"], capture_output=True).stdout.decode())
"""


def keyboard(desktop: Desktop) -> str:
    """Locks, latches, held modifiers, the group, and the whole map."""
    done = desktop.exec(["python3", "-c", KEYBOARD])
    assert done.exit_code == 0, done.stderr
    return done.stdout.decode()


@contextmanager
def layout(desktop: Desktop, name: str) -> Iterator[None]:
    desktop.exec(["setxkbmap", name])
    yield
    desktop.exec(["setxkbmap", "us"])


@pytest.mark.engines("xtest", "xdotool")
def test_ascii_is_exact(app: App) -> None:
    text = ASCII + "\n"
    app.desktop.type_text(text)
    assert app.got(text) == text


@pytest.mark.parametrize("text", [WORDS + "\n", EMOJI + "\n"], ids=["words", "emoji"])
def test_text_is_exact(app: App, text: str) -> None:
    app.desktop.type_text(text)
    assert app.got(text) == text


def test_many_random_characters_are_exact(app: App) -> None:
    text = random_text(1200, seed=1)
    before = keyboard(app.desktop)
    app.desktop.type_text(text)
    assert app.got(text) == text
    assert keyboard(app.desktop) == before


@pytest.mark.parametrize("name", ["us", "de", "fr", "es", "ru"])
@pytest.mark.parametrize("lock", ["", "Caps_Lock", "Num_Lock"])
def test_layouts_and_locks_do_not_matter(app: App, name: str, lock: str) -> None:
    text = ASCII + WORDS + random_text(100, seed=2) + "\n"
    with layout(app.desktop, name):
        if lock:
            app.desktop.step(f"key {lock}")
        before = keyboard(app.desktop)
        app.desktop.type_text(text)
        after = keyboard(app.desktop)
        if lock:
            app.desktop.step(f"key {lock}")
    assert app.got(text) == text
    assert after == before


def test_a_busy_machine_does_not_matter(app: App) -> None:
    """Both processors are taken by others, and keys repeat as soon as they can."""
    text = random_text(600, seed=3)
    ended = threading.Event()

    def burn() -> None:
        with pytest.raises(Cancelled):
            app.desktop.exec(["sh", "-c", "while :; do :; done"], timeout=600, cancelled=ended.is_set)

    burners = [threading.Thread(target=burn) for _ in range(4)]
    for burner in burners:
        burner.start()
    try:
        app.desktop.type_text(text)
        assert app.got(text, timeout=30) == text
    finally:
        ended.set()
        for burner in burners:
            burner.join()


@pytest.mark.engines("xtest", "xdotool")
def test_line_ends_of_all_kinds_are_one_return(app: App) -> None:
    text = "one\r\ntwo\rthree\n\n"
    app.desktop.step(f"type -- {shlex.quote(text)}")
    assert app.got("one\ntwo\nthree\n\n") == "one\ntwo\nthree\n\n"


@pytest.mark.engines("xtest", "xdotool")
def test_a_script_may_click_into_another_window_and_type(desktop: Desktop) -> None:
    """The keys wait until the window manager has moved the focus, and the application knows it."""
    letter = "ß" if desktop.engine == "xtest" else "S"
    with editor(desktop) as left, tk(desktop) as right:
        for number in range(10):
            for app in (left, right):
                clear = "key ctrl+a Delete" if app is left else "key ctrl+slash Delete"
                desktop.step(f"{app.click}\n{clear}\ntype -- '{letter} {number}'")
                assert app.got(f"{letter} {number}") == f"{letter} {number}"


def test_the_second_layout_may_be_active(desktop: Desktop) -> None:
    with editor(desktop) as app:
        desktop.exec(["setxkbmap", "us,de", "-option", "grp:shifts_toggle"])
        try:
            desktop.step("keydown Shift_L keydown Shift_R keyup Shift_R keyup Shift_L")
            assert "group=1" in keyboard(desktop)
            before = keyboard(desktop)
            desktop.type_text(ASCII + WORDS)
            assert keyboard(desktop) == before
        finally:
            desktop.exec(["setxkbmap", "-layout", "us", "-option", ""])
        assert app.got(ASCII + WORDS) == ASCII + WORDS


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
        with pytest.raises(Refused, match="while Control_L is down"):
            desktop.step("keydown ctrl\ntype -- abc")
        desktop.step("keydown shift")
        with pytest.raises(Refused, match="while Shift_L is down"):
            desktop.type_text("abc")
        desktop.step("keyup shift")
        assert app.read() == ""


def test_what_no_key_can_type_is_refused_before_anything_is_typed(desktop: Desktop) -> None:
    with editor(desktop) as app:
        with pytest.raises(InvalidInput, match=r"U\+0007 at position 3"):
            desktop.step("type -- 'abc\x07'")
        assert app.read() == ""


@pytest.mark.engines("xtest", "xdotool")
@pytest.mark.parametrize("program", ["l3afpad", "xterm"])
def test_a_window_that_goes_away_ends_the_typing(desktop: Desktop, program: str) -> None:
    before = keyboard(desktop)
    with running(desktop, [program], {"l3afpad": "L3afpad", "xterm": "XTerm"}[program]):
        killer = threading.Timer(0.5, lambda: desktop.exec(["pkill", "-KILL", program]))
        killer.start()
        with pytest.raises(Interrupted, match="lost the keyboard focus") as caught:
            desktop.type_text(("héllo wörld " if desktop.engine == "xtest" else "hello world ") * 1500)
        killer.join()
    assert 0 < caught.value.data["characters"] < 18_000
    assert not desktop.held_inputs()
    assert keyboard(desktop) == before


@pytest.mark.parametrize(("pace", "text"), [(5, "by hand, é"), (20, TYPED_BY_HAND), (50, TYPED_BY_HAND * 3)])
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
def test_a_cancelled_text_leaves_the_keyboard_as_it_was(desktop: Desktop) -> None:
    text = ("日本語 and ASCII " if desktop.engine == "xtest" else "Only ASCII here ") * 1000
    with editor(desktop) as app:
        before = keyboard(desktop)

        def attempt() -> float:
            app.clear()
            stop_at = time.monotonic() + 0.3
            with pytest.raises(Cancelled):
                desktop.type_text(text, cancelled=lambda: time.monotonic() > stop_at)
            took = time.monotonic() - stop_at
            assert keyboard(desktop) == before
            arrived = app.read()
            assert arrived
            assert text.startswith(arrived)
            return took

        promptly(attempt, 0.2)
