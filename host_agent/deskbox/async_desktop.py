"""`Desktop` for asyncio: the same calls, awaited. What each means is said there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from deskbox import calls, launcher, registry
from deskbox.calls import (
    Call,
    ExecResult,
    ImageFormat,
    Oversize,
    Region,
    SettlePolicy,
    Size,
    StepOutcome,
)
from deskbox.control import Control
from deskbox.desktop import (
    CANCELLED,
    EXEC_GRACE,
    FREEZE_TIMEOUT,
    OBSERVER,
    SAVE_TIMEOUT,
    STREAM_TIMEOUT,
    open_control,
)
from deskbox.errors import Cancelled, DeskboxError, Interrupted, Paused, Refused, Unavailable
from deskbox.rpc.async_channel import AsyncChannel
from deskbox.rpc.channel import CallCancelled
from deskbox.rpc.outcome import Disconnected
from deskbox.snapshots import Snapshot
from deskbox_guest import protocol
from deskbox_guest.protocol import EngineName, Facts, Frame, Held, Window

if TYPE_CHECKING:
    from deskbox.driver import AsyncDesktopComputerDriver

T = TypeVar("T")


class AsyncDesktop:
    """A running desktop, for asyncio. Make one with `launch` or `attach`; see `Desktop` for each method.

    A task that is cancelled while it acts leaves no key and no button held.
    """

    def __init__(
        self,
        keeping: launcher.Keeping | None,
        control: Control,
        record: registry.DesktopRecord,
        *,
        observe: bool,
    ) -> None:
        self._keeping = keeping
        self._control = control
        self._observe = observe
        self._channel: AsyncChannel | None = None
        self._lock = asyncio.Lock()
        self.name = record.name
        self.backend = record.backend
        self.size: Size = record.size
        self.url = record.url
        self.engine = record.engine
        self.timings_ms = record.timings_ms
        self.guest_facts = record.guest_facts

    @classmethod
    async def launch(
        cls,
        name: str | None = None,
        *,
        backend: str | None = None,
        size: Size = launcher.DEFAULT_SIZE,
        url: str | None = None,
        packages: Sequence[str] = (),
        engine: EngineName = launcher.DEFAULT_ENGINE,
        detach: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Self:
        keeping = await asyncio.to_thread(
            launcher.launch,
            name,
            backend=backend,
            size=size,
            url=url,
            packages=packages,
            engine=engine,
            detach=detach,
            progress=progress,
        )
        try:
            return await cls._open(keeping.home, keeping, observe=False, wait=0)
        except BaseException:
            keeping.release()
            raise

    @classmethod
    async def fork(
        cls,
        snapshot: str,
        name: str | None = None,
        *,
        detach: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Self:
        keeping = await asyncio.to_thread(launcher.fork, name, snapshot, detach=detach, progress=progress)
        try:
            return await cls._open(keeping.home, keeping, observe=False, wait=0)
        except BaseException:
            keeping.release()
            raise

    @classmethod
    async def attach(
        cls, name: str = launcher.DEFAULT_NAME, *, observe: bool = False, wait: float = 0.0
    ) -> Self:
        home = registry.Home(name)
        await asyncio.to_thread(launcher.adopt, home)
        return await cls._open(home, None, observe=observe, wait=wait)

    @classmethod
    async def _open(
        cls, home: registry.Home, keeping: launcher.Keeping | None, *, observe: bool, wait: float
    ) -> Self:
        control, record = await asyncio.to_thread(open_control, home, observe=observe, wait=wait)
        return cls(keeping, control, record, observe=observe)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        self._control.close()
        if self._keeping is not None:
            await asyncio.to_thread(self._keeping.release)

    async def pause(self) -> None:
        await asyncio.to_thread(self._control.request, "pause", timeout=FREEZE_TIMEOUT)

    async def resume(self) -> None:
        await asyncio.to_thread(self._control.request, "resume", timeout=FREEZE_TIMEOUT)

    async def save(self, snapshot: str) -> Snapshot:
        answer = await asyncio.to_thread(
            self._control.request, "save", timeout=SAVE_TIMEOUT, snapshot=snapshot
        )
        return msgspec.convert(answer, Snapshot)

    # --- acting ------------------------------------------------------------------------------------------
    async def step(
        self,
        script: str = "",
        *,
        settle: SettlePolicy = None,
        frame: Frame | None = None,
        cancelled: Callable[[], bool] | None = None,
        timeout: float = calls.SCRIPT,
    ) -> StepOutcome:
        return await self._call(calls.step(script, settle, frame, timeout), cancelled)

    async def type_text(
        self, text: str, *, pace: float | None = None, cancelled: Callable[[], bool] | None = None
    ) -> None:
        await self._call(calls.type_text(text, pace), cancelled)

    async def open_url(self, url: str) -> None:
        await self._call(calls.open_url(url))

    async def release_inputs(self) -> Held:
        return await self._call(calls.release())

    # --- looking -----------------------------------------------------------------------------------------
    async def screenshot(
        self,
        *,
        region: Region | None = None,
        image_size: Size | None = None,
        format: ImageFormat = "png",
        cursor: bool = True,
        settle: SettlePolicy = None,
        max_bytes: int | None = None,
        oversize: Oversize = "error",
        cancelled: Callable[[], bool] | None = None,
    ) -> bytes:
        frame = calls.frame(region, image_size, format, cursor, max_bytes, oversize)
        return (await self.step(settle=settle, frame=frame, cancelled=cancelled)).image

    async def held_inputs(self) -> Held:
        return await self._call(calls.held())

    async def windows(self) -> list[Window]:
        return await self._call(calls.windows())

    async def facts(self) -> Facts:
        return await self._call(calls.facts())

    async def view_url(self) -> str:
        answer = await asyncio.to_thread(self._control.request, "view", timeout=30)
        return str(answer["url"])

    # --- files and commands ------------------------------------------------------------------------------
    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 60.0,
        output_limit: int = 1024 * 1024,
        cwd: str = "",
        env: dict[str, str] | None = None,
        on_output: Callable[[int, bytes], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> ExecResult:
        head = calls.exec_head(argv, timeout, output_limit, cwd, env or {})
        self._check_may_act()
        stream = (await self._connect()).open(protocol.EXEC, head, stdin)
        output = calls.ExecOutput(on_output)
        try:
            async with asyncio.timeout(timeout + EXEC_GRACE):
                await stream.head(cancelled=cancelled)
                async for piece in stream.payload(cancelled=cancelled):
                    if (result := output.feed(piece)) is not None:
                        return result
        except CallCancelled:
            stream.cancel()
            raise Cancelled(calls.EXEC_CANCELLED) from None
        except TimeoutError:
            stream.cancel()
            raise Unavailable(calls.EXEC_LOST) from None
        except Disconnected as error:
            raise Interrupted(f"the command was lost: {error}") from error
        except BaseException:
            stream.cancel()
            raise
        raise Interrupted(calls.EXEC_LOST)

    async def read_file(self, path: str) -> bytes:
        return await self._call(calls.read_file(path))

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await self._call(calls.write_file(path, data, mode))

    # --- the SDK -----------------------------------------------------------------------------------------
    def computer_driver(
        self,
        image_size: Size | None = None,
        crop: Region | None = None,
        *,
        settle: SettlePolicy = "settled",
        max_image_bytes: int = 0,
    ) -> AsyncDesktopComputerDriver:
        """The driver for `openai.AsyncComputerToolset`: see `AsyncDesktopComputerDriver`."""
        from deskbox.driver import AsyncDesktopComputerDriver

        return AsyncDesktopComputerDriver(
            self, image_size=image_size, crop=crop, settle=settle, max_image_bytes=max_image_bytes
        )

    # --- the connection ----------------------------------------------------------------------------------
    def _check_may_act(self) -> None:
        if self._observe:
            raise Refused(OBSERVER)

    async def _connect(self) -> AsyncChannel:
        async with self._lock:
            deadline = time.monotonic() + STREAM_TIMEOUT
            while self._channel is None or self._channel.closed:
                sock = await asyncio.to_thread(self._control.stream, timeout=STREAM_TIMEOUT)
                try:
                    self._channel = await AsyncChannel.connect(sock)
                except Disconnected as error:
                    if time.monotonic() > deadline:
                        raise Unavailable(f"desktop {self.name!r} does not answer: {error}") from error
            return self._channel

    async def _call(self, call: Call[T], cancelled: Callable[[], bool] | None = None) -> T:
        if call.acts:
            self._check_may_act()
        channel = await self._connect()
        try:
            head, payload = await channel.call(
                call.path, call.head, call.payload, timeout=call.timeout, cancelled=cancelled
            )
        except CallCancelled:
            await self._release()
            raise Cancelled(CANCELLED) from None
        except Disconnected as error:
            paused = await self._release()
            if call.acts:
                raise Interrupted(calls.lost(call, paused or error)) from error
            head, payload = await (await self._connect()).call(call.path, call.head, timeout=call.timeout)
        except Unavailable as error:
            if not call.acts:
                raise
            await self._release()
            raise Interrupted(f"{error}: part of it may have happened") from error
        except asyncio.CancelledError:
            # This task is being cancelled, but what it pressed must be let go of first.
            with contextlib.suppress(DeskboxError):
                await asyncio.shield(asyncio.create_task(self._release()))
            raise
        return call.read(head, payload)

    async def _release(self) -> Paused | None:
        if self._observe:
            return None
        release = calls.release()
        for _ in range(2):
            try:
                await (await self._connect()).call(release.path, release.head, timeout=release.timeout)
            except Disconnected:
                continue
            except Paused as paused:
                return paused
            break
        return None
