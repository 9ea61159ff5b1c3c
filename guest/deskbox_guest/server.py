"""The agent: answers the host's calls on byte streams. Knows no X, only services.

Where the streams come from is one of two things: a `Dialer` connects to the host's unix socket, and
`port_server` waits on the ports of a virtual machine.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from deskbox_guest import protocol, wire
from deskbox_guest.outbox import ByteStream, Outbox
from deskbox_guest.protocol import Fault

# More than this waiting to be sent on one stream blocks its producer: a slow reader costs no memory.
BACKLOG = 4 * 1024 * 1024
# Connections that the host may use at once; each costs two threads at most.
MAX_CONNECTIONS = 64
READY_WORKERS = 6

Handler = Callable[["Call"], None]


class Disconnected(Exception):
    """The host left or cancelled: there is nobody to answer any more."""


class Call:
    """One call as a handler sees it: blocking reads and writes, and a flag that says 'stop'."""

    def __init__(self, connection: Connection, stream: int, path: str) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self._connection = connection
        self._stream = stream
        self._incoming: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._withdrawn = threading.Event()
        self._answered = False

    def cancelled(self) -> bool:
        return self._stop.is_set()

    def withdrawn(self) -> bool:
        """Whether to stop a call that takes no payload: the host sent some, or reset it."""
        return self._withdrawn.is_set()

    def payload(self) -> Iterator[bytes]:
        """The request's payload as it arrives. Raises Disconnected if the host abandons the call."""
        while (data := self._incoming.get()) is not None:
            self._connection.consumed(self._stream, len(data))
            yield data
        if self.cancelled():
            raise Disconnected

    def respond(self, head: dict[str, Any], payload: bytes = b"", *, end: bool = True) -> None:
        self._answered = True
        self._connection.respond(self._stream, head, payload, end=end)

    def send(self, data: bytes) -> None:
        """Send payload; blocks while the reader is slow. Raises Disconnected once it is gone."""
        self._connection.send(self._stream, data, self._stop)

    def end(self) -> None:
        self._connection.end(self._stream)

    def fail(self, fault: Fault) -> None:
        """Answer with a fault; break the answer off if it has begun, so that nobody waits for its end."""
        if self._answered:
            self._connection.reset(self._stream)
        else:
            self.respond({"fault": {"kind": fault.kind, "message": fault.message, "data": fault.data}})

    # Called by the connection's reader.
    def feed(self, data: bytes | None) -> None:
        if data is not None:
            self._withdrawn.set()
        self._incoming.put(data)

    def stop(self) -> None:
        self._stop.set()
        self._withdrawn.set()
        self._incoming.put(None)


