"""Text to prove typing with, and the characters that single applications do not take as they come."""

from __future__ import annotations

import random
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

ASCII = "".join(map(chr, range(0x20, 0x7F)))

# What belongs together, and what goes wrong elsewhere: dead keys by themselves and with letters, quotes,
# shells, right-to-left text, combining marks, emoji of several code points.
SEQUENCES = (
    *("´", "`", "^", "¨", "~", "´e", "`a", "^o", "¨u", "~n", "´ ", "^^", "~~", "``", "'e", '"u', "°", "¸c"),
    *(
        "áàâäãåčőŭ",
        "a\u0301",
        "e\u0308\u0301",
        "o\u0302\u0323",
        "नि",
        "กำ",
        "ที่",
        "한국어",
        "ﬁ",
        "ĳ",
        "Ǆ",
        "ß",
        "ẞ",
        "İı",
    ),
    *("“smart”", "‘quotes’", "„unten“", "«oui»", "it's", '"straight"', "— – …", "a\u00a0b\u00adc"),
    *(
        "$(rm -rf)",
        "`id`",
        "${HOME}",
        "; | &",
        "\\n",
        "%s",
        "!!",
        "~/*",
        "<a href='x'>",
        "\\\\",
        "&amp;",
        "-- -",
    ),
    *("עברית", "العربية", "\u202eabc\u202c", "שָׁלוֹם", "日本語の", "美国降息", "Ελλάδα", "Привет", "हिन्दी"),
    *("👩‍👩‍👧", "👍🏽", "👩🏿‍🚀", "🇫🇷", "❤️", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "😀🎉", "🫠", "a\nb", "\n\n"),
)


@cache
def scripts() -> list[list[str]]:
    """Every assigned character that a key can type, in groups by the first word of its name: LATIN, CJK, …"""
    groups: dict[str, list[str]] = {}
    for code in range(0x20, sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) not in ("Cc", "Cn", "Co", "Cs"):
            groups.setdefault(unicodedata.name(character, "?").split()[0], []).append(character)
    # A group for each of a thousand emoji that have a name of their own would leave little for the rest.
    small = [character for group in groups.values() if len(group) < 10 for character in group]
    return [small, *(group for group in groups.values() if len(group) >= 10)]


@cache
def typeable() -> str:
    return "".join(character for group in scripts() for character in group)


def draw(source: random.Random, length: int, taken: Callable[[str], bool]) -> str:
    """Random text of `length` characters which an application takes, with Return and Tab now and then."""
    text = ""
    while len(text) < length:
        text += "".join(filter(taken, _piece(source)))
    return text[:length]


def _piece(source: random.Random) -> str:
    chance = source.random()
    if chance < 0.4:
        return source.choice(source.choice(scripts()))
    if chance < 0.65:
        return source.choice(typeable())
    if chance < 0.9:
        return source.choice(ASCII)
    return source.choice(SEQUENCES) if chance < 0.98 else source.choice("\n\n\t")


def difference(expected: str, got: str) -> str:
    """Where two texts part, with the code points there; "" if they are the same."""
    if expected == got:
        return ""
    at = next((i for i, (one, other) in enumerate(zip(expected, got, strict=False)) if one != other), None)
    if at is None:
        at = min(len(expected), len(got))
    return (
        f"at position {at} of {len(expected)} (got {len(got)}): expected {codes(expected[at : at + 8])}, "
        f"got {codes(got[at : at + 8])}"
    )


def codes(text: Sequence[str]) -> str:
    return " ".join(f"U+{ord(character):04X}" for character in text) or "nothing"
