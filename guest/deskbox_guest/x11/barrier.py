"""How we know that an application has handled the keys that were pressed.

Toolkits answer `_NET_WM_PING`: the ping waits in the client's queue behind the key events, so when the answer
comes back they are done. It takes 0.1 to 0.3 ms. Windows that know no ping are watched through the kernel
(see `drain`), which is nearly as sharp.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from Xlib import X
from Xlib.error import BadWindow
from Xlib.protocol import event

from deskbox_guest.x11.display import Link
from deskbox_guest.x11.drain import ClientWatch, FamilyWatch, process_behind
from deskbox_guest.x11.sockets import SocketDiag
from deskbox_guest.x11.windows import client_pid

# For clients that can't be watched in any way (other machines, other users): a pause that is long enough for
# a client which is not stuck.
UNWATCHED_PAUSE_S = 0.05

# Between two looks at a client that is watched through the kernel.
_LOOK_AGAIN_S = 0.0005

# Between two looks at all processes of an application: longer than a message between two of them takes.
_FAMILY_LOOK_S = 0.0025

# Between two looks whether the window is still there while its application is waited for.
_LOOK_AT_FOCUS_S = 0.05


@dataclass(frozen=True)
class Focus:
    """The window that gets the keys, and the application window it is in or is."""

    window: int
    toplevel: int
    pings: bool
    pid: int


class Barrier:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._diag = SocketDiag()
        self._server_pid = process_behind(self._diag, link.socket_inode())
        self._serial = 0
        self._answered = 0
        self._followed = 0  # an application window
        self._left = False  # it has lost the focus since `follow`
        # The answers to a ping go to the root window, to those who selected either there: GTK and Firefox
        # send it to the ones, Qt to the others.
        link.root.change_attributes(event_mask=X.SubstructureNotifyMask | X.StructureNotifyMask)
        link.on(X.ClientMessage, self._client_message)
        link.on(X.FocusOut, self._focus_out)

    def close(self) -> None:
        self._diag.close()

    def focus(self) -> Focus | None:
        """Who gets the keys now; None if no window does."""
        window = self._link.display.get_input_focus().focus
        if isinstance(window, int) or window.id == self._link.root.id:
            return None
        try:
            toplevel = self._toplevel(window)
            protocols = self._link.cardinals(toplevel, "WM_PROTOCOLS")
            return Focus(
                window.id,
                toplevel.id,
                self._link.atom("_NET_WM_PING") in protocols,
                client_pid(self._link, toplevel.id),
            )
        except BadWindow:
            return None

    def has_focus(self, focus: Focus) -> bool:
        """Whether the keys still go to that application window."""
        window = self._link.display.get_input_focus().focus
        if isinstance(window, int):
            return False
        if window.id == focus.window:
            return True
        # Some toolkits hand the focus from the application window to one inside it.
        now = self.focus()
        return now is not None and now.toplevel == focus.toplevel

    def follow(self, focus: Focus) -> None:
        """Notice from now on when that application window loses the focus, until `unfollow`."""
        self._followed, self._left = focus.toplevel, False
        self._link.window(focus.toplevel).change_attributes(event_mask=X.FocusChangeMask)

    def unfollow(self) -> None:
        if self._followed:
            self._link.window(self._followed).change_attributes(event_mask=X.NoEventMask)
            self._followed = 0

    def kept_focus(self, focus: Focus) -> bool:
        """Whether the keys go to that application window, and have done so ever since `follow`."""
        has_focus = self.has_focus(focus)  # and all events until then have been read with the answer
        self._link.pump()
        return has_focus and not self._left

    def wait(self, focus: Focus, timeout: float, cancelled: Callable[[], bool]) -> bool:
        """Wait until the application has handled what it was sent.

        False if that is not known when `timeout` seconds have passed, when `cancelled()`, or when the keys no
        longer go to that application window.
        """
        if focus.pings:
            serial = self._send_ping(focus)
            return self._wait(focus, lambda: self._answered == serial, 0.025, timeout, cancelled)
        client = self._client(focus.pid)
        if client is None:
            self._link.sync()
            self._wait(focus, lambda: False, UNWATCHED_PAUSE_S, UNWATCHED_PAUSE_S, cancelled)
            return not cancelled()
        # When the first answer is here the server has done what we asked, when the second is, it has also
        # sent the client its events: it does so between two requests of ours.
        self._link.sync()
        self._link.sync()
        if not self._wait(focus, client.idle, _LOOK_AGAIN_S, timeout, cancelled):
            return False
        if client.gone():
            # It may have ended before it read its events. The server learns of that, too, and who asks it for
            # the focus behind these requests hears that there is none.
            self._link.sync()
            self._link.sync()
            return False
        return True

    def wait_family(self, focus: Focus, quiet: float, timeout: float, cancelled: Callable[[], bool]) -> None:
        """Wait until the application and the processes it works with have had nothing to do for `quiet`
        seconds, or `timeout` is over."""
        if self.wait(focus, timeout, cancelled) and focus.pid:
            family = FamilyWatch(focus.pid, looks=math.ceil(quiet / _FAMILY_LOOK_S))
            self._wait(focus, family.quiet, _FAMILY_LOOK_S, timeout, cancelled)

    def wait_window_manager(self, timeout: float, cancelled: Callable[[], bool]) -> None:
        """Wait until the window manager has handled what it was sent, if there is one that can be watched."""
        check = self._link.cardinals(self._link.root, "_NET_SUPPORTING_WM_CHECK")
        manager = self._client(client_pid(self._link, check[0])) if check else None
        self._link.sync()
        self._link.sync()
        if manager is not None:
            self._link.pump_until(manager.idle, timeout, cancelled, _LOOK_AGAIN_S)

    def handled(self, focus: Focus) -> bool:
        """Whether a `wait` that timed out need not go on: a look, no new ping."""
        if not self.has_focus(focus):
            return True
        if focus.pings:
            self._link.pump()
            return self._answered == self._serial
        client = self._client(focus.pid)
        return client is None or client.idle()

    def _wait(
        self,
        focus: Focus,
        done: Callable[[], bool],
        every: float,
        timeout: float,
        cancelled: Callable[[], bool],
    ) -> bool:
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0 and not cancelled():
            if self._link.pump_until(done, min(left, _LOOK_AT_FOCUS_S), cancelled, every):
                return True
            if not self.has_focus(focus):
                return False
        return False

    def _send_ping(self, focus: Focus) -> int:
        self._serial = self._serial % 0x7FFFFFFF + 1
        window = self._link.window(focus.toplevel)
        ping = self._link.atom("_NET_WM_PING")
        message = event.ClientMessage(
            window=window,
            client_type=self._link.atom("WM_PROTOCOLS"),
            data=(32, [ping, self._serial, focus.toplevel, 0, 0]),
        )
        window.send_event(message, event_mask=X.NoEventMask)
        return self._serial

    def _client(self, pid: int) -> ClientWatch | None:
        """None if the client can't be watched."""
        if not pid or not self._server_pid:
            return None
        client = ClientWatch(self._diag, pid, self._server_pid)
        return client if client.possible else None

    def _client_message(self, message: Any) -> None:
        if message.client_type == self._link.atom("WM_PROTOCOLS"):
            data = message.data[1]
            if data[0] == self._link.atom("_NET_WM_PING"):
                self._answered = data[1]

    def _focus_out(self, out: Any) -> None:
        # Not when it goes to a window inside, nor for a window that is only under the pointer.
        outside = out.detail in (
            X.NotifyAncestor,
            X.NotifyVirtual,
            X.NotifyNonlinear,
            X.NotifyNonlinearVirtual,
        )
        moved = out.mode in (X.NotifyNormal, X.NotifyWhileGrabbed)
        self._left = self._left or (outside and moved and out.window.id == self._followed)

    def _toplevel(self, window: Any) -> Any:
        """The nearest ancestor that the window manager manages, else the one right below the root."""
        state = self._link.atom("WM_STATE")
        while True:
            if window.get_property(state, X.AnyPropertyType, 0, 0) is not None:
                return window
            parent = window.query_tree().parent
            if isinstance(parent, int) or parent.id == self._link.root.id:
                return window
            window = parent
