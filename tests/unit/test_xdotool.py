"""The injector that drives xdotool, against stand-ins for the program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from Xlib import X

from deskbox_guest.protocol import Fault
from deskbox_guest.x11.inject import InputEvent
from deskbox_guest.x11.xdotool import Xdotool

ANSWER = r"Window 66\n  Position: 0,0 (screen: 0)\n  Geometry: 1280x800\n"
WELL = f"""tee -a "$LOG" | while read -r line; do
  case "$line" in getwindowgeometry*) printf '{ANSWER}' ;; esac
done"""


@pytest.fixture
def xdotool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Xdotool]]:
    """With a shell script in the place of the program."""
    made: list[Xdotool] = []

    def make(script: str) -> Xdotool:
        program = tmp_path / "bin" / "xdotool"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nLOG={tmp_path}/log\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        link: Any = SimpleNamespace(
            sync=lambda: None,
            display=SimpleNamespace(get_display_name=lambda: ":0"),
            root=SimpleNamespace(id=66),
        )
        made.append(Xdotool(link))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_each_event_is_a_line_and_the_end_is_a_question(
    xdotool: Callable[[str], Xdotool], tmp_path: Path
) -> None:
    injector = xdotool(WELL)
    injector.inject([InputEvent(X.MotionNotify, x=3, y=4)])
    injector.inject([InputEvent(X.ButtonPress, 9), InputEvent(X.ButtonRelease, 9, after=0.002)])
    injector.inject([InputEvent(X.KeyPress, 9), InputEvent(X.KeyRelease, 9)])
    assert (tmp_path / "log").read_text().splitlines() == [
        *("mousemove 3 4", "getwindowgeometry 66"),
        *("mousedown 9", "sleep 0.002", "mouseup 9", "getwindowgeometry 66"),
        *("keydown --delay 0 009", "keyup --delay 0 009", "getwindowgeometry 66"),
    ]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"read -r line; echo complaint >&2; printf '{ANSWER}'; cat > /dev/null", "it said 'complaint'"),
        ("read -r line; echo last words >&2", "it died, and said 'last words'"),
        ("read -r line", "it died$"),
    ],
)
def test_what_goes_wrong_is_said(xdotool: Callable[[str], Xdotool], script: str, why: str) -> None:
    injector = xdotool(script)
    with pytest.raises(Fault, match=why) as caught:
        injector.inject([InputEvent(X.ButtonPress, 1)])
    assert caught.value.kind == "interrupted"
    xdotool(WELL)
    injector.inject([InputEvent(X.ButtonPress, 1)])


def test_no_such_program_is_refused_and_leaves_nothing_open(
    xdotool: Callable[[str], Xdotool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    injector = xdotool(WELL)
    monkeypatch.setenv("PATH", str(tmp_path))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(Fault, match="xdotool can't be started") as caught:
        injector.inject([InputEvent(X.ButtonPress, 1)])
    assert caught.value.kind == "refused"
    assert os.listdir("/proc/self/fd") == before
