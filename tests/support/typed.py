"""The applications that typing is proved with, what each of them does not take as it comes, and why."""

from __future__ import annotations

import itertools
import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from tests.support.apps import App, editor, qt, terminal, tk
from tests.support.characters import difference, draw
from tests.support.load import busy
from tests.support.web_witness import web_witness

from deskbox.desktop import Desktop
from deskbox.errors import Interrupted

# For the Qt window, and for `xset`, which sets how fast keys repeat.
PACKAGES = ("python3-pyqt5", "x11-xserver-utils")


@contextmanager
def firefox(field: str, desktop: Desktop) -> Iterator[App]:
    """One of the page's fields: input, textarea, rich (contenteditable)."""
    with web_witness(desktop) as page:
        window = next(window for window in desktop.windows() if window.app.startswith("firefox"))
        yield App(
            desktop,
            window,
            clear=lambda: page.clear(focus=field),
            read=lambda: str(page.state().get(field, "")),
        )


APPS: dict[str, Callable[[Desktop], AbstractContextManager[App]]] = {
    "firefox-input": partial(firefox, "input"),
    "firefox-textarea": partial(firefox, "textarea"),
    "firefox-rich": partial(firefox, "rich"),
    "gtk": editor,
    "qt": qt,
    "tk": tk,
    "xterm": terminal,
}


def _newer_than_qt(character: str) -> bool:
    """Python tells only what Unicode 3.2 had: so it is all that came later, but for emoji that Qt knows."""
    old = unicodedata.ucd_3_2_0.category(character) != "Cn"
    return not old and not 0x1F1E6 <= ord(character) <= 0x1F6D2


TAB_MOVES_ON = ("Tab moves from a page's field to the next", lambda it: it == "\t")

# Characters that an application does not take as they come, whatever key makes them, and the reason.
NOT_TAKEN: dict[str, list[tuple[str, Callable[[str], bool]]]] = {
    "firefox-input": [TAB_MOVES_ON, ("a field of one line takes no line end", lambda it: it == "\n")],
    "firefox-textarea": [TAB_MOVES_ON],
    "firefox-rich": [TAB_MOVES_ON],
    "qt": [
        ("Qt 5.15 drops keys for characters that Unicode got after version 13", _newer_than_qt),
        ("Qt reads a key's text as a UTF-8 file, which begins with a mark", lambda it: it == "\ufeff"),
        ("a paragraph separator is how a QTextDocument ends a line", lambda it: it == "\u2029"),
    ],
}


def taken(name: str) -> Callable[[str], bool]:
    """Whether an application takes a character."""
    exceptions = [excepts for _, excepts in NOT_TAKEN.get(name, [])]
    return lambda character: not any(excepts(character) for excepts in exceptions)


LAYOUTS = ("us", "de", "fr", "es", "ru")
LOCKS = ("", "Caps_Lock", "Num_Lock")
# Milliseconds until a key that is down repeats and repeats a second.
SLOW, FAST = (660, 25), (1, 255)  # as usual, and as fast as `xset` sets it
REPEATS = (SLOW, FAST)
LOADS = (0, 4)  # endless loops beside the application
READ_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Round:
    """What is the same for one text."""

    layout: str
    lock: str
    repeat: tuple[int, int]
    load: int

    def __str__(self) -> str:
        lock = self.lock or "no lock"
        return f"{self.layout}, {lock}, repeat {self.repeat[1]}/s after {self.repeat[0]} ms, load {self.load}"


ROUNDS = [Round(*parts) for parts in itertools.product(LAYOUTS, LOCKS, REPEATS, LOADS)]


@contextmanager
def keyboard_of(desktop: Desktop, round: Round) -> Iterator[None]:
    """Layout, lock and repeat rate for as long as the context is open."""
    for command in (["setxkbmap", round.layout], ["xset", "r", "rate", *map(str, round.repeat)]):
        assert desktop.exec(command).exit_code == 0, command
    if round.lock:
        desktop.step(f"key {round.lock}")
    try:
        yield
    finally:
        if round.lock:
            desktop.step(f"key {round.lock}")
        desktop.exec(["xset", "r", "rate"])
        desktop.exec(["setxkbmap", "us"])


class Wrong(AssertionError):
    """What arrived is not what was typed, or the keyboard is not as it was before."""


def type_rounds(
    app: App, name: str, rounds: Sequence[Round], chars: int, seed: int
) -> Iterator[tuple[Round, str]]:
    """Type so many random characters in all; yields each round that went well, and its text."""
    source = random.Random(f"{seed} {name}")
    for index, round in enumerate(rounds):
        share = chars * (index + 1) // len(rounds) - chars * index // len(rounds)
        text = draw(source, share, taken(name))
        try:
            wrong = _type_and_compare(app, round, text)
        except Interrupted as error:
            wrong = str(error)
        if wrong:
            raise Wrong(f"{name}, {round}: {wrong}")
        yield round, text


def _type_and_compare(app: App, round: Round, text: str) -> str:
    """Type into the application, emptied first; say what is wrong then, or nothing."""
    app.desktop.step(app.click)
    app.clear()
    with keyboard_of(app.desktop, round), busy(app.desktop, round.load):
        before = keyboard(app.desktop)
        app.desktop.type_text(text)
        if wrong := difference(text, app.got(text, READ_TIMEOUT_S)):
            return wrong
        return "" if keyboard(app.desktop) == before else "the keyboard is not as it was before"


KEYBOARD = """
import subprocess
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.xkb import Xkb
xkb = Xkb(Link().display)
print(xkb.state(), xkb.controls())
print(subprocess.run(["xkbcomp", "-xkb", ":0", "-"], capture_output=True).stdout.decode())
"""


def keyboard(desktop: Desktop) -> str:
    """Locks, latches, held modifiers, the group, controls such as key repeat, and the whole map."""
    done = desktop.exec(["python3", "-c", KEYBOARD])
    assert done.exit_code == 0, done.stderr
    return done.stdout.decode()
