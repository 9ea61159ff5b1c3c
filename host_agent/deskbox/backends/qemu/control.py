"""What the host tells a machine's process 1, on the control port; see `deskbox_guest.ports` and `machine`."""

from __future__ import annotations

import secrets
import socket
import time
from pathlib import Path
from typing import Any

from deskbox.errors import DeskboxError, Unavailable
from deskbox_guest import ports


class Control:
    """A connection to the control port. What is asked before the guest listens waits for it."""

    def __init__(self, path: Path) -> None:
        """Raises Unavailable if the machine has ended."""
        self._lines = ports.Lines()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.connect(str(path))
        except OSError as error:
            self._sock.close()
            raise Unavailable(f"no virtual machine answers on {path}: {error.strerror}") from error

    def close(self) -> None:
        self._sock.close()

    def ask(self, what: str, *, timeout: float, **parameters: Any) -> dict[str, Any]:
        """Ask and wait for the answer. Raises DeskboxError if it is a refusal, Unavailable if none comes."""
        return self.answer(self.send(what, **parameters), what, timeout=timeout)

    def send(self, what: str, **parameters: Any) -> str:
        """Ask; return what `answer` takes."""
        number = secrets.token_hex(8)
        try:
            self._sock.settimeout(None)
            self._sock.sendall(ports.encode({"id": number, "do": what, **parameters}))
        except OSError as error:
            raise Unavailable(f"the virtual machine has ended ({error})") from error
        return number

    def answer(self, number: str, what: str, *, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._sock.settimeout(max(0.001, deadline - time.monotonic()))
                data = self._sock.recv(ports.MAX_LINE)
            except TimeoutError:
                raise Unavailable(f"the virtual machine did not answer {what} within {timeout:g} s") from None
            except OSError as error:
                raise Unavailable(f"the virtual machine has ended ({error})") from error
            if not data:
                raise Unavailable("the virtual machine has ended")
            for message in self._lines.feed(data):
                if message.get("id") == number:
                    if "error" in message:
                        raise DeskboxError(f"the virtual machine refused {what}: {message['error']}")
                    return message
