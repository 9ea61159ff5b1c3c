"""How a keeper gets byte streams to its guest. Each begins with a hello (see `protocol`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deskbox.backends.base import SOCKET
from deskbox.errors import Unavailable

# The agent keeps one spare; more than a few would be a guest that tries to use up our descriptors.
_MAX_SPARES = 4


class Connections(ABC):
    """For use in one event loop."""

    @abstractmethod
    def open(self) -> None:
        """Begin; before the guest starts. Also for a guest that another keeper has had."""

    @abstractmethod
    async def stream(self, timeout: float) -> socket.socket:
        """A stream that nobody has used; its other end waits for a hello. Raises Unavailable.

        Whoever gets it shuts it down when it is done with it: to close a duplicate is not enough.
        """

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """Meanwhile nothing is connected but the streams in use, where a copy of the guest could tell."""
        yield

    @abstractmethod
    def close(self) -> None:
        """End; streams in use are not touched. Idempotent."""


class Dialled(Connections):
    """The host listens on a unix socket in a directory that the guest sees read-only, and the guest dials."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / SOCKET
        self._listener: socket.socket | None = None
        self._spares: list[socket.socket] = []
        self._dialled = asyncio.Event()

    def open(self) -> None:
        self._listener = listen(self._path, 0o666)  # the guest's user is not ours
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def stream(self, timeout: float) -> socket.socket:
        try:
            async with asyncio.timeout(timeout):
                while True:
                    while self._spares:
                        connection = self._spares.pop(0)
                        if not _is_dead(connection):
                            return connection
                        connection.close()
                    self._dialled.clear()
                    await self._dialled.wait()
        except TimeoutError:
            raise Unavailable(f"the guest dialled no connection within {timeout:g} s") from None

    def close(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for spare in self._spares:
            spare.close()
        self._spares = []

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = listener.accept()
            self._spares = [spare for spare in self._spares if not _is_dead(spare)]
            if len(self._spares) >= _MAX_SPARES:
                connection.close()
                return
            self._spares.append(connection)
            self._dialled.set()


def listen(path: Path, mode: int) -> socket.socket:
    """A listening unix socket that does not block, in place of a dead keeper's."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.bind(os.fspath(path))
    path.chmod(mode)
    listener.listen(64)
    return listener


def _is_dead(connection: socket.socket) -> bool:
    """The guest's agent has closed it, or spoken before the host, which ours never does."""
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
