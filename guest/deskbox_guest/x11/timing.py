"""How fast the hand is: the pace of clicks, wheels and drags, each with its reason.

The only place that says so. A script says what is done, and how fast only where it wants to (`sleep`,
`--delay`).
"""

from __future__ import annotations

# From press to release of a click, and from when the application has done with the press: some programs
# handle other events while they still work on one. The editor l3afpad asks for the selected text at every
# press and waits for the answer; a release that comes then is handled before its press, and the next double
# click is lost. It takes 2 to 10 ms, on a busy machine as long as it takes, but a window that never rests
# can't be waited for. Programs that look at the buttons once a frame (1/60 s) see such a click, too.
CLICK_HOLD_S, CLICK_QUIET_S, CLICK_HOLD_MOST_S = 0.02, 0.01, 0.2

# The same in the browser, which handles one event after the other: none of hundreds of clicks on buttons,
# links, lists and canvases was lost without any. But the X server counts milliseconds, and a release is to be
# later than its press by its clock, too. A page that looks at the buttons once a frame needs
# `mousedown 1 sleep 0.05 mouseup 1`.
BROWSER_HOLD_S = 0.002

# Between the clicks of `click --repeat`, and of those that follow each other in one place: no person is
# faster, programs that debounce let it through, and every toolkit's double-click time is far longer.
CLICK_GAP_S = 0.06

# Between two notches of the wheel: one that is turned fast by hand. All at once, a page that scrolls smoothly
# drops some.
NOTCH_GAP_S = 0.01

# Toolkits count two presses of one button together if the second comes within this time (0.4 s in GTK and Qt,
# 0.5 in Tk) and distance (5 px in GTK).
DOUBLE_CLICK_S, DOUBLE_CLICK_PX = 0.51, 8

# While a button is down a move goes in steps of at most this many pixels: the first step that is farther
# away than the drag threshold (3 px in Tk, 4 in Qt's style hints, 8 in GTK and Firefox) starts the drag, and
# what is dragged over gets events, too.
DRAG_STEP_PX = 12
# A short drag goes in so many steps, as far as it has that many pixels.
DRAG_MIN_STEPS = 20
# One for each frame of a 120 Hz screen: most programs handle every motion by itself then, and merge faster
# ones.
DRAG_STEP_S = 0.008
# A longer path takes longer steps, so that these take no more than some 13 s.
DRAG_MAX_STEPS = 1500
# At a point of the path before a stretch of several steps, until the application and its processes have
# rested for so long: a browser that is behind gives its page the last motion of a frame (1/60 s), and a
# corner would be cut off. A busy one, or one that is animated, is not waited for longer.
CORNER_QUIET_S, CORNER_MOST_S = 0.02, 0.1
# At least from the press to the first motion of a drag, and from the last one to the release: programs see
# the press before the pointer is gone, and a drop target answers over the X server whether it wants what is
# dragged; a release before its answer cancels the drop.
DRAG_REST_S = 0.1
# From then on until the application and its processes have rested for so long, on a machine that is slow:
# longer than a thread between two of them may stand in line for a processor. One that never rests, because
# its page is animated, is not waited for longer.
DROP_QUIET_S, DROP_MOST_S = 0.03, 1.5
