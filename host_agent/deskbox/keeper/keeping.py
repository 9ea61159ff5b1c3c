"""What a keeper does from the moment on at which its guest is being started, until nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from deskbox import backends, control, registry, snapshots
from deskbox.backends import connections
from deskbox.errors import DeskboxError, Paused, Refused, Unavailable
from deskbox.keeper.start import ENDINGS, Start
from deskbox.rpc.async_channel import AsyncChannel, AsyncStream
from deskbox.rpc.channel import shut
from deskbox.rpc.outcome import Disconnected
from deskbox_guest import protocol

# A guest on a loaded machine; a warm start takes a tenth of it.
START_TIMEOUT = 120.0
# An agent that was killed is started again at once; in an emulated machine that takes seconds.
STREAM_TIMEOUT = 30.0
_PAUSED = "desktop {name!r} is paused: `deskbox resume {name}` lets it go on"


if TYPE_CHECKING:
    from deskbox.viewer import Viewer

P = ParamSpec("P")
T = TypeVar("T")


class Keeper:
    def __init__(self, home: registry.Home, record: registry.DesktopRecord, status: Status) -> None:
        self._home = home
        self._record = record
        self._status = status
        self._backend: backends.Backend | None = None
        self._connections: connections.Connections | None = None
        self._lent: dict[object, list[socket.socket]] = {}  # by the client that uses them
        self._freezing = asyncio.Lock()
        self._ending = asyncio.Event()
        self._why = ""
        self._lease: tuple[object, str] | None = None
        self._lease_free = asyncio.Event()
        self._viewer: Viewer | None = None
        self._clients: set[asyncio.Task[None]] = set()

    # --- life --------------------------------------------------------------------------------------------
    async def run(self, start: Start | None, *, told_to_end: Sequence[int], tie: int | None) -> None:
        """Bring the desktop up (without `start`: take over one that lives), keep it, and leave nothing.

        `told_to_end`: the signals that came before this could take them.
        """
        loop = asyncio.get_running_loop()
        for number in ENDINGS:
            loop.add_signal_handler(number, self.end, f"the keeper got {number.name}")
        for early in told_to_end:
            self.end(f"the keeper got {signal.Signals(early).name}")
        if tie is not None:

            def untie() -> None:
                loop.remove_reader(tie)  # a closed pipe stays readable
                self.end("its owner ended")

            loop.add_reader(tie, untie)
        listener: socket.socket | None = None
        watching: asyncio.Task[None] | None = None
        try:
            listener = connections.listen(self._home.control_socket, 0o600)
            loop.add_reader(listener, self._accept, listener)
            up = asyncio.create_task(self._bring_up(start))
            ending = asyncio.create_task(self._ending.wait())
            await asyncio.wait({up, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not up.done():
                up.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await up
                raise Unavailable(f"the desktop ended while it started: {self._why}")
            await up
            watching = asyncio.create_task(self._watch())
            self._status.ready()
            await self._ending.wait()
        except DeskboxError as error:
            self._status.failed(error)
        except Exception as error:  # a bug of ours: whoever waits must hear of it
            traceback.print_exc()
            self._status.failed(Unavailable(f"the keeper failed: {error!r}"))
        finally:
            if watching is not None:
                watching.cancel()
            if listener is not None:
                loop.remove_reader(listener)
                listener.close()
            await self._clean_up(start)

    def end(self, why: str) -> None:
        self._why = self._why or why
        log(f"ending: {why}")
        self._ending.set()

    async def _bring_up(self, start: Start | None) -> None:
        record = self._record
        record.keeper_pid = os.getpid()
        if start is not None:
            backend = await asyncio.to_thread(start.backend)
        else:
            backend = await asyncio.to_thread(backends.create, record.backend)
        self._backend = backend
        self._connections = backend.connections(self._home.guest_dir)
        self._connections.open()
        if start is not None:
            guest = await asyncio.to_thread(start.guest)
            record.guest_id, record.guest_facts = guest.id, guest.facts
        self._home.write(record)
        if start is None:
            if record.state == "paused":
                return
            # Its keeper may have died while it held the guest still, to save it.
            await asyncio.to_thread(backend.resume, record.guest_id)
        ended = asyncio.create_task(asyncio.to_thread(backend.wait, record.guest_id))
        ready = asyncio.create_task(self._wait_ready(start.began if start is not None else time.monotonic()))
        await asyncio.wait({ended, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            raise Unavailable(f"the guest did not start: {await ended}")
        timings = await ready
        if start is not None:
            record.timings_ms = timings
            # The home directory that it was started with is in place.
            (self._home.guest_dir / backends.HOME_ARCHIVE).unlink(missing_ok=True)
        self._set_state("running")

    async def _wait_ready(self, began: float) -> dict[str, float]:
        """Milliseconds until the guest's agent answered, and until the desktop was painted."""
        channel = await AsyncChannel.connect(await self._stream(START_TIMEOUT))
        try:
            agent = (time.monotonic() - began) * 1000
            self._status.progress("waiting for the desktop to be painted")
            await channel.call(protocol.READY, {"timeout_s": START_TIMEOUT}, timeout=START_TIMEOUT + 5)
            painted = (time.monotonic() - began) * 1000
            if self._record.snapshot:  # whoever drove the original may have pressed keys at that moment
                held, _ = await channel.call(protocol.HELD, timeout=STREAM_TIMEOUT)
                if held["keys"] or held["buttons"]:
                    await channel.call(protocol.RELEASE, timeout=STREAM_TIMEOUT)
        finally:
            await channel.close()
        return {"agent": round(agent, 1), "painted": round(painted, 1)}

    async def _watch(self) -> None:
        assert self._backend is not None
        self.end(await asyncio.to_thread(self._backend.wait, self._record.guest_id))

    async def _clean_up(self, start: Start | None) -> None:
        for task in self._clients:
            task.cancel()
        if self._viewer is not None:
            await self._viewer.close()
        if start is not None:  # what it makes after all must be found
            self._backend = await asyncio.to_thread(start.end)
        if self._connections is not None:
            self._connections.close()
        if self._backend is not None:
            try:
                await asyncio.to_thread(self._backend.stop_named, self._record.name, registry.state_id())
            except Exception:
                # Without its record nobody would find the guest again: `deskbox down` can try later.
                traceback.print_exc()
                return
        # A snapshot that was being made is given up, and leaves nothing.
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._home.remove()

    # --- streams to the guest ----------------------------------------------------------------------------
    async def _stream(self, timeout: float) -> socket.socket:
        if self._connections is None:
            raise Unavailable(f"desktop {self._record.name!r} is still starting: try again in a moment")
        return await self._connections.stream(timeout)

    async def _lend(self, client: object, timeout: float) -> socket.socket:
        """A stream for a client. We keep a duplicate, so that we can end it; see `_cut`."""
        self._check_awake()
        stream = await self._stream(timeout)
        try:
            self._check_awake()  # it may have been paused meanwhile
        except Paused:
            shut(stream)
            raise
        kept = [lent for lent in self._lent.get(client, []) if not _is_over(lent)]
        for lent in set(self._lent.get(client, [])) - set(kept):
            lent.close()
        self._lent[client] = [*kept, stream.dup()]
        return stream

    def _check_awake(self) -> None:
        if self._record.state == "paused":
            raise Paused(_PAUSED.format(name=self._record.name))

    def _cut(self, client: object) -> None:
        """End all streams of a client. Whoever waits for an answer on one hears of it, on both sides."""
        for stream in self._lent.pop(client, []):
            shut(stream)

    # --- pause -------------------------------------------------------------------------------------------
    async def _pause(self) -> None:
        """Let go of what is held, then freeze the guest. A script under way is stopped."""
        async with self._freezing:
            if self._record.state == "paused":
                return
            if self._record.state != "running":
                raise Unavailable(f"desktop {self._record.name!r} is still starting: try again in a moment")
            self._set_state("paused")
            try:
                for client in list(self._lent):
                    self._cut(client)
                await self._release_inputs()
                await asyncio.to_thread(self._guest().pause, self._record.guest_id)
            except BaseException:
                self._set_state("running")
                raise

    async def _resume(self) -> None:
        async with self._freezing:
            if self._record.state == "paused":
                await asyncio.to_thread(self._guest().resume, self._record.guest_id)
                self._set_state("running")

    # --- snapshots ---------------------------------------------------------------------------------------
    async def _save(self, name: str) -> dict[str, Any]:
        """Save this desktop; return what `Snapshot` says."""
        backend = self._guest()
        snapshot = snapshots.of(self._record, name, backend.saves)
        async with self._freezing:
            paused = self._record.state == "paused"
            if paused and backend.saves == "home":
                self._check_awake()
            with snapshots.writing(snapshot) as into:
                if not paused:
                    await self._release_inputs()
                if backend.saves == "home":
                    channel = await AsyncChannel.connect(await self._stream(STREAM_TIMEOUT))
                    try:
                        await snapshots.save_home(channel, into)
                    finally:
                        await channel.close()
                else:
                    assert self._connections is not None
                    async with self._connections.resting() if not paused else contextlib.nullcontext():
                        await _to_the_end(backend.save, self._record.guest_id, into, log)
        return _told(snapshot)

    async def _release_inputs(self) -> None:
        for attempts_left in (1, 0):  # the agent may just be dying; the next one lets go as well
            try:
                channel = await AsyncChannel.connect(await self._stream(STREAM_TIMEOUT))
                try:
                    await channel.call(protocol.RELEASE, timeout=STREAM_TIMEOUT)
                finally:
                    await channel.close()
                return
            except Disconnected as error:
                if not attempts_left:
                    raise Unavailable(f"the guest did not let go of its keys: {error}") from error

    def _guest(self) -> backends.Backend:
        assert self._backend is not None
        return self._backend

    def _set_state(self, state: registry.RecordState) -> None:
        self._record.state = state
        self._home.write(self._record)

    # --- clients -----------------------------------------------------------------------------------------
    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._take_client(listener.accept()[0])

    def _take_client(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        pid, uid, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (os.getuid(), 0):
            log(f"refused process {pid} of user {uid}")
            connection.close()
            return
        task = asyncio.create_task(self._serve(connection, pid))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, connection: socket.socket, pid: int) -> None:
        client = object()
        try:
            async for request in _lines(connection):
                fds: list[socket.socket] = []
                try:
                    answer = await self._answer(client, pid, request, fds)
                except DeskboxError as error:
                    answer = {"error": str(error), "kind": control.kind_of(error)}
                data = json.dumps(answer).encode() + b"\n"
                connection.setblocking(True)  # a short line: it fits the socket's buffer
                socket.send_fds(connection, [data], [fd.fileno() for fd in fds])
                connection.setblocking(False)
                for fd in fds:
                    fd.close()
        except (OSError, ValueError) as error:
            log(f"client {pid}: {error}")
        finally:
            connection.close()
            self._cut(client)
            if self._lease is not None and self._lease[0] is client:
                self._lease = None
                self._lease_free.set()

    async def _answer(
        self, client: object, pid: int, request: dict[str, Any], fds: list[socket.socket]
    ) -> dict[str, Any]:
        op = request.get("op")
        if op == "stream":
            wait = min(float(request.get("wait", STREAM_TIMEOUT)), START_TIMEOUT)
            fds.append(await self._lend(client, wait))
            return {}
        if op == "record":
            return _told(self._record)
        if op == "lease":
            await self._take_lease(client, f"process {pid} ({request['who']})", float(request["wait"]))
            return {}
        if op == "view":
            return {"url": await self._view_url()}
        if op == "pause":
            await self._pause()
            return {}
        if op == "resume":
            await self._resume()
            return {}
        if op == "save":
            return await self._save(str(request["snapshot"]))
        if op == "stop":
            self.end("it was asked to stop")
            return {}
        raise Refused(f"the keeper does not know the request {op!r}")

    async def _take_lease(self, client: object, who: str, wait: float) -> None:
        try:
            async with asyncio.timeout(wait):
                while self._lease is not None and self._lease[0] is not client:
                    self._lease_free.clear()
                    await self._lease_free.wait()
        except TimeoutError:
            holder = self._lease[1] if self._lease else "another client"
            raise Unavailable(
                f"desktop {self._record.name!r} is being driven by {holder}: wait for it to end, or stop it"
            ) from None
        self._lease = (client, who)

    # --- the viewer --------------------------------------------------------------------------------------
    async def _view_url(self) -> str:
        if self._viewer is None:
            from deskbox.viewer import Viewer, locate_novnc  # most desktops are watched by nobody

            viewer = Viewer(open_stream=self._open_view, novnc=locate_novnc(), title=self._record.name)
            await viewer.start()
            self._viewer = viewer
        return self._viewer.new_url()

    async def _open_view(self) -> ViewStream:
        # Each viewer has a connection of its own: a slow one holds up nothing else.
        channel = await AsyncChannel.connect(await self._stream(STREAM_TIMEOUT))
        stream = channel.open(protocol.VIEW, {}, end=False)
        try:
            await stream.head(timeout=STREAM_TIMEOUT)
        except BaseException:
            await channel.close()
            raise
        return ViewStream(channel, stream)


