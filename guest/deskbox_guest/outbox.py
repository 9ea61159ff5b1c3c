"""Writes an endpoint's bytes to a blocking stream from many threads without ever stopping the reader.

If both sides waited in `send` while holding the lock that their readers need, neither would read and both
would hang for ever. So the state lock is never held during a send, and the reader thread never sends.
"""

from __future__ import annotations

import threading
from typing import Protocol

from deskbox_guest import wire


class ByteStream(Protocol):
    """What a connection runs on: a blocking socket, or something that behaves like one."""

    def recv(self, size: int, /) -> bytes:
        """At most `size` bytes; none once the other side has left."""

    def sendall(self, data: bytes, /) -> None: ...

    def close(self) -> None: ...


class Outbox:
    """`lock` guards `endpoint`; call `flush` after changing it, `kick` instead from the reader thread."""

    def __init__(self, sock: ByteStream, endpoint: wire.Endpoint, lock: threading.Lock) -> None:
        self._sock = sock
        self._endpoint = endpoint
        self._lock = lock
        self._writing = threading.Lock()
        self._dirty = False
        self._kicked = threading.Event()
        self._closed = False
        threading.Thread(target=self._serve_reader, daemon=True, name="outbox").start()

    def flush(self) -> None:
        """Send all there is. A thread that finds another one sending leaves its bytes to that one."""
        with self._lock:
            self._dirty = True
        while self._dirty and self._writing.acquire(blocking=False):
            try:
                while data := self._take():
                    self._sock.sendall(data)
            finally:
                self._writing.release()

    def kick(self) -> None:
        self._kicked.set()

    def close(self) -> None:
        self._closed = True
        self._kicked.set()

    def _take(self) -> bytes:
        with self._lock:
            self._dirty = False
            return self._endpoint.to_send()

    def _serve_reader(self) -> None:
        while True:
            self._kicked.wait()
            self._kicked.clear()
            if self._closed:
                return
            try:
                self.flush()
            except OSError:
                return  # the reader sees the same end and cleans up
