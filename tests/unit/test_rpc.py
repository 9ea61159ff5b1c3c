"""The byte stream between host and guest, with both real ends over a socket pair."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskbox.errors import Cancelled, ImageTooLarge, Interrupted, Refused, Unavailable
from deskbox.rpc.async_channel import AsyncChannel
from deskbox.rpc.channel import CallCancelled, Channel
from deskbox.rpc.outcome import Disconnected
from deskbox_guest import protocol
from deskbox_guest.protocol import Fault
from deskbox_guest.server import Call, Connection, Handler

BLOB = secrets.token_bytes(9_000_000)


class Guest:
    """The guest's end: a few calls that do what real ones do to the stream."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def echo(self, call: Call) -> None:
        call.respond({"head": call.head}, b"".join(call.payload()))

    def pipe(self, call: Call) -> None:
        call.respond({}, end=False)
        for data in call.payload():
            call.send(data)
        call.end()

    def blob(self, call: Call) -> None:
        call.respond({"size": len(BLOB)}, BLOB)

    def refuse(self, call: Call) -> None:
        raise Fault("refused", "not that", {"why": "test"})

    def exceed(self, call: Call) -> None:
        raise Fault("too_large", "too much", {"bytes": 7, "limit": 5})

    def crash(self, call: Call) -> None:
        raise RuntimeError("boom")

    def hang(self, call: Call) -> None:
        while not call.cancelled():
            time.sleep(0.005)
        self.stopped.set()
        raise Fault("interrupted", "stopped", {"cancelled": True})

    def obey(self, call: Call) -> None:
        while not call.withdrawn():
            time.sleep(0.005)
        raise Fault("interrupted", "stopped", {"cancelled": True, "characters": 3})

    def serve(self, sock: socket.socket) -> None:
        scanner = protocol.HelloScanner("host")
        found = None
        while found is None:
            found = scanner.feed(sock.recv(4096))
        sock.sendall(b"bytes of a connection that is gone" + protocol.hello_reply(secrets.token_bytes(16)))
        sock.sendall(protocol.hello_reply(found[0]))
        handlers: dict[str, Handler] = {
            "/echo": self.echo,
            "/pipe": self.pipe,
            "/blob": self.blob,
            "/refuse": self.refuse,
            "/exceed": self.exceed,
            "/crash": self.crash,
            "/hang": self.hang,
            "/obey": self.obey,
            "/blink": lambda call: call.respond({}),
        }
        Connection(sock, handlers, ThreadPoolExecutor(8)).serve(found[1])


@pytest.fixture
def guest() -> Guest:
    return Guest()


@pytest.fixture
def ends(guest: Guest) -> Iterator[tuple[socket.socket, socket.socket]]:
    host, inside = socket.socketpair()
    thread = threading.Thread(target=guest.serve, args=(inside,), daemon=True)
    thread.start()
    yield host, inside
    for sock in (host, inside):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
    thread.join(5)
    assert not thread.is_alive()


@pytest.fixture
def channel(ends: tuple[socket.socket, socket.socket]) -> Iterator[Channel]:
    channel = Channel(ends[0])
    yield channel
    channel.close()


def test_head_and_payload_arrive_whole(channel: Channel) -> None:
    head, payload = channel.call("/echo", {"text": "日本 €"}, BLOB, timeout=20)
    assert head == {"head": {"text": "日本 €"}}
    assert payload == BLOB


def test_many_threads_share_a_channel(channel: Channel) -> None:
    def one(number: int) -> bool:
        data = secrets.token_bytes(number * 997)
        return channel.call("/echo", {"n": number}, data, timeout=20) == ({"head": {"n": number}}, data)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(100)))


def test_a_stream_flows_both_ways_with_more_than_any_window(channel: Channel) -> None:
    stream = channel.open("/pipe", {}, end=False)
    stream.head(timeout=5)
    pieces = [secrets.token_bytes(1_000_000) for _ in range(80)]

    def send() -> None:
        for piece in pieces:
            stream.send(piece)
        stream.end()

    thread = threading.Thread(target=send)
    thread.start()
    received = b"".join(stream.payload(timeout=20))
    thread.join()
    assert received == b"".join(pieces)


def test_an_unread_stream_does_not_block_other_calls(channel: Channel) -> None:
    stalled = channel.open("/pipe", {}, end=False)
    stalled.head(timeout=5)
    for _ in range(20):
        stalled.send(bytes(1_000_000))
    assert channel.call("/echo", {}, b"x", timeout=5)[1] == b"x"


def test_faults_become_the_errors_they_name(channel: Channel) -> None:
    with pytest.raises(Refused, match="not that") as caught:
        channel.call("/refuse", timeout=5)
    assert caught.value.data == {"why": "test"}
    with pytest.raises(ImageTooLarge, match="too much") as too_large:
        channel.call("/exceed", timeout=5)
    assert not isinstance(too_large.value, (Refused, Interrupted, Unavailable))
    assert too_large.value.data == {"bytes": 7, "limit": 5}
    with pytest.raises(Interrupted, match="boom"):
        channel.call("/crash", timeout=5)
    with pytest.raises(Refused, match="does not know"):
        channel.call("/nothing", timeout=5)


