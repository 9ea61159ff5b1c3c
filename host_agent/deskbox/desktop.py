"""One desktop and the right to drive it, from launch or attach to close."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
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
from deskbox.errors import Cancelled, DeskboxError, Interrupted, Paused, Refused, Unavailable
from deskbox.rpc.channel import CallCancelled, Channel, Stream
from deskbox.rpc.outcome import Disconnected
from deskbox.snapshots import Snapshot
from deskbox_guest import protocol
from deskbox_guest.protocol import EngineName, Facts, Frame, Held, Window

if TYPE_CHECKING:
    from deskbox.driver import DesktopComputerDriver

T = TypeVar("T")

STREAM_TIMEOUT = 30.0  # an agent that was killed takes seconds to start again in an emulated machine
FREEZE_TIMEOUT = 60.0  # a busy engine takes its time
SAVE_TIMEOUT = 600.0
# A command's time is the guest's to keep; this much more without its end means that the guest is gone.
EXEC_GRACE = 15.0

CANCELLED = (
    "stopped, because the caller cancelled: part of it may have happened, and nothing is held any more"
)
OBSERVER = "this desktop was attached to as an observer: attach without observe=True to act on it"


class Desktop:
    """A running desktop. Make one with `launch` or `attach`; use it as a context manager, or `close` it.

    Coordinates are pixels of the guest's X screen, (0, 0) at its top left. Every method raises Unavailable
    when the desktop is gone, and those that act raise Interrupted when their effect is not certain; whatever
    was raised, no key and no button is held afterwards. Methods may be called from any thread; the guest does
    one script at a time.
    """

    def __init__(self, home: registry.Home, keeping: launcher.Keeping | None, *, observe: bool, wait: float):
        self._keeping = keeping
        self._observe = observe
        self._channel: Channel | None = None
        self._lock = threading.Lock()
        self._control, record = open_control(home, observe=observe, wait=wait)
        self.name = record.name
        self.backend = record.backend
        self.size: Size = record.size
        self.url = record.url
        self.engine = record.engine
        self.timings_ms = record.timings_ms
        self.guest_facts = record.guest_facts

    @classmethod
    def launch(
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
        """Start a desktop and wait until it is painted.

        name      of 1 to 40 characters; None makes one up
        backend   what runs the guest: "docker", "bwrap" or "qemu"; "auto" for the first of them that works
                  on this machine; None for what DESKBOX_BACKEND says, or else "auto"
        size      of the screen in pixels, 320x240 to 3840x2160
        url       what the browser shows; None for a start page that needs no network
        packages  Debian packages that the guest has besides its own; the first time they are installed
        engine    what carries out scripts: "xtest", or "xdotool" for the program of that name, which refuses
                  keys that the keyboard layout lacks
        detach    leave it running when this process ends; otherwise it ends with `close` or with the process
        progress  told in a few words what is going on during a long start

        Raises InvalidInput for a bad name, size, URL or engine, Refused if it can't be started, Unavailable
        if the backend does not answer.
        """
        keeping = launcher.launch(
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
            return cls(keeping.home, keeping, observe=False, wait=0)
        except BaseException:
            keeping.release()
            raise

    @classmethod
    def fork(
        cls,
        snapshot: str,
        name: str | None = None,
        *,
        detach: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Start a desktop from a snapshot: see `save`. The parameters and errors are those of `launch`."""
        keeping = launcher.fork(name, snapshot, detach=detach, progress=progress)
        try:
            return cls(keeping.home, keeping, observe=False, wait=0)
        except BaseException:
            keeping.release()
            raise

    @classmethod
    def attach(cls, name: str = launcher.DEFAULT_NAME, *, observe: bool = False, wait: float = 0.0) -> Self:
        """Take control of a running desktop, or only look on with `observe`.

        One process drives a desktop at a time: if another one does, wait up to `wait` seconds for it to
        finish, then raise Unavailable. A desktop whose keeper died is given a new one.
        """
        home = registry.Home(name)
        launcher.adopt(home)
        return cls(home, None, observe=observe, wait=wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up control; a desktop launched without `detach` ends here. Idempotent."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        self._control.close()
        if self._keeping is not None:
            self._keeping.release()

    def pause(self) -> None:
        """Freeze the desktop: nothing in it runs until `resume`, and calls raise Unavailable at once.

        What is held is released first. A call that another thread or process has under way is stopped.
        """
        self._control.request("pause", timeout=FREEZE_TIMEOUT)

    def resume(self) -> None:
        """Let a paused desktop go on."""
        self._control.request("resume", timeout=FREEZE_TIMEOUT)

    def save(self, snapshot: str) -> Snapshot:
        """Keep what this desktop is now as a snapshot of that name, to `fork` others from; it goes on.

        On "qemu" that is all that runs, on other backends the home directory: `Snapshot.contents` says which.
        What is held is released first. Raises InvalidInput, or Refused if there is one of that name or the
        disk is full.
        """
        answer = self._control.request("save", timeout=SAVE_TIMEOUT, snapshot=snapshot)
        return msgspec.convert(answer, Snapshot)

    # --- acting ------------------------------------------------------------------------------------------
    def step(
        self,
        script: str = "",
        *,
        settle: SettlePolicy = None,
        frame: Frame | None = None,
        cancelled: Callable[[], bool] | None = None,
        timeout: float = calls.SCRIPT,
    ) -> StepOutcome:
        """Run an xdotool script, wait until the screen is quiet, take a picture: in one round trip.

        The whole script is checked before its first effect; InvalidInput says what is wrong with it.
        """
        return self._call(calls.step(script, settle, frame, timeout), cancelled)

    def type_text(
        self, text: str, *, pace: float | None = None, cancelled: Callable[[], bool] | None = None
    ) -> None:
        """Type `text` into the focused window, exactly; "\\n" is Return and "\\t" is Tab.

        pace  characters a second, 0.1 to 50, such as a person's 5; None: as fast as the application reads
        """
        self._call(calls.type_text(text, pace), cancelled)

    def open_url(self, url: str) -> None:
        """Show a page in the guest's browser, which is started if it does not run."""
        self._call(calls.open_url(url))

    def release_inputs(self) -> Held:
        """Release every key and button that is down; return what was."""
        return self._call(calls.release())

    # --- looking -----------------------------------------------------------------------------------------
    def screenshot(
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
        """A picture of the screen or of a region (x, y, width, height), scaled to `image_size` if given.

        max_bytes  the most that the encoded image may take
        oversize   if it would take more: "error" raises ImageTooLarge; "shrink" gives about the largest image
                   of the same shape that fits, and raises only if 64 pixels on its longer side do not
        """
        frame = calls.frame(region, image_size, format, cursor, max_bytes, oversize)
        return self.step(settle=settle, frame=frame, cancelled=cancelled).image

    def held_inputs(self) -> Held:
        """The keys and buttons that the X server believes to be down."""
        return self._call(calls.held())

    def windows(self) -> list[Window]:
        """The windows of the desktop, the topmost first."""
        return self._call(calls.windows())

    def facts(self) -> Facts:
        return self._call(calls.facts())

    def view_url(self) -> str:
        """A one-time URL on 127.0.0.1 where a browser of this machine can watch the desktop."""
        return str(self._control.request("view", timeout=30)["url"])

    def open_view(self) -> socket.socket:
        """A view-only RFB (VNC) byte stream, as a connected socket. Close it to end the view."""
        channel = Channel(self._control.stream(timeout=STREAM_TIMEOUT))
        stream = channel.open(protocol.VIEW, {}, end=False)
        stream.head(timeout=STREAM_TIMEOUT)
        ours, theirs = socket.socketpair()
        threading.Thread(target=_pump_out, args=(channel, stream, ours), daemon=True).start()
        threading.Thread(target=_pump_in, args=(channel, stream, ours), daemon=True).start()
        return theirs

    # --- files and commands ------------------------------------------------------------------------------
    def exec(
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
        """Run a command in the guest as its user, without a shell; wait for its end.

        timeout       seconds; then its whole process group is killed
        output_limit  bytes of stdout and stderr together; the rest is dropped and `truncated` says so
        on_output     told each piece as it comes: 1 or 2 (stdout, stderr) and its bytes

        Raises Refused if there is no such program.
        """
        head = calls.exec_head(argv, timeout, output_limit, cwd, env or {})
        self._check_may_act()
        stream = self._connect().open(protocol.EXEC, head, stdin)
        output = calls.ExecOutput(on_output)
        try:
            stream.head(timeout=timeout + EXEC_GRACE, cancelled=cancelled)
            for piece in stream.payload(timeout=timeout + EXEC_GRACE, cancelled=cancelled):
                if (result := output.feed(piece)) is not None:
                    return result
        except CallCancelled:
            stream.cancel()
            raise Cancelled(calls.EXEC_CANCELLED) from None
        except TimeoutError:
            raise Unavailable(calls.EXEC_LOST) from None
        except Disconnected as error:
            raise Interrupted(f"the command was lost: {error}") from error
        except BaseException:
            stream.cancel()
            raise
        raise Interrupted(calls.EXEC_LOST)

    def read_file(self, path: str) -> bytes:
        """A file of the guest; `path` is absolute, or relative to the home directory."""
        return self._call(calls.read_file(path))

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file of the guest: whole, or not at all."""
        self._call(calls.write_file(path, data, mode))

    # --- the SDK -----------------------------------------------------------------------------------------
    def computer_driver(
        self,
        image_size: Size | None = None,
        crop: Region | None = None,
        *,
        settle: SettlePolicy = "settled",
        max_image_bytes: int = 0,
    ) -> DesktopComputerDriver:
        """The driver for `openai.ComputerToolset`: see `DesktopComputerDriver`."""
        from deskbox.driver import DesktopComputerDriver

        return DesktopComputerDriver(
            self, image_size=image_size, crop=crop, settle=settle, max_image_bytes=max_image_bytes
        )

    # --- the connection ----------------------------------------------------------------------------------
    def _check_may_act(self) -> None:
        if self._observe:
            raise Refused(OBSERVER)

    def _connect(self) -> Channel:
        """The channel in use, or a fresh one if the guest's agent was restarted meanwhile."""
        with self._lock:
            # The guest's agent may die just after it dialled: then the next one dials again.
            deadline = time.monotonic() + STREAM_TIMEOUT
            while self._channel is None or self._channel.closed:
                try:
                    self._channel = Channel(self._control.stream(timeout=STREAM_TIMEOUT))
                except Disconnected as error:
                    if time.monotonic() > deadline:
                        raise Unavailable(f"desktop {self.name!r} does not answer: {error}") from error
            return self._channel

    def _call(self, call: Call[T], cancelled: Callable[[], bool] | None = None) -> T:
        if call.acts:
            self._check_may_act()
        channel = self._connect()
        try:
            head, payload = channel.call(
                call.path, call.head, call.payload, timeout=call.timeout, cancelled=cancelled
            )
        except CallCancelled:
            self._release()
            raise Cancelled(CANCELLED) from None
        except Disconnected as error:
            paused = self._release()
            if call.acts:
                raise Interrupted(calls.lost(call, paused or error)) from error
            head, payload = self._connect().call(call.path, call.head, timeout=call.timeout)
        except Unavailable as error:
            if not call.acts:
                raise
            self._release()
            raise Interrupted(f"{error}: part of it may have happened") from error
        except (KeyboardInterrupt, SystemExit):
            with contextlib.suppress(DeskboxError):
                self._release()
            raise
        return call.read(head, payload)

    def _release(self) -> Paused | None:
        """After a call that did not end well: let go of everything, over a fresh connection if need be.

        A paused desktop has let go already; then that is returned.
        """
        if self._observe:
            return None
        release = calls.release()
        for _ in range(2):
            try:
                self._connect().call(release.path, release.head, timeout=release.timeout)
            except Disconnected:
                continue
            except Paused as paused:
                return paused
            break
        return None


def _pump_out(channel: Channel, stream: Stream, sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for data in stream.payload():
            sock.sendall(data)
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _pump_in(channel: Channel, stream: Stream, sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := sock.recv(64 * 1024):
            stream.send(data)
    channel.close()
    sock.close()


def open_control(
    home: registry.Home, *, observe: bool, wait: float
) -> tuple[Control, registry.DesktopRecord]:
    """Connect to the keeper and, unless observing, take the lease."""
    control = Control(home.control_socket)
    try:
        if not observe:
            who = os.path.basename(sys.argv[0]) or "python"
            control.request("lease", timeout=wait, wait=wait, who=who)
        return control, msgspec.convert(control.request("record", timeout=5), registry.DesktopRecord)
    except BaseException:
        control.close()
        raise
