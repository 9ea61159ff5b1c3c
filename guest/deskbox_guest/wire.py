"""One end of a guest connection as a pure state machine: bytes in, events out. No I/O.

The host is the HTTP/2 client and the guest the server, but all that matters here is the same on both sides
(bodies with a head, flow control, resets), so both use this `Endpoint`; each side adds its own sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from deskbox_guest import protocol

# A whole 4K screenshot fits the window, so that a frame needs no round trip for credit.
WINDOW = 32 * 1024 * 1024
FRAME_SIZE = 64 * 1024
# Bytes to read from a socket at once: for more, Python gets fresh memory from the kernel each time.
READ_SIZE = 64 * 1024


@dataclass(frozen=True)
class Opened:
    """The peer opened a stream (only the server sees this)."""

    stream: int
    path: str


@dataclass(frozen=True)
class Head:
    stream: int
    head: dict[str, Any]


@dataclass(frozen=True)
class Payload:
    """Bytes of a body. Whoever takes them says so with `consumed`, which lets the peer send more."""

    stream: int
    data: bytes


@dataclass(frozen=True)
class End:
    stream: int


@dataclass(frozen=True)
class Reset:
    """The peer abandoned the stream: on the server this is how a call is cancelled."""

    stream: int


Event = Opened | Head | Payload | End | Reset


@dataclass
class _Stream:
    reader: protocol.HeadReader = field(default_factory=protocol.HeadReader)
    waiting: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0
    ending: bool = False
    sent_end: bool = False
    got_end: bool = False


class Endpoint:
    def __init__(self, side: Literal["client", "server"]) -> None:
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=side == "client", header_encoding="utf-8")
        )
        # Header validation and normalisation are for the open web; both ends are ours.
        self._h2.config.validate_inbound_headers = False
        self._h2.config.normalize_outbound_headers = False
        self._h2.config.validate_outbound_headers = False
        self._h2.local_settings = h2.settings.Settings(
            client=side == "client",
            initial_values={
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
                h2.settings.SettingCodes.MAX_FRAME_SIZE: FRAME_SIZE,
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 256,
            },
        )
        self._h2.max_inbound_frame_size = FRAME_SIZE
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WINDOW)
        self._streams: dict[int, _Stream] = {}

    # --- sending -----------------------------------------------------------------------------------------
    def open(self, path: str, head: dict[str, Any], payload: bytes = b"", *, end: bool = True) -> int:
        """Client: start a call. Returns its stream."""
        stream = self._h2.get_next_available_stream_id()
        self._streams[stream] = _Stream()
        self._h2.send_headers(
            stream, [(":method", "POST"), (":scheme", "http"), (":authority", "guest"), (":path", path)]
        )
        self._queue(stream, protocol.encode_head(head) + payload, end)
        return stream

    def respond(self, stream: int, head: dict[str, Any], payload: bytes = b"", *, end: bool = True) -> None:
        """Server: answer a call."""
        if stream not in self._streams:
            return
        self._h2.send_headers(stream, [(":status", "200")])
        self._queue(stream, protocol.encode_head(head) + payload, end)

    def send(self, stream: int, data: bytes) -> None:
        self._queue(stream, data, False)

    def end(self, stream: int) -> None:
        """Nothing more will be sent on this stream."""
        self._queue(stream, b"", True)

    def reset(self, stream: int) -> None:
        """Abandon the stream in both directions."""
        if self._streams.pop(stream, None) is not None:
            self._h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)

    def unsent(self, stream: int) -> int:
        """Bytes that wait for the peer to make room."""
        state = self._streams.get(stream)
        return state.waiting_bytes if state else 0

    def consumed(self, stream: int, count: int) -> None:
        """The application took `count` payload bytes: give the peer that much credit again."""
        if count:
            self._h2.acknowledge_received_data(count, stream)

    def to_send(self) -> bytes:
        return self._h2.data_to_send()

    def _queue(self, stream: int, data: bytes, end: bool) -> None:
        state = self._streams.get(stream)
        if state is None or state.ending:
            return
        if data:
            state.waiting.append(data)
            state.waiting_bytes += len(data)
        state.ending = state.ending or end
        self._flush(stream, state)

    def _flush(self, stream: int, state: _Stream) -> None:
        while state.waiting:
            room = self._h2.local_flow_control_window(stream)
            if room <= 0:
                return
            data = state.waiting.popleft()
            size = min(len(data), room, self._h2.max_outbound_frame_size)
            if size < len(data):
                state.waiting.appendleft(data[size:])
            state.waiting_bytes -= size
            last = state.ending and not state.waiting
            self._h2.send_data(stream, data[:size], end_stream=last)
            if last:
                state.sent_end = True
        if state.ending and not state.sent_end:
            state.sent_end = True
            self._h2.end_stream(stream)
        self._drop_if_over(stream, state)

    def _drop_if_over(self, stream: int, state: _Stream) -> None:
        if state.sent_end and state.got_end:
            self._streams.pop(stream, None)

    def _flush_all(self, streams: Iterable[int]) -> None:
        for stream in list(streams):
            state = self._streams.get(stream)
            if state is not None:
                self._flush(stream, state)

    # --- receiving ---------------------------------------------------------------------------------------
    def receive(self, data: bytes) -> list[Event]:
        """Take bytes from the peer. Raises ConnectionError when they are not what a peer of ours sends."""
        try:
            raw = self._h2.receive_data(data)
        except h2.exceptions.ProtocolError as error:
            raise ConnectionError(f"broken stream: {error}") from error
        events: list[Event] = []
        for event in raw:
            self._take(event, events)
        return events

    def _take(self, event: h2.events.Event, events: list[Event]) -> None:
        if isinstance(event, h2.events.RequestReceived):
            headers = {str(name): str(value) for name, value in event.headers}
            self._streams[event.stream_id] = _Stream()
            events.append(Opened(event.stream_id, headers[":path"]))
        elif isinstance(event, h2.events.DataReceived):
            self._take_data(event, events)
        elif isinstance(event, h2.events.StreamEnded):
            state = self._streams.get(event.stream_id)
            if state is not None:
                state.got_end = True
                self._drop_if_over(event.stream_id, state)
                events.append(End(event.stream_id))
        elif isinstance(event, h2.events.StreamReset):
            if self._streams.pop(event.stream_id, None) is not None:
                events.append(Reset(event.stream_id))
        elif isinstance(event, h2.events.WindowUpdated):
            self._flush_all([event.stream_id] if event.stream_id else self._streams)
        elif isinstance(event, h2.events.RemoteSettingsChanged):
            self._flush_all(self._streams)
        elif isinstance(event, h2.events.ConnectionTerminated):
            raise ConnectionError("the other side closed the connection")

    def _take_data(self, event: h2.events.DataReceived, events: list[Event]) -> None:
        stream, data, counted = event.stream_id, event.data, event.flow_controlled_length
        state = self._streams.get(stream)
        if state is None:  # a stream that was reset here: its last bytes may still arrive
            self._h2.acknowledge_received_data(counted, stream)
            return
        had_head = state.reader.head is not None
        payload = state.reader.feed(data)
        # Only payload waits for the application; what the head took is given back at once.
        self.consumed(stream, counted - len(payload))
        if not had_head and state.reader.head is not None:
            events.append(Head(stream, state.reader.head))
        if payload:
            events.append(Payload(stream, payload))
