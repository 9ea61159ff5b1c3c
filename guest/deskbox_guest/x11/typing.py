"""Exact text by keys.

A character that the layout gives with or without Shift is that key. Every other one is put on a spare
keycode of its own, on all levels, before any key of its batch is pressed. An application looks up what a
keycode means when it handles the event, not when the key was pressed: so a keycode is given another character
only after the application has handled the batch before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deskbox_guest.protocol import Fault
from deskbox_guest.x11.barrier import Barrier, Focus
from deskbox_guest.x11.keyboard import Keyboard
from deskbox_guest.x11.keymap import Layout, Stroke, keysym_of_character

# Characters between two barriers: few enough that a cancellation is noticed in time and the count of
# delivered characters is near the truth, enough that the barrier (0.2 ms) costs nothing.
BATCH_CHARACTERS = 64

# An application that has not handled one batch by then hangs; text pressed now could get lost or garbled. In
# an emulated machine that is busy a browser takes 15 s for one.
HANG_TIMEOUT_S = 40.0

# How long a text that was stopped waits for the keys that are under way. A cancellation ends within 200 ms.
LINGER_S = 0.06

# How far behind its pace a slow text may be and still catch up: a busy machine's pauses are shorter.
MAKE_UP_S = 0.25


@dataclass(frozen=True)
class Batch:
    """First `keysyms` are put on keycodes, then `strokes` are pressed: they make `characters` of the text."""

    keysyms: dict[int, int]
    strokes: tuple[Stroke, ...]
    characters: int


def plan(
    text: str, layout: Layout, spares: Sequence[int], batch_size: int = BATCH_CHARACTERS
) -> Iterator[Batch]:
    """Cut a text into batches in each of which every keycode has one meaning.

    `spares` may be empty only if the layout has every character. A newline, alone or after a carriage return,
    becomes one Return.
    """
    on_spares: dict[int, int] = {}  # keysym → keycode, in the order of last use
    free = list(spares)
    keysyms: dict[int, int] = {}
    strokes: list[Stroke] = []
    used: set[int] = set()
    characters = 0
    for unit in _units(text):
        keysym = keysym_of_character(unit[0])
        stroke = layout.stroke(keysym)
        if stroke is None:
            keycode = on_spares.pop(keysym, None)
            if keycode is None:
                if not free and len(used) == len(spares):
                    yield Batch(keysyms, tuple(strokes), characters)
                    keysyms, strokes, used, characters = {}, [], set(), 0
                keycode = free.pop(0) if free else _least_recent(on_spares, used)
                keysyms[keycode] = keysym
            on_spares[keysym] = keycode
            used.add(keycode)
            stroke = Stroke(keycode, shift=False)
        strokes.append(stroke)
        characters += len(unit)
        if len(strokes) == batch_size:
            yield Batch(keysyms, tuple(strokes), characters)
            keysyms, strokes, used, characters = {}, [], set(), 0
    if strokes:
        yield Batch(keysyms, tuple(strokes), characters)


def _units(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        unit = "\r\n" if text.startswith("\r\n", at) else text[at]
        yield unit
        at += len(unit)


def _least_recent(on_spares: dict[int, int], used: set[int]) -> int:
    """Take back the keycode that has not been used for longest, and not in this batch."""
    keysym = next(keysym for keysym, keycode in on_spares.items() if keycode not in used)
    return on_spares.pop(keysym)


class Beat:
    """When each character of a slow text is due.

    What an application takes for a character is part of the delay, not added to it, and one that came late is
    made up for: so the average pace holds. But no more than `MAKE_UP_S` is: no burst follows a long pause.
    """

    def __init__(self, delay: float, start: float) -> None:
        self._delay = delay
        self._due = start

    def next(self, now: float) -> float:
        """The time at which the next character is due."""
        self._due = max(self._due + self._delay, now - MAKE_UP_S)
        return self._due


class Typist:
    def __init__(
        self,
        keyboard: Keyboard,
        barrier: Barrier,
        press: Callable[[Sequence[Stroke], Layout], None],
    ) -> None:
        """`press` presses and releases strokes, in order."""
        self._keyboard = keyboard
        self._barrier = barrier
        self._press = press

    def type(
        self,
        text: str,
        layout: Layout,
        spares: Sequence[int],
        delay: float,
        cancelled: Callable[[], bool],
    ) -> None:
        """Type into the focused window; `delay` seconds from one character to the next.

        Raises Fault "interrupted" with the number of characters that surely arrived, or "refused" if no
        window has the focus. The caller restores the keyboard, whatever happens.
        """
        focus = self._barrier.focus()
        if focus is None:
            why = "no window has the keyboard focus to type into: click into one first"
            raise Fault("refused", why, {"input": False})
        self._keyboard.steady(layout)
        self._barrier.follow(focus)
        try:
            self._type(focus, text, layout, spares, delay, cancelled)
        except Fault:
            self._linger()
            raise
        finally:
            self._barrier.unfollow()

    def _type(
        self,
        focus: Focus,
        text: str,
        layout: Layout,
        spares: Sequence[int],
        delay: float,
        cancelled: Callable[[], bool],
    ) -> None:
        delivered = 0
        beat = Beat(delay, time.monotonic())
        for batch in plan(text, layout, spares, 1 if delay else BATCH_CHARACTERS):
            if batch.keysyms:
                self._keyboard.borrow(layout, batch.keysyms)
                self._consume(focus, delivered, cancelled)
            self._press(batch.strokes, layout)
            self._consume(focus, delivered, cancelled)
            delivered += batch.characters
            if delay:
                now = time.monotonic()
                pause(beat.next(now) - now, cancelled)
                if cancelled():
                    raise typing_cancelled(delivered)

    def _consume(self, focus: Focus, delivered: int, cancelled: Callable[[], bool]) -> None:
        handled = self._barrier.wait(focus, HANG_TIMEOUT_S, cancelled)
        if cancelled():
            raise typing_cancelled(delivered)
        if not self._barrier.kept_focus(focus):
            raise _stopped("the window that was typed into lost the keyboard focus", delivered)
        if not handled:
            raise _stopped(
                f"the application has not handled its keys for {HANG_TIMEOUT_S:g} s: it hangs", delivered
            )

    def _linger(self) -> None:
        """Let whoever got the last keys handle them, before their keycodes mean something else again: some
        are multimedia keys, and 'back' is not what was typed."""
        focus = self._barrier.focus()
        if focus is not None:
            self._barrier.wait(focus, LINGER_S, lambda: False)


def pause(seconds: float, cancelled: Callable[[], bool]) -> None:
    """Let time pass, in slices short enough to notice a cancellation."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and not cancelled():
        time.sleep(min(left, 0.025))


def _stopped(reason: str, delivered: int) -> Fault:
    return Fault(
        "interrupted",
        f"typing stopped after {delivered} characters that surely arrived, because {reason}",
        {"characters": delivered},
    )


def typing_cancelled(delivered: int) -> Fault:
    return Fault(
        "interrupted",
        f"typing stopped after {delivered} characters that surely arrived, because the caller cancelled",
        {"characters": delivered, "cancelled": True},
    )
