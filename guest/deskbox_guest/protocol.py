"""The messages between host and guest: the only module that both sides import.

One guest connection is a byte stream. It starts with a hello (`hello_request`, `hello_reply`), whose nonce
separates this connection's bytes from any that an earlier one left behind, and carries HTTP/2 after it: the
host is the client, the guest the server. Each request is a POST whose path is one of the names below.

A message body, in both directions, is `uint32 length (big endian) | head (JSON, UTF-8) | payload`. The head
holds the parameters or the result, the payload the bytes that go with them: an image, a file, a stream.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

VERSION = 1

# What carries out a script's input events in the guest.
EngineName = Literal["xtest", "xdotool"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)

# Where the session keeps what the desktop's programs say, a file `PROGRAM.log` for each.
LOGS = "/tmp/log"
PROGRAMS = ("xvfb", "agent", "dbus", "jwm", "firefox")

# Paths. The parameters and results are the dataclasses further down, or said here.
FACTS = "/facts"  # -> Facts
READY = "/ready"  # {"timeout_s"} -> {}; answers once the desktop is painted
STEP = "/step"  # Step -> StepResult, payload: the encoded image if one was asked for; see WITHDRAW
HELD = "/input/held"  # -> Held
RELEASE = "/input/release"  # -> Held: what was held until now; nothing is afterwards
WINDOWS = "/windows"  # -> {"windows": [Window]}, top of the stack first
OPEN_URL = "/browser/open"  # {"url"} -> {}; answers once Firefox has been handed the URL
EXEC = "/exec"  # Exec; payload: standard input -> {}, then frames of `exec_frame`
GET_FILE = "/files/get"  # {"path"} -> {"size", "mode"}, payload: the bytes
PUT_FILE = "/files/put"  # {"path", "mode", "size"}, payload: the bytes -> {"size"}; atomic
WAKE = (
    "/wake"  # {"url"} -> {}; a frozen guest goes on as another one, whose first page is `url` ("": as it was)
)
VIEW = "/view"  # {} -> {}, payload both ways: an RFB (VNC) byte stream, view-only

# A step has no payload, but the host may keep its request open and send this: the guest stops the script, and
# still answers. A reset stops it as well, but then there is no answer to say how far it came.
WITHDRAW = b"!"

# --- hello -----------------------------------------------------------------------------------------------
_MAGIC = b"\xffDESKBOX/%d " % VERSION
NONCE_BYTES = 16


def hello_request(nonce: bytes) -> bytes:
    """What the host sends first: it can't occur inside HTTP/2 headers or JSON because of the byte 0xff."""
    return _MAGIC + nonce.hex().encode() + b" host\n"


def hello_reply(nonce: bytes) -> bytes:
    return _MAGIC + nonce.hex().encode() + b" guest\n"


# What a guest on ports says first, to whoever connects: somebody listens here, and to nobody else. It ends
# the doubt whether an agent that has died, or one still busy with the connection before, has the port open.
# A dialled connection needs none. `HelloScanner` skips it.
LISTENING = b"\xffDESKBOX/%d listening\n" % VERSION


class HelloScanner:
    """Finds a hello in a stream that may begin with bytes of a connection that is long gone."""

    LIMIT = 64 * 1024 * 1024

    def __init__(self, side: Literal["host", "guest"], nonce: bytes | None = None) -> None:
        """`side` is who sent the hello that we look for; `nonce` the one it must have (None: any)."""
        self._tail = b" " + side.encode() + b"\n"
        self._want = nonce
        self._buffer = b""
        self._skipped = 0

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Return (nonce, what follows the hello) once it is there."""
        self._buffer += data
        size = len(_MAGIC) + NONCE_BYTES * 2 + len(self._tail)
        while True:
            at = self._buffer.find(_MAGIC)
            if at < 0:
                keep = len(_MAGIC) - 1
                self._skipped += max(0, len(self._buffer) - keep)
                self._buffer = self._buffer[-keep:]
                if self._skipped > self.LIMIT:
                    raise ConnectionError("the other side never said hello")
                return None
            if len(self._buffer) - at < size:
                self._buffer = self._buffer[at:]
                return None
            line = self._buffer[at : at + size]
            rest = self._buffer[at + size :]
            try:
                nonce = bytes.fromhex(line[len(_MAGIC) : len(_MAGIC) + NONCE_BYTES * 2].decode())
            except ValueError:
                nonce = b""
            if nonce and line.endswith(self._tail) and self._want in (None, nonce):
                return nonce, rest
            self._buffer = self._buffer[at + 1 :]


# --- bodies ----------------------------------------------------------------------------------------------
_LENGTH = struct.Struct(">I")
MAX_HEAD = 16 * 1024 * 1024


def encode_head(head: dict[str, Any]) -> bytes:
    data = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    return _LENGTH.pack(len(data)) + data


class HeadReader:
    """Takes a body in pieces and splits the head from the payload."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.head: dict[str, Any] | None = None

    def feed(self, data: bytes) -> bytes:
        """Return the payload bytes in `data`: none before the head is whole."""
        if self.head is not None:
            return data
        self._buffer += data
        if len(self._buffer) < _LENGTH.size:
            return b""
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_HEAD:
            raise ConnectionError(f"message head of {length} bytes exceeds {MAX_HEAD}")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return b""
        self.head = json.loads(self._buffer[_LENGTH.size : end])
        rest = bytes(self._buffer[end:])
        self._buffer.clear()
        return rest


