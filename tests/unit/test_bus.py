"""Firefox's place on the message bus, with a bus of its own and a Firefox made of a thread."""

from __future__ import annotations

from deskbox_guest.bus import command_line


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