class ViewStream:
    """A viewer's RFB bytes, in the shape that `viewer` wants."""

    def __init__(self, channel: AsyncChannel, stream: AsyncStream) -> None:
        self._channel = channel
        self._stream = stream

    async def read(self) -> bytes:
        try:
            return await self._stream.read()
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        await self._stream.send(data)

    async def close(self) -> None:
        await self._channel.close()


class Status:
    """Tells the process that started this keeper how far it is, one JSON object a line."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "w", buffering=1)

    def progress(self, text: str) -> None:
        self._say({"progress": text})

    def ready(self) -> None:
        self._say({"ready": True})

    def failed(self, error: DeskboxError) -> None:
        self._say({"error": str(error), "kind": control.kind_of(error)})

    def _say(self, message: dict[str, Any]) -> None:
        log(json.dumps(message))
        with contextlib.suppress(BrokenPipeError, ValueError):  # nobody waits any more
            self._file.write(json.dumps(message) + "\n")


def _is_over(stream: socket.socket) -> bool:
    """Both directions of it are shut, so that nobody uses it any more."""
    poll = select.poll()
    poll.register(stream, 0)
    return bool(poll.poll(0))


async def _to_the_end(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Do it in a thread. If we are cancelled meanwhile, wait all the same: what it made must be found."""
    working = asyncio.create_task(asyncio.to_thread(work, *args, **named))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        with contextlib.suppress(DeskboxError, OSError):
            await working
        raise


def _told(record: msgspec.Struct) -> dict[str, Any]:
    """As JSON has it."""
    told: dict[str, Any] = msgspec.to_builtins(record)
    return told


async def _lines(connection: socket.socket) -> AsyncIterator[dict[str, Any]]:
    loop = asyncio.get_running_loop()
    data = b""
    while piece := await loop.sock_recv(connection, 64 * 1024):
        data += piece
        while b"\n" in data:
            line, data = data.split(b"\n", 1)
            yield json.loads(line)
        if len(data) > 64 * 1024:
            raise ValueError("a request line is too long")


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
