"""What is down right now, as the X server sees it: whoever pressed it, and whether or not it still lives."""

from __future__ import annotations

from Xlib import X
from Xlib.ext import xinput

from deskbox_guest.protocol import Held
from deskbox_guest.x11.display import Link
from deskbox_guest.x11.keymap import name_of


def keys_down(link: Link) -> list[int]:
    """Keycodes."""
    bits = link.display.query_keymap()
    return [8 * index + bit for index, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1]


def buttons_down(link: Link) -> list[int]:
    """X button numbers. The core protocol shows only five of them; the input extension all."""
    down: set[int] = set()
    for device in xinput.query_device(link.display, xinput.AllMasterDevices).devices:
        for item in device.classes:
            if item.type == xinput.ButtonClass:
                down.update(index + 1 for index in range(len(item.state)) if item.state[index])
    return sorted(down)


def button_down(link: Link, button: int) -> bool:
    """Whether one button is down; the core protocol answers fastest."""
    if button <= 5:
        return bool(link.root.query_pointer().mask & X.Button1Mask << button - 1)
    return button in buttons_down(link)


def held(link: Link) -> Held:
    return Held(
        keys=tuple(_key_name(link, keycode) for keycode in keys_down(link)), buttons=tuple(buttons_down(link))
    )


def _key_name(link: Link, keycode: int) -> str:
    row = link.display.get_keyboard_mapping(keycode, 1)[0]
    keysym = next((keysym for keysym in row if keysym), 0)
    return name_of(keysym) if keysym else "NoSymbol"


def pointer(link: Link) -> tuple[int, int]:
    """Screen pixels."""
    found = link.root.query_pointer()
    return found.root_x, found.root_y
