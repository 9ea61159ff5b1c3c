"""Applications in the guest that take text, each with its own toolkit, and what they got."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled
from deskbox_guest.protocol import Window

WITNESS = Path(__file__).parent.parent / "witness" / "witness_tk.py"


@dataclass
class App:
    """A window that takes text; `read` returns all that it got since the last `clear`."""

    desktop: Desktop
    window: Window
    clear: Callable[[], None]
    read: Callable[[], str]

    @property
    def click(self) -> str:
        """The script that clicks into it."""
        x, y = self.window.x + self.window.width // 2, self.window.y + self.window.height // 4
        return f"mousemove {x} {y} click 1"

    def got(self, expected: str, timeout: float = 5.0) -> str:
        """What it got, once that is `expected` or the time is over."""
        deadline = time.monotonic() + timeout
        while (text := self.read()) != expected and time.monotonic() < deadline:
            time.sleep(0.02)
        return text


@contextmanager
def running(desktop: Desktop, argv: Sequence[str], app: str) -> Iterator[Window]:
    """A program in the guest, as long as the context is open; its window once it has the focus."""
    ended = threading.Event()

    def run() -> None:
        with suppress(Cancelled):
            desktop.exec(argv, timeout=3600, cancelled=ended.is_set)

    others = {window.id for window in desktop.windows()}
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield _new_active(desktop, app, others)
    finally:
        ended.set()
        thread.join()
        _all_gone(desktop, others)


@contextmanager
def editor(desktop: Desktop) -> Iterator[App]:
    """GTK 3. Its text is read from the file that it saves."""
    desktop.write_file("typed.txt", b"")
    with running(desktop, ["l3afpad", "typed.txt"], "L3afpad") as window:

        def clear() -> None:
            desktop.step("key ctrl+a Delete")

        def read() -> str:
            desktop.step("key ctrl+s")
            return desktop.read_file("typed.txt").decode()

        yield App(desktop, window, clear, read)


@contextmanager
def terminal(desktop: Desktop) -> Iterator[App]:
    """xterm: knows no ping. `cat` in it gets each line at its end."""
    argv = ["xterm", "-geometry", "70x14+640+420", "-e", "sh", "-c", "cat > typed.log"]
    with running(desktop, argv, "XTerm") as window:
        start = 0

        def clear() -> None:
            nonlocal start
            start = len(desktop.read_file("typed.log"))

        def read() -> str:
            return desktop.read_file("typed.log")[start:].decode(errors="replace")

        yield App(desktop, window, clear, read)


@contextmanager
def tk(desktop: Desktop) -> Iterator[App]:
    """Tk: knows no ping either, and hands the focus about inside its window."""
    desktop.write_file("witness_tk.py", WITNESS.read_bytes())
    with running(desktop, ["python3", "witness_tk.py", "tk.log", "500x300+740+420"], "Tk") as window:

        def clear() -> None:
            desktop.step("key ctrl+slash Delete")

        yield App(desktop, window, clear, lambda: _last_content(desktop.read_file("tk.log")))


def _last_content(log: bytes) -> str:
    content = ""
    for line in log.decode().split("\n")[:-1]:
        entry = json.loads(line)
        if entry["type"] == "content":
            content = entry["text"]
    return content


def _new_active(desktop: Desktop, app: str, others: set[int]) -> Window:
    deadline = time.monotonic() + 20
    while True:
        for window in desktop.windows():
            if window.app == app and window.active and window.id not in others:
                return window
        assert time.monotonic() < deadline, f"no new {app} in {desktop.windows()}"
        time.sleep(0.05)


def _all_gone(desktop: Desktop, others: set[int]) -> None:
    deadline = time.monotonic() + 10
    while any(window.id not in others for window in desktop.windows()):
        assert time.monotonic() < deadline, desktop.windows()
        time.sleep(0.05)
