"""The agent's streams where the guest is a virtual machine: virtio-serial ports, each one stream at a time.

A port is a device file. It knows no connections: what one host sent and nobody read is there for the next
one, and a host that leaves and comes back at once may not be noticed. So each connection has an open file
of its own, which the host sees being opened and closed, and the two follow these rules:

  - the agent opens the port, waits for the host, and says LISTENING;
  - the host connects only after it has seen the port being opened;
  - whoever is done first, the agent closes the port, which throws away what was not read, and opens it again;
    the host, done or not, leaves once it sees that, and comes back only then.

Facts about the device are from Linux, drivers/char/virtio_console.c: while no host is there, read() returns
no bytes, write() would block, and poll() reports POLLHUP.
"""

from __future__ import annotations

import os
import select
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deskbox_guest import protocol
from deskbox_guest.server import Connection, Handler, await_hello, call_pool

_RETRY = 0.1  # seconds; a port is busy until the last process of an agent that died has gone
# The driver copies at most so much at once, into memory that it has to find in one piece.
_WRITE_SIZE = 32 * 1024


class PortStream:
    """A port, opened for one connection: a ByteStream that ends when the host leaves, and for good.

    One thread reads and closes it; any may write.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        self._closing = os.eventfd(0, os.EFD_CLOEXEC)  # readable from `close` on
        self._writing = threading.Lock()
        self._closed = False

    def wait_for_host(self) -> None:
        """Return once a host is connected."""
        # POLLHUP, which can't be left out, would make any other wait return at once for as long as nobody is
        # there. Edge-triggered, it is reported once, and then again at each change.
        with select.epoll() as epoll:
            epoll.register(self._fd, select.EPOLLOUT | select.EPOLLET)
            while epoll.poll()[0][1] & select.EPOLLHUP:
                pass

    def recv(self, size: int) -> bytes:
        while True:
            try:
                return os.read(self._fd, size)
            except BlockingIOError:
                self._wait(select.POLLIN)

    def sendall(self, data: bytes) -> None:
        """Raises ConnectionError once the host has left or the stream is closed."""
        with self._writing:
            left = memoryview(data)
            while left:
                if self._closed:
                    raise ConnectionError("the stream is closed")
                try:
                    left = left[os.write(self._fd, left[:_WRITE_SIZE]) :]
                except BlockingIOError:
                    if self._wait(select.POLLOUT) & select.POLLHUP:
                        raise ConnectionError("the host has left") from None

    def close(self) -> None:
        """Idempotent. Whoever is writing stops first: the number of the file may mean another one at once."""
        if self._closed:
            return
        self._closed = True
        os.eventfd_write(self._closing, 1)
        with self._writing:
            os.close(self._fd)
            os.close(self._closing)

    def _wait(self, event: int) -> int:
        """Until the port is ready, the host gone, or the stream closed; what is true of the port then."""
        poll = select.poll()
        poll.register(self._fd, event)
        poll.register(self._closing, select.POLLIN)
        return dict(poll.poll()).get(self._fd, 0)


class PortServer:
    """Serves the connections of all ports, each with a thread of its own."""

    def __init__(self, ports: list[Path], handlers: dict[str, Handler]) -> None:
        self._ports = ports
        self._handlers = handlers
        self._pool: ThreadPoolExecutor = call_pool()

    def run(self) -> None:
        """Never returns."""
        threads = [
            threading.Thread(target=self._serve, args=(port,), daemon=True, name=port.name)
            for port in self._ports
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self, port: Path) -> None:
        while True:
            try:
                self._serve_one(port)
            except (OSError, RuntimeError):  # the port is busy; no thread can be started
                time.sleep(_RETRY)

    def _serve_one(self, port: Path) -> None:
        stream = PortStream(port)
        try:
            stream.wait_for_host()
            stream.sendall(protocol.LISTENING)
            Connection(stream, self._handlers, self._pool).serve(await_hello(stream))
        except ConnectionError:
            pass  # a host that leaves before its hello is nothing unusual
        finally:
            stream.close()
