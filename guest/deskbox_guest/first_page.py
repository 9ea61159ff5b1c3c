"""Another first page for a Firefox that runs already: one tab, and nothing that "back" would lead to.

A machine that was frozen with the start page shown goes on with the page that its desktop was asked to
begin with, as if Firefox had been started with it: the page is opened in a tab of its own, and the first
tab closed. By the mouse, because a key goes to the page first, and no one can tell when its effect is
there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from deskbox_guest import browser
from deskbox_guest.bus import hand_to_firefox
from deskbox_guest.protocol import Step
from deskbox_guest.x11.desktop import X11Desktop

# In the first tab, from the upper left corner of Firefox's window, in pixels: a place to click at, and one
# of which the colour tells whether the tab is the selected one. A tab is at least 76 pixels wide, and the
# first one begins at 47.
_CLICK, _COLOUR = (70, 22), (60, 8)
# Seconds until Firefox shows that a tab was opened or closed; in an emulated machine on a busy computer.
_PATIENCE = 10.0
_LOOK_S = 0.02


def show(desktop: X11Desktop, url: str) -> None:
    """Show the page, and nothing else. Raises Fault."""
    browser.check_url(url)
    window = next((window for window in desktop.windows() if window.active), None)
    if window is None:
        browser.open_url(url)  # somebody has closed it
        return

    def colour() -> object:
        return desktop.colour(window.x + _COLOUR[0], window.y + _COLOUR[1])

    selected = colour()
    with desktop.acting():
        if not hand_to_firefox(["--new-tab", url], browser.OPEN_WITHIN):
            browser.open_url(url)
            return
    _wait(lambda: colour() != selected)
    x, y = desktop.size[0] // 2, desktop.size[1] // 2  # where the pointer is when a desktop starts
    click = f"mousemove {window.x + _CLICK[0]} {window.y + _CLICK[1]} click 2 mousemove {x} {y}"
    desktop.step(Step(script=click), lambda: False)
    _wait(lambda: colour() == selected)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
