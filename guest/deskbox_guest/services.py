"""The calls that the agent answers: each one a few lines between the wire and the service that does it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from deskbox_guest import files, protocol, run, view
from deskbox_guest.protocol import Fault
from deskbox_guest.server import Call, Disconnected, Handler
from deskbox_guest.session import MACHINE_ID
from deskbox_guest.x11.desktop import X11Desktop

HOME = "/home/user"
_CHUNK = 256 * 1024


class Services:
    def __init__(self, desktop: X11Desktop) -> None:
        self._desktop = desktop
        # Pages that come later are nobody's first one; nor are those that an agent before this one has seen.
        self._was_ready = int(os.environ.get("DESKBOX_AGENT_START", "1")) > 1

    def handlers(self) -> dict[str, Handler]:
        return {
            protocol.FACTS: self.facts,
            protocol.READY: self.ready,
            protocol.STEP: self.step,
            protocol.HELD: self.held,
            protocol.RELEASE: self.release,
            protocol.WINDOWS: self.windows,
            protocol.OPEN_URL: self.open_url,
            protocol.EXEC: self.exec,
            protocol.GET_FILE: self.get_file,
            protocol.PUT_FILE: self.put_file,
            protocol.WAKE: self.wake,
            protocol.VIEW: self.view,
        }

    def facts(self, call: Call) -> None:
        width, height = self._desktop.size
        start = int(os.environ["DESKBOX_AGENT_START"])
        boot_id = MACHINE_ID.read_text().strip()
        call.respond(protocol.to_head(protocol.Facts(width, height, boot_id, start, HOME)))

    def ready(self, call: Call) -> None:
        deadline = time.monotonic() + float(call.head["timeout_s"])
        while not self._desktop.painted():
            if call.cancelled() or time.monotonic() > deadline:
                raise Fault("unavailable", "the desktop was not painted in time")
            time.sleep(0.02)  # a window's first picture is an event of the window, which is not ours
        took = 0.0 if self._was_ready else time.monotonic() - float(os.environ["DESKBOX_BOOT_TIME"])
        self._await_page(call, min(deadline, time.monotonic() + took))
        # Now the frame that the window manager moves the window into, and what the page still draws: on a
        # slow machine there is more time between the one and the other.
        step = protocol.Step(settle=protocol.Settle(min(2.0, max(0.25, took / 10)), 10))
        while self._desktop.step(step, call.cancelled)[0].settled == "cap" and time.monotonic() < deadline:
            pass
        self._was_ready = True
        call.respond({})

    def _await_page(self, call: Call, deadline: float) -> None:
        """Wait until the browser's first page is there, which its window's title tells.

        A page may have no title: then no longer than the browser took to open its window.
        """
        while self._desktop.awaits_page() and time.monotonic() < deadline and not call.cancelled():
            time.sleep(0.05)

    def step(self, call: Call) -> None:
        with _bad_input():
            result, image = self._desktop.step(protocol.step_from_head(call.head), call.withdrawn)
        call.respond(protocol.to_head(result), image)

    def held(self, call: Call) -> None:
        call.respond(protocol.to_head(self._desktop.held()))

    def release(self, call: Call) -> None:
        call.respond(protocol.to_head(self._desktop.release_all()))

    def windows(self, call: Call) -> None:
        call.respond({"windows": [protocol.to_head(window) for window in self._desktop.windows()]})

    def open_url(self, call: Call) -> None:
        from deskbox_guest import browser  # not needed before the agent answers

        with _bad_input(), self._desktop.acting():
            browser.open_url(str(call.head["url"]))
        call.respond({})

    def exec(self, call: Call) -> None:
        request = protocol.Exec(**{**call.head, "argv": tuple(call.head["argv"])})
        stdin = b"".join(call.payload())
        answered = False

        def emit(kind: int, data: bytes) -> None:
            # The first output answers the call, so that a command that can't start is still a plain fault.
            nonlocal answered
            if not answered:
                answered = True
                call.respond({}, end=False)
            call.send(protocol.exec_frame(kind, data))

        run.run(request, stdin, emit, call.cancelled)
        call.end()

    def get_file(self, call: Call) -> None:
        file, size, mode = files.open_for_read(str(call.head["path"]))
        with file:
            call.respond({"size": size, "mode": mode}, end=False)
            for data in files.read_exactly(file, size):
                call.send(data)
        call.end()

    def put_file(self, call: Call) -> None:
        head: dict[str, Any] = call.head
        size = files.put(str(head["path"]), int(head["size"]), int(head["mode"]), call.payload())
        call.respond({"size": size})

    def wake(self, call: Call) -> None:
        """The machine was copied while it ran: what has to differ from the other copies is renewed."""
        random.seed()
        if url := str(call.head["url"]):
            from deskbox_guest import first_page  # what it needs is needed once, and only in a copied machine

            with _bad_input():
                first_page.show(self._desktop, url)
        call.respond({})

    def view(self, call: Call) -> None:
        """Bytes between the host's viewer and an x11vnc of its own, until either side ends."""
        sock, process = view.open_view(os.environ["DISPLAY"])
        call.respond({}, end=False)

        def from_viewer() -> None:
            with contextlib.suppress(OSError, Disconnected):  # either way the viewer is gone
                for data in call.payload():
                    sock.sendall(data)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=from_viewer, daemon=True).start()
        try:
            with contextlib.suppress(ConnectionResetError):  # x11vnc died: an end like any other
                while data := sock.recv(_CHUNK):
                    call.send(data)
            call.end()
        finally:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            view.close_view(sock, process)


@contextlib.contextmanager
def _bad_input() -> Iterator[None]:
    """Mark refusals for what is asked; those for the state of things say so themselves."""
    try:
        yield
    except Fault as fault:
        if fault.kind == "refused":
            fault.data.setdefault("input", True)
        raise
