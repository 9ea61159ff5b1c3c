"""Key names and layouts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskbox_guest.x11.keymap import (
    Layout,
    Stroke,
    keysym_of,
    keysym_of_character,
    may_move_focus,
    name_of,
)

SHIFT_L, CONTROL_L, NUM_LOCK, MUTE, DEAD_GRAVE = 0xFFE1, 0xFFE3, 0xFF7F, 0x1008FF12, 0xFE50
KP_HOME, KP_7, KP_ADD, KP_ENTER = 0xFF95, 0xFFB7, 0xFFAB, 0xFF8D


@pytest.mark.parametrize(
    ("name", "keysym"),
    [
        ("a", 0x61),
        ("A", 0x41),
        ("plus", 0x2B),
        ("Return", 0xFF0D),
        ("enter", 0xFF0D),
        ("ctrl", CONTROL_L),
        ("Ctrl", CONTROL_L),
        ("super", 0xFFEB),
        ("Page_Up", 0xFF55),
        ("F24", 0xFFD5),
        ("KP_7", KP_7),
        ("XF86AudioMute", MUTE),
        ("ISO_Left_Tab", 0xFE20),
        ("EuroSign", 0x20AC),
        ("U20AC", 0x010020AC),
        ("U1F600", 0x0101F600),
        ("ß", 0xDF),
        ("€", 0x010020AC),
        ("+", 0x2B),
        ("eacute", 0xE9),
    ],
)
def test_names(name: str, keysym: int) -> None:
    assert keysym_of(name) == keysym


@pytest.mark.parametrize(
    "name", ["", "Foo", "return1", "U20", "UD800", "U110000", "U000A", "\n", "ab", "NoSymbol"]
)
def test_no_names(name: str) -> None:
    assert keysym_of(name) is None


@given(st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co")))
def test_every_name_that_we_give_is_understood(character: str) -> None:
    keysym = keysym_of_character(character)
    if character.isprintable():
        assert keysym_of(name_of(keysym)) == keysym


def test_control_characters_that_are_keys() -> None:
    assert [name_of(keysym_of_character(character)) for character in "\n\r\t"] == ["Return", "Return", "Tab"]


@pytest.mark.parametrize("name", ["Return", "Tab", "Escape", "F6", "ctrl", "Alt_R"])
def test_keys_that_may_move_the_focus(name: str) -> None:
    keysym = keysym_of(name)
    assert keysym is not None
    assert may_move_focus(keysym)


@pytest.mark.parametrize("name", ["a", "Left", "BackSpace", "shift", "KP_7", "U20AC", "Caps_Lock"])
def test_keys_that_do_not(name: str) -> None:
    keysym = keysym_of(name)
    assert keysym is not None
    assert not may_move_focus(keysym)


# Keycodes from 8: Shift, Control, a, 1, a dead key, keypad digit, keypad plus, NumLock, mute,
# nothing, keypad Enter.
ROWS = [
    (SHIFT_L, 0, 0, 0),
    (CONTROL_L, 0, 0, 0),
    (ord("a"), ord("A"), 0xE9, 0xC9),
    (ord("1"), ord("!"), ord("2"), ord("?")),
    (DEAD_GRAVE, ord("`"), 0, 0),
    (KP_HOME, KP_7, KP_HOME, KP_7),
    (KP_ADD, KP_ADD, KP_ADD, KP_ADD),
    (NUM_LOCK, 0, 0, 0),
    (MUTE, 0, MUTE, 0),
    (0, 0, 0, 0),
    (KP_ENTER, 0, 0, 0),
]
MODIFIERS = [(8, 0), (), (9, 0), (), (15, 0), (), (), ()]


def layout(group: int = 0) -> Layout:
    return Layout(ROWS, 8, MODIFIERS, group)


def test_a_layout_gives_characters_with_and_without_shift() -> None:
    assert layout().stroke(ord("a")) == Stroke(10, shift=False)
    assert layout().stroke(ord("!")) == Stroke(11, shift=True)
    assert layout().stroke(ord("`")) == Stroke(12, shift=True)
    assert layout().stroke(0xE9) is None


def test_the_active_group_counts() -> None:
    assert layout(1).stroke(0xE9) == Stroke(10, shift=False)
    assert layout(1).stroke(ord("?")) == Stroke(11, shift=True)
    assert layout(1).stroke(ord("a")) is None
    assert layout(2).stroke(ord("a")) is None


def test_keypad_keys_that_num_lock_changes_are_not_used() -> None:
    assert layout().stroke(KP_7) is None
    assert layout().stroke(KP_HOME) is None
    assert layout().stroke(KP_ADD) == Stroke(14, shift=False)
    assert layout().stroke(KP_ENTER) == Stroke(18, shift=False)


def test_modifiers_need_no_shift() -> None:
    alt_l, meta_l = 0xFFE9, 0xFFE7
    found = Layout([(SHIFT_L, 0), (alt_l, meta_l)], 8, [(8,), (), (), (9,), (), (), (), ()])
    assert found.stroke(meta_l) == Stroke(9, shift=False)


def test_spare_keycodes_are_the_empty_ones_then_multimedia_keys() -> None:
    assert layout().spare_keycodes() == [17, 16]
    assert Layout([(0, 0), (SHIFT_L, 0)], 8, [(8, 9), *[()] * 7]).spare_keycodes() == []


def test_facts_about_modifiers() -> None:
    assert layout().shift == 8
    assert layout().num_lock_mask == 1 << 4
    assert layout().modifier_keycodes == {8, 9, 15}
