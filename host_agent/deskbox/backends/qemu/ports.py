"""The keeper's byte streams to a virtual machine: virtio-serial ports, each with a socket of QEMU's.

A stream is one connection to a free port. The guest's agent opens the port for it and closes it afterwards,
which QEMU reports (VSERPORT_CHANGE), so that both sides know where a connection begins and ends; the rules
are in `deskbox_guest.port_server`. Free ports are kept connected: the agent waits there at no cost, and a
stream is there at once.

One task tends each port: wait until the agent has opened it, connect, hear that it listens, hand the stream
out, hang up when either side is done, and from the beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deskbox.backends.connections import Connections
from deskbox.backends.qemu import command
from deskbox.backends.qemu.qmp import Qmp
from deskbox.errors import Unavailable
from deskbox_guest import protocol

# Seconds that an agent which has its port open may say nothing before we hang up and try again. It says so
# within milliseconds; silence means that it did not notice that the last host had left, or that another
# keeper's client still has the port. Twice as long after each time, so that a very slow guest comes through.
_PATIENCE, _MOST_PATIENCE = 1.0, 16.0
# How often to look whether a machine that is being started has its monitor: nothing tells.
_LOOK_S = 0.01


class _Port:
    """What is known of one port."""

    def __init__(self, number: int, path: Path) -> None:
        self.name = f"rpc{number}"
        self.path = path
        self.is_open = False  # by the agent
        self.opened = 0  # how often, as far as we saw
        self.used = 0  # which of these the present connection belongs to
        self.changed = asyncio.Event()
        self.stream: socket.socket | None = None  # ours, connected and heard of
        self.taken = False  # by a client, which has a duplicate
        self.held = False  # ready to be connected to, if we were not resting
        self.hung_up = False  # by the client, or by QEMU

    @property
    def is_new(self) -> bool:
        """Whether the agent still has it open for the present connection."""
        return self.is_open and self.opened == self.used

    @property
    def rests(self) -> bool:
        """Whether nobody is connected, or a client is."""
        return self.held or not self.is_open or (self.stream is not None and self.taken)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


class Ports(Connections):
    """Of one machine, for as long as one keeper has it."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the machine's."""
        self._monitor = command.monitor_sockets(directory)["ports"]
        # The last one is not for clients.
        paths = command.port_sockets(directory)[:-1]
        self._ports = [_Port(number, path) for number, path in enumerate(paths)]
        self._by_name = {port.name: port for port in self._ports}
        self._free = asyncio.Event()  # a port may have become free, or the machine has ended
        self._ended = False
        self._resting = False
        self._hung_up = select.epoll()
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        asyncio.get_running_loop().add_reader(self._hung_up, self._take_hang_ups)
        self._tasks = [asyncio.create_task(self._listen())]

    async def stream(self, timeout: float) -> socket.socket:
        """A fresh stream, on which the agent awaits the host's hello. Raises Unavailable."""
        try:
            async with asyncio.timeout(timeout):
                while not self._ended:
                    for port in self._ports:
                        if port.stream and port.is_new and not (port.taken or port.hung_up):
                            port.taken = True
                            port.stream.setblocking(True)
                            return port.stream.dup()
                    self._free.clear()
                    await self._free.wait()
        except TimeoutError:
            if all(port.taken for port in self._ports):
                raise Unavailable(
                    f"all {len(self._ports)} streams to the guest are in use: end what uses one, then repeat"
                ) from None
            raise Unavailable(f"the guest's agent did not listen within {timeout:g} s") from None
        raise Unavailable("the virtual machine has ended")

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """Free ports are not connected meanwhile.

        A machine that is frozen now and goes on as another one takes its hosts for still there, and says to
        none of the new ones that it listens: they have to hang up first, and lose the time of `_PATIENCE`.
        """
        self._resting = True
        try:
            self._note_change()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    for port in self._ports:
                        await self._come_to_rest(port)
            yield
        finally:
            self._resting = False
            self._note_change()

    def close(self) -> None:
        if not self._hung_up.closed:
            asyncio.get_running_loop().remove_reader(self._hung_up)
            self._hung_up.close()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        self._end()

    async def _listen(self) -> None:
        """Tend the ports, and learn from QEMU what happens to them, until the machine ends."""
        loop = asyncio.get_running_loop()
        qmp = await self._connected_monitor()

        def listen() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is interested any more
                for event in qmp.events():
                    loop.call_soon_threadsafe(self._take_event, event)
                loop.call_soon_threadsafe(self._end)

        try:
            # What happens from here on is in the events that follow, or already in this answer.
            devices = await asyncio.to_thread(qmp.execute, "query-chardev")
            for device in devices:
                if device["label"] in self._by_name and device["frontend-open"]:
                    self._note(device["label"], True)
            self._tasks += [asyncio.create_task(self._tend(port)) for port in self._ports]
            threading.Thread(target=listen, daemon=True, name="machine events").start()
            await asyncio.get_running_loop().create_future()  # until `close`
        except Unavailable:
            self._end()
        finally:
            qmp.close()

    async def _connected_monitor(self) -> Qmp:
        while True:
            try:
                return await asyncio.to_thread(Qmp, self._monitor)
            except Unavailable:
                await asyncio.sleep(_LOOK_S)

    # --- one port ----------------------------------------------------------------------------------------
    async def _tend(self, port: _Port) -> None:
        patience = _PATIENCE
        while not self._ended:
            await self._opening(port, patience)
            port.held = self._resting
            port.changed.set()
            await port.until(lambda: self._ended or not self._resting)
            port.held = False
            stream = await self._connect(port, patience)
            if stream is None:
                patience = min(patience * 2, _MOST_PATIENCE)
                continue
            patience = _PATIENCE
            try:
                port.stream, port.taken, port.hung_up = stream, False, False
                self._hung_up.register(stream, select.EPOLLRDHUP | select.EPOLLONESHOT)
                self._free.set()
                await port.until(
                    lambda: (
                        self._ended or port.hung_up or not port.is_new or (self._resting and not port.taken)
                    )
                )
            except asyncio.CancelledError:  # we are closed, which does not concern a client
                if port.taken:
                    stream.close()
                raise
            finally:
                port.stream = None
                if stream.fileno() >= 0:
                    if not self._hung_up.closed:
                        self._hung_up.unregister(stream)
                    _hang_up(stream)

    async def _come_to_rest(self, port: _Port) -> None:
        await port.until(lambda: self._ended or port.rests)

    async def _opening(self, port: _Port, patience: float) -> None:
        """Wait until the agent opens the port anew; no longer than `patience` if it has it open already."""
        await port.until(lambda: self._ended or port.is_open)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await port.until(lambda: self._ended or (port.is_open and port.opened != port.used))
        port.used = port.opened

    async def _connect(self, port: _Port, patience: float) -> socket.socket | None:
        """A connection on which the agent has said that it listens; None if it has not."""
        loop = asyncio.get_running_loop()
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(patience):
                await loop.sock_connect(stream, str(port.path))
                heard = b""
                while heard != protocol.LISTENING:
                    data = await loop.sock_recv(stream, 4096)
                    if not data:
                        raise ConnectionError
                    heard = (heard + data)[-len(protocol.LISTENING) :]
            return stream
        except BaseException as error:
            _hang_up(stream)
            if isinstance(error, OSError):  # also its subclass TimeoutError
                return None
            raise

    # --- what happens ------------------------------------------------------------------------------------
    def _take_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "VSERPORT_CHANGE" and event["data"]["id"] in self._by_name:
            self._note(event["data"]["id"], event["data"]["open"])

    def _note(self, name: str, is_open: bool) -> None:
        port = self._by_name[name]
        if is_open and not port.is_open:
            port.opened += 1
        port.is_open = is_open
        port.changed.set()

    def _take_hang_ups(self) -> None:
        for number, _ in self._hung_up.poll(0):
            for port in self._ports:
                if port.stream is not None and port.stream.fileno() == number:
                    port.hung_up = True
                    port.changed.set()

    def _end(self) -> None:
        self._ended = True
        self._free.set()
        self._note_change()

    def _note_change(self) -> None:
        for port in self._ports:
            port.changed.set()


def _hang_up(stream: socket.socket) -> None:
    """End the connection for everyone who has a duplicate of it."""
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
    stream.close()
