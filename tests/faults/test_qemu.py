"""Virtual machines when things go wrong: streams over ports, copies, templates."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.guests import guest_id, guests_named, kill_agent

from deskbox import registry
from deskbox.backends.qemu import command, frozen, process, template
from deskbox.backends.qemu.frozen import Frozen
from deskbox.cache import cache_dir
from deskbox.control import Control
from deskbox.desktop import Desktop
from deskbox.errors import DeskboxError, Unavailable
from deskbox.processes import Process
from deskbox.rpc.channel import Channel
from deskbox_guest import protocol

pytestmark = pytest.mark.backends("qemu")

STREAMS = 8
# The beginning of HTTP/2 with its settings, then a frame that announces 60,000 bytes, of which few come.
HALF_A_FRAME = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\xea\x60\0\0\0\0\0\1" + bytes(99)


@pytest.fixture
def own(launch: Callable[..., Desktop]) -> Desktop:
    return launch("machine")


@pytest.fixture
def keeper(own: Desktop) -> Iterator[Control]:
    with Control(registry.Home(own.name).control_socket) as control:
        yield control


def works(stream: socket.socket) -> bool:
    channel = Channel(stream)
    try:
        return bool(channel.call(protocol.FACTS, timeout=30)[0]["boot_id"])
    finally:
        channel.close()


def hang_up(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
    stream.close()


def say_hello(stream: socket.socket) -> None:
    nonce = secrets.token_bytes(protocol.NONCE_BYTES)
    scanner = protocol.HelloScanner("guest", nonce)
    stream.sendall(protocol.hello_request(nonce))
    while scanner.feed(stream.recv(4096)) is None:
        pass


# --- streams ---------------------------------------------------------------------------------------------
def test_eight_streams_at_once_and_one_more_is_refused(keeper: Control) -> None:
    streams = [keeper.stream(timeout=30) for _ in range(STREAMS)]
    with pytest.raises(Unavailable, match="all 8 streams to the guest are in use: end what uses one"):
        keeper.stream(timeout=1)
    channels = [Channel(stream) for stream in streams]
    with ThreadPoolExecutor(STREAMS) as pool:
        ids = set(pool.map(lambda c: c.call(protocol.FACTS, timeout=60)[0]["boot_id"], channels))
    assert len(ids) == 1
    channels.pop().close()
    assert works(keeper.stream(timeout=30))
    for channel in channels:
        channel.close()


def test_streams_one_after_the_other_are_all_new(keeper: Control) -> None:
    for _ in range(40):
        assert works(keeper.stream(timeout=30))


@pytest.mark.parametrize("what", ["nothing", "half a hello", "garbage", "hello", "half a frame"])
def test_a_stream_that_is_broken_off(keeper: Control, what: str) -> None:
    for _ in range(STREAMS + 2):
        stream = keeper.stream(timeout=30)
        if what == "half a hello":
            stream.sendall(protocol.hello_request(bytes(16))[:20])
        elif what == "garbage":
            stream.sendall(secrets.token_bytes(100_000))
        elif what == "hello":
            stream.sendall(protocol.hello_request(bytes(16)))
        elif what == "half a frame":
            say_hello(stream)
            # The beginning of HTTP/2, then a frame that announces 60,000 bytes of which few come.
            stream.sendall(
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\xea\x60\0\0\0\0\0\1" + bytes(99)
            )
        hang_up(stream)
    assert works(keeper.stream(timeout=30))


def test_an_answer_that_nobody_took_reaches_nobody_else(own: Desktop, keeper: Control) -> None:
    own.exec(["sh", "-c", "head -c 20M /dev/urandom >large"])
    for _ in range(STREAMS + 2):
        channel = Channel(keeper.stream(timeout=30))
        channel.open(protocol.GET_FILE, {"path": "large"}).head(timeout=30)
        channel.close()  # while most of it is still to come
    assert works(keeper.stream(timeout=30))


UPLOADER = """
import sys
from deskbox import registry
from deskbox.control import Control
from deskbox.rpc.channel import Channel
from deskbox_guest import protocol

with Control(registry.Home(sys.argv[1]).control_socket) as keeper:
    channel = Channel(keeper.stream(timeout=30))
    size = 1 << 34
    stream = channel.open(protocol.PUT_FILE, {"path": "part", "mode": 0o600, "size": size}, end=False)
    stream.send(bytes(1 << 20))
    print("sending", flush=True)
    while True:
        stream.send(bytes(1 << 20))
