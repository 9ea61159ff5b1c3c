"""The awaiting client: the same calls as `channel`, for asyncio. One reader task, no threads."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator
from typing import Any

from deskbox.rpc.channel import BACKLOG, HELLO_TIMEOUT, POLL, WITHDRAW_S, CallCancelled, Cancelled
from deskbox.rpc.outcome import Disconnected, check_head, timed_out
from deskbox_guest import protocol, wire

_CLOSED = "the connection to the guest is closed"


class AsyncStream:
    """One call in progress; see `channel.Stream`."""

    def __init__(self, channel: AsyncChannel, number: int) -> None:
        self._channel = channel
        self._number = number
        self._events: asyncio.Queue[wire.Event | None] = asyncio.Queue()

    async def head(
        self, *, timeout: float | None = None, cancelled: Cancelled | None = None
    ) -> dict[str, Any]:
        event = await self._next(timeout, cancelled)
        if not isinstance(event, wire.Head):
            raise Disconnected("the guest gave no answer")
        return check_head(event.head)

    async def read(self, *, timeout: float | None = None, cancelled: Cancelled | None = None) -> bytes:
        """The next piece of payload; b"" when there is no more."""
        event = await self._next(timeout, cancelled)
        if isinstance(event, wire.Payload):
            self._channel.endpoint.consumed(self._number, len(event.data))
            self._channel.flush()
            return event.data
        if isinstance(event, wire.End):
            self._channel.streams.pop(self._number, None)
            return b""
        raise Disconnected("the guest broke off its answer")

    async def payload(
        self, *, timeout: float | None = None, cancelled: Cancelled | None = None
    ) -> AsyncIterator[bytes]:
        while data := await self.read(timeout=timeout, cancelled=cancelled):
            yield data

    async def send(self, data: bytes) -> None:
        await self._channel.wait_for_room(self._number)
        self._channel.endpoint.send(self._number, data)
        self._channel.flush()

    def end(self) -> None:
        self._channel.endpoint.end(self._number)
        self._channel.flush()

    def cancel(self) -> None:
        """Abandon the call: the guest stops what it does for it."""
        self._channel.streams.pop(self._number, None)
        self._channel.endpoint.reset(self._number)
        self._channel.flush()

    async def withdraw(self) -> None:
        """Ask the guest to stop; see `channel.Stream.withdraw`."""
        try:
            with contextlib.suppress(TimeoutError, Disconnected):
                await self.send(protocol.WITHDRAW)
                await self.head(timeout=WITHDRAW_S)
        finally:
            self.cancel()

    async def _next(self, timeout: float | None, cancelled: Cancelled | None) -> wire.Event:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            if cancelled is not None and cancelled():
                raise CallCancelled
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                self.cancel()
                raise TimeoutError
            wait = left if cancelled is None else POLL if left is None else min(POLL, left)
            try:
                async with asyncio.timeout(wait):
                    event = await self._events.get()
            except TimeoutError:
                continue
            if event is None:
                self._events.put_nowait(None)
                raise Disconnected(_CLOSED)
            return event

    def feed(self, event: wire.Event | None) -> None:
        self._events.put_nowait(event)


class AsyncChannel:
    """Owns the socket. Make it with `connect`; end it with `close`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.endpoint = wire.Endpoint("client")
        self.streams: dict[int, AsyncStream] = {}
        self.closed = False
        self._room = asyncio.Event()

    @classmethod
    async def connect(cls, sock: socket.socket) -> AsyncChannel:
        """Say hello over a fresh guest connection. Raises Disconnected."""
        sock.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=1024 * 1024)
        channel = cls(reader, writer)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                rest = await channel._say_hello()
        except BaseException as error:
            channel._shut()
            if isinstance(error, OSError):  # TimeoutError and ConnectionError are OSErrors
                raise Disconnected(f"the guest did not say hello: {error}") from error
            raise
        channel._task = asyncio.create_task(channel._read(rest))
        channel.flush()
        return channel

    _task: asyncio.Task[None]

    async def _say_hello(self) -> bytes:
        nonce = secrets.token_bytes(protocol.NONCE_BYTES)
        scanner = protocol.HelloScanner("guest", nonce)
        self._writer.write(protocol.hello_request(nonce))
        while data := await self._reader.read(64 * 1024):
            found = scanner.feed(data)
            if found is not None:
                return found[1]
        raise Disconnected("the guest closed the connection before it said hello")

    def open(self, path: str, head: dict[str, Any], payload: bytes = b"", *, end: bool = True) -> AsyncStream:
        if self.closed:
            raise Disconnected(_CLOSED)
        number = self.endpoint.open(path, head, payload, end=end)
        stream = self.streams[number] = AsyncStream(self, number)
        self.flush()
        return stream

    async def call(
        self,
        path: str,
        head: dict[str, Any] | None = None,
        payload: bytes = b"",
        *,
        timeout: float,
        cancelled: Cancelled | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """One request, one answer; see `channel.Channel.call`."""
        stream = self.open(path, head or {}, payload, end=cancelled is None)
        try:
            try:
                result = await stream.head(timeout=timeout, cancelled=cancelled)
            except CallCancelled:
                await stream.withdraw()
                raise
            pieces = [piece async for piece in stream.payload(timeout=timeout, cancelled=cancelled)]
            stream.end()
            return result, b"".join(pieces)
        except TimeoutError:
            raise timed_out(path, timeout) from None
        except BaseException:  # also when this task is cancelled
            stream.cancel()
            raise

    def _shut(self) -> None:
        with contextlib.suppress(OSError):  # the keeper has a duplicate: to close ours would end nothing
            self._writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._writer.close()

    async def close(self) -> None:
        self._shut()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def flush(self) -> None:
        data = self.endpoint.to_send()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    async def wait_for_room(self, number: int) -> None:
        while not self.closed and self.endpoint.unsent(number) >= BACKLOG:
            self._room.clear()
            await self._room.wait()
        if self.closed:
            raise Disconnected(_CLOSED)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def _read(self, first: bytes) -> None:
        try:
            data = first
            while True:
                for event in self.endpoint.receive(data):
                    stream = self.streams.get(event.stream)
                    if stream is not None:
                        stream.feed(event)
                self.flush()
                self._room.set()
                data = await self._reader.read(256 * 1024)
                if not data:
                    return
        except OSError:
            return
        finally:
            self.closed = True
            self._room.set()
            streams, self.streams = list(self.streams.values()), {}
            for stream in streams:
                stream.feed(None)
            self._writer.close()
