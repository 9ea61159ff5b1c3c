"""A client for QEMU's monitor protocol (QMP), blocking and safe for threads.

The protocol is one JSON object a line: https://www.qemu.org/docs/master/interop/qmp-spec.html. QEMU's own
library for it (qemu.qmp) is for asyncio, keeps no deadline for a command, and passes file descriptors only
through what Python's transports no longer offer; here commands come from threads, each with a deadline,
some with a descriptor.

A monitor's socket serves one connection at a time and lets the next one wait, so that short connections to
the same monitor take turns.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from deskbox.errors import DeskboxError, Unavailable

TIMEOUT = 10.0  # seconds; QEMU answers within milliseconds unless the machine is very busy

Event = dict[str, Any]


class CommandFailed(DeskboxError):
    """QEMU refused a command, or could not carry it out."""


class Qmp:
    """A connection to a monitor, with the greeting behind it."""

    def __init__(self, path: Path, *, timeout: float = TIMEOUT) -> None:
        """Connect; wait up to `timeout` seconds while another connection has the monitor.

        Raises Unavailable if nothing listens there or no greeting comes in time.
        """
        self._lock = threading.Lock()
        self._buffer = b""
        self._events: deque[Event] = deque()
        self._number = 0
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            deadline = time.monotonic() + timeout
            self._sock.settimeout(timeout)
            try:
                self._sock.connect(str(path))
            except OSError as error:
                raise Unavailable(
                    f"no virtual machine answers on {path}: {error.strerror or error}"
                ) from error
            self._read(deadline, "greet us")
            self._command("qmp_capabilities", {}, None, deadline)
        except BaseException:
            self._sock.close()
            raise

    def __enter__(self) -> Qmp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent; ends a wait for events in another thread."""
        with contextlib.suppress(OSError):  # it was closed already, or QEMU has
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def execute(
        self, command: str, *, timeout: float = TIMEOUT, fd: int | None = None, **arguments: Any
    ) -> Any:
        """Run a command and return what it returns. With `fd`, QEMU gets a duplicate of that descriptor.

        An argument's `_` stands for the `-` in QEMU's name. Raises CommandFailed with QEMU's words,
        Unavailable if QEMU has ended or does not answer within `timeout` seconds.
        """
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        with self._lock:
            return self._command(command, named, fd, time.monotonic() + timeout)

    def wait_for(self, event: str, matches: Callable[[Event], bool], *, timeout: float) -> Event:
        """The first event of that name, since the connection or the last one taken, whose data fit.

        Earlier events are dropped. Raises Unavailable if QEMU has ended or there is none within `timeout`
        seconds.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            while True:
                while self._events:
                    found = self._events.popleft()
                    if found["event"] == event and matches(found.get("data", {})):
                        return found
                self._take(deadline, f"report {event}")

    def events(self) -> Iterator[Event]:
        """All events as they come, until QEMU ends or the connection is closed."""
        with self._lock:
            while True:
                while self._events:
                    yield self._events.popleft()
                try:
                    self._take(None, "")
                except Unavailable:
                    return

    def _command(self, command: str, arguments: dict[str, Any], fd: int | None, deadline: float) -> Any:
        self._number += 1
        number = self._number
        line = json.dumps({"execute": command, "arguments": arguments, "id": number}).encode() + b"\n"
        try:
            self._sock.settimeout(max(0.001, deadline - time.monotonic()))
            # Descriptors belong to the first byte that is sent with them; a command fits the socket's buffer.
            sent = socket.send_fds(self._sock, [line], [fd]) if fd is not None else 0
            self._sock.sendall(line[sent:])
        except OSError as error:
            raise Unavailable(f"the virtual machine has ended ({error})") from error
        while True:
            answer = self._take(deadline, f"answer {command}")
            if answer.get("id") != number:
                continue  # the answer to a command that we have given up waiting for
            if "error" in answer:
                raise CommandFailed(
                    f"QEMU could not {command}: {answer['error'].get('desc', answer['error'])}"
                )
            return answer["return"]

    def _take(self, deadline: float | None, doing: str) -> dict[str, Any]:
        """The next message; an event is put aside, too."""
        message = self._read(deadline, doing)
        if "event" in message:
            self._events.append(message)
        return message

    def _read(self, deadline: float | None, doing: str) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            try:
                self._sock.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
                data = self._sock.recv(64 * 1024)
            except TimeoutError:
                raise Unavailable(f"the virtual machine did not {doing} in time") from None
            except OSError as error:
                raise Unavailable(f"the virtual machine has ended ({error})") from error
            if not data:
                raise Unavailable("the virtual machine has ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message
