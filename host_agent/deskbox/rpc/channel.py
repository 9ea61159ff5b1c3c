"""The blocking client: calls on one guest connection, from any number of threads."""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from deskbox.rpc.outcome import Disconnected, check_head, timed_out
from deskbox_guest import protocol, wire
from deskbox_guest.outbox import Outbox

HELLO_TIMEOUT = 10.0
# How often a waiting call looks at its caller's `cancelled`.
POLL = 0.02
# How long a guest that was asked to stop may take to say how far it came. It takes 100 ms at most unless it
# is very busy, and whoever abandoned the call at once would wait as long for it to let go of the keys.
WITHDRAW_S = 1.0
# Payload that waits for the guest beyond this blocks the sender.
BACKLOG = 4 * 1024 * 1024

Cancelled = Callable[[], bool]


class CallCancelled(Exception):
    """The caller's `cancelled` said stop; the call has been abandoned."""


class Stream:
    """One call in progress: `head` first, then `payload` until it ends; `send` and `end` meanwhile."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        self._number = number
        self._events: queue.SimpleQueue[wire.Event | None] = queue.SimpleQueue()

    def head(self, *, timeout: float | None = None, cancelled: Cancelled | None = None) -> dict[str, Any]:
        """The result. Raises the guest's fault, Disconnected, CallCancelled, or TimeoutError."""
        event = self._next(timeout, cancelled)
        if not isinstance(event, wire.Head):
            raise Disconnected("the guest gave no answer")
        return check_head(event.head)

    def payload(self, *, timeout: float | None = None, cancelled: Cancelled | None = None) -> Iterator[bytes]:
        while True:
            event = self._next(timeout, cancelled)
            if isinstance(event, wire.Payload):
                self._channel._consumed(self._number, len(event.data))
                yield event.data
            elif isinstance(event, wire.End):
                self._channel._forget(self._number)
                return
            else:
                raise Disconnected("the guest broke off its answer")

    def send(self, data: bytes) -> None:
        self._channel._send(self._number, data)

    def end(self) -> None:
        """Nothing more will be sent."""
        self._channel._end(self._number)

    def cancel(self) -> None:
        """Abandon the call: the guest stops what it does for it."""
        self._channel._reset(self._number)

    def withdraw(self) -> None:
        """Ask the guest to stop, and raise its fault, which tells how far it came, if that comes soon.

        The call is abandoned then, so do not withdraw one whose answer has begun.
        """
        try:
            with contextlib.suppress(TimeoutError, Disconnected):
                self.send(protocol.WITHDRAW)
                self.head(timeout=WITHDRAW_S)
        finally:
            self.cancel()

    def _next(self, timeout: float | None, cancelled: Cancelled | None) -> wire.Event:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if cancelled is not None and cancelled():
                raise CallCancelled
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                self.cancel()
                raise TimeoutError
            wait = left if cancelled is None else POLL if left is None else min(POLL, left)
            try:
                event = self._events.get(timeout=wait)
            except queue.Empty:
                continue
            if event is None:
                self._events.put(None)
                raise Disconnected("the connection to the guest is closed")
            return event

    def _feed(self, event: wire.Event | None) -> None:
        self._events.put(event)


class Channel:
    """Owns the socket. A reader thread hands each event to its stream; `close` ends it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        try:
            rest = _say_hello(sock)
        except BaseException:
            shut(sock)
            raise
        self._endpoint = wire.Endpoint("client")
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._streams: dict[int, Stream] = {}
        self._outbox = Outbox(sock, self._endpoint, self._lock)
        self.closed = False
        self._reader = threading.Thread(target=self._read, args=(rest,), daemon=True, name="channel")
        self._reader.start()

    def open(self, path: str, head: dict[str, Any], payload: bytes = b"", *, end: bool = True) -> Stream:
        with self._lock:
            if self.closed:
                raise Disconnected("the connection to the guest is closed")
            number = self._endpoint.open(path, head, payload, end=end)
            stream = self._streams[number] = Stream(self, number)
        self._flush()
        return stream

    def call(
        self,
        path: str,
        head: dict[str, Any] | None = None,
        payload: bytes = b"",
        *,
        timeout: float,
        cancelled: Cancelled | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """One request, one answer: its head and whole payload. Raises as `Stream.head` does.

        With `cancelled`, the request has no payload and is one that can be withdrawn.
        """
        stream = self.open(path, head or {}, payload, end=cancelled is None)
        try:
            try:
                result = stream.head(timeout=timeout, cancelled=cancelled)
            except CallCancelled:
                stream.withdraw()
                raise
            answer = result, b"".join(stream.payload(timeout=timeout, cancelled=cancelled))
            stream.end()
            return answer
        except TimeoutError:
            raise timed_out(path, timeout) from None
        except BaseException:
            stream.cancel()
            raise

    def close(self) -> None:
        """Idempotent. Calls still waiting raise Disconnected."""
        with contextlib.suppress(OSError):  # the keeper has a duplicate: to close ours would end nothing
            self._sock.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._reader:
            self._reader.join(timeout=5)

    def _read(self, first: bytes) -> None:
        try:
            data = first
            while True:
                with self._room:
                    events = self._endpoint.receive(data)
                    self._room.notify_all()
                self._outbox.kick()
                for event in events:
                    stream = self._streams.get(event.stream)
                    if stream is not None:
                        stream._feed(event)
                data = self._sock.recv(wire.READ_SIZE)
                if not data:
                    return
        except OSError:
            return
        finally:
            with self._room:
                self.closed = True
                streams, self._streams = list(self._streams.values()), {}
                self._room.notify_all()
            self._outbox.close()
            self._sock.close()
            for stream in streams:
                stream._feed(None)

    def _flush(self) -> None:
        try:
            self._outbox.flush()
        except OSError as error:
            raise Disconnected("the connection to the guest is closed") from error

    def _send(self, number: int, data: bytes) -> None:
        with self._room:
            self._room.wait_for(lambda: self.closed or self._endpoint.unsent(number) < BACKLOG)
            if self.closed:
                raise Disconnected("the connection to the guest is closed")
            self._endpoint.send(number, data)
        self._flush()

    def _end(self, number: int) -> None:
        with self._lock:
            self._endpoint.end(number)
        with contextlib.suppress(Disconnected):  # whoever waits for the answer hears of it
            self._flush()

    def _consumed(self, number: int, count: int) -> None:
        with self._lock:
            self._endpoint.consumed(number, count)
        with contextlib.suppress(Disconnected):
            self._flush()

    def _reset(self, number: int) -> None:
        with self._lock:
            self._streams.pop(number, None)
            self._endpoint.reset(number)
        with contextlib.suppress(Disconnected):
            self._flush()

    def _forget(self, number: int) -> None:
        with self._lock:
            self._streams.pop(number, None)


def shut(sock: socket.socket) -> None:
    """End a stream, whoever has a duplicate of it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _say_hello(sock: socket.socket) -> bytes:
    """Exchange hellos; return what followed the guest's. Raises Disconnected."""
    nonce = secrets.token_bytes(protocol.NONCE_BYTES)
    scanner = protocol.HelloScanner("guest", nonce)
    deadline = time.monotonic() + HELLO_TIMEOUT
    try:
        sock.settimeout(HELLO_TIMEOUT)
        sock.sendall(protocol.hello_request(nonce))
        while True:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(64 * 1024)
            if not data:
                raise Disconnected("the guest closed the connection before it said hello")
            found = scanner.feed(data)
            if found is not None:
                sock.settimeout(None)
                return found[1]
    except OSError as error:
        raise Disconnected(f"the guest did not say hello: {error}") from error
