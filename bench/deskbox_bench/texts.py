"""What is typed: the same text each time."""

from __future__ import annotations

import random

# A word in six scripts or so, the way names, addresses and quotes come in work on the web.
_ASCII = "The quick brown fox jumps over a lazy dog; {x: [1, 2, 3]} != 'y' & \"z\" #42 $9.99 50% ~/a_b|c"
_OTHERS = (
    "Zażółć gęślą jaźń Füße Größe naïve façade Ελλάδα καλημέρα Привет Київ עברית العربية "
    "日本語 テキスト 美国 降息 新闻 한국어 서울 €5 “quoted” – … ½ ✓ → 🙂"
)


def ascii_text(length: int) -> str:
    return _text(length, _ASCII)


def mixed_text(length: int) -> str:
    return _text(length, f"{_ASCII} {_OTHERS} {_OTHERS}")


def _text(length: int, words: str) -> str:
    source, choice = random.Random(length), words.split()
    text = ""
    while len(text) < length:
        text += source.choice(choice) + " "
    return text[:length]
