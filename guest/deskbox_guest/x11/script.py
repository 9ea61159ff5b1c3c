"""The script language: a strict subset of xdotool's, so that what a script says here it says there too.

    mousemove X Y                     mousemove_relative [--] DX DY
    mousedown BUTTON                  mouseup BUTTON
    click [--repeat N] [--delay MS] BUTTON
    key [--delay MS] CHORD...         keydown CHORD       keyup CHORD
    type [--delay MS] [--] TEXT       sleep SECONDS       getmouselocation

A line holds one or more commands. Tokens are quoted as a POSIX shell (and Python's `shlex`) does, and a
quoted newline belongs to its token. `type` ends its line, because xdotool would type whatever follows it.

Coordinates are screen pixels. Buttons: 1 left, 2 wheel, 3 right, 4 to 7 the wheel's notches up, down, left
and right, 8 back, 9 forward. Clicks that repeat come at a pace of their own unless `--delay` says otherwise
(see `timing`). A chord is X keysym names joined by `+`, such as `ctrl+shift+t`.

`parse` is pure and checks a whole script, so that a mistake in the last command refuses the first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from deskbox_guest.protocol import Fault
from deskbox_guest.x11.keymap import keysym_of
from deskbox_guest.x11.timing import CLICK_GAP_S, NOTCH_GAP_S

SUBSET = (
    "mousemove, mousemove_relative, mousedown, mouseup, click [--repeat N] [--delay MS], key [--delay MS], "
    "keydown, keyup, type [--delay MS] [--] TEXT, sleep, getmouselocation"
)

MAX_COMMANDS = 10_000
MAX_TEXT = 20_000  # characters in one `type`
MAX_REPEAT = 1_000  # clicks in one `click`
MAX_DELAY_MS = 10_000
MAX_SLEEP_S = 60.0
BUTTONS = range(1, 10)
WHEEL = range(4, 8)  # the buttons that stand for the notches of a wheel, which have no duration


@dataclass(frozen=True)
class MouseMove:
    x: int
    y: int


@dataclass(frozen=True)
class ButtonDown:
    button: int


@dataclass(frozen=True)
class ButtonUp:
    button: int


@dataclass(frozen=True)
class Click:
    button: int
    repeat: int
    delay: float  # seconds, between two clicks


@dataclass(frozen=True)
class Key:
    chords: tuple[tuple[int, ...], ...]  # keysyms, in the order in which they are pressed
    delay: float  # seconds, between two chords


@dataclass(frozen=True)
class KeyDown:
    chord: tuple[int, ...]


@dataclass(frozen=True)
class KeyUp:
    chord: tuple[int, ...]


@dataclass(frozen=True)
class Type:
    text: str
    delay: float  # seconds, from one character to the next, and after the last


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class GetMouseLocation:
    pass


Command = MouseMove | ButtonDown | ButtonUp | Click | Key | KeyDown | KeyUp | Type | Sleep | GetMouseLocation


def parse(script: str, size: tuple[int, int], pointer: tuple[int, int] = (0, 0)) -> list[Command]:
    """Turn a script into commands, or raise Fault "refused" with one sentence on the first mistake.

    `size` is the screen's in pixels: no move may leave it. `pointer` is where relative moves start; they come
    out as absolute ones.
    """
    commands: list[Command] = []
    for line in _lines(script):
        reader = _Reader(line, size, pointer)
        while reader.more():
            commands.append(reader.command())
            if len(commands) > MAX_COMMANDS:
                raise _refused(f"the script has more than {MAX_COMMANDS} commands: split it")
        pointer = reader.pointer
    return commands


def check_text(text: str) -> None:
    """Raise Fault "refused" if `text` is too long or holds what no key can type."""
    if len(text) > MAX_TEXT:
        raise _refused(f"the text has {len(text)} characters and {MAX_TEXT} are accepted at once: split it")
    for position, character in enumerate(text):
        if character not in "\n\r\t" and not _typeable(character):
            raise _refused(
                f"U+{ord(character):04X} at position {position} of the text is no character that a key can "
                "type: control characters other than newline and tab, surrogates, noncharacters are refused"
            )


def _typeable(character: str) -> bool:
    code = ord(character)
    noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    return unicodedata.category(character) not in ("Cc", "Cs") and not noncharacter


def _refused(message: str) -> Fault:
    return Fault("refused", message)


# --- lines and tokens ------------------------------------------------------------------------------------


def _lines(script: str) -> Iterator[list[str]]:
    """The tokens of each line that has any."""
    tokens: list[str] = []
    token: str | None = None  # None between tokens; "" is the token that '' makes
    at = 0
    while at < len(script):
        character = script[at]
        at += 1
        if character in " \t\r\n":
            if token is not None:
                tokens.append(token)
                token = None
            if character == "\n" and tokens:
                yield tokens
                tokens = []
            continue
        token = token or ""
        if character == "'":
            end = script.find("'", at)
            if end < 0:
                raise _refused("the script ends inside a '…' quotation: close it")
            token += script[at:end]
            at = end + 1
        elif character == '"':
            part, at = _double_quoted(script, at)
            token += part
        elif character == "\\":
            if at == len(script):
                raise _refused("the script ends in a lone backslash: quote it or remove it")
            token += script[at]
            at += 1
        else:
            token += character
    if token is not None:
        tokens.append(token)
    if tokens:
        yield tokens


def _double_quoted(script: str, at: int) -> tuple[str, int]:
    """The text of a "…" quotation that opened before `at`, and the index behind its end."""
    part = ""
    while at < len(script):
        character = script[at]
        if character == '"':
            return part, at + 1
        if character == "\\" and script[at + 1 : at + 2] in ("\\", '"'):
            at += 1
            character = script[at]
        part += character
        at += 1
    raise _refused('the script ends inside a "…" quotation: close it')


# --- commands --------------------------------------------------------------------------------------------


class _Reader:
    """Reads the commands of one line, and follows where they leave the pointer."""

    def __init__(self, tokens: list[str], size: tuple[int, int], pointer: tuple[int, int]) -> None:
        self._tokens = tokens
        self._at = 0
        self._size = size
        self._name = ""
        self.pointer = pointer

    def more(self) -> bool:
        return self._at < len(self._tokens)

    def command(self) -> Command:
        self._name = self._tokens[self._at]
        self._at += 1
        method = _COMMANDS.get(self._name)
        if method is None:
            raise _refused(f"{self._name!r} is no command of the script language, which is: {SUBSET}")
        return method(self)

    # Arguments.

    def _take(self, what: str) -> str:
        if not self.more():
            raise _refused(f"{self._name} lacks its {what}")
        self._at += 1
        return self._tokens[self._at - 1]

    def _options(self, *known: str) -> dict[str, int]:
        """Read the leading `--name NUMBER` pairs, and the `--` that may end them."""
        values: dict[str, int] = {}
        while self.more() and self._tokens[self._at].startswith("--"):
            option = self._take("options")
            if option == "--":
                break
            if option not in known:
                accepted = " and ".join(known) or "no options"
                raise _refused(f"{self._name} accepts {accepted}, not {option!r}")
            limit = MAX_REPEAT if option == "--repeat" else MAX_DELAY_MS
            least = 1 if option == "--repeat" else 0
            values[option] = self._integer(option, least, limit)
        return values

    def _integer(self, what: str, least: int, most: int) -> int:
        token = self._take(what)
        try:
            value = int(token) if token.isascii() else None
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise _refused(
                f"{self._name}: {what} must be a whole number from {least} to {most}, not {token!r}"
            )
        return value

    def _chord(self) -> tuple[int, ...]:
        token = self._take("key")
        names = token.split("+")
        if not all(names):
            raise _refused(
                f"{self._name}: {token!r} is no chord: join key names by single '+'; the key '+' is 'plus'"
            )
        keysyms = []
        for name in names:
            keysym = keysym_of(name)
            if keysym is None:
                raise _refused(
                    f"{self._name}: {name!r} is no key name: use X keysym names such as Return, Page_Up, F5, "
                    "plus, a or U20AC, or ctrl, shift, alt, super, meta"
                )
            if keysym in keysyms:
                raise _refused(f"{self._name}: {token!r} names the key {name!r} twice")
            keysyms.append(keysym)
        return tuple(keysyms)

    def _button(self) -> int:
        return self._integer("button", BUTTONS.start, BUTTONS.stop - 1)

    # One method a command.

    def _mousemove(self) -> Command:
        self._options()
        width, height = self._size
        self.pointer = (self._integer("x", 0, width - 1), self._integer("y", 0, height - 1))
        return MouseMove(*self.pointer)

    def _mousemove_relative(self) -> Command:
        self._options()
        width, height = self._size
        dx, dy = self._integer("dx", -width, width), self._integer("dy", -height, height)
        x, y = self.pointer[0] + dx, self.pointer[1] + dy
        if not (0 <= x < width and 0 <= y < height):
            raise _refused(
                f"mousemove_relative {dx} {dy} leads from {self.pointer} to {(x, y)}, outside the screen of "
                f"{width}x{height}"
            )
        self.pointer = (x, y)
        return MouseMove(x, y)

    def _mousedown(self) -> Command:
        self._options()
        return ButtonDown(self._button())

    def _mouseup(self) -> Command:
        self._options()
        return ButtonUp(self._button())

    def _click(self) -> Command:
        options = self._options("--repeat", "--delay")
        button = self._button()
        delay = NOTCH_GAP_S if button in WHEEL else CLICK_GAP_S
        if "--delay" in options:
            delay = options["--delay"] / 1000
        return Click(button, options.get("--repeat", 1), delay)

    def _key(self) -> Command:
        options = self._options("--delay")
        chords = [self._chord()]
        while self.more() and self._tokens[self._at] not in _COMMANDS:
            chords.append(self._chord())
        return Key(tuple(chords), options.get("--delay", 0) / 1000)

    def _keydown(self) -> Command:
        self._options()
        return KeyDown(self._chord())

    def _keyup(self) -> Command:
        self._options()
        return KeyUp(self._chord())

    def _type(self) -> Command:
        options = self._options("--delay")
        text = self._take("text")
        if self.more():
            raise _refused(
                "type takes one text and ends its line: quote a text that has spaces, and put what follows "
                "on the next line"
            )
        check_text(text)
        return Type(text, options.get("--delay", 0) / 1000)

    def _sleep(self) -> Command:
        self._options()
        token = self._take("seconds")
        try:
            seconds = float(token)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= MAX_SLEEP_S:
            raise _refused(f"sleep: seconds must be a number from 0 to {MAX_SLEEP_S:g}, not {token!r}")
        return Sleep(seconds)

    def _getmouselocation(self) -> Command:
        self._options()
        return GetMouseLocation()


_COMMANDS = {
    "mousemove": _Reader._mousemove,
    "mousemove_relative": _Reader._mousemove_relative,
    "mousedown": _Reader._mousedown,
    "mouseup": _Reader._mouseup,
    "click": _Reader._click,
    "key": _Reader._key,
    "keydown": _Reader._keydown,
    "keyup": _Reader._keyup,
    "type": _Reader._type,
    "sleep": _Reader._sleep,
    "getmouselocation": _Reader._getmouselocation,
}
