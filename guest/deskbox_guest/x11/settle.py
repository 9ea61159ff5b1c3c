"""Waiting for a quiet screen.

The X server says *when* something was drawn, comparing pixels says *what* has changed, the kernel says
whether an answer is still awaited that an action asked a server for (see `requests`), and whether the
application is still at work. The wait ends when nothing has changed for a window of time and nothing is under
way. What repeats in a small place (a caret, a spinner, a clock) does not hold it open; a large endless
animation ends it early, and a cap ends it in any case.

The window is a horizon: a change that comes later than that after the last one, and for which nobody can be
seen to work, is not waited for.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deskbox_guest.protocol import Fault, Settle
from deskbox_guest.x11.activity import ENDLESS_S, LOOK_S, Activity, Places, Verdict, Work, changed
from deskbox_guest.x11.capture import Screen
from deskbox_guest.x11.requests import Requests

# The screen is also watched when it is left alone for a while after an action, so that a clock is known
# before the next wait. So many changes are enough, and an endless animation is not watched endlessly.
WATCHED_CHANGES, WATCHED_S = 12, 15.0


class Observer:
    """Looks at the screen, and remembers what moves there. Safe for threads."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._requests = Requests()
        self._lock = threading.Lock()
        self._places = Places()
        self._hums = False  # an application went on working when the last wait was over
        self._serial, self._seen = screen.pixels()
        self._looking = 0  # how many threads look again and again
        self._blind_until = time.monotonic()  # what changed before that, nobody knows when
        # The last actions: when the latest began and ended, and whether a wait has followed.
        self._began = self._ended = -math.inf
        self._waited = True
        self._acted = threading.Event()
        self._closed = False
        self._watch = threading.Thread(target=self._watch_after_actions, name="watch", daemon=True)
        self._watch.start()

    def close(self) -> None:
        self._closed = True
        self._acted.set()
        self._watch.join()
        self._requests.close()

    def action_begins(self) -> None:
        if self._waited:  # else the requests of the action before are still of interest
            self._waited = False
            self._requests.begin()
        self._began = time.monotonic()

    def action_ended(self) -> None:
        self._ended = time.monotonic()
        self._acted.set()

    def wait_for_quiet(
        self, settle: Settle, work: Callable[[], Work], cancelled: Callable[[], bool]
    ) -> Verdict:
        """Wait as `settle` says; `work` is asked every LOOK_S what the application does."""
        with self._eyes_open():
            verdict = self._wait_for_quiet(settle, work, cancelled)
        self._waited = True
        self._acted.set()
        return verdict

    def _wait_for_quiet(
        self, settle: Settle, work: Callable[[], Work], cancelled: Callable[[], bool]
    ) -> Verdict:
        now = time.monotonic()
        since = now if settle.anew else max(self._ended, self._blind_until)
        activity = Activity(settle, now, since, self._places, hums=self._hums)
        recent = now <= self._ended + settle.cap  # an action long ago explains no request of now
        asked = -math.inf
        works: Work = "rests"
        while True:
            if cancelled():
                raise Fault("interrupted", "cancelled while waiting for a quiet screen", {"cancelled": True})
            looked = time.monotonic()
            found = self._look()
            now = time.monotonic()
            if now - asked >= LOOK_S:  # its answer is about the looks before, too, so they keep their pace
                asked, works = now, work()
            news = self._requests.latest(now) if recent else -math.inf
            with self._lock:
                verdict = activity.verdict(now, news=news, work=works)
                quiet_at = activity.quiet_at(now, news)
            if verdict is not None:
                self._hums = works == "works"
                return verdict
            if found:
                time.sleep(max(0.0, looked + LOOK_S - time.monotonic()))
            else:
                due = looked + LOOK_S if works != "rests" else min(looked + LOOK_S, quiet_at)
                self._screen.wait_for_drawing(due - time.monotonic())

    @contextmanager
    def _eyes_open(self) -> Iterator[None]:
        """Within, every change is seen in time."""
        with self._lock:
            if not self._looking and self._screen.changes() != self._serial:
                self._serial, self._seen = self._screen.pixels()
                self._blind_until = time.monotonic()
            self._looking += 1
        try:
            yield
        finally:
            with self._lock:
                self._looking -= 1

    def _look(self) -> int:
        """Write down where the screen has changed since the last look; in how many places it has."""
        with self._lock:
            if self._screen.changes() == self._serial:
                return 0
            now = time.monotonic()
            before = self._seen
            self._serial, self._seen = self._screen.pixels()
            boxes = changed(before, self._seen)
            for box in boxes:
                self._places.change(box, now, now - self._began)
            return len(boxes)

    def _watch_after_actions(self) -> None:
        while True:
            self._acted.wait()
            if self._closed:
                return
            self._acted.clear()
            if not self._acted.wait(ENDLESS_S):
                with self._eyes_open():
                    self._watch_for_a_while()

    def _watch_for_a_while(self) -> None:
        until = time.monotonic() + WATCHED_S
        found = 0
        while found < WATCHED_CHANGES and not self._acted.is_set() and time.monotonic() < until:
            if self._screen.wait_for_drawing(0.25):
                found += self._look()
                time.sleep(LOOK_S)