def test_a_cancelled_call_says_how_far_it_came(channel: Channel) -> None:
    began = time.monotonic()
    with pytest.raises(Cancelled, match="stopped") as caught:
        channel.call("/obey", timeout=5, cancelled=lambda: time.monotonic() > began + 0.1)
    assert caught.value.data["characters"] == 3
    assert channel.call("/echo", timeout=5)[0] == {"head": {}}


def test_a_call_that_could_have_been_cancelled_leaves_nothing_open(channel: Channel) -> None:
    for _ in range(600):  # more than may be open at once
        assert channel.call("/echo", timeout=5)[0] == {"head": {}}
        assert channel.call("/blink", timeout=5, cancelled=lambda: False)[0] == {}


def test_a_guest_that_does_not_heed_a_cancelled_call_is_not_waited_for(
    channel: Channel, guest: Guest
) -> None:
    began = time.monotonic()
    with pytest.raises(CallCancelled):
        channel.call("/hang", timeout=5, cancelled=lambda: time.monotonic() > began + 0.1)
    assert time.monotonic() < began + 2
    assert guest.stopped.wait(1)
    assert channel.call("/echo", timeout=5)[0] == {"head": {}}


def test_timeout_stops_the_guest(channel: Channel, guest: Guest) -> None:
    with pytest.raises(Unavailable, match=r"did not answer /hang within 0\.1 s"):
        channel.call("/hang", timeout=0.1)
    assert guest.stopped.wait(1)


def test_a_cut_connection_ends_waiting_calls_on_both_sides(
    ends: tuple[socket.socket, socket.socket], guest: Guest
) -> None:
    channel = Channel(ends[0])
    threading.Timer(0.1, lambda: ends[1].shutdown(socket.SHUT_RDWR)).start()
    with pytest.raises(Disconnected):
        channel.call("/hang", timeout=5)
    assert guest.stopped.wait(1)
    with pytest.raises(Disconnected):
        channel.call("/echo", timeout=5)
    channel.close()


def test_garbage_from_the_guest_is_a_disconnect() -> None:
    host, inside = socket.socketpair()

    def answer() -> None:
        scanner = protocol.HelloScanner("host")
        found = None
        while found is None:
            found = scanner.feed(inside.recv(4096))
        inside.sendall(protocol.hello_reply(found[0]) + b"\0" * 90)

    thread = threading.Thread(target=answer)
    thread.start()
    channel = Channel(host)
    with pytest.raises(Disconnected):
        channel.call("/echo", timeout=5)
    thread.join()
    channel.close()
    inside.close()


async def test_async_calls(ends: tuple[socket.socket, socket.socket], guest: Guest) -> None:
    channel = await AsyncChannel.connect(ends[0])
    answers = await asyncio.gather(
        *(channel.call("/echo", {"n": n}, bytes(n * 1000), timeout=10) for n in range(50))
    )
    assert answers == [({"head": {"n": n}}, bytes(n * 1000)) for n in range(50)]
    assert (await channel.call("/blob", timeout=10))[1] == BLOB
    with pytest.raises(Refused, match="not that"):
        await channel.call("/refuse", timeout=5)
    began = time.monotonic()
    with pytest.raises(Cancelled, match="stopped") as caught:
        await channel.call("/obey", timeout=5, cancelled=lambda: time.monotonic() > began + 0.1)
    assert caught.value.data["characters"] == 3
    with pytest.raises(CallCancelled):
        await channel.call("/hang", timeout=5, cancelled=lambda: True)
    assert await asyncio.to_thread(guest.stopped.wait, 1)
    guest.stopped.clear()
    for _ in range(300):
        assert (await channel.call("/blink", timeout=5, cancelled=lambda: False))[0] == {}
    task = asyncio.create_task(channel.call("/hang", timeout=5))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(guest.stopped.wait, 1)
    await channel.close()


@given(st.binary(max_size=200), st.binary(min_size=16, max_size=16), st.binary(max_size=50), st.data())
def test_hello_is_found_behind_any_bytes_and_in_any_pieces(
    stale: bytes, nonce: bytes, after: bytes, data: st.DataObject
) -> None:
    stream = stale + protocol.hello_reply(nonce) + after
    scanner = protocol.HelloScanner("guest", nonce)
    found = None
    position = 0
    while position < len(stream):
        size = data.draw(st.integers(1, len(stream) - position))
        piece = stream[position : position + size]
        position += size
        found = scanner.feed(piece)
        if found is not None:
            break
    assert found is not None
    assert found[0] == nonce
    assert found[1] + stream[position:] == after
