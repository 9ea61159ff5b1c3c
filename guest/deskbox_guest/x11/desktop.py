"""X11Desktop: the screen, the pointer and the keyboard of the guest as one object."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from Xlib.error import ConnectionClosedError, XError

from deskbox_guest.protocol import Fault, Held, Settle, Step, StepResult, Window
from deskbox_guest.x11 import held as held_state
from deskbox_guest.x11 import windows as window_list
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.inject import Injector, XTest
from deskbox_guest.x11.input import Engine
from deskbox_guest.x11.script import parse
from deskbox_guest.x11.xdotool import Xdotool

if TYPE_CHECKING:  # see `sight`
    from deskbox_guest.x11.activity import Work
    from deskbox_guest.x11.sight import Sight

MAX_SETTLE_S = 600.0

_INJECTORS: dict[str, Callable[[Link], Injector]] = {"xtest": XTest, "xdotool": Xdotool}


class X11Desktop:
    """Safe for threads. One script runs at a time; pictures and questions are answered meanwhile.

    Every method raises Fault "unavailable" when the X server has gone.
    """

    def __init__(self, display: str | None = None, engine: str = "xtest") -> None:
        """`display` None: `$DISPLAY`. `engine`: "xtest" or "xdotool".

        Undoes changes to the keyboard that a predecessor left behind.
        """
        self._display = display
        self._script_lock = threading.RLock()
        self._facts_lock = threading.Lock()
        self._facts = Link(display)
        self._input_link = Link(display)
        self._engine = Engine(self._input_link, _INJECTORS[engine](self._input_link))
        self._sight_lock = threading.Lock()
        self._sight_if_any: Sight | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the screen in pixels."""
        return self._facts.size

    def step(self, step: Step, cancelled: Callable[[], bool]) -> tuple[StepResult, bytes]:
        """Run the script, wait for a quiet screen, take a picture: whichever of them is asked for.

        Fault "refused" means that nothing has happened, "interrupted" that some of it may have, and that no
        key and no button is down any more; "too_large" that all has been done except for the picture.
        """
        with _server_trouble():
            self._sight().check(step.frame)
            if step.settle is not None:
                _check_settle(step.settle)
            if not step.script:
                return self._look(step, "", cancelled)
            with self._script_lock:
                commands = parse(step.script, self.size, held_state.pointer(self._input_link))
                with self.acting():
                    output = self._engine.run(commands, cancelled)
                return self._look(step, output, cancelled)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Around whatever may make the screen change: the next wait for a quiet screen is about this."""
        observer = self._sight().observer
        observer.action_begins()
        try:
            yield
        finally:
            observer.action_ended()

    def held(self) -> Held:
        """What the X server believes to be down, whoever pressed it."""
        with _server_trouble(), self._facts_lock:
            return held_state.held(self._facts)

    def release_all(self) -> Held:
        """Release every key and button, undo every change to the keyboard; return what was down."""
        with _server_trouble(), self._script_lock:
            return self._engine.release_all()

    def windows(self) -> list[Window]:
        """The application windows that are visible, top of the stack first."""
        with _server_trouble(), self._facts_lock:
            return window_list.windows(self._facts)

    def painted(self) -> bool:
        """Whether an application window is there and the screen is more than one colour."""
        with _server_trouble():
            if not self.windows():
                return False
            _, image = self._sight().screen.pixels()
            return any(band.getextrema()[0] != band.getextrema()[1] for band in image.split())

    def colour(self, x: int, y: int) -> object:
        """Of one pixel of the screen, without the pointer."""
        with _server_trouble():
            return self._sight().screen.pixels()[1].getpixel((x, y))

    def awaits_page(self) -> bool:
        """Whether a browser's window is there whose page has not told its title yet."""
        return any(
            w.app == window_list.BROWSER and w.title == window_list.UNTITLED_BROWSER for w in self.windows()
        )

    def close(self) -> None:
        if self._sight_if_any is not None:
            self._sight_if_any.close()
        self._engine.close()
        for link in (self._input_link, self._facts):
            link.close()

    def _look(self, step: Step, output: str, cancelled: Callable[[], bool]) -> tuple[StepResult, bytes]:
        started = time.monotonic()
        sight = self._sight()
        settled = (
            sight.observer.wait_for_quiet(step.settle, self._watch_application(), cancelled)
            if step.settle
            else "none"
        )
        settle_ms = (time.monotonic() - started) * 1000 if step.settle else 0.0
        picture = sight.picture(step.frame)
        with self._facts_lock:
            pointer = held_state.pointer(self._facts)
        return StepResult(settled, settle_ms, output, *picture.size, pointer), picture.data

    def _sight(self) -> Sight:
        with self._sight_lock:
            if self._sight_if_any is None:
                from deskbox_guest.x11.sight import Sight

                self._sight_if_any = Sight(self._display)
            return self._sight_if_any

    def _watch_application(self) -> Callable[[], Work]:
        """What the application does with what it got.

        A script that another thread runs has the engine for itself: then only the screen tells.
        """
        with self._engine_if_free() as engine:
            watched = engine.watch() if engine else None

        def work() -> Work:
            with self._engine_if_free() as engine:
                return watched() if watched is not None and engine is not None else "rests"

        return work

    @contextmanager
    def _engine_if_free(self) -> Iterator[Engine | None]:
        if not self._script_lock.acquire(blocking=False):
            yield None
            return
        try:
            yield self._engine
        finally:
            self._script_lock.release()


def _check_settle(settle: Settle) -> None:
    if not 0 <= settle.quiet <= settle.cap <= MAX_SETTLE_S:
        raise Fault(
            "refused",
            f"a wait for {settle.quiet} s of quiet within {settle.cap} s is not possible: the cap must be at "
            f"least the quiet window and at most {MAX_SETTLE_S:g} s",
        )


@contextmanager
def _server_trouble() -> Iterator[None]:
    """Say in our words that the X server is gone or refuses a request."""
    try:
        yield
    except ConnectionClosedError as error:
        raise Fault("unavailable", "the X server has closed the connection: the desktop is gone") from error
    except (XError, OSError) as error:
        raise Fault("unavailable", f"the X server did not do what it was asked: {error}") from error
