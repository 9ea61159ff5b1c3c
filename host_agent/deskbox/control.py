"""Talk to a desktop's keeper: one JSON object a line each way, a file descriptor beside it for a stream."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from deskbox.errors import DeskboxError, Paused, Refused, Unavailable

# Errors by the name that they have on the way from a keeper.
KINDS: dict[str, type[DeskboxError]] = {"refused": Refused, "paused": Paused, "unavailable": Unavailable}


def kind_of(error: DeskboxError) -> str:
    return next((name for name, kind in KINDS.items() if isinstance(error, kind)), "unavailable")


class Control:
    """A connection to a keeper. What was leased over it is given back when it closes. Safe for threads."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._asking = threading.Lock()
        try:
            self._sock.connect(str(path))
        except OSError as error:
            self._sock.close()
            raise Unavailable(f"desktop {path.parent.name!r} has no keeper that answers: {error}") from error

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def request(self, op: str, *, timeout: float, **parameters: Any) -> dict[str, Any]:
        """Ask and wait for the answer. Raises Refused or Unavailable, as the keeper says."""
        return self._ask(op, timeout, parameters)[0]

    def stream(self, *, timeout: float) -> socket.socket:
        """A fresh byte stream to the guest."""
        _, fds = self._ask("stream", timeout, {"wait": timeout})
        if not fds:
            raise Unavailable("the keeper gave no stream")
        return socket.socket(fileno=fds[0])

    def _ask(self, op: str, timeout: float, parameters: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        with self._asking:
            return self._ask_alone(op, timeout, parameters)

    def _ask_alone(
        self, op: str, timeout: float, parameters: dict[str, Any]
    ) -> tuple[dict[str, Any], list[int]]:
        # The keeper bounds its own waits by what it was told; the rest is for a machine under load.
        deadline = time.monotonic() + timeout + 5
        fds: list[int] = []
        try:
            self._sock.sendall(json.dumps({"op": op, **parameters}).encode() + b"\n")
            data = b""
            while not data.endswith(b"\n"):
                self._sock.settimeout(max(0.001, deadline - time.monotonic()))
                piece, new, _, _ = socket.recv_fds(self._sock, 64 * 1024, 1)
                fds += new
                if not piece:
                    raise Unavailable("the desktop is gone: its keeper has ended")
                data += piece
        except OSError as error:
            raise Unavailable(f"the desktop's keeper does not answer: {error}") from error
        answer: dict[str, Any] = json.loads(data)
        if "error" in answer:
            raise KINDS[answer["kind"]](answer["error"])
        return answer, fds
