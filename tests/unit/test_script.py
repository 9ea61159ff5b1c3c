"""The script language: what it says, and what it refuses before anything has happened."""

from __future__ import annotations

import shlex
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskbox_guest.protocol import Fault
from deskbox_guest.x11.keymap import keysym_of
from deskbox_guest.x11.script import (
    MAX_TEXT,
    ButtonDown,
    ButtonUp,
    Click,
    Command,
    GetMouseLocation,
    Key,
    KeyDown,
    KeyUp,
    MouseMove,
    Sleep,
    Type,
    parse,
)
from deskbox_guest.x11.timing import CLICK_GAP_S, NOTCH_GAP_S

SIZE = (1280, 800)
CTRL, SHIFT, RETURN = 0xFFE3, 0xFFE1, 0xFF0D


def commands(script: str) -> list[Command]:
    return parse(script, SIZE, (100, 100))


def refusal(script: str) -> str:
    with pytest.raises(Fault) as caught:
        commands(script)
    assert caught.value.kind == "refused"
    return caught.value.message


def test_a_chain_of_commands_on_one_line() -> None:
    assert commands("mousemove 640 400 keydown ctrl mousedown 1 mouseup 1 keyup ctrl") == [
        MouseMove(640, 400),
        KeyDown((CTRL,)),
        ButtonDown(1),
        ButtonUp(1),
        KeyUp((CTRL,)),
    ]


def test_clicks_repeat_after_a_delay() -> None:
    assert commands("click 3") == [Click(3, 1, CLICK_GAP_S)]
    assert commands("click --repeat 2 7") == [Click(7, 2, NOTCH_GAP_S)]
    assert commands("click --repeat 2 --delay 60 1") == [Click(1, 2, 0.06)]
    assert commands("click --delay 0 --repeat 3 5") == [Click(5, 3, 0.0)]


def test_key_takes_chords_until_the_next_command() -> None:
    assert commands("key ctrl+shift+t Return sleep 0.5") == [
        Key(((CTRL, SHIFT, ord("t")), (RETURN,)), 0.0),
        Sleep(0.5),
    ]
    assert commands("key --delay 20 a b") == [Key(((ord("a"),), (ord("b"),)), 0.02)]


def test_relative_moves_become_absolute_ones() -> None:
    assert commands("mousemove_relative -- -10 5") == [MouseMove(90, 105)]
    assert commands("mousemove 5 5\nmousemove_relative 1 -2 mousemove_relative 1 1") == [
        MouseMove(5, 5),
        MouseMove(6, 3),
        MouseMove(7, 4),
    ]


def test_lines_may_be_empty_and_quotes_may_hold_newlines() -> None:
    assert commands("\n  \nsleep 1\r\n\ntype -- 'two\nlines'\n getmouselocation") == [
        Sleep(1.0),
        Type("two\nlines", 0.0),
        GetMouseLocation(),
    ]
    assert commands("") == []


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6))
def test_tokens_are_quoted_as_in_a_shell(tokens: list[str]) -> None:
    """Seen through the one command that takes any text: each token on a line of its own."""
    accepted = [token for token in tokens if not _unacceptable(token)]
    script = "\n".join(f"type -- {shlex.quote(token)}" for token in accepted)
    assert commands(script) == [Type(token, 0.0) for token in accepted]


def _unacceptable(text: str) -> bool:
    try:
        commands(f"type -- {shlex.quote(text)}")
    except Fault:
        return True
    return False


@pytest.mark.parametrize(
    ("quoted", "text"),
    [
        (r"a\ b", "a b"),
        (r'"a \"b\" \\ \c"', r'a "b" \ \c'),
        ("'it'\"'\"'s'", "it's"),
        ("''", ""),
        ("--", "--"),
        ("-x", "-x"),
    ],
)
def test_quoting(quoted: str, text: str) -> None:
    assert shlex.split(quoted) == [text]
    assert commands(f"type -- {quoted}") == [Type(text, 0.0)]


