"""The application windows, as the window manager lists them (EWMH)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from Xlib import X
from Xlib.error import BadDrawable, BadWindow
from Xlib.ext import res
from Xlib.xobject.drawable import Window as XWindow

from deskbox_guest.protocol import Window
from deskbox_guest.x11.display import Link

BROWSER = "firefox-esr"  # its WM_CLASS class
UNTITLED_BROWSER = "Mozilla Firefox"  # its window's title before it has a page, or if that has no title


def windows(link: Link) -> list[Window]:
    """Top of the stack first. Without a window manager that lists them: none."""
    managed = link.cardinals(link.root, "_NET_CLIENT_LIST")
    active = next(iter(link.cardinals(link.root, "_NET_ACTIVE_WINDOW")), 0)
    # Not `_NET_CLIENT_LIST_STACKING`: window managers differ in which end of it is the top.
    heights = {child.id: height for height, child in enumerate(link.root.query_tree().children)}
    found = []
    for window_id in managed:
        with suppress(BadWindow, BadDrawable):  # it has just gone
            window = _describe(link, window_id, active)
            if window is not None:
                found.append((heights.get(_frame(link, window_id), len(heights)), window))
    return [window for _, window in sorted(found, key=lambda pair: pair[0], reverse=True)]


def _frame(link: Link, window_id: int) -> int:
    """The ancestor that is a child of the root: what the window manager put around the window."""
    window = link.window(window_id)
    while (parent := window.query_tree().parent).id != link.root.id:
        window = parent
    return int(window.id)


def app_under_pointer(link: Link) -> str:
    """The WM_CLASS class of the application whose window the pointer is in; "" if it is in none."""
    with suppress(BadWindow, BadDrawable):
        for window in _under_pointer(link):
            if classes := window.get_wm_class():
                return str(classes[1])
    return ""


def pid_under_pointer(link: Link) -> int:
    """The process that made the innermost window that the pointer is in; 0 if it is in none."""
    with suppress(BadWindow, BadDrawable):
        if windows := list(_under_pointer(link)):
            return client_pid(link, windows[-1].id)
    return 0


def _under_pointer(link: Link) -> Iterator[XWindow]:
    """The windows that the pointer is in, the outermost first."""
    window = link.root
    while isinstance(window := window.query_pointer().child, XWindow):
        yield window


def client_pid(link: Link, window_id: int) -> int:
    """The process that made a window, as the server knows it from its socket; 0 if it does not."""
    for found in res.query_client_ids(link.display, [(window_id, res.LocalClientPIDMask)]).ids:
        if found.value:
            return int(found.value[0])
    return 0


def _describe(link: Link, window_id: int, active: int) -> Window | None:
    """None if the window shows nothing, because it is minimised."""
    window = link.window(window_id)
    if window.get_attributes().map_state != X.IsViewable:
        return None
    geometry = window.get_geometry()
    corner = link.root.translate_coords(window_id, 0, 0)
    classes = window.get_wm_class()
    return Window(
        id=window_id,
        title=_title(link, window),
        app=classes[1] if classes else "",
        x=corner.x,
        y=corner.y,
        width=geometry.width,
        height=geometry.height,
        active=window_id == active,
        pid=client_pid(link, window_id),
    )


def _title(link: Link, window: XWindow) -> str:
    """The Unicode title, else the old Latin-1 one."""
    found = window.get_full_property(link.atom("_NET_WM_NAME"), link.atom("UTF8_STRING"))
    if found is not None:
        value = found.value
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    name = window.get_wm_name()
    return name.decode("latin-1") if isinstance(name, bytes) else name or ""
