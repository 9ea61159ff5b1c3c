"""The X server's keyboard: its layout, the keycodes that we borrow for other characters, locks, key repeat.

Whatever is changed is written down in a property of the root window first. So if this process dies, the next
one can put everything back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from Xlib import Xatom

from deskbox_guest.x11.display import Link
from deskbox_guest.x11.keymap import Layout
from deskbox_guest.x11.xkb import ALTERING_CONTROLS, Xkb

_NOTE = "_DESKBOX_KEYBOARD"


class Keyboard:
    def __init__(self, link: Link) -> None:
        """Undoes what a predecessor that died left changed."""
        self._link = link
        self._xkb = Xkb(link.display)
        self._original: dict[int, tuple[int, ...]] = {}  # rows of the keycodes that are borrowed now
        self._locks: int | None = None  # what to lock again; None: nothing was unlocked
        self._controls = 0  # what to switch on again
        self._undo_predecessor()

    def layout(self, group: int | None = None) -> Layout:
        """The layout number `group` (None: the active one) as it is without our changes. Read anew each time
        (0.4 ms): anyone may change it, and a client that has asked for the XKB extension gets no notice."""
        display = self._link.display
        info = display.display.info
        first = info.min_keycode
        rows = [tuple(row) for row in display.get_keyboard_mapping(first, info.max_keycode - first + 1)]
        for keycode, row in self._original.items():
            rows[keycode - first] = row
        modifiers = [list(row) for row in display.get_modifier_mapping()]
        return Layout(rows, first, modifiers, self._xkb.state().group if group is None else group)

    def held_modifiers(self) -> int:
        """The modifier bits that keys hold down now; locks do not count."""
        return self._xkb.state().held

    def borrow(self, layout: Layout, keysyms: Mapping[int, int]) -> None:
        """Let each keycode of `keysyms` give that keysym on every level, until `restore`."""
        for keycode in keysyms:
            self._original.setdefault(keycode, layout.rows[keycode])
        self._write_note()
        for first, run in _runs(keysyms):
            self._link.display.change_keyboard_mapping(first, [(keysym, keysym) for keysym in run])

    def steady(self, layout: Layout) -> None:
        """Let each key give what the layout says and once, until `restore`: switch off latches, all locks
        except NumLock, which no character depends on, and key repeat with the other controls of its kind.

        A key that is pressed and released at once repeats all the same if the server is kept from running
        in between for as long as the delay before the first repetition.
        """
        state = self._xkb.state()
        affect = 0xFF & ~layout.num_lock_mask
        locked = bool(state.locked & affect or state.latched)
        if locked:
            self._locks = state.locked
        self._controls |= self._xkb.controls() & ALTERING_CONTROLS
        self._write_note()
        if locked:
            self._xkb.set_locks(0, affect)
        if self._controls:
            self._xkb.set_controls(0, self._controls)

    def restore(self, keep: Collection[int] = ()) -> None:
        """Put back locks and controls, and the borrowed keycodes except those in `keep`."""
        for keycode in [code for code in self._original if code not in keep]:
            self._link.display.change_keyboard_mapping(keycode, [self._original.pop(keycode)])
        if self._locks is not None:
            self._xkb.set_locks(self._locks, 0xFF)
            self._locks = None
        if self._controls:
            self._xkb.set_controls(self._controls, self._controls)
            self._controls = 0
        self._write_note()
        self._link.sync()

    def _write_note(self) -> None:
        if self._original or self._locks is not None or self._controls:
            changed = {"rows": list(self._original.items()), "locks": self._locks, "controls": self._controls}
            note = json.dumps(changed).encode()
            self._link.root.change_property(self._link.atom(_NOTE), Xatom.STRING, 8, note)
        else:
            self._link.root.delete_property(self._link.atom(_NOTE))

    def _undo_predecessor(self) -> None:
        found = self._link.root.get_full_property(self._link.atom(_NOTE), Xatom.STRING)
        if found is not None:
            note = json.loads(bytes(found.value))
            self._original = {keycode: tuple(row) for keycode, row in note["rows"]}
            self._locks = note["locks"]
            self._controls = note["controls"]
            self.restore()


def _runs(keysyms: Mapping[int, int]) -> list[tuple[int, list[int]]]:
    """Neighbouring keycodes together: one request each, and one notice to every client."""
    runs: list[tuple[int, list[int]]] = []
    for keycode in sorted(keysyms):
        if runs and runs[-1][0] + len(runs[-1][1]) == keycode:
            runs[-1][1].append(keysyms[keycode])
        else:
            runs.append((keycode, [keysyms[keycode]]))
    return runs
