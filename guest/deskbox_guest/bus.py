"""Firefox's own way to be handed a URL: a call on the message bus, without starting a program for it.

A second Firefox would do the same, and takes a tenth of a second to start; in an emulated machine several.
What is sent is its command line, in the form of Firefox's toolkit/components/remote/RemoteUtils.cpp. The
bus is spoken as in the D-Bus specification, as far as one call with an array of bytes needs it.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from pathlib import Path

from deskbox_guest.protocol import Fault

_BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
_CALL, _RETURN, _ERROR = 1, 2, 3
# Header fields: path, interface, member, destination, signature.
_PATH, _INTERFACE, _MEMBER, _REPLY_SERIAL, _DESTINATION, _SIGNATURE = 1, 2, 3, 5, 6, 8
_FIXED = struct.Struct("<BBBBIII")  # endianness, type, flags, version, body, serial, length of the fields
_NAME = re.compile(rb"org\.mozilla\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+(?=\0)")


def hand_to_firefox(arguments: list[str], within: float) -> bool:
    """Let the running Firefox do as if it were started with these arguments; False if there is none.

    Raises Fault "interrupted" if it does not answer within so many seconds.
    """
    bus = Bus(Path(f"/run/user/{os.getuid()}/bus"), time.monotonic() + within)
    try:
        found = _NAME.search(bus.call(*_BUS, "ListNames"))
        if found is None:
            return False
        program = found[1].decode().replace("-", "_")
        interface = "org.mozilla." + program.split("_")[0]
        line = command_line(os.getcwd(), ["firefox", *arguments])
        bus.call(found[0].decode(), f"/org/mozilla/{program}/Remote", interface, "OpenURL", line)
    except OSError as error:
        raise Fault("interrupted", f"Firefox did not take the URL: {error}") from error
    finally:
        bus.close()
    return True


def command_line(directory: str, arguments: list[str]) -> bytes:
    """The number of arguments, the place of each from the beginning, the directory, the arguments."""
    texts = [os.fsencode(text) + b"\0" for text in (directory, *arguments)]
    places, at = [], 4 * (len(arguments) + 1)
    for text in texts:
        places.append(at)
        at += len(text)
    return struct.pack(f"<{len(texts)}I", len(arguments), *places[1:]) + b"".join(texts)


class Bus:
    """A connection to the session's message bus."""

    def __init__(self, path: Path, deadline: float) -> None:
        """Raises OSError."""
        self._deadline = deadline  # time.monotonic
        self._serial = 0
        self._sock = socket.socket(socket.AF_UNIX)
        self._data = b""
        try:
            self._wait()
            self._sock.connect(str(path))
            user = str(os.getuid()).encode().hex().encode()
            self._sock.sendall(b"\0AUTH EXTERNAL " + user + b"\r\n")
            while not self._data.endswith(b"\r\n"):
                self._receive()
            if not self._data.startswith(b"OK "):
                raise ConnectionError("the message bus does not know us")
            self._data = b""
            self._sock.sendall(b"BEGIN\r\n")
            self.call(*_BUS, "Hello")
        except BaseException:
            self._sock.close()
            raise

    def close(self) -> None:
        self._sock.close()

    def call(
        self, destination: str, path: str, interface: str, member: str, data: bytes | None = None
    ) -> bytes:
        """Call a method that takes nothing, or an array of bytes; return the body of its answer."""
        self._serial += 1
        body = b"" if data is None else struct.pack("<I", len(data)) + data
        fields = [(_PATH, "o", path), (_INTERFACE, "s", interface), (_MEMBER, "s", member)]
        fields += [(_DESTINATION, "s", destination), *([] if data is None else [(_SIGNATURE, "g", "ay")])]
        packed = _pack(fields)
        fixed = _FIXED.pack(ord("l"), _CALL, 0, 1, len(body), self._serial, len(packed))
        self._wait()
        self._sock.sendall(_padded(fixed + packed) + body)
        while True:
            kind, answer_to, body = self._message()
            if kind in (_RETURN, _ERROR) and answer_to == self._serial:
                if kind == _ERROR:
                    raise ConnectionError(f"{interface}.{member}: {body[4:].rstrip(bytes(1)).decode()}")
                return body

    def _message(self) -> tuple[int, int, bytes]:
        """The kind of the next message, the serial that it answers, its body."""
        while len(self._data) < _FIXED.size:
            self._receive()
        _, kind, _, _, body, _, fields = _FIXED.unpack_from(self._data)
        begin = (_FIXED.size + fields + 7) // 8 * 8
        while len(self._data) < begin + body:
            self._receive()
        header, found = self._data[_FIXED.size : _FIXED.size + fields], self._data[begin : begin + body]
        self._data = self._data[begin + body :]
        # The one field that is a number: its code, the signature "u", then the number, which is aligned.
        at = header.find(bytes([_REPLY_SERIAL]) + b"\x01u\0")
        return kind, struct.unpack_from("<I", header, at + 4)[0] if at >= 0 else 0, found

    def _receive(self) -> None:
        self._wait()
        data = self._sock.recv(65536)
        if not data:
            raise ConnectionError("the message bus has ended")
        self._data += data

    def _wait(self) -> None:
        self._sock.settimeout(max(0.001, self._deadline - time.monotonic()))


def _pack(fields: list[tuple[int, str, str]]) -> bytes:
    data = b""
    for code, kind, text in fields:
        length = struct.pack("<B" if kind == "g" else "<I", len(text.encode()))
        data = _padded(data) + bytes([code, 1]) + kind.encode() + b"\0" + length + text.encode() + b"\0"
    return data


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
