"""Whether an X client has read and handled everything that the server sent it, asked of the kernel.

The window property that toolkits answer a ping by is unknown to xterm, Tk and other old ones. For those: no
byte waits in the receive queue of the client's socket, and its process sleeps. `sock_diag` tells the first to
anyone, `/proc` the second to the same user.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1  # NLM_F_REQUEST
_ERROR = 2  # NLMSG_ERROR
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_UNIX_REQUEST = struct.Struct("=BBHIIIII")  # family, protocol, pad, states, inode, show, cookie
_UNIX_REPLY = struct.Struct("=BBBBIII")  # family, type, state, pad, inode, cookie
_SHOW_NAME, _SHOW_PEER, _SHOW_QUEUES = 0x01, 0x04, 0x10
_NAME, _PEER, _QUEUES = 0, 2, 4  # attributes of a reply


class SocketDiag:
    """Asks the kernel about Unix sockets by their inode numbers."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 4)
        self._socket.settimeout(0.5)

    def close(self) -> None:
        self._socket.close()

    def name(self, inode: int) -> bytes:
        return self._ask(inode, _SHOW_NAME).get(_NAME, b"")

    def peer(self, inode: int) -> int:
        value = self._ask(inode, _SHOW_PEER).get(_PEER)
        return int(struct.unpack("=I", value)[0]) if value else 0

    def unread(self, inode: int) -> int:
        """Bytes that wait to be read; 0 if the socket is gone."""
        value = self._ask(inode, _SHOW_QUEUES).get(_QUEUES)
        return int(struct.unpack("=II", value)[0]) if value else 0

    def _ask(self, inode: int, show: int) -> dict[int, bytes]:
        any_cookie = 0xFFFFFFFF
        body = _UNIX_REQUEST.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, inode, show, any_cookie, any_cookie)
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0) + body)
        reply = self._socket.recv(8192)
        if _HEADER.unpack_from(reply)[1] == _ERROR:
            return {}
        attributes: dict[int, bytes] = {}
        at = _HEADER.size + _UNIX_REPLY.size
        while at + 4 <= len(reply):
            length, kind = struct.unpack_from("=HH", reply, at)
            attributes[kind] = reply[at + 4 : at + length]
            at += (length + 3) & ~3
        return attributes


class ClientState:
    """Watches the X connections of one process."""

    def __init__(self, diag: SocketDiag, pid: int) -> None:
        self._diag = diag
        self._pid = pid
        self._inodes = [inode for inode in _sockets_of(pid) if b"/.X11-unix/X" in diag.name(diag.peer(inode))]

    @property
    def known(self) -> bool:
        """Whether this process talks to an X server over sockets that we can see."""
        return bool(self._inodes)

    def idle(self) -> bool:
        """True if it has read everything and waits for more; also if it is gone."""
        return (
            not any(self._diag.unread(inode) for inode in self._inodes) and _state_of(self._pid) not in "RD"
        )


def _sockets_of(pid: int) -> list[int]:
    inodes = []
    with suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                if target.startswith("socket:["):
                    inodes.append(int(target[8:-1]))
    return inodes


def _state_of(pid: int) -> str:
    """The letter that `ps` shows: R running, S sleeping …; X if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b") ")[2][:1].decode()
    except OSError:
        return "X"
