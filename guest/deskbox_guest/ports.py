"""A machine's ports to its host: their names, and what is said on the control port.

A machine has no network card. It has virtio-serial ports, which are byte streams: nine for the agent's calls,
of which eight are for whoever uses the desktop and the last one for those who keep it; and one on which the
host tells process 1 (`machine.py`) what only root can do. On that one a message is a JSON object on a line of
its own:

    host   {"id": "5b1f…", "do": "start", "environment": {…}}     run the session; refused if one runs
           {"id": …, "do": "wake", "time_ns": …, "seed": "…", "hostname": "…", "machine_id": "…"}
           {"id": …, "do": "status"}                              -> "state": "waiting" or "running"
           {"id": …, "do": "poweroff"}
    guest  {"id": the same, "ok": true, …} or {"id": the same, "error": "one sentence"}

`wake` makes a machine that was copied while it ran one of its own: `time_ns` since 1970 becomes its clock,
`seed` (bytes in hex) goes into the kernel's random numbers, `machine_id` (32 hex digits) is what tells this
start of a guest from every other, and becomes the agent's boot id.

The kernel keeps what a connection left behind, half a line perhaps, and gives it to the next one. So a
message begins with an end of line, too; whatever is no whole message is dropped; and a host takes for an
answer only what has the id, chosen at random, of its own question.
"""

from __future__ import annotations

import json
from typing import Any

CONTROL = "deskbox.control"
RPC = tuple(f"deskbox.{number}" for number in range(9))
DIRECTORY = "/dev/virtio-ports"

MAX_LINE = 64 * 1024  # bytes of one message


def encode(message: dict[str, Any]) -> bytes:
    return b"\n" + json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Takes a stream in pieces and gives the messages in it; drops what is none, and never grows."""

    def __init__(self) -> None:
        self._buffer = b""
        self._skipping = False  # inside a line that is too long

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        *whole, rest = (self._buffer + data).split(b"\n")
        if whole and self._skipping:
            del whole[0]  # the end of the line that was too long
            self._skipping = False
        self._buffer = rest
        if len(rest) > MAX_LINE or self._skipping:
            self._buffer, self._skipping = b"", True
        found = (_parse(line) for line in whole if len(line) <= MAX_LINE)
        return [message for message in found if message is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
