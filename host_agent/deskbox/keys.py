"""Key names that models emit → X keysym names. Pure, and a closed grammar.

    element   = key ("+" key)*        "CTRL+A" in one element is the same as "CTRL", "A" in two
    key       = NAME | character      names in any case, with or without "_", "-" and spaces: PAGE_UP = pageup
    character = any printable one; a letter means its key, so "A" = "a", and SHIFT makes the capital

An unknown name is an error that shows the nearest known ones: a key that is dropped or guessed would leave
the model believing that it was pressed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from deskbox.errors import InvalidInput

MAX_KEYS = 8  # in one chord; nobody has more fingers to spare

# Keysym → names, without separators. A keysym's own name counts as well.
_NAMES: dict[str, str] = {
    # Modifiers. There is no Command key on Linux; its place is that of Super. Option is Alt.
    "ctrl": "CTRL CONTROL CTL CTRLLEFT CONTROLLEFT CTRLL LEFTCTRL LEFTCONTROL",
    "Control_R": "CTRLRIGHT CONTROLRIGHT CTRLR RIGHTCTRL RIGHTCONTROL",
    "shift": "SHIFT SHIFTLEFT LEFTSHIFT",
    "Shift_R": "SHIFTRIGHT RIGHTSHIFT",
    "alt": "ALT OPTION OPT ALTLEFT OPTIONLEFT LEFTALT LEFTOPTION",
    "Alt_R": "ALTRIGHT OPTIONRIGHT RIGHTALT RIGHTOPTION",
    "ISO_Level3_Shift": "ALTGR ALTGRAPH",
    "super": (
        "SUPER CMD COMMAND META WIN WINDOWS OS SUPERLEFT CMDLEFT COMMANDLEFT METALEFT WINLEFT "
        "LEFTSUPER LEFTCMD LEFTCOMMAND LEFTMETA LEFTWIN"
    ),
    "Super_R": (
        "SUPERRIGHT CMDRIGHT COMMANDRIGHT METARIGHT WINRIGHT "
        "RIGHTSUPER RIGHTCMD RIGHTCOMMAND RIGHTMETA RIGHTWIN"
    ),
    # Editing and moving.
    "Return": "ENTER RETURN",
    "Escape": "ESC ESCAPE",
    "Tab": "TAB",
    "ISO_Left_Tab": "BACKTAB",
    "space": "SPACE SPACEBAR",
    "BackSpace": "BACKSPACE BKSP",
    "Delete": "DELETE DEL FORWARDDELETE",
    "Insert": "INSERT INS",
    "Home": "HOME",
    "End": "END",
    "Prior": "PAGEUP PGUP",
    "Next": "PAGEDOWN PGDN PGDOWN",
    "Up": "UP ARROWUP UPARROW",
    "Down": "DOWN ARROWDOWN DOWNARROW",
    "Left": "LEFT ARROWLEFT LEFTARROW",
    "Right": "RIGHT ARROWRIGHT RIGHTARROW",
    # Locks and the rest of the row above them.
    "Caps_Lock": "CAPSLOCK CAPS",
    "Num_Lock": "NUMLOCK",
    "Scroll_Lock": "SCROLLLOCK",
    "Print": "PRINTSCREEN PRINT PRTSC PRTSCN PRTSCR PRINTSCRN SNAPSHOT",
    "Pause": "PAUSE",
    "Break": "BREAK",
    "Menu": "MENU CONTEXTMENU APPS",
    "Help": "HELP",
    # Characters that have a name. `+` can be written as itself too.
    "plus": "PLUS",
    "minus": "MINUS HYPHEN DASH",
    "equal": "EQUAL EQUALS",
    "underscore": "UNDERSCORE",
    "asterisk": "ASTERISK STAR",
    "slash": "SLASH",
    "backslash": "BACKSLASH",
    "period": "PERIOD DOT",
    "comma": "COMMA",
    "colon": "COLON",
    "semicolon": "SEMICOLON",
    "apostrophe": "APOSTROPHE QUOTE SINGLEQUOTE",
    "quotedbl": "DOUBLEQUOTE",
    "grave": "GRAVE BACKTICK BACKQUOTE",
    "asciitilde": "TILDE",
    "bracketleft": "LEFTBRACKET",
    "bracketright": "RIGHTBRACKET",
    "braceleft": "LEFTBRACE",
    "braceright": "RIGHTBRACE",
    "parenleft": "LEFTPAREN",
    "parenright": "RIGHTPAREN",
    "exclam": "EXCLAMATION",
    "at": "",
    "numbersign": "HASH POUND",
    "dollar": "",
    "percent": "",
    "asciicircum": "CARET",
    "ampersand": "",
    "bar": "PIPE",
    "less": "LESSTHAN",
    "greater": "GREATERTHAN",
    "question": "QUESTIONMARK",
    # Keypad.
    **{f"KP_{digit}": f"NUMPAD{digit} NUM{digit}" for digit in range(10)},
    "KP_Add": "NUMPADADD NUMPADPLUS ADD",
    "KP_Subtract": "NUMPADSUBTRACT NUMPADMINUS SUBTRACT",
    "KP_Multiply": "NUMPADMULTIPLY MULTIPLY",
    "KP_Divide": "NUMPADDIVIDE DIVIDE",
    "KP_Decimal": "NUMPADDECIMAL DECIMAL",
    "KP_Separator": "NUMPADSEPARATOR NUMPADCOMMA",
    "KP_Equal": "NUMPADEQUAL",
    "KP_Enter": "NUMPADENTER",
    **{f"KP_{name}": f"NUMPAD{name.upper()}" for name in ("Home", "End", "Up", "Down", "Left", "Right")},
    "KP_Prior": "NUMPADPAGEUP KPPAGEUP",
    "KP_Next": "NUMPADPAGEDOWN KPPAGEDOWN",
    "KP_Begin": "NUMPADBEGIN",
    "KP_Insert": "NUMPADINSERT",
    "KP_Delete": "NUMPADDELETE",
    **{f"F{number}": "" for number in range(1, 25)},
}

# Keysyms that X has under a second name.
_ALIASES = {
    "Control_L": "ctrl",
    "Shift_L": "shift",
    "Alt_L": "alt",
    "Super_L": "super",
    "Meta_L": "super",
    "Meta_R": "Super_R",
    "Page_Up": "Prior",
    "Page_Down": "Next",
    "Sys_Req": "Print",
}

_CHARACTERS = {
    " ": "space",
    "\n": "Return",
    "\t": "Tab",
    "!": "exclam",
    '"': "quotedbl",
    "#": "numbersign",
    "$": "dollar",
    "%": "percent",
    "&": "ampersand",
    "'": "apostrophe",
    "(": "parenleft",
    ")": "parenright",
    "*": "asterisk",
    "+": "plus",
    ",": "comma",
    "-": "minus",
    ".": "period",
    "/": "slash",
    ":": "colon",
    ";": "semicolon",
    "<": "less",
    "=": "equal",
    ">": "greater",
    "?": "question",
    "@": "at",
    "[": "bracketleft",
    "\\": "backslash",
    "]": "bracketright",
    "^": "asciicircum",
    "_": "underscore",
    "`": "grave",
    "{": "braceleft",
    "|": "bar",
    "}": "braceright",
    "~": "asciitilde",
}

_SEPARATORS = re.compile(r"[\s_-]+")


def _fold(name: str) -> str:
    return _SEPARATORS.sub("", name).upper()


_KEYSYMS: dict[str, str] = {
    _fold(name): keysym for keysym, names in _NAMES.items() for name in (keysym, *names.split())
} | {_fold(name): keysym for name, keysym in _ALIASES.items()}

NAMES: tuple[str, ...] = tuple(sorted(_KEYSYMS))  # every known name, folded: upper case, no separators
_ELEMENT_PART = re.compile(r"(\+|[^+]+)(\+|$)")


def keysym(name: str) -> str:
    """The X keysym name of one key, such as `Return`, `ctrl`, `plus`, `a` or `U20AC`.

    Raises InvalidInput for a name that is not known.
    """
    if not isinstance(name, str):
        raise InvalidInput(f"a key is named by a string such as 'CTRL' or 'a', not {name!r}")
    if len(name) == 1:
        return _character(name)
    found = _KEYSYMS.get(_fold(name))
    if found is None:
        raise InvalidInput(f"unknown key {name!r}; {_hint(name)}", key=name)
    return found


def chord(keys: Sequence[str]) -> tuple[str, ...]:
    """The keysym names of a combination, in the order they go down.

    `keys` is a list of elements of the grammar above: ["CTRL", "SHIFT", "T"] or ["CTRL+SHIFT+T"].
    Raises InvalidInput if it is empty, too long, names a key twice, holds an unknown one, or is a string.
    """
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Sequence):
        raise InvalidInput(f"keys must be a list of key names such as ['CTRL', 'A'], not {keys!r}")
    keysyms = tuple(keysym(name) for element in keys for name in _split(element))
    if not keysyms:
        raise InvalidInput("keys is empty; name at least one key, such as ['ENTER']")
    if len(keysyms) > MAX_KEYS:
        raise InvalidInput(
            f"{len(keysyms)} keys are too many for one combination, the limit is {MAX_KEYS}; to enter text, "
            "use the type action"
        )
    for index, name in enumerate(keysyms):
        if name in keysyms[:index]:
            raise InvalidInput(
                f"the key {name!r} occurs twice in {list(keys)!r}; the keys of one combination are all down "
                "at once: to press a key twice, use two actions"
            )
    return keysyms


def _split(element: str) -> list[str]:
    """The keys of one element: names between plus signs, where a name may be the plus sign itself."""
    if not isinstance(element, str) or len(element) < 2:
        return [element]
    names: list[str] = []
    at, joined = 0, True
    while joined and (part := _ELEMENT_PART.match(element, at)):
        names.append(part[1].strip() or part[1])
        at, joined = part.end(), part[2] == "+"
    if joined:
        raise InvalidInput(
            f"{element!r} is not a key combination; put one '+' between two keys ('CTRL+A'), and write the "
            "plus key as '+' or PLUS ('CTRL++')"
        )
    return names


def _character(character: str) -> str:
    named = _CHARACTERS.get(character)
    if named is not None:
        return named
    if not character.isprintable():
        raise InvalidInput(f"no key makes the character U+{ord(character):04X}", key=character)
    # A few capitals have no lower form of one character (İ); their own keysym is what is meant then.
    lower = character.lower()
    character = lower if len(lower) == 1 else character
    return character if character.isascii() else f"U{ord(character):04X}"


def _hint(name: str) -> str:
    near = difflib.get_close_matches(_fold(name), NAMES, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return (
        "known are CTRL, ALT, SHIFT, SUPER, ENTER, ESC, TAB, SPACE, BACKSPACE, DELETE, INSERT, UP, DOWN, "
        "LEFT, RIGHT, HOME, END, PAGEUP, PAGEDOWN, F1 to F24, KP_0 to KP_9 and single characters; to enter "
        "text, use the type action"
    )