class Connection:
    """One stream from the host: a reader thread feeds the state machine, handlers answer from the pool."""

    def __init__(self, sock: ByteStream, handlers: dict[str, Handler], pool: ThreadPoolExecutor) -> None:
        self._sock = sock
        self._handlers = handlers
        self._pool = pool
        self._endpoint = wire.Endpoint("server")
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._outbox = Outbox(sock, self._endpoint, self._lock)
        self._calls: dict[int, Call] = {}

    def serve(self, first: bytes) -> None:
        """Run until the host leaves. Every call still running is told to stop."""
        try:
            self._receive(first)
            while data := self._sock.recv(wire.READ_SIZE):
                self._receive(data)
        except (OSError, ValueError):
            pass  # a broken stream ends like a closed one; the host sees its end
        finally:
            self._outbox.close()
            with self._lock:
                calls, self._calls = list(self._calls.values()), {}
            for call in calls:
                call.stop()
            with self._room:
                self._room.notify_all()
            self._sock.close()

    def _receive(self, data: bytes) -> None:
        with self._room:
            events = self._endpoint.receive(data)
            self._room.notify_all()
        self._outbox.kick()
        for event in events:
            self._dispatch(event)

    def _dispatch(self, event: wire.Event) -> None:
        if isinstance(event, wire.Opened):
            self._calls[event.stream] = Call(self, event.stream, event.path)
            return
        call = self._calls.get(event.stream)
        if call is None:
            return
        if isinstance(event, wire.Head):
            call.head = event.head
            # No further thread can be started when the guest is at its limit of processes; the call has
            # been queued all the same, for the next worker that is free.
            with contextlib.suppress(RuntimeError):
                self._pool.submit(self._run, event.stream, call)
        elif isinstance(event, wire.Payload):
            call.feed(event.data)
        elif isinstance(event, wire.End):
            call.feed(None)
        else:
            call.stop()
            with self._room:
                self._room.notify_all()

    def _run(self, stream: int, call: Call) -> None:
        try:
            handler = self._handlers.get(call.path)
            if handler is None:
                raise Fault("refused", f"this guest does not know the call {call.path!r}")
            handler(call)
        except Fault as fault:
            call.fail(fault)
        except Disconnected:
            pass
        except Exception as error:  # a bug of ours must reach the host as an answer, not as silence
            call.fail(Fault("interrupted", f"{call.path} failed in the guest: {error!r}"))
        finally:
            with self._lock:
                self._calls.pop(stream, None)

    def respond(self, stream: int, head: dict[str, Any], payload: bytes, *, end: bool) -> None:
        with contextlib.suppress(OSError):
            with self._lock:
                self._endpoint.respond(stream, head, payload, end=end)
            self._outbox.flush()

    def send(self, stream: int, data: bytes, stop: threading.Event) -> None:
        with self._room:
            self._room.wait_for(lambda: stop.is_set() or self._endpoint.unsent(stream) < BACKLOG)
            if stop.is_set():
                raise Disconnected
            self._endpoint.send(stream, data)
        try:
            self._outbox.flush()
        except OSError:
            raise Disconnected from None

    def end(self, stream: int) -> None:
        with contextlib.suppress(OSError):
            with self._lock:
                self._endpoint.end(stream)
            self._outbox.flush()

    def reset(self, stream: int) -> None:
        with contextlib.suppress(OSError):
            with self._lock:
                self._endpoint.reset(stream)
            self._outbox.flush()

    def consumed(self, stream: int, count: int) -> None:
        with contextlib.suppress(OSError):
            with self._lock:
                self._endpoint.consumed(stream, count)
            self._outbox.flush()


def call_pool() -> ThreadPoolExecutor:
    """The threads that answer calls, whatever connection those come from."""
    pool = ThreadPoolExecutor(max_workers=MAX_CONNECTIONS, thread_name_prefix="call")
    # These are there whatever happens to the guest's limit of processes.
    ready = threading.Barrier(READY_WORKERS)
    list(pool.map(lambda _: ready.wait(), range(READY_WORKERS)))
    return pool


def await_hello(stream: ByteStream) -> bytes:
    """Wait until the host takes the stream, and say so; return what followed its hello.

    Raises ConnectionError if it leaves without one.
    """
    scanner = protocol.HelloScanner("host")
    while data := stream.recv(64 * 1024):
        if (found := scanner.feed(data)) is not None:
            nonce, rest = found
            stream.sendall(protocol.hello_reply(nonce))
            return rest
    raise ConnectionError("the host has left")


class Dialer:
    """Keeps one unused connection to the host and serves each one that the host takes.

    When the host says hello on a connection, the next one is dialled, so that a spare is always ready.
    Nothing in the guest listens.
    """

    def __init__(self, address: str, handlers: dict[str, Handler]) -> None:
        self._address = address
        self._handlers = handlers
        self._pool = call_pool()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def run(self) -> None:
        """Never returns. A host that is away (its keeper is being replaced) is dialled again."""
        delay = 0.02
        while True:
            self._slots.acquire()
            taken = self._dial()
            if not taken:
                self._slots.release()
                time.sleep(delay)  # nothing tells when a listener comes back
            delay = 0.02 if taken else min(delay * 2, 0.5)

    def _dial(self) -> bool:
        """Connect and wait for the host's hello; True once it has taken the connection."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self._address)
            rest = await_hello(sock)
        except OSError:
            sock.close()
            return False
        try:
            threading.Thread(target=self._serve, args=(sock, rest), daemon=True).start()
        except RuntimeError:  # the guest is at its limit of processes
            sock.close()
            return False
        return True

    def _serve(self, sock: socket.socket, rest: bytes) -> None:
        try:
            Connection(sock, self._handlers, self._pool).serve(rest)
        except RuntimeError:  # as above
            sock.close()
        finally:
            self._slots.release()
