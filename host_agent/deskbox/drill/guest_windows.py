"""Place or close windows, by EWMH messages to the window manager. Needs python-xlib.

python3 guest_windows.py place ID X Y WIDTH HEIGHT [ID X Y WIDTH HEIGHT]...     raise, at this place and size
python3 guest_windows.py close ID...
"""

import sys

from Xlib import X, display, protocol, xobject

SCREEN = display.Display()
ROOT = SCREEN.screen().root


def ask(window: xobject.drawable.Window, message: str, *values: int) -> None:
    """Send a client message about a window to the window manager."""
    event = protocol.event.ClientMessage(
        window=window,
        client_type=SCREEN.intern_atom(message),
        data=(32, [*values, *([0] * (5 - len(values)))]),
    )
    ROOT.send_event(event, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)


def place(window: xobject.drawable.Window, x: int, y: int, width: int, height: int) -> None:
    horizontally, vertically = (
        SCREEN.intern_atom(f"_NET_WM_STATE_MAXIMIZED_{axis}") for axis in ("HORZ", "VERT")
    )
    ask(window, "_NET_WM_STATE", 0, horizontally, vertically)  # 0 takes the states away
    window.configure(x=x, y=y, width=width, height=height)
    ask(window, "_NET_ACTIVE_WINDOW", 2)  # 2: on a person's behalf


if __name__ == "__main__":
    numbers = [int(number) for number in sys.argv[2:]]
    if sys.argv[1] == "place":
        for start in range(0, len(numbers), 5):
            identity, *where = numbers[start : start + 5]
            place(SCREEN.create_resource_object("window", identity), *where)
    else:
        for identity in numbers:
            ask(SCREEN.create_resource_object("window", identity), "_NET_CLOSE_WINDOW", 0, 2)
    SCREEN.sync()
