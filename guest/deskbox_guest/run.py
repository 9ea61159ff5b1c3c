"""Run a command in the desktop: no shell, bounded time, bounded output, and nothing of it survives its end.

The command leads a session of its own and carries a mark in its environment, so that all it started can be
found again in /proc: children, grandchildren that hold its pipes open, and those that left its process group.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import protocol
from .protocol import Fault

MARK = "DESKBOX_EXEC"

# How often `cancelled` is asked.
_POLL_S = 0.05
# Between SIGTERM and SIGKILL: long enough to save a file when the time is up, short when someone waits for
# the cancellation.
_GRACE_TIMEOUT_S = 2.0
_GRACE_CANCEL_S = 0.1
# A background process may hold the pipes for ever. The command's own output is in them when it exits; this
# much longer we listen to what comes from a helper of it that is about to end too.
_LINGER_S = 0.2
# SIGKILL is final, except for what forks while it is being looked for: then it is looked for again.
_KILL_WITHIN_S = 2.0
_CHUNK = 64 * 1024

Emit = Callable[[int, bytes], None]


def run(
    request: protocol.Exec, stdin: bytes, emit: Emit, cancelled: Callable[[], bool] = lambda: False
) -> None:
    """Run `request.argv` and report through `emit(kind, data)`: EXEC_STDOUT and EXEC_STDERR as output comes,
    EXEC_EXIT once at the end, with JSON {"exit_code", "timed_out", "truncated"}.

    exit_code   of the command; 128 + n if signal n ended it
    timed_out   `request.timeout` seconds were over: it and all it started got SIGTERM, then SIGKILL
    truncated   there was more output than `request.output_limit` bytes; the rest was dropped, the command
                went on

    What the command leaves running in the background when it exits by itself goes on, without its pipes.
    Raises Fault: refused if it could not be started, interrupted if `cancelled()` became true.
    """
    mark = secrets.token_hex(8)
    process = _start(request, mark, stdin)
    ended = False
    try:
        _serve(process, mark, request, stdin, emit, cancelled)
        ended = True
    finally:
        if not ended:  # cancelled, or the one who listened is gone
            _signal_all(process.pid, mark, signal.SIGTERM, _GRACE_CANCEL_S)
            _kill(process.pid, mark)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()


def _serve(
    process: subprocess.Popen[bytes],
    mark: str,
    request: protocol.Exec,
    stdin: bytes,
    emit: Emit,
    cancelled: Callable[[], bool],
) -> None:
    room = request.output_limit
    truncated = timed_out = killed = exited = False
    unsent = memoryview(stdin)
    deadline = time.monotonic() + request.timeout
    kill_at = linger_until = math.inf

    with selectors.DefaultSelector() as selector, _pidfd(process.pid) as exit_fd:
        selector.register(exit_fd, selectors.EVENT_READ)
        for pipe, kind in (
            (process.stdout, protocol.EXEC_STDOUT),
            (process.stderr, protocol.EXEC_STDERR),
            (process.stdin, 0),
        ):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                events = selectors.EVENT_READ if kind else selectors.EVENT_WRITE
                selector.register(pipe.fileno(), events, (pipe, kind))

        while True:
            if cancelled():
                raise Fault(
                    "interrupted",
                    f"cancelled: {request.argv[0]!r} was running; it and all it started have been stopped.",
                    {"cancelled": True},
                )
            now = time.monotonic()
            if not (timed_out or exited) and now >= deadline:
                timed_out = True
                _signal_all(process.pid, mark, signal.SIGTERM)
                kill_at = now + _GRACE_TIMEOUT_S
            if timed_out and not killed:
                # The command may be gone while what it started still saves a file.
                killed = now >= kill_at or (exited and not any(_members(process.pid, mark)))
                if killed:
                    _kill(process.pid, mark)
                    linger_until = now + _LINGER_S
            listening = any(key.data and key.data[1] for key in selector.get_map().values())
            if exited and killed is timed_out and (not listening or now >= linger_until):
                break
            for key, _ in selector.select(_POLL_S):
                if key.data is None:
                    exited = True
                    linger_until = time.monotonic() + _LINGER_S
                    selector.unregister(exit_fd)
                    continue
                pipe, kind = key.data
                if kind:
                    data = _read(key.fd)
                    if data is None:
                        continue
                    if not data:
                        selector.unregister(key.fd)
                        continue
                    kept, truncated = data[:room], truncated or len(data) > room
                    room -= len(kept)
                    if kept:
                        emit(kind, kept)
                else:
                    unsent = _write(key.fd, unsent)
                    if not unsent:
                        selector.unregister(key.fd)
                        pipe.close()

    status = process.wait()
    code = status if status >= 0 else 128 - status
    report = {"exit_code": code, "timed_out": timed_out, "truncated": truncated}
    emit(protocol.EXEC_EXIT, json.dumps(report).encode())


def _start(request: protocol.Exec, mark: str, stdin: bytes) -> subprocess.Popen[bytes]:
    argv = list(request.argv)
    home = os.path.expanduser("~")
    cwd = os.path.join(home, request.cwd)
    if not argv or not argv[0]:
        raise Fault("refused", "The command is empty: give a program and its arguments, one string each.")
    if not (math.isfinite(request.timeout) and request.timeout > 0):
        raise Fault("refused", f"A timeout of {request.timeout} s is not possible: give seconds above 0.")
    if request.output_limit < 0:
        raise Fault("refused", f"An output limit of {request.output_limit} is not possible: give bytes >= 0.")
    if any("\0" in text for text in [*argv, *request.env, *request.env.values(), cwd]):
        raise Fault("refused", "Arguments, environment and directory may not contain a NUL character.")
    if any(not name or "=" in name for name in request.env):
        raise Fault("refused", "Environment names may not be empty nor contain '='.")
    if not os.path.isdir(cwd):
        raise Fault("refused", f"There is no directory {cwd!r} in the desktop: name one that exists.")
    environment = {"DISPLAY": ":0", **os.environ, **request.env, MARK: mark}
    try:
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=environment,
            # With nothing to send, the command reads an end of file at once.
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise Fault(
            "refused",
            f"The desktop has no command {argv[0]!r}: name a program on its PATH or an absolute path; "
            "shell syntax needs `sh -c '…'`.",
        ) from None
    except PermissionError:
        raise Fault("refused", f"{argv[0]!r} is not a program that the desktop's user may run.") from None
    except OSError as error:
        raise Fault("refused", f"{argv[0]!r} could not be started: {error.strerror}.") from None


def _read(fd: int) -> bytes | None:
    """What is there now; b"" at the end; None if there is nothing yet."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None


