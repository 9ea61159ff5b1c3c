"""Clicks and shortcuts move the keyboard focus a moment later: keys wait until it is where it will be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from Xlib import Xutil

from deskbox_guest.x11.barrier import Barrier
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.keymap import may_move_focus

# How long a click may take to move the focus to a window that takes it. Only a click that did something else,
# such as to close another window's menu, costs as much.
CLICK_S = 1.0

# How long the keys after a shortcut wait for it to have done its work: Firefox shows `ctrl+l` to the page's
# process before it moves the focus to the address bar, and the text that follows would go to the page.
SHORTCUT_S = 0.25


class FocusMoves:
    """Remembers what may be moving the focus, across scripts, and waits for that to end."""

    def __init__(self, link: Link, barrier: Barrier) -> None:
        self._link = link
        self._barrier = barrier
        self._clicked = False
        self._shortcut = False

    def note_click(self) -> None:
        self._clicked = True

    def note_chord(self, chord: Sequence[int], with_modifiers: bool) -> None:
        """`with_modifiers`: keys such as Ctrl were held down as well."""
        if with_modifiers or any(may_move_focus(keysym) for keysym in chord):
            self._shortcut = True

    def await_all(self, cancelled: Callable[[], bool]) -> None:
        """Before keys are pressed: wait until clicks and shortcuts have moved the focus."""
        self.await_click(cancelled)
        if not self._shortcut:
            return
        self._shortcut = False
        focus = self._barrier.focus()
        if focus is not None:
            self._barrier.wait_family(focus, SHORTCUT_S, cancelled)

    def await_click(self, cancelled: Callable[[], bool]) -> None:
        """Wait until the window manager has handled a click, and the clicked window has the focus if it takes
        it: keys pressed before would go to the window that had it, or overtake the click."""
        if not self._clicked:
            return
        self._clicked = False
        self._barrier.wait_window_manager(CLICK_S, cancelled)
        under = self._window_under_pointer()
        if under and self._takes_focus(under):
            root = self._link.root
            self._link.pump_until(
                lambda: under in self._link.cardinals(root, "_NET_ACTIVE_WINDOW"), CLICK_S, cancelled, 0.005
            )

    def _window_under_pointer(self) -> int:
        """The application window under the pointer, 0 if there is none that the window manager lists."""
        managed = set(self._link.cardinals(self._link.root, "_NET_CLIENT_LIST"))
        window = self._link.root
        while True:
            child = window.query_pointer().child
            if isinstance(child, int):
                return 0
            if child.id in managed:
                return int(child.id)
            window = child

    def _takes_focus(self, window_id: int) -> bool:
        window = self._link.window(window_id)
        if self._link.atom("WM_TAKE_FOCUS") in self._link.cardinals(window, "WM_PROTOCOLS"):
            return True
        hints = window.get_wm_hints()
        return hints is None or not hints.flags & Xutil.InputHint or bool(hints.input)
