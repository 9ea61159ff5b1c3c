"""Whether an answer is still awaited that an action has asked a server for.

No browser needs to help: the kernel counts what each TCP connection has sent and received, and when. A
connection waits if it has sent something since it last received something.
"""

from __future__ import annotations

import math
import sys
import threading
from dataclasses import dataclass, replace

from deskbox_guest.x11.sockets import Connection, SocketDiag

# What is sent between two answers and is shorter than this is no request but the protocol's own: with TLS, a
# WINDOW_UPDATE, PING or SETTINGS acknowledgement of HTTP/2 has 31 to 39 bytes, a WebSocket's ping fewer. The
# shortest request line with its host has more.
REQUEST_BYTES = 64

# What is sent so soon after an answer is what that answer has led to.
NEXT_S = 0.1


@dataclass
class _Flow:
    """One connection as it was at the last look."""

    sent: int
    received: int
    unanswered: int  # bytes sent since something was last received
    counts: bool  # it was not waiting already when the action began

    def look(self, now: Connection) -> None:
        sent, received = now.sent - self.sent, now.received - self.received
        if not received:
            self.unanswered += sent
        else:
            self.unanswered = sent if _sent_last(now) else 0
        self.sent, self.received = now.sent, now.received

    @property
    def waits(self) -> bool:
        return self.unanswered >= REQUEST_BYTES


def _sent_last(connection: Connection) -> bool:
    """Whether data was sent after data was last received.

    The kernel's clock ticks every 4 ms. Within one tick the acknowledgement tells: it comes along with an
    answer, or alone while there is none.
    """
    if connection.sent_at != connection.received_at:
        return connection.sent_at > connection.received_at
    return connection.unacknowledged or connection.acknowledged_at > connection.received_at


class Requests:
    """Watches the connections that this network's programs have opened. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._diag = SocketDiag()
        self._flows: dict[int, _Flow] = {}
        self._latest = -math.inf
        self._news_at = -math.inf  # when something was last received that had been asked before the action
        try:
            self._diag.connections()
            self._possible = True
        except OSError as error:
            self._possible = False
            print(f"pictures will not wait for servers: the kernel tells nothing ({error})", file=sys.stderr)

    def close(self) -> None:
        with self._lock:
            self._possible = False
            self._diag.close()

    def begin(self) -> None:
        """An action begins: what is waited for now is no consequence of it, so it does not count.

        Nor does what is asked next in the same conversation: whoever keeps a request open for news to come
        (long polling) asks again as soon as some have, on that connection or on another.
        """
        with self._lock:
            before = self._flows
            self._flows = {}
            for connection in self._connections():
                flow = before.get(connection.id)
                if flow is None:
                    unanswered = connection.sent if _sent_last(connection) else 0
                    flow = _Flow(connection.sent, connection.received, unanswered, counts=True)
                else:
                    if not flow.counts and connection.received > flow.received:
                        self._news_at = connection.received_at
                    flow.look(connection)
                flow.counts = not (connection.opening or flow.waits)
                self._flows[connection.id] = flow
            self._latest = -math.inf

    def latest(self, now: float) -> float:
        """When something last happened on a request made since `begin`: `now` while an answer is awaited."""
        with self._lock:
            connections = self._connections()
            new = _Flow(0, 0, 0, counts=True)
            flows = {one.id: self._flows.get(one.id) or replace(new) for one in connections}
            for one in connections:
                if not flows[one.id].counts and one.received > flows[one.id].received:
                    self._news_at = one.received_at
            for one in connections:
                flow = flows[one.id]
                received, waited = one.received > flow.received, flow.waits
                flow.look(one)
                if flow.waits and not waited and 0 <= one.sent_at - self._news_at <= NEXT_S:
                    flow.counts = False
                if flow.counts and (one.opening or flow.waits):
                    self._latest = now
                elif flow.counts and received:
                    self._latest = max(self._latest, one.received_at)
            self._flows = flows
            return self._latest

    def _connections(self) -> list[Connection]:
        return self._diag.connections() if self._possible else []