"""


def test_a_client_killed_while_it_sends(own: Desktop, keeper: Control) -> None:
    for delay in (0.0, 0.01, 0.05, 0.2):
        client = subprocess.Popen([sys.executable, "-c", UPLOADER, own.name], stdout=subprocess.PIPE)
        assert client.stdout is not None
        assert client.stdout.readline() == b"sending\n"
        time.sleep(delay)
        client.kill()
        client.wait()
        client.stdout.close()
        assert works(keeper.stream(timeout=30))
    own.exec(["sh", "-c", "while ls -A | grep -q part; do sleep 0.1; done"], timeout=30)


def test_an_agent_killed_with_streams_in_use(own: Desktop, keeper: Control) -> None:
    streams = [keeper.stream(timeout=30) for _ in range(3)]
    say_hello(streams[0])
    kill_agent(own)
    for stream in streams:
        stream.settimeout(30)
        with contextlib.suppress(ConnectionError):
            while stream.recv(4096):
                pass
        hang_up(stream)
    # A desktop waits for the next one. Who asks the keeper may still get a stream that ends with this one.
    assert own.facts().agent_start == 2
    for _ in range(STREAMS):
        assert works(keeper.stream(timeout=30))


def test_a_keeper_killed_with_streams_in_use(own: Desktop, state_dir: Path) -> None:
    with Desktop.launch("orphan", detach=True) as desktop:
        desktop.exec(["sh", "-c", "echo here >mark"])
    record = registry.Home("orphan").read()
    assert record is not None
    with Control(registry.Home("orphan").control_socket) as control:
        used = Channel(control.stream(timeout=30))
        os.kill(record.keeper_pid, signal.SIGKILL)
        # Its end is not that of a stream that a client has.
        assert used.call(protocol.FACTS, timeout=30)
        with Desktop.attach("orphan") as desktop:
            assert desktop.read_file("mark") == b"here\n"
            assert used.call(protocol.FACTS, timeout=30)
            used.close()
    with Control(registry.Home("orphan").control_socket) as control:
        channels = [Channel(control.stream(timeout=60)) for _ in range(STREAMS)]
        for channel in channels:
            channel.close()
    registry.stop("orphan")


def test_calls_of_the_keepers_own_right_after_each_other(own: Desktop) -> None:
    for _ in range(10):
        channel = process.own_channel(Process.parse(guest_id(own)), timeout=60)
        assert channel.call(protocol.FACTS, timeout=30)
        channel.close()


# --- the machine -----------------------------------------------------------------------------------------
def test_a_machine_that_is_switched_off_inside_ends_its_desktop(own: Desktop) -> None:
    control = process.control(Process.parse(guest_id(own)))
    with contextlib.suppress(Unavailable):  # it may be faster than its answer
        control.ask("poweroff", timeout=30)
    control.close()
    deadline = time.monotonic() + 60
    while registry.find(own.name) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert guests_named(own.name) == []


def test_nothing_of_a_machine_is_left_behind(launch: Callable[..., Desktop], state_dir: Path) -> None:
    desktop = launch("short")
    running = Process.parse(guest_id(desktop))
    place = Path(os.readlink(process.directory_of(running)))
    assert {path.name for path in place.iterdir()} >= {"commands.qmp", "control.sock", "port0.sock"}
    desktop.close()
    assert not running.alive()
    assert not place.exists()


def test_a_start_that_fails_leaves_nothing(
    launch: Callable[..., Desktop], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = template_of(launch("good"))
    state = prepared / frozen.STATE
    content = state.read_bytes()
    state.write_bytes(content[:-1000] + secrets.token_bytes(1000))
    try:
        with pytest.raises(DeskboxError, match="could not take over the state of the machine"):
            launch("bad")
        assert registry.find("bad") is None
        assert [marker for _, marker in process.machines() if marker.endswith(":bad")] == []
    finally:
        state.write_bytes(content)


def template_of(desktop: Desktop) -> Path:
    return Frozen.source(Process.parse(guest_id(desktop))).path


# --- templates -------------------------------------------------------------------------------------------
BUILDER = """
from deskbox.backends.base import ImageSpec
from deskbox.backends.qemu import template
from deskbox.machine_image import ensure_machine_image

image = ensure_machine_image(lambda text: None)
template.ensure(image, "tcg", ImageSpec(size=(400, 300)), lambda text: print(text, flush=True))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that has the machine's image, and no templates."""
    for path in cache_dir().iterdir():
        if path.name != "templates" and not path.name.startswith("partial-"):
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.setenv("DESKBOX_CACHE_DIR", str(tmp_path))
    return tmp_path


def machines_being_frozen() -> set[Process]:
    prefix = command.marker(template.OWNER)
    return {running for running, marker in process.machines() if marker.startswith(prefix)}


@pytest.mark.parametrize("after", ["once, to be frozen", "waiting for the desktop"])
def test_a_builder_killed_leaves_no_template_and_no_machine(cache: Path, after: str) -> None:
    before = machines_being_frozen()
    builder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(BUILDER)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"DESKBOX_CACHE_DIR": str(cache)},
    )
    assert builder.stdout is not None
    for line in builder.stdout:
        if after in line:
            break
    builder.kill()
    builder.wait()
    builder.stdout.close()
    deadline = time.monotonic() + 30
    while machines_being_frozen() - before:
        assert time.monotonic() < deadline, "its machine goes on without it"
        time.sleep(0.05)
    left = [path.name for path in (cache / "templates").iterdir() if path.name != "lock"]
    assert all(name.startswith("partial-") for name in left)
    template.prune(lambda text: None)  # what the next builder does first
    assert [path.name for path in (cache / "templates").iterdir()] == ["lock"]
