"""Whether an answer is awaited, asked of this kernel about real connections."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from deskbox_guest.x11.requests import REQUEST_BYTES, Requests

REQUEST = b"r" * REQUEST_BYTES


class Server:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of a new connection: the client's and the server's."""
        ours = socket.create_connection(self._listener.getsockname())
        theirs, _ = self._listener.accept()
        self._ends += [ours, theirs]
        return ours, theirs

    def close(self) -> None:
        for end in [*self._ends, self._listener]:
            end.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def requests() -> Iterator[Requests]:
    requests = Requests()
    yield requests
    requests.close()


def waiting(requests: Requests) -> bool:
    now = time.monotonic()
    return requests.latest(now) == now


def test_a_request_is_awaited_until_its_answer_is_there(requests: Requests, server: Server) -> None:
    ours, theirs = server.connect()
    requests.begin()
    assert requests.latest(time.monotonic()) == -math.inf
    ours.sendall(REQUEST)
    assert waiting(requests)
    time.sleep(0.1)
    assert waiting(requests)
    theirs.sendall(b"answer")
    ours.recv(100)
    assert requests.latest(time.monotonic()) == pytest.approx(time.monotonic(), abs=0.02)
    time.sleep(0.02)
    assert not waiting(requests)


def test_answers_within_one_tick_of_the_clock(requests: Requests, server: Server) -> None:
    ours, theirs = server.connect()
    for _ in range(50):
        requests.begin()
        ours.sendall(REQUEST)
        theirs.recv(1000)
        theirs.sendall(b"answer")
        ours.recv(100)
        time.sleep(0.01)
        assert not waiting(requests)


def test_a_request_right_behind_an_answer(requests: Requests, server: Server) -> None:
    ours, theirs = server.connect()
    for _ in range(20):
        requests.begin()
        ours.sendall(REQUEST)
        theirs.recv(1000)
        theirs.sendall(b"answer")
        ours.recv(100)
        ours.sendall(REQUEST)
        time.sleep(0.001)
        assert waiting(requests)
        time.sleep(0.06)
        assert waiting(requests)
        theirs.recv(1000)
        theirs.sendall(b"answer")
        ours.recv(100)


def test_a_connection_that_is_being_made(requests: Requests) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fillers = [socket.socket() for _ in range(4)]
        requests.begin()
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        time.sleep(0.05)
        assert waiting(requests)
        for filler in fillers:
            filler.close()


def test_what_was_awaited_before_the_action_does_not_count(requests: Requests, server: Server) -> None:
    """Nor what the same conversation asks next: that is long polling."""
    ours, theirs = server.connect()
    requests.begin()
    ours.sendall(REQUEST)
    assert waiting(requests)
    for _ in range(3):
        requests.begin()
        assert not waiting(requests)
    theirs.sendall(b"news")
    ours.recv(100)
    ours.sendall(REQUEST)
    assert not waiting(requests)

    other, _ = server.connect()
    requests.begin()
    theirs.sendall(b"more")
    ours.recv(100)
    other.sendall(REQUEST)
    assert not waiting(requests)


@pytest.mark.parametrize("control", [b"p" * 31, b"p" * 39])
def test_what_a_protocol_sends_for_itself_is_no_request(
    requests: Requests, server: Server, control: bytes
) -> None:
    """HTTP/2 opens its window again behind each answer."""
    ours, theirs = server.connect()
    requests.begin()
    ours.sendall(REQUEST)
    assert waiting(requests)
    theirs.sendall(b"answer" * 100)
    ours.recv(1000)
    time.sleep(0.01)
    ours.sendall(control)
    time.sleep(0.01)
    assert not waiting(requests)


def test_the_end_that_was_called_awaits_nothing(requests: Requests, server: Server) -> None:
    """A server in the guest has sent last, too."""
    ours, theirs = server.connect()
    requests.begin()
    theirs.sendall(b"greeting" * 100)
    ours.recv(1000)
    assert not waiting(requests)


def test_many_threads(requests: Requests, server: Server) -> None:
    requests.begin()
    threads = [threading.Thread(target=waiting, args=(requests,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
