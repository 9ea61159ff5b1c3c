"""What is special about the engine that has each event made by the real xdotool; the others test the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.support.apps import editor
from tests.support.timing import eventually, patient
from tests.support.tk_witness import TkWitness, presses, tk_witness

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled, Interrupted
from deskbox_guest.protocol import Held

pytestmark = pytest.mark.engines("xdotool")

# A window as large as the screen, again and again.
FLICKER = """
from Xlib.display import Display
display = Display()
while True:
    window = display.screen().root.create_window(0, 0, 1280, 800, 0, 24, override_redirect=True)
    window.map()
    display.sync()
    window.destroy()
    display.sync()
"""
LOCK_THE_SECOND_LAYOUT = """
import ctypes
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
display = ctypes.c_void_p(x.XOpenDisplay(None))
x.XkbLockGroup(display, 0x100, 1)
x.XSync(display, 0)
"""


@pytest.fixture
def witness(desktop: Desktop) -> Iterator[TkWitness]:
    with tk_witness(desktop) as witness:
        yield witness


def processes(desktop: Desktop) -> list[str]:
    return desktop.exec(["pgrep", "-x", "xdotool"]).stdout.decode().split()


def test_each_event_is_xdotools_own(desktop: Desktop, witness: TkWitness) -> None:
    """With the process stopped nothing happens at all."""
    desktop.step("key a")
    [process] = processes(desktop)
    witness.saw("keyup")
    witness.clear()
    desktop.exec(["kill", "-STOP", process])
    with pytest.raises(Interrupted, match="it has not answered for 5 s"):
        desktop.step("mousemove 20 20 key b")
    assert desktop.step().result.pointer != (20, 20)
    assert processes(desktop) == []
    desktop.step("key c")
    assert presses(witness.saw("keyup")) == ["+c", "-c"]


def test_when_xdotool_dies_nothing_is_held_and_the_next_script_has_a_new_one(
    desktop: Desktop, witness: TkWitness
) -> None:
    desktop.step("key a")
    [process] = processes(desktop)
    desktop.exec(["kill", "-STOP", process])
    killer = threading.Timer(0.5, desktop.exec, [["kill", "-KILL", process]])
    killer.start()
    began = time.monotonic()
    with pytest.raises(Interrupted, match="it died"):
        desktop.step("keydown ctrl mousedown 1")
    assert time.monotonic() - began < patient(3)  # its end was seen, and not waited for
    killer.join()
    assert desktop.held_inputs() == Held()
    desktop.step("key c")
    assert presses(witness.saw("keyup", 2))[-2:] == ["+c", "-c"]
    assert len(processes(desktop)) == 1


def test_one_that_died_between_scripts_costs_nothing(desktop: Desktop, witness: TkWitness) -> None:
    desktop.step("keydown ctrl")
    desktop.exec(["kill", "-KILL", *processes(desktop)])
    desktop.step("keyup ctrl key d")
    assert presses(witness.saw("keyup", 2)) == ["+Control_L", "-Control_L", "+d", "-d"]


def test_windows_that_come_and_go_do_not_matter(desktop: Desktop) -> None:
    ended = threading.Event()

    def flicker() -> None:
        with pytest.raises(Cancelled):
            desktop.exec(["python3", "-c", FLICKER], cancelled=ended.is_set)

    flickering = threading.Thread(target=flicker)
    flickering.start()
    try:
        desktop.step("\n".join(f"mousemove {300 + x} 450" for x in range(100)))
    finally:
        ended.set()
        flickering.join()
        eventually(lambda: desktop.exec(["pgrep", "-f", "create_window"]).exit_code != 0)


def test_it_ends_with_the_agent(desktop: Desktop) -> None:
    desktop.step("mousemove 5 5")
    [process] = processes(desktop)
    with suppress(Interrupted):  # the agent runs the command, too
        desktop.exec(["pkill", "-KILL", "-f", "deskbox_guest.agent"])
    eventually(lambda: process not in processes(desktop))


@contextmanager
def layouts(desktop: Desktop, names: str) -> Iterator[None]:
    desktop.exec(["setxkbmap", names])
    yield
    desktop.exec(["setxkbmap", "us"])


def test_another_layout_and_locks_do_not_matter(desktop: Desktop) -> None:
    """It read the keyboard map when it started; nothing is taken from there."""
    texts = {
        "us": "Zoo (yes) [no] ~",
        "de": "Zoo (yes) äÖüß #",
        "fr": "Zoo (yes) aqwz éèç 1.",
        "us,de": "Zoo [yes]",
    }
    with editor(desktop) as app:
        for names, text in texts.items():
            with layouts(desktop, names):
                for lock in ("", "key Caps_Lock"):
                    if names == "us,de":
                        desktop.exec(["python3", "-c", LOCK_THE_SECOND_LAYOUT])
                    app.clear()
                    desktop.step(lock)
                    desktop.type_text(text)
                    desktop.step(lock)
                    assert app.got(text) == text