# Output of a command: kind, length, data. The last frame is EXIT, its data a JSON object
# {"exit_code": int, "timed_out": bool, "truncated": bool}.
EXEC_STDOUT, EXEC_STDERR, EXEC_EXIT = 1, 2, 3
_EXEC_FRAME = struct.Struct(">BI")


def exec_frame(kind: int, data: bytes) -> bytes:
    return _EXEC_FRAME.pack(kind, len(data)) + data


class ExecReader:
    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        self._buffer += data
        frames = []
        while len(self._buffer) >= _EXEC_FRAME.size:
            kind, length = _EXEC_FRAME.unpack_from(self._buffer)
            end = _EXEC_FRAME.size + length
            if len(self._buffer) < end:
                break
            frames.append((kind, bytes(self._buffer[_EXEC_FRAME.size : end])))
            del self._buffer[:end]
        return frames


# --- errors ----------------------------------------------------------------------------------------------
@dataclass
class Fault(Exception):
    """An error that crosses to the host, which raises it as the class of `deskbox.errors` named by `kind`.

    kind      refused      nothing has happened: wrong state, or with {"input": true} in `data` bad input
              too_large    all that was asked for has been done, but the image takes more bytes than it
                           may; `data` has "bytes", "limit" and "image_size"
              interrupted  some effect is possible or certain; `data` says how much surely arrived, and
                           {"cancelled": true} if the host asked for the end
              unavailable  the desktop can't answer
    message   one sentence: what was wrong, what is accepted, what to do
    """

    kind: Literal["refused", "too_large", "interrupted", "unavailable"]
    message: str
    data: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


# --- parameters and results ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Facts:
    """What the guest is."""

    width: int  # of the X screen, pixels
    height: int
    boot_id: str  # new for each start of the guest
    agent_start: int  # counts the starts of the agent within this guest, from 1
    home: str


@dataclass(frozen=True)
class Frame:
    """Which picture to take. Screen pixels for the region, image pixels for the size.

    Beyond `max_bytes` it is a Fault "too_large", or, with "shrink", about the largest image of the same shape
    that fits is given; the result says its size.
    """

    x: int = 0
    y: int = 0
    width: int = 0  # of the region; 0: to the screen's edge
    height: int = 0
    image_width: int = 0  # of the image; 0: as the region
    image_height: int = 0
    format: Literal["png", "jpeg", "webp"] = "png"
    cursor: bool = True
    max_bytes: int = 0  # of the encoded image; 0: no limit
    oversize: Literal["error", "shrink"] = "error"


@dataclass(frozen=True)
class Settle:
    """How long to wait for a quiet screen, in seconds.

    It is over when nothing has changed for `quiet`, counted from the last action or change, and no answer is
    awaited that the action has asked a server for; or after `cap`.
    """

    quiet: float = 0.3
    cap: float = 5.0
    anew: bool = False  # count from now, also if it has been quiet for long


# The policies by name. A change that comes later than the window after the last one is not in the picture,
# unless a server was asked for it; docs/performance.md shows what each window catches and costs.
POLICIES: dict[str, Settle | None] = {
    "none": None,  # at once
    "fast": Settle(quiet=0.1, cap=2.0),
    "settled": Settle(),
    # The model waits for something to happen, so that a short calm proves nothing.
    "wait": Settle(quiet=1.0, cap=10.0, anew=True),
}


@dataclass(frozen=True)
class Step:
    """An xdotool script, then a wait for a quiet screen, then a picture: each part optional."""

    script: str = ""
    settle: Settle | None = None
    frame: Frame | None = None


@dataclass(frozen=True)
class StepResult:
    settled: Literal["none", "settled", "animating", "cap"] = "none"
    settle_ms: float = 0.0
    output: str = ""  # what the script's `getmouselocation` printed
    image_width: int = 0
    image_height: int = 0
    pointer: tuple[int, int] = (0, 0)  # screen pixels, after the script


@dataclass(frozen=True)
class Held:
    """Keys by keysym name, buttons by X number, that the X server believes to be down."""

    keys: tuple[str, ...] = ()
    buttons: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keys or self.buttons)


@dataclass(frozen=True)
class Window:
    id: int
    title: str
    app: str  # WM_CLASS class
    x: int  # of the client area, screen pixels
    y: int
    width: int
    height: int
    active: bool
    pid: int


@dataclass(frozen=True)
class Exec:
    argv: tuple[str, ...]
    timeout: float = 60.0  # seconds; then the process group is killed
    output_limit: int = 1024 * 1024  # bytes of stdout and stderr together; what exceeds it is dropped
    cwd: str = ""  # "": the home directory
    env: dict[str, str] = field(default_factory=dict)  # added to the desktop's own


def to_head(message: Any) -> dict[str, Any]:
    """A dataclass of this module as a JSON object."""
    return asdict(message)


def step_from_head(head: dict[str, Any]) -> Step:
    settle, frame = head.get("settle"), head.get("frame")
    return Step(
        script=head.get("script", ""),
        settle=Settle(**settle) if settle is not None else None,
        frame=Frame(**frame) if frame is not None else None,
    )


def step_result_from_head(head: dict[str, Any]) -> StepResult:
    return StepResult(**{**head, "pointer": tuple(head["pointer"])})


def held_from_head(head: dict[str, Any]) -> Held:
    return Held(keys=tuple(head["keys"]), buttons=tuple(head["buttons"]))