def test_type_without_dashes_and_with_a_delay() -> None:
    assert commands("type abc") == [Type("abc", 0.0)]
    assert commands("type --delay 30 -- abc") == [Type("abc", 0.03)]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("frobnicate", "is no command of the script language, which is: mousemove,"),
        ("search --name x", "is no command"),
        ("mousemove 5", "mousemove lacks its y"),
        ("mousemove --sync 5 5", "accepts no options, not '--sync'"),
        ("mousemove 1280 5", "x must be a whole number from 0 to 1279, not '1280'"),
        ("mousemove 5 -1", "y must be a whole number from 0 to 799"),
        ("mousemove 5.5 1", "whole number"),
        ("mousemove ١ 1", "whole number"),
        ("mousemove_relative -- -101 0", "outside the screen of 1280x800"),
        ("click", "click lacks its button"),
        ("click 0", "button must be a whole number from 1 to 9, not '0'"),
        ("click 10", "from 1 to 9"),
        ("mousedown left", "from 1 to 9"),
        ("click --repeat 0 1", "--repeat must be a whole number from 1 to 1000"),
        ("click --repeat 1001 1", "--repeat must be"),
        ("click --clearmodifiers 1", "accepts --repeat and --delay, not '--clearmodifiers'"),
        ("key", "key lacks its key"),
        ("key Foo", "'Foo' is no key name"),
        ("key ctrl+", "is no chord"),
        ("key ctrl++", "the key '+' is 'plus'"),
        ("key a+a", "names the key 'a' twice"),
        ("key ctrl+Control_L+a", "twice"),
        ("type", "type lacks its text"),
        ("type hello world", "type takes one text and ends its line"),
        ("type -- hello key Return", "put what follows on the next line"),
        ("type 'abc", "ends inside a '…' quotation"),
        ('type "abc', 'ends inside a "…" quotation'),
        ("type abc\\", "lone backslash"),
        ("sleep", "sleep lacks its seconds"),
        ("sleep -1", "from 0 to 60"),
        ("sleep 61", "from 0 to 60"),
        ("sleep nan", "from 0 to 60"),
    ],
)
def test_what_is_refused_and_what_is_said(script: str, says: str) -> None:
    assert says in refusal(script)


def test_a_mistake_in_the_last_command_refuses_the_first() -> None:
    assert "'Foo' is no key name" in refusal("mousemove 1 1 click 1\nkey Foo")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ab\x07", "U+0007 at position 2"),
        ("\x7f", "U+007F at position 0"),
        ("a\x85", "U+0085 at position 1"),
        ("\x00", "U+0000 at position 0"),
        ("ok\ud800", "U+D800 at position 2"),
        ("\uffff", "U+FFFF at position 0"),
        ("\ufdd0", "U+FDD0 at position 0"),
        ("\U0010fffe", "U+10FFFE at position 0"),
    ],
)
def test_what_no_key_can_type_is_refused_with_its_position(text: str, says: str) -> None:
    assert says in refusal(f"type -- {shlex.quote(text)}")


def test_text_has_a_limit() -> None:
    assert commands("type -- " + "x" * MAX_TEXT) == [Type("x" * MAX_TEXT, 0.0)]
    assert f"{MAX_TEXT + 1} characters and {MAX_TEXT} are accepted" in refusal(
        "type -- " + "x" * (MAX_TEXT + 1)
    )


def test_a_script_has_a_limit() -> None:
    assert "more than 10000 commands" in refusal("click 1 " * 10_001)


@given(st.text())
def test_any_script_is_understood_or_refused(script: str) -> None:
    with suppress(Fault):
        commands(script)


@pytest.mark.parametrize(
    "name", ["ctrl", "Control", "CTRL", "shift", "alt", "super", "meta", "Return", "enter"]
)
def test_aliases(name: str) -> None:
    assert keysym_of(name)
