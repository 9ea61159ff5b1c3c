"""Clicks and shortcuts move the keyboard focus a moment later: keys wait until it is where it will be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from Xlib import Xutil
from Xlib.error import BadWindow

from deskbox_guest.x11.barrier import Barrier
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.keymap import may_move_focus

# How long a click may take to move the focus to a window that takes it. Only a click that did something else,
# such as to close another window's menu, costs as much.
CLICK_S = 1.0

# Keys wait until the application has been idle for so long, but in all not longer than `BUSY_S`.
# After a shortcut: Firefox shows `ctrl+l` to the page's process before it moves the focus to the address bar,
# and the text that follows would go to the page. Longer idle times do not exist in an animated page.
IDLE_AFTER_SHORTCUT_S = 0.005
# When another application got the focus: l3afpad first looks what is on the clipboard, and loses keys then.
IDLE_AFTER_SWITCH_S = 0.02
BUSY_S = 0.25


class FocusMoves:
    """Remembers what may be moving the focus, across scripts, and waits for that to end."""

    def __init__(self, link: Link, barrier: Barrier) -> None:
        self._link = link
        self._barrier = barrier
        self._clicked = False
        self._typed_into: list[int] = []  # the active window when keys were pressed last
        self._idle_time = 0.0  # that the application must have had before keys

    def note_click(self) -> None:
        self._clicked = True

    def note_chord(self, chord: Sequence[int], with_modifiers: bool) -> None:
        """`with_modifiers`: keys such as Ctrl were held down as well."""
        if with_modifiers or any(may_move_focus(keysym) for keysym in chord):
            self._idle_time = max(self._idle_time, IDLE_AFTER_SHORTCUT_S)

    def await_all(self, cancelled: Callable[[], bool]) -> None:
        """Before keys are pressed: wait until clicks and shortcuts have moved the focus."""
        self.await_click(cancelled)
        active = self._active()
        if active != self._typed_into:
            self._typed_into = active
            self._idle_time = IDLE_AFTER_SWITCH_S
        if not self._idle_time:
            return
        idle_time, self._idle_time = self._idle_time, 0.0
        focus = self._barrier.focus()
        if focus is not None:
            self._barrier.wait_family(focus, idle_time, BUSY_S, cancelled)

    def await_click(self, cancelled: Callable[[], bool]) -> None:
        """Wait until the window manager has handled a click, and the clicked window has the focus if it takes
        it: keys pressed before would go to the window that had it, or overtake the click."""
        if not self._clicked:
            return
        self._clicked = False
        self._barrier.wait_window_manager(CLICK_S, cancelled)
        under = self._window_under_pointer()
        if under and self._takes_focus(under):
            self._link.pump_until(lambda: under in self._active(), CLICK_S, cancelled, 0.005)

    def _active(self) -> list[int]:
        return self._link.cardinals(self._link.root, "_NET_ACTIVE_WINDOW")

    def _window_under_pointer(self) -> int:
        """The application window under the pointer, 0 if there is none that the window manager lists."""
        managed = set(self._link.cardinals(self._link.root, "_NET_CLIENT_LIST"))
        window = self._link.root
        with suppress(BadWindow):  # the click may just have closed it
            while not isinstance(child := window.query_pointer().child, int):
                if child.id in managed:
                    return int(child.id)
                window = child
        return 0

    def _takes_focus(self, window_id: int) -> bool:
        window = self._link.window(window_id)
        if self._link.atom("WM_TAKE_FOCUS") in self._link.cardinals(window, "WM_PROTOCOLS"):
            return True
        try:
            hints = window.get_wm_hints()
        except BadWindow:
            return False
        return hints is None or not hints.flags & Xutil.InputHint or bool(hints.input)
