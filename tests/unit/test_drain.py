"""What the kernel says about a socket and a process, asked about this one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.timing import eventually

from deskbox_guest.x11.drain import FamilyWatch, process_behind
from deskbox_guest.x11.sockets import SocketDiag


@pytest.fixture
def diag() -> Iterator[SocketDiag]:
    diag = SocketDiag()
    yield diag
    diag.close()


def test_bytes_that_wait_to_be_read(diag: SocketDiag) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        inode, peer = os.fstat(ours.fileno()).st_ino, os.fstat(theirs.fileno()).st_ino
        assert diag.peer(inode) == peer
        assert diag.unread(inode) == 0
        theirs.sendall(b"12345")
        assert diag.unread(inode) == 5
        assert diag.unread(peer) == 0
        ours.recv(5)
        assert diag.unread(inode) == 0


def test_the_process_behind_a_socket(diag: SocketDiag) -> None:
    """Even if another process made the socket that it listens on."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0deskbox-test-{os.getpid()}")
    listener.listen()
    serve = "import socket; c, _ = socket.socket(fileno=0).accept(); c.send(b'x'); c.recv(1)"
    with listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(listener.getsockname())
        with subprocess.Popen([sys.executable, "-c", serve], stdin=listener.fileno()) as process:
            client.recv(1)
            assert process_behind(diag, os.fstat(client.fileno()).st_ino) == process.pid
            client.close()
    assert process_behind(diag, 1) == 0


def test_the_name_of_a_listening_socket(diag: SocketDiag) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0deskbox-test-{os.getpid()}")
        assert diag.name(os.fstat(listener.fileno()).st_ino) == f"\0deskbox-test-{os.getpid()}".encode()


def test_a_socket_that_is_not_there(diag: SocketDiag) -> None:
    assert (diag.unread(1), diag.peer(1), diag.name(1)) == (0, 0, b"")


@pytest.fixture(params=["sys.stdin.read()", "while True: pass"], ids=["sleeps", "runs"])
def process(request: pytest.FixtureRequest) -> Iterator[tuple[int, bool]]:
    """A process that has begun to sleep or run, and whether it runs. Its parent sleeps."""
    child = f"import sys\nprint(flush=True)\n{request.param}"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    argv = [sys.executable, "-c", parent]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as made:
        assert made.stdout is not None
        made.stdout.readline()
        yield made.pid, request.param.startswith("while")
        os.killpg(made.pid, signal.SIGKILL)


def test_a_sleeping_process_is_quiet_and_a_running_one_is_not(process: tuple[int, bool]) -> None:
    pid, runs = process
    watch = FamilyWatch(pid, looks=2)
    if runs:
        assert not any(watch.quiet() for _ in range(50))
        assert all([watch.works() for _ in range(50)][2:])
    else:
        eventually(watch.quiet)
        assert not watch.works()


def test_the_load_is_the_processor_time_of_the_last_looks(process: tuple[int, bool]) -> None:
    pid, runs = process
    watch = FamilyWatch(pid, looks=3)
    assert [watch.load() for _ in range(2)] == [0.0, 0.0], "too early to tell"
    eventually(lambda: (watch.load() > 0.2) is runs)
    assert watch.load() <= (1.1 if runs else 0.2)


def test_the_load_of_what_has_gone_is_none() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as made:
        watch = FamilyWatch(made.pid, looks=2)
        watch.load()
        made.kill()
    assert watch.load() == 0.0
