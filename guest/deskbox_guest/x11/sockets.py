"""What the kernel tells about sockets: `sock_diag`, which answers anyone, as `ss` does."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

_SOCK_DIAG_BY_FAMILY = 20
_REQUEST, _DUMP = 0x1, 0x300  # NLM_F_REQUEST, NLM_F_DUMP
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port

_UNIX_REQUEST = struct.Struct("=BBHIIIII")  # family, protocol, pad, states, inode, show, cookie
_UNIX_REPLY = struct.Struct("=BBBBIII")  # family, type, state, pad, inode, cookie
_SHOW_NAME, _SHOW_PEER, _SHOW_QUEUES = 0x01, 0x04, 0x10
_NAME, _PEER, _QUEUES = 0, 2, 4  # attributes of a reply

_TCP_REQUEST = struct.Struct("=BBBBI48x")  # family, protocol, wanted attributes, pad, states; any socket
# family, state, timer, retransmits; ports (big endian), addresses, interface, cookie; expires, queues, …
_TCP_REPLY = struct.Struct("=BBBB2s2s16s16sIQIIIII")
_WANT_INFO, _INFO = 0x2, 2  # INET_DIAG_INFO as a bit of a request, and as an attribute of a reply
_ESTABLISHED, _SYN_SENT, _LISTEN = 1, 2, 10
_STATES = 1 << _ESTABLISHED | 1 << _SYN_SENT | 1 << _LISTEN
# linux/tcp.h, struct tcp_info: unacked at 24; ms since data was sent, acknowledged by us, received,
# acknowledged to us at 44; bytes received at 128, bytes sent at 200.
_TIMES = struct.Struct("=24xI16xI4xII")
_RECEIVED_AT, _SENT_AT, _INFO_SIZE = 128, 200, 208


@dataclass(frozen=True)
class Connection:
    """A TCP connection that was opened from here; times are of `time.monotonic`, 4 ms sharp or better."""

    id: int
    opening: bool  # not yet answered by the other side
    sent: int  # bytes of data so far
    received: int
    sent_at: float  # when data was last sent; when the connection was made, if none was
    received_at: float
    acknowledged_at: float
    unacknowledged: bool


class SocketDiag:
    """Asks the kernel about sockets. Not safe for threads."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 4)
        self._socket.settimeout(0.5)

    def close(self) -> None:
        self._socket.close()

    # --- Unix sockets, by their inode numbers --------------------------------------------------------------

    def name(self, inode: int) -> bytes:
        return self._ask_unix(inode, _SHOW_NAME).get(_NAME, b"")

    def peer(self, inode: int) -> int:
        value = self._ask_unix(inode, _SHOW_PEER).get(_PEER)
        return int(struct.unpack("=I", value)[0]) if value else 0

    def unread(self, inode: int) -> int:
        """Bytes that wait to be read; 0 if the socket is gone."""
        value = self._ask_unix(inode, _SHOW_QUEUES).get(_QUEUES)
        return int(struct.unpack("=II", value)[0]) if value else 0

    def _ask_unix(self, inode: int, show: int) -> dict[int, bytes]:
        any_cookie = 0xFFFFFFFF
        body = _UNIX_REQUEST.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, inode, show, any_cookie, any_cookie)
        self._send(body, _REQUEST)
        reply = self._socket.recv(8192)
        if _HEADER.unpack_from(reply)[1] == _ERROR:
            return {}
        return _attributes(reply, _HEADER.size + _UNIX_REPLY.size)

    # --- TCP -----------------------------------------------------------------------------------------------

    def connections(self) -> list[Connection]:
        """Every TCP connection of this network that was opened here, not the ends that were called."""
        now = time.monotonic()
        found = [entry for family in (socket.AF_INET, socket.AF_INET6) for entry in self._dump_tcp(family)]
        listening = {port for state, port, _, _ in found if state == _LISTEN}
        return [
            _connection(cookie, state, info, now)
            for state, port, cookie, info in found
            if state != _LISTEN and port not in listening and (state == _SYN_SENT or info)
        ]

    def _dump_tcp(self, family: int) -> Iterator[tuple[int, int, int, bytes]]:
        """State, local port, a number that tells the socket from others, and its `tcp_info`."""
        self._send(_TCP_REQUEST.pack(family, socket.IPPROTO_TCP, _WANT_INFO, 0, _STATES), _REQUEST | _DUMP)
        while True:
            data = self._socket.recv(65536)
            at = 0
            while at < len(data):
                length, kind = _HEADER.unpack_from(data, at)[:2]
                if kind in (_DONE, _ERROR):
                    return
                reply = data[at : at + length]
                _, state, _, _, port, _, _, _, _, cookie, *_ = _TCP_REPLY.unpack_from(reply, _HEADER.size)
                info = _attributes(reply, _HEADER.size + _TCP_REPLY.size).get(_INFO, b"")
                yield state, int.from_bytes(port, "big"), cookie, info
                at += (length + 3) & ~3

    def _send(self, body: bytes, flags: int) -> None:
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, flags, 1, 0) + body)


def _connection(cookie: int, state: int, info: bytes, now: float) -> Connection:
    info = info.ljust(_INFO_SIZE, b"\0")
    unacked, sent, received, acknowledged = _TIMES.unpack_from(info)
    (bytes_received,) = struct.unpack_from("=Q", info, _RECEIVED_AT)
    (bytes_sent,) = struct.unpack_from("=Q", info, _SENT_AT)
    return Connection(
        cookie,
        state == _SYN_SENT,
        bytes_sent,
        bytes_received,
        now - sent / 1000,
        now - received / 1000,
        now - acknowledged / 1000,
        unacked > 0,
    )


def _attributes(reply: bytes, at: int) -> dict[int, bytes]:
    attributes: dict[int, bytes] = {}
    while at + 4 <= len(reply):
        length, kind = struct.unpack_from("=HH", reply, at)
        attributes[kind] = reply[at + 4 : at + length]
        at += (length + 3) & ~3
    return attributes
