"""The colours that the drill's site paints and the scripted model looks for.

Each stands for one target and appears nowhere else on the screen. A target's colour goes away when what it
asks for is done, so an image says what is left to do.
"""

from __future__ import annotations

Colour = tuple[int, int, int]

TOLERANCE = 12  # largest difference in one channel: scaling rounds, and blends the edges
MARKS: dict[str, Colour] = {
    "name": (255, 0, 128),  # the field is empty
    "party": (0, 160, 255),  # the handle of a slider
    "party_low": (255, 120, 0),  # below the slider: where its handle stands for 1
    "party_high": (120, 255, 0),  # ... and for 8
    "time": (140, 0, 255),  # opens its choices when the pointer is on it
    "time_1": (255, 80, 80),
    "time_2": (80, 255, 160),
    "time_3": (80, 80, 255),
    "seat_1": (0, 200, 120),  # double-click to choose
    "seat_2": (200, 0, 60),
    "seat_3": (0, 90, 200),
    "note": (255, 0, 255),  # the field is empty
    "note_focused": (0, 255, 255),  # ... and takes the keyboard
    "submit": (255, 200, 0),
    "more": (0, 255, 0),  # there is more below
    "code_start": (170, 255, 80),  # the confirmation number follows as cells of DIGITS
    "code_end": (255, 60, 0),
    # Not painted by the site: the colour of the glyph in the file that the editor shows.
    "editor": (171, 71, 188),
}
EDITOR_GLYPH = "🟪"
PARTY_RANGE = (1, 8)

# A cell's colour says its digit.
DIGITS: tuple[Colour, ...] = (
    (16, 16, 16),
    (140, 0, 0),
    (0, 110, 0),
    (0, 0, 150),
    (120, 110, 0),
    (110, 0, 120),
    (0, 110, 120),
    (140, 140, 140),
    (245, 200, 160),
    (250, 250, 250),
)
NUMBER_DIGITS = 8  # of a confirmation number; one more cell holds their sum modulo 10
