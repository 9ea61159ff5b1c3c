"""Streams over the ports of a virtual machine, with a QEMU and a guest made of sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from deskbox.backends.qemu import ports as host_ports
from deskbox.backends.qemu.ports import Ports
from deskbox.errors import Unavailable
from deskbox_guest import ports as guest_ports
from deskbox_guest import protocol


class FakePort:
    """A port as QEMU and an agent make it: one client at a time, opened anew for each."""

    def __init__(self, machine: FakeMachine, number: int) -> None:
        self.machine = machine
        self.path = machine.directory / f"port{number}.sock"
        self.name = f"rpc{number}"
        self.is_open = False
        self.mute = False  # the agent has it open and says nothing
        self.deaf = False  # the agent does not notice that its host leaves
        self.clients = 0
        self.client: socket.socket | None = None

    def set_open(self, is_open: bool) -> None:
        self.is_open = is_open
        self.machine.event("VSERPORT_CHANGE", {"id": self.name, "open": is_open})

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as listener:
            listener.bind(str(self.path))
            listener.listen(1)
            while True:
                client, _ = await loop.sock_accept(listener)
                client.setblocking(False)
                self.clients += 1
                self.client = client
                try:
                    if not self.mute:
                        await loop.sock_sendall(client, protocol.LISTENING)
                    while data := await loop.sock_recv(client, 4096):
                        await loop.sock_sendall(client, data)
                except OSError:
                    pass
                finally:
                    client.close()
                if not self.deaf:
                    self.set_open(False)
                    self.set_open(True)


class FakeMachine:
    """Enough of QEMU's monitor to report ports, and the ports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Without the last one, which is not for clients.
        self.ports = [FakePort(self, number) for number in range(len(guest_ports.RPC) - 1)]
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve_monitor, self.directory / "ports.qmp")
        self._tasks = [asyncio.create_task(port.serve()) for port in self.ports]
        await asyncio.sleep(0)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        if self._writer is not None:
            self._writer.close()

    def event(self, name: str, data: dict[str, Any]) -> None:
        if self._writer is not None:
            self._send({"event": name, "data": data, "timestamp": {"seconds": 0, "microseconds": 0}})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(message).encode() + b"\r\n")

    async def _serve_monitor(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._send({"QMP": {"version": {}, "capabilities": []}})
        async for line in reader:
            request = json.loads(line)
            answer: Any = {}
            if request["execute"] == "query-chardev":
                answer = [
                    {"label": port.name, "frontend-open": port.is_open, "filename": "unix:"}
                    for port in self.ports
                ]
            self._send({"return": answer, "id": request["id"]})


@pytest.fixture
def directory() -> Iterator[Path]:
    # A socket's path is short.
    path = Path(tempfile.mkdtemp(prefix="dbx-ports-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def machine(directory: Path) -> AsyncIterator[FakeMachine]:
    machine = FakeMachine(directory)
    await machine.start()
    yield machine
    await machine.end()


@pytest.fixture
async def ports(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ports]:
    monkeypatch.setattr(host_ports, "_PATIENCE", 0.1)
    ports = Ports(machine.directory)
    ports.open()
    yield ports
    ports.close()


async def echoes(stream: socket.socket, text: bytes = b"hello") -> bool:
    loop = asyncio.get_running_loop()
    stream.setblocking(False)
    await loop.sock_sendall(stream, text)
    async with asyncio.timeout(5):
        return await loop.sock_recv(stream, 100) == text


async def ended(stream: socket.socket) -> bool:
    stream.setblocking(False)
    async with asyncio.timeout(5):
        with contextlib.suppress(OSError):
            return await asyncio.get_running_loop().sock_recv(stream, 100) == b""
        return True


def hang_up(stream: socket.socket) -> None:
    stream.shutdown(socket.SHUT_RDWR)
    stream.close()


async def test_a_stream_for_each_port_and_an_exact_error_beyond(machine: FakeMachine, ports: Ports) -> None:
    for port in machine.ports:
        port.set_open(True)
    streams = [await ports.stream(5) for _ in machine.ports]
    assert all([await echoes(stream) for stream in streams])
    with pytest.raises(Unavailable, match="all 8 streams to the guest are in use: end what uses one"):
        await ports.stream(0.05)
    hang_up(streams.pop())
    streams.append(await ports.stream(5))
    assert await echoes(streams[-1])
    for stream in streams:
        stream.close()


async def test_ports_that_are_open_already_are_found(machine: FakeMachine) -> None:
    for port in machine.ports:
        port.is_open = True  # before anybody listens to events
    ports = Ports(machine.directory)
    ports.open()
    with await ports.stream(5) as stream:
        assert await echoes(stream)
    ports.close()


async def test_nobody_listens(ports: Ports) -> None:
    with pytest.raises(Unavailable, match=r"the guest's agent did not listen within 0\.05 s"):
        await ports.stream(0.05)


async def test_a_machine_that_starts_later(directory: Path) -> None:
    ports = Ports(directory)
    ports.open()
    waiting = asyncio.create_task(ports.stream(20))
    await asyncio.sleep(0.05)
    machine = FakeMachine(directory)
    for port in machine.ports:
        port.is_open = True
    await machine.start()
    with await waiting as stream:
        assert await echoes(stream)
    ports.close()
    await machine.end()


async def test_a_stream_is_new_each_time(machine: FakeMachine, ports: Ports) -> None:
    port = machine.ports[0]
    port.set_open(True)
    for number in range(1, 20):
        with await ports.stream(5) as stream:
            assert await echoes(stream, b"%d" % number)
            stream.shutdown(socket.SHUT_RDWR)
    assert port.clients >= 19


async def test_an_agent_that_dies_ends_its_streams(machine: FakeMachine, ports: Ports) -> None:
    port = machine.ports[0]
    port.set_open(True)
    stream = await ports.stream(5)
    port.set_open(False)
    assert await ended(stream)
    stream.close()
    port.set_open(True)
    with await ports.stream(5) as stream:
        assert await echoes(stream)


async def test_an_idle_port_of_an_agent_that_dies_is_not_handed_out(
    machine: FakeMachine, ports: Ports
) -> None:
    first, second = machine.ports[:2]
    first.set_open(True)
    with await ports.stream(5) as stream:
        stream.shutdown(socket.SHUT_RDWR)
    first.set_open(False)
    second.set_open(True)
    with await ports.stream(5) as stream:
        assert await echoes(stream)
        assert second.clients


async def test_silence_is_answered_by_hanging_up_and_trying_again(machine: FakeMachine, ports: Ports) -> None:
    port = machine.ports[0]
    port.mute = port.deaf = True
    port.set_open(True)
    with pytest.raises(Unavailable, match="did not listen"):
        await ports.stream(0.5)
    assert port.clients > 1
    port.mute = False
    with await ports.stream(20) as stream:
        assert await echoes(stream)


async def test_while_they_rest_only_streams_in_use_are_connected(machine: FakeMachine, ports: Ports) -> None:
    used, *idle = machine.ports
    used.set_open(True)
    stream = await ports.stream(5)
    for port in idle:
        port.set_open(True)
    while not all(port.clients == 1 for port in idle):
        await asyncio.sleep(0.01)
    async with ports.resting():
        assert [port.clients for port in idle] == [1] * len(idle)
        assert all(port.client is not None and port.client.fileno() < 0 for port in idle)
        waiting = asyncio.create_task(ports.stream(5))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert await echoes(stream)
    with await waiting as another:
        assert await echoes(another)
    stream.close()


async def test_a_port_that_does_not_come_to_rest_is_not_waited_for_long(
    machine: FakeMachine, ports: Ports
) -> None:
    port = machine.ports[0]
    port.deaf = True
    port.set_open(True)
    while not port.clients:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(2), ports.resting():
        pass


async def test_a_client_of_a_dead_keeper_keeps_its_port(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_ports, "_PATIENCE", 0.05)
    taken = machine.ports[0]
    for port in machine.ports:
        port.is_open = True
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        await loop.sock_connect(client, str(taken.path))
        assert await loop.sock_recv(client, 100) == protocol.LISTENING
        ports = Ports(machine.directory)
        ports.open()
        others = [await ports.stream(5) for _ in machine.ports[1:]]
        with pytest.raises(Unavailable):
            await ports.stream(0.3)
        assert await echoes(client)
    with await ports.stream(10) as stream:
        assert await echoes(stream)
    for stream in others:
        stream.close()
    ports.close()


async def test_the_end_of_the_machine(machine: FakeMachine, ports: Ports) -> None:
    machine.ports[0].set_open(True)
    stream = await ports.stream(5)
    waiting = asyncio.create_task(ports.stream(30))
    await asyncio.sleep(0)
    await machine.end()
    assert await ended(stream)
    with pytest.raises(Unavailable, match="the virtual machine has ended"):
        await waiting
    stream.close()


async def test_closing_does_not_touch_streams_in_use(machine: FakeMachine, ports: Ports) -> None:
    for port in machine.ports:
        port.set_open(True)
    stream = await ports.stream(5)
    ports.close()
    await asyncio.sleep(0.05)
    assert await echoes(stream)
    stream.close()
    ports.close()
    assert [task for task in asyncio.all_tasks() if "_tend" in str(task.get_coro())] == []