def _write(fd: int, data: memoryview) -> memoryview:
    """Write what fits and return the rest: nothing if the command reads no more."""
    try:
        return data[os.write(fd, data[:_CHUNK]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return memoryview(b"")


# --- ending all that a command started -------------------------------------------------------------------
def _kill(leader: int, mark: str) -> None:
    """SIGKILL to all processes of the command, until none is left."""
    deadline = time.monotonic() + _KILL_WITHIN_S
    while _signal_all(leader, mark, signal.SIGKILL, 0.1) and time.monotonic() < deadline:
        pass


def _signal_all(leader: int, mark: str, number: signal.Signals, wait: float = 0.0) -> bool:
    """Signal each process of the command, then wait at most `wait` seconds for all of them to end.

    Returns whether there was any.
    """
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as alive:
        for pid in list(_members(leader, mark)):
            try:
                fd = stack.enter_context(_pidfd(pid))
            except ProcessLookupError:
                continue
            # The number may have been given to another process since: the descriptor holds it now.
            if _is_member(pid, leader, mark):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(fd, number)
                    alive.register(fd, selectors.EVENT_READ)
        found = bool(alive.get_map())
        deadline = time.monotonic() + wait
        while alive.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in alive.select(left):
                alive.unregister(key.fd)
        return found


def _members(leader: int, mark: str) -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _is_member(int(entry), leader, mark):
            yield int(entry)


def _is_member(pid: int, leader: int, mark: str) -> bool:
    proc = Path("/proc", str(pid))
    try:
        # "pid (name) state ppid pgrp session …"; the name may contain anything, parentheses too.
        fields = (proc / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    if fields[0] in (b"Z", b"X"):
        return False
    if int(fields[3]) == leader:
        return True
    try:
        return f"{MARK}={mark}".encode() in (proc / "environ").read_bytes().split(b"\0")
    except OSError:  # of another user, or one that hides itself: then its session has to tell
        return False


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)
