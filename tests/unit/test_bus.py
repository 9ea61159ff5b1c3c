"""Firefox's place on the message bus, with a bus of its own and a Firefox made of a thread."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jeepney import HeaderFields, Message, new_error, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

from deskbox_guest.bus import command_line, hand_to_firefox
from deskbox_guest.protocol import Fault

NAME = "org.mozilla.firefox_esr.ZGVza2JveA__"


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    address = f"unix:path={tmp_path}/bus"
    command = ["dbus-daemon", "--session", "--nofork", "--nopidfile", f"--address={address}"]
    daemon = subprocess.Popen(command)
    deadline = time.monotonic() + 10
    while not (tmp_path / "bus").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    yield
    daemon.terminate()
    daemon.wait()


def firefox(answer: str = "") -> list[Message]:
    """Take the name and answer one call; what was called."""
    connection = open_dbus_connection()
    connection.send_and_get_reply(message_bus.RequestName(NAME), timeout=10)
    called: list[Message] = []

    def serve() -> None:
        with connection:
            while not called:
                message = connection.receive(timeout=10)
                if message.header.fields.get(HeaderFields.member) == "OpenURL":
                    called.append(message)
                    if answer != "nothing":
                        reply = new_error(message, answer) if answer else new_method_return(message)
                        connection.send(reply)
            if answer == "nothing":
                time.sleep(1)

    threading.Thread(target=serve, daemon=True).start()
    return called


@pytest.mark.usefixtures("bus")
def test_firefox_is_found_and_called() -> None:
    called = firefox()
    assert hand_to_firefox(["--new-tab", "about:blank"], 10)
    fields = called[0].header.fields
    assert fields[HeaderFields.path] == "/org/mozilla/firefox_esr/Remote"
    assert fields[HeaderFields.interface] == "org.mozilla.firefox"
    assert bytes(called[0].body[0]).endswith(b"firefox\0--new-tab\0about:blank\0")


@pytest.mark.usefixtures("bus")
def test_without_a_firefox_nothing_is_called() -> None:
    assert not hand_to_firefox(["--new-tab", "about:blank"], 10)


@pytest.mark.usefixtures("bus")
@pytest.mark.parametrize("answer", ["org.mozilla.Error", "nothing"])
def test_one_that_does_not_take_it_is_a_fault(answer: str) -> None:
    firefox(answer)
    with pytest.raises(Fault, match="Firefox did not take the URL") as caught:
        hand_to_firefox(["--new-tab", "about:blank"], 0.5)
    assert caught.value.kind == "interrupted"


def test_a_command_line_as_firefox_takes_it() -> None:
    data = command_line("/home/user", ["firefox", "--new-tab", "http://127.0.0.1/ä"])
    count = int.from_bytes(data[:4], "little")
    places = [int.from_bytes(data[4 * n + 4 : 4 * n + 8], "little") for n in range(count)]
    assert [data[place : data.index(b"\0", place)].decode() for place in places] == [
        "firefox",
        "--new-tab",
        "http://127.0.0.1/ä",
    ]
    assert data[4 * count + 4 : places[0]] == b"/home/user\0"
