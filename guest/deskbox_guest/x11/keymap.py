"""Keys as X names them, and which of them the current layout has: pure, no X server needed.

A *keysym* is what a key means (`a`, `Return`, `Ł`), a *keycode* the number of a physical key, and a layout
says which keysyms a keycode gives without Shift and with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module

SHIFT_L = 0xFFE1
RETURN = 0xFF0D
TAB = 0xFF09
_KEYPAD = range(0xFF80, 0xFFBE)
_FUNCTION_KEYS = range(0xFFBE, 0xFFE1)
_COMMAND_MODIFIERS = (0xFFE3, 0xFFE4, *range(0xFFE7, 0xFFEF))  # Control, Meta, Alt, Super, Hyper
_DIALOG_KEYS = ("Return", "KP_Enter", "Tab", "ISO_Left_Tab", "Escape", "Menu")

_KEYSYM_GROUPS = (
    *("miscellany", "latin1", "latin2", "latin3", "latin4", "greek", "cyrillic", "arabic", "hebrew", "thai"),
    *("katakana", "korean", "technical", "special", "publishing", "apl", "xkb", "xf86"),
)

# The short names that xdotool knows besides X's own; case does not matter in them.
ALIASES = {
    "alt": "Alt_L",
    "control": "Control_L",
    "ctrl": "Control_L",
    "enter": "Return",
    "meta": "Meta_L",
    "return": "Return",
    "shift": "Shift_L",
    "super": "Super_L",
}

_UNICODE_NAME = re.compile(r"[Uu]\+?([0-9A-Fa-f]{4,6})")


@cache
def _names() -> dict[str, int]:
    names = {"EuroSign": 0x20AC}  # the one common name that python-xlib lacks
    for group in _KEYSYM_GROUPS:
        module = import_module(f"Xlib.keysymdef.{group}")
        for name, value in vars(module).items():
            if name.startswith("XK_"):
                # The XFree86 vendor keys are spelled XF86_Name here and XF86Name everywhere else.
                names.setdefault(name[3:].replace("XF86_", "XF86"), value)
    return names


@cache
def _names_by_keysym() -> dict[int, str]:
    by_keysym: dict[int, str] = {}
    for name, keysym in _names().items():
        by_keysym.setdefault(keysym, name)
    return by_keysym


def keysym_of(name: str) -> int | None:
    """The keysym of a key name: X's own, an alias, a single character, or a code point such as U20AC."""
    named = _names().get(ALIASES.get(name.lower(), name))
    if named:
        return named
    if len(name) == 1 and name.isprintable():
        return keysym_of_character(name)
    match = _UNICODE_NAME.fullmatch(name)
    if match:
        code = int(match[1], 16)
        if 0x20 <= code <= 0x10FFFF and chr(code).isprintable():
            return keysym_of_character(chr(code))
    return None


def name_of(keysym: int) -> str:
    """The name by which a script can press this keysym."""
    if keysym & 0xFF000000 == 0x01000000:
        return f"U{keysym & 0xFFFFFF:04X}"
    return _names_by_keysym().get(keysym, f"0x{keysym:x}")


def may_move_focus(keysym: int) -> bool:
    """Whether pressing it may hand the keyboard to another window or field: a shortcut, Tab, Return, F6."""
    named = any(keysym == _names()[name] for name in _DIALOG_KEYS)
    return named or keysym in _FUNCTION_KEYS or keysym in _COMMAND_MODIFIERS


def keysym_of_character(character: str) -> int:
    """Latin-1 characters are their own keysyms; every other one has 0x01000000 + its code point."""
    if character in "\n\r":
        return RETURN
    if character == "\t":
        return TAB
    code = ord(character)
    return code if code < 0x100 else 0x01000000 | code


@dataclass(frozen=True)
class Stroke:
    """A key to press, and whether Shift must be down for it to give what it should."""

    keycode: int
    shift: bool


def _depends_on_num_lock(levels: Sequence[int]) -> bool:
    """Whether a keycode is a key of the keypad that is a digit with NumLock and an arrow without."""
    return len(set(levels) - {0}) > 1 and any(keysym in _KEYPAD for keysym in levels)


class Layout:
    """The keyboard as the X server describes it at one moment."""

    def __init__(
        self,
        rows: Sequence[Sequence[int]],
        first_keycode: int,
        modifiers: Sequence[Sequence[int]],
        group: int = 0,
    ) -> None:
        """`rows[i]` holds the keysyms of keycode `first_keycode + i`; `modifiers` the keycodes of the eight
        modifiers Shift, Lock, Control, Mod1 to Mod5; `group` is the active layout's number, from 0."""
        self.rows = {first_keycode + i: tuple(row) for i, row in enumerate(rows)}
        self.modifier_keycodes = frozenset(code for row in modifiers for code in row if code)
        self._strokes: dict[int, Stroke] = {}
        # The core protocol puts the first layout into columns 0 and 1, the second into 2 and 3. Where it puts
        # more cannot be told, so with a third layout active everything is typed on spare keys.
        if group < 2:
            self._find_strokes(2 * group)
        self.shift = next((code for code in modifiers[0] if code), 0)
        self.num_lock_mask = sum(
            1 << index
            for index, row in enumerate(modifiers)
            if any(_names()["Num_Lock"] in self.rows.get(code, ()) for code in row if code)
        )

    def _find_strokes(self, column: int) -> None:
        for level in (0, 1):
            for keycode, row in self.rows.items():
                keysym = row[column + level] if column + level < len(row) else 0
                if _depends_on_num_lock(row[column : column + 2]):
                    continue
                # A modifier acts on whatever level: Meta_L often stands beside Alt_L on level 1.
                shift = level == 1 and keycode not in self.modifier_keycodes
                if keysym:
                    self._strokes.setdefault(keysym, Stroke(keycode, shift))

    def stroke(self, keysym: int) -> Stroke | None:
        """How to press a keysym; None if this layout has it nowhere, or only behind AltGr."""
        return self._strokes.get(keysym)

    def keysym(self, keycode: int) -> int:
        """What a keycode means without Shift; 0 if nothing."""
        row = self.rows.get(keycode, ())
        return next((keysym for keysym in row if keysym), 0)

    def spare_keycodes(self) -> list[int]:
        """Keycodes that can carry other keysyms for a while: the empty ones first, then multimedia keys."""
        empty = [code for code, row in self.rows.items() if not any(row)]
        multimedia = [
            code
            for code, row in self.rows.items()
            if any(row) and all(keysym == 0 or keysym >> 16 == 0x1008 for keysym in row)
        ]
        return [code for code in empty + multimedia if code not in self.modifier_keycodes]
