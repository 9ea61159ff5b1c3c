"""The plan of a typed text, run on a keyboard and an application that are as slow as they may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskbox_guest.x11.keymap import RETURN, TAB, Layout, keysym_of_character
from deskbox_guest.x11.typing import Batch, Beat, plan

SHIFT_L = 0xFFE1


def small_layout(spares: int) -> Layout:
    """Keys for a to f, Return and Tab, and as many spare keycodes as are asked for, from keycode 20 on."""
    rows = [(0, 0)] * 12
    rows[0] = (SHIFT_L, 0)
    rows[1:7] = [(ord(letter), ord(letter.upper())) for letter in "abcdef"]
    rows[7], rows[8] = (RETURN, 0), (TAB, 0)
    rows[9:12] = [(0xFF50, 0)] * 3
    return Layout(rows + [(0, 0)] * spares, 8, [(8,), *[()] * 7])


def what_arrives(batches: list[Batch], layout: Layout) -> list[int]:
    """The keysyms that an application reads which looks at the keyboard only when a batch is complete."""
    meaning = {code: tuple(row[:2]) for code, row in layout.rows.items()}
    read = []
    for batch in batches:
        for keycode, keysym in batch.keysyms.items():
            meaning[keycode] = (keysym, keysym)
        read += [meaning[stroke.keycode][stroke.shift] for stroke in batch.strokes]
    return read


texts = st.text(st.sampled_from("abcdefABCDEF\n\té ß€中文字😀ё"), max_size=60)


@given(text=texts, spares=st.integers(1, 5), size=st.integers(1, 10))
def test_every_character_arrives(text: str, spares: int, size: int) -> None:
    layout = small_layout(spares)
    batches = list(plan(text, layout, layout.spare_keycodes(), size))
    assert what_arrives(batches, layout) == [keysym_of_character(character) for character in text]
    assert sum(batch.characters for batch in batches) == len(text)
    assert all(0 < len(batch.strokes) <= size for batch in batches)


@given(text=texts, spares=st.integers(1, 5))
def test_a_keycode_means_one_thing_in_a_batch_and_is_never_set_in_vain(text: str, spares: int) -> None:
    layout = small_layout(spares)
    for batch in plan(text, layout, layout.spare_keycodes()):
        pressed = {stroke.keycode for stroke in batch.strokes}
        assert set(batch.keysyms) <= pressed
        assert len(batch.keysyms) <= spares


def test_a_character_that_comes_again_keeps_its_keycode() -> None:
    layout = small_layout(2)
    first, second = plan("ßß€a" + "aß€", layout, layout.spare_keycodes(), 4)
    assert len(first.keysyms) == 2
    assert second.keysyms == {}


def test_what_has_not_been_used_for_longest_makes_room() -> None:
    layout = small_layout(2)
    batches = list(plan("ß€" + "ßё", layout, layout.spare_keycodes(), 2))
    euro_key = next(code for code, keysym in batches[0].keysyms.items() if keysym == keysym_of_character("€"))
    assert batches[1].keysyms == {euro_key: keysym_of_character("ё")}


def test_line_ends_become_one_return_each() -> None:
    layout = small_layout(0)
    (batch,) = plan("a\r\nb\nc\r\rd", layout, [])
    assert what_arrives([batch], layout) == [97, RETURN, 98, RETURN, 99, RETURN, RETURN, 100]
    assert batch.characters == 9


@pytest.mark.parametrize("text", ["", "\r\n"])
def test_short_texts(text: str) -> None:
    layout = small_layout(0)
    assert sum(batch.characters for batch in plan(text, layout, [])) == len(text)


def times(delay: float, taken: list[float]) -> list[float]:
    """When each character has been waited for, if the application takes so many seconds for each."""
    now, ends = 0.0, []
    beat = Beat(delay, now)
    for seconds in taken:
        now += seconds
        now = max(now, beat.next(now))
        ends.append(now)
    return ends


def test_what_the_application_takes_is_part_of_the_delay() -> None:
    assert times(0.1, [0.02, 0.05, 0.0, 0.1]) == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_late_character_is_made_up_for() -> None:
    assert times(0.1, [0.02, 0.15, 0.02, 0.02]) == pytest.approx([0.1, 0.25, 0.3, 0.4])


def test_no_burst_follows_a_long_pause() -> None:
    assert times(0.1, [0.0, 5.0, 0.0, 0.0, 0.0]) == pytest.approx([0.1, 5.1, 5.1, 5.1, 5.15])
