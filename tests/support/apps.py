"""Applications in the guest that take text, each with its own toolkit, and what they got."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.timing import patient

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled
from deskbox_guest.protocol import Window

WITNESS = Path(__file__).parent.parent / "witness"


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
        deadline = time.monotonic() + patient(timeout)
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
    """xterm: knows no ping. A program in it logs each byte that a key makes."""
    desktop.write_file("witness_tty.py", (WITNESS / "witness_tty.py").read_bytes())
    desktop.write_file("tty.log", b"")
    argv = ["xterm", "-geometry", "70x14+640+420", "-e", "python3", "witness_tty.py", "tty.log"]
    with running(desktop, argv, "XTerm") as window:

        def clear() -> None:
            _empty(desktop, "tty.log")

        def read() -> str:
            return desktop.read_file("tty.log").decode(errors="replace").replace("\r", "\n")

        yield App(desktop, window, clear, read)


@contextmanager
def tk(desktop: Desktop) -> Iterator[App]:
    """Tk: knows no ping either, and hands the focus about inside its window."""
    desktop.write_file("witness_tk.py", (WITNESS / "witness_tk.py").read_bytes())
    with running(desktop, ["python3", "witness_tk.py", "tk.log", "500x300+740+420"], "Tk") as window:

        def clear() -> None:
            desktop.step("key ctrl+slash Delete")
            _empty(desktop, "tk.log")

        yield App(desktop, window, clear, lambda: _last_content(desktop.read_file("tk.log")))


@contextmanager
def qt(desktop: Desktop) -> Iterator[App]:
    """Qt 5, on a desktop that has its package."""
    desktop.write_file("witness_qt.py", (WITNESS / "witness_qt.py").read_bytes())
    argv = ["python3", "witness_qt.py", "qt.log", "500x300+740+420"]
    with running(desktop, argv, "witness_qt.py") as window:

        def clear() -> None:
            desktop.step("key ctrl+a Delete")
            _empty(desktop, "qt.log")

        yield App(desktop, window, clear, lambda: _last_content(desktop.read_file("qt.log")))


def _empty(desktop: Desktop, log: str) -> None:
    """What is logged from now on is all that a witness has to tell."""
    assert desktop.exec(["truncate", "--size=0", log]).exit_code == 0


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
