"""Input events by the real `xdotool`: one long-lived process that reads a command a line.

Keys are pressed by their keycodes. By a name xdotool would look the key up in the keyboard map that it read
when it started, press Shift of its own accord, and put what the map lacks on a spare key that it gives back
before an application has looked. A keycode of three digits is never taken for the name of a key.

We know that all has been carried out when the answer to a last question is there. It is about the root
window, which never goes away: `getmouselocation` looks at windows that may vanish meanwhile, and then xdotool
ends. Only to a terminal is each line written when it is complete, so the answers come through a
pseudo-terminal, and complaints with them.

When the agent ends, however it does, xdotool finds the end of its input and ends too.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
import tty
from collections.abc import Iterator, Sequence

from Xlib import X

from deskbox_guest.protocol import EngineName, Fault
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.inject import InputEvent

# An answer takes a third of a millisecond. So long takes none but that of a process which is stopped.
ANSWER_S = 5.0

_ANSWER = re.compile(rb"Window \d+\n  Position: .*\n  Geometry: \d+x\d+\n")


class Xdotool:
    """Starts the process when it is needed, and another one when that has died."""

    name: EngineName = "xdotool"
    group: int | None = 0  # it switches to the first layout for each key, and back

    def __init__(self, link: Link) -> None:
        self._link = link
        self._process: _Process | None = None

    def inject(self, events: Sequence[InputEvent]) -> None:
        """Raises Fault "refused" if there is no xdotool, "interrupted" if it may not have done it all."""
        self._link.sync()
        if self._process is not None and self._process.has_ended():
            self.close()
        if self._process is None:
            self._process = _Process(self._link.display.get_display_name())
        try:
            self._process.carry_out([*_commands(events), f"getwindowgeometry {self._link.root.id}"])
        except BaseException:
            self.close()  # what is released now must not be pressed again
            raise

    def close(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _Process:
    def __init__(self, display: str) -> None:
        reading, self._commands = os.pipe()
        self._answers, terminal = pty.openpty()
        tty.setraw(terminal)
        environment = {"DISPLAY": display, "PATH": os.environ.get("PATH", os.defpath)}
        try:
            self._process = subprocess.Popen(
                ["xdotool", "-"], stdin=reading, stdout=terminal, stderr=terminal, env=environment
            )
        except OSError as error:
            self._close()
            raise Fault(
                "refused", f"xdotool can't be started ({error}): start the desktop with the xtest engine"
            ) from error
        finally:
            os.close(reading)
            os.close(terminal)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        os.close(self._commands)
        os.close(self._answers)

    def carry_out(self, commands: Sequence[str]) -> None:
        """The last command is the one that is answered."""
        try:
            os.write(self._commands, "".join(f"{command}\n" for command in commands).encode())
        except BrokenPipeError:
            raise _given_up("it had died") from None
        said = b""
        deadline = time.monotonic() + ANSWER_S
        while not _ANSWER.search(said):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise _given_up(f"it has not answered for {ANSWER_S:g} s")
            try:
                said += os.read(self._answers, 65536)
            except OSError:  # nobody holds the other end any more
                raise _given_up(f"it died, and said {_first_line(said)}" if said else "it died") from None
        if not _ANSWER.fullmatch(said):
            raise _given_up(f"it said {_first_line(said)}")


def _commands(events: Sequence[InputEvent]) -> Iterator[str]:
    for event in events:
        if event.after:
            yield f"sleep {event.after:.3f}"
        yield _command(event)


def _command(event: InputEvent) -> str:
    match event.type:
        case X.KeyPress:
            return f"keydown --delay 0 {event.detail:03d}"
        case X.KeyRelease:
            return f"keyup --delay 0 {event.detail:03d}"
        case X.ButtonPress:
            return f"mousedown {event.detail}"
        case X.ButtonRelease:
            return f"mouseup {event.detail}"
        case X.MotionNotify:
            return f"mousemove {event.x} {event.y}"
        case _:
            raise ValueError(f"no input event: {event}")


def _first_line(said: bytes) -> str:
    return repr(said.decode(errors="replace").splitlines()[0])


def _given_up(why: str) -> Fault:
    return Fault("interrupted", f"the script was given up while xdotool carried it out: {why}")
