"""The grammar of key names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskbox.errors import InvalidInput
from deskbox.keys import MAX_KEYS, NAMES, chord, keysym
from deskbox_guest.x11.keymap import keysym_of


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("CTRL CONTROL Ctrl ctrl_l CTRL_L Control_L ControlLeft", "ctrl"),
        ("CTRL_R Control_R ControlRight", "Control_R"),
        ("CMD COMMAND META SUPER WIN WINDOWS Super_L META_L MetaLeft", "super"),
        ("ALT OPTION Alt_L AltLeft", "alt"),
        ("SHIFT Shift_L shiftleft", "shift"),
        ("SHIFT_R Shift_R", "Shift_R"),
        ("ALTGR ISO_Level3_Shift", "ISO_Level3_Shift"),
        ("ENTER RETURN enter Return", "Return"),
        ("ESC ESCAPE", "Escape"),
        ("ARROWLEFT LEFT Arrow_Left arrow-left", "Left"),
        ("ARROWRIGHT RIGHT", "Right"),
        ("ARROWUP UP", "Up"),
        ("ARROWDOWN DOWN", "Down"),
        ("PAGEUP PGUP PAGE_UP Page_Up Prior", "Prior"),
        ("PAGEDOWN PGDN PageDown Next", "Next"),
        ("SPACE spacebar", "space"),
        ("TAB", "Tab"),
        ("ISO_Left_Tab BACKTAB", "ISO_Left_Tab"),
        ("BACKSPACE BackSpace back_space", "BackSpace"),
        ("DELETE DEL", "Delete"),
        ("INSERT INS", "Insert"),
        ("HOME", "Home"),
        ("END", "End"),
        ("F1 f1", "F1"),
        ("F13 f13", "F13"),
        ("F24", "F24"),
        ("CAPSLOCK CAPS_LOCK Caps_Lock", "Caps_Lock"),
        ("NUMLOCK NUM_LOCK", "Num_Lock"),
        ("PRINTSCREEN PRINT PRTSC", "Print"),
        ("KP_0 NUMPAD0 numpad_0 KP0", "KP_0"),
        ("KP_ENTER NUMPADENTER", "KP_Enter"),
        ("KP_Add NUMPADADD", "KP_Add"),
        ("+ PLUS plus", "plus"),
        ("- MINUS", "minus"),
        ("/ SLASH", "slash"),
        ("_ UNDERSCORE", "underscore"),
        ("a A", "a"),
        ("7", "7"),
        ("é É", "U00E9"),
        ("я Я", "U044F"),
        ("日", "U65E5"),
        ("€", "U20AC"),
        ("😀", "U1F600"),
        ("İ", "U0130"),
    ],
)
def test_names_that_models_emit(names: str, expected: str) -> None:
    for name in names.split():
        assert keysym(name) == expected, name


def test_white_space_as_a_character() -> None:
    assert [keysym(character) for character in " \n\t"] == ["space", "Return", "Tab"]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_a_keysym_that_the_guest_knows(name: str) -> None:
    assert keysym_of(keysym(name))


@given(st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_case_and_separators_do_not_matter(name: str, random: object) -> None:
    for variant in (name.lower(), name.title(), " ".join(re.findall(r"..?", name)), "_".join(name)):
        if len(variant) > 1:
            assert keysym(variant) == keysym(name)


@given(st.characters(min_codepoint=0x21, max_codepoint=0x7E))
def test_every_printable_ascii_character_is_a_key(character: str) -> None:
    found = keysym(character)
    assert keysym_of(found) == ord(character.lower())
    assert "+" not in found


@given(st.characters(exclude_categories=["C", "Z"]))
def test_every_printable_character_is_a_key(character: str) -> None:
    assert keysym_of(keysym(character))
    assert re.fullmatch(r"[A-Za-z]+|[0-9]|U[0-9A-F]{4,6}", keysym(character))


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x7f", "\x85", "\ud800", "\u200d", "\xa0"])
def test_characters_that_no_key_makes(character: str) -> None:
    with pytest.raises(InvalidInput, match=r"no key makes the character U\+"):
        keysym(character)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["CTRL", "A"], ("ctrl", "a")),
        (["CTRL+A"], ("ctrl", "a")),
        (["ctrl+shift+t"], ("ctrl", "shift", "t")),
        (["CTRL + SHIFT + T"], ("ctrl", "shift", "t")),
        (["CTRL", "SHIFT+T"], ("ctrl", "shift", "t")),
        (("ENTER",), ("Return",)),
        (["+"], ("plus",)),
        (["-"], ("minus",)),
        (["CTRL", "+"], ("ctrl", "plus")),
        (["CTRL++"], ("ctrl", "plus")),
        (["CTRL+-"], ("ctrl", "minus")),
        (["++A"], ("plus", "a")),
        (["CTRL+++A"], ("ctrl", "plus", "a")),
        (["CTRL+KP_ADD"], ("ctrl", "KP_Add")),
        (["SHIFT"], ("shift",)),
        (["CTRL", "ALT"], ("ctrl", "alt")),
        (["CTRL_L", "CTRL_R"], ("ctrl", "Control_R")),
    ],
)
def test_chords(keys: list[str], expected: tuple[str, ...]) -> None:
    assert chord(keys) == expected


@pytest.mark.parametrize("element", ["CTRL+", "+A", "++", "CTRL+++", "CTRL++A"])
def test_a_plus_that_joins_nothing(element: str) -> None:
    with pytest.raises(InvalidInput, match="is not a key combination"):
        chord([element])


@pytest.mark.parametrize("keys", ["ENTER", "a", "", b"ENTER", None, 5, {"CTRL"}, iter(["CTRL"])])
def test_keys_are_a_list(keys: object) -> None:
    with pytest.raises(InvalidInput, match="must be a list of key names"):
        chord(keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("element", [None, 5, ["CTRL"]])
def test_a_key_is_a_string(element: object) -> None:
    with pytest.raises(InvalidInput, match="is named by a string"):
        chord([element])  # type: ignore[list-item]


def test_no_key_is_no_chord() -> None:
    with pytest.raises(InvalidInput, match="keys is empty"):
        chord([])


def test_a_key_twice() -> None:
    for keys in (["A", "a"], ["CTRL", "CONTROL_L", "X"]):
        with pytest.raises(InvalidInput, match="occurs twice"):
            chord(keys)


def test_more_keys_than_fingers() -> None:
    with pytest.raises(InvalidInput, match=f"the limit is {MAX_KEYS}"):
        chord(list("abcdefghi"))


@pytest.mark.parametrize(
    ("name", "near"),
    [("CNTRL", "CTRL"), ("ENTR", "ENTER"), ("ESCPE", "ESCAPE"), ("BACKSPCE", "BACKSPACE"), ("F25", "F24")],
)
def test_an_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    with pytest.raises(InvalidInput, match=rf"unknown key '{name}'; did you mean .*\b{near}\b"):
        keysym(name)


@pytest.mark.parametrize("name", ["", "XF86PowerOff", "日本", "👨‍👩‍👧"])
def test_a_name_like_no_other_lists_what_there_is(name: str) -> None:
    with pytest.raises(InvalidInput, match="use the type action"):
        keysym(name)
