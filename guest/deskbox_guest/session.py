"""The guest's first program (under dumb-init): brings the desktop up, keeps it up, and takes it down.

    X socket ── Xvfb       its end is the session's end
             ├─ jwm        started again when it ends
             ├─ agent      started again when it ends
             └─ Firefox    started once, with the first page: what people close stays closed

The X socket exists before the X server does: the session makes it and hands it over, as systemd would, and
the message bus's too. So nobody waits for anybody: all programs start at once, and what they say waits in
the sockets' queues. This module imports little, because all of them wait for that; what Firefox's start needs
besides is imported when the others have been started.

Environment: DESKBOX_SIZE (WIDTHxHEIGHT, pixels), DESKBOX_URL (the first page; empty: no browser),
DESKBOX_ENGINE (of scripts: xtest, the default, or xdotool), DESKBOX_SOCKET (which the agent dials), or
instead DESKBOX_PORTS (a directory of ports on which it waits), DESKBOX_HOME_ARCHIVE (a tar of the home
directory to begin with; empty or missing: none). The agent finds there, besides: DESKBOX_AGENT_START (counts
its starts, from 1), DESKBOX_BOOT_TIME (of the session's start, seconds of time.monotonic).
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

DEFAULT_SIZE = "1280x800"
DEFAULT_ENGINE = "xtest"
MIN_SIZE, MAX_SIZE = (320, 240), (3840, 2160)

END_WITHIN = 1.0  # seconds that programs get to end by themselves
STEADY = 5.0  # seconds that a program has to run so that its end counts as the first one
LONGEST_PAUSE = 5.0  # seconds before a program that keeps failing is started again
LOG_LIMIT = 1024 * 1024  # bytes of each program's output that are kept, and as much again of older output

_X_SOCKET = Path("/tmp/.X11-unix/X0")
_X_LOCK = Path("/tmp/.X0-lock")
_LOGS = Path("/tmp/log")  # `protocol.LOGS`
MACHINE_ID = Path("/run/machine-id")  # new for each start; /etc/machine-id is a link to it
_FIRST_LISTENING_FD = 3  # where a program that is handed a listening socket looks for it


class Settings:
    def __init__(self, width: int, height: int, url: str | None, engine: str, home_archive: str) -> None:
        """`url` of the first page; None: the start page, "": no browser."""
        self.width = width
        self.height = height
        self.url = url
        self.engine = engine
        self.home_archive = home_archive

    @classmethod
    def from_environment(cls) -> Settings:
        size = os.environ.get("DESKBOX_SIZE") or DEFAULT_SIZE
        match = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", size)
        width, height = (int(match[1]), int(match[2])) if match else (0, 0)
        if not (MIN_SIZE[0] <= width <= MAX_SIZE[0] and MIN_SIZE[1] <= height <= MAX_SIZE[1]):
            smallest, largest = (f"{w}x{h}" for w, h in (MIN_SIZE, MAX_SIZE))
            raise ValueError(f"DESKBOX_SIZE is {size!r} and must be WIDTHxHEIGHT, {smallest} to {largest}")
        url = os.environ.get("DESKBOX_URL")
        if url:
            _check_url(url)
        engine = os.environ.get("DESKBOX_ENGINE") or DEFAULT_ENGINE
        if engine != DEFAULT_ENGINE:
            _check_engine(engine)
        return cls(width, height, url, engine, os.environ.get("DESKBOX_HOME_ARCHIVE", ""))


def _check_url(url: str) -> None:
    from deskbox_guest.browser import check_url
    from deskbox_guest.protocol import Fault

    try:
        check_url(url)
    except Fault as fault:
        raise ValueError(str(fault)) from None


def _check_engine(engine: str) -> None:
    from deskbox_guest.protocol import ENGINES

    if engine not in ENGINES:
        raise ValueError(f"DESKBOX_ENGINE is {engine!r} and must be {' or '.join(ENGINES)}")


class Program:
    """One program of the desktop."""

    def __init__(
        self,
        name: str,
        argv: list[str],
        *,
        listening: socket.socket | None = None,
        again: bool = True,
        extra: Callable[[int], dict[str, str]] = lambda start: {},
    ) -> None:
        """`again`: it is started again when it ends. `extra`: the environment that the n-th start adds."""
        self.name = name
        self.argv = argv
        self.listening = listening
        self.again = again
        self.extra = extra
        self.pid = 0  # 0: not running
        self.pidfd = -1
        self.starts = 0
        self.started = 0.0  # time.monotonic
        self.failures = 0  # ends in a row, each soon after the start
        self.due: float | None = 0.0  # time.monotonic of the next start; None: none is planned


class Log:
    """A program's output: a pipe that the session empties into a file that can't grow without end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.read_end, self.write_end = os.pipe()

    def copy(self) -> None:
        """Move what is in the pipe to the file; a file that is full becomes the older one."""
        data = os.read(self.read_end, 65536)
        with contextlib.suppress(OSError):  # a full disk is no reason to end the desktop
            if self._path.exists() and self._path.stat().st_size + len(data) > LOG_LIMIT:
                self._path.replace(self._path.with_suffix(".log.old"))
            with self._path.open("ab") as file:
                file.write(data)


class Session:
    def __init__(self, settings: Settings) -> None:
        self._boot_time = time.monotonic()
        self._url = settings.url
        self._engine = settings.engine
        if settings.home_archive:
            _fill_home(settings.home_archive)
        runtime = Path(f"/run/user/{os.getuid()}")
        for folder in (runtime, _LOGS):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        no_compose = runtime / "no-compose"
        no_compose.touch()  # libxkbcommon, which Qt uses, wants a regular file
        _X_SOCKET.parent.mkdir(exist_ok=True)
        _X_SOCKET.parent.chmod(0o1777)
        self._environment = {
            **os.environ,
            "DISPLAY": ":0",
            "XDG_RUNTIME_DIR": str(runtime),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus",
            # Resources for X programs, without a program (xrdb) that would have to load them first.
            "XENVIRONMENT": "/etc/X11/Xresources.deskbox",
            # GTK would look for an accessibility bus that nothing here provides.
            "NO_AT_BRIDGE": "1",
            # A key is the character that it says, also behind a dead key: no input method, no Compose table.
            # GTK's own method looks only at the lower half of a keysym and takes some characters for dead
            # keys or Compose (U+FF20, '＠'); the table that Xlib and Qt use makes two letters of U+FEF7.
            "GTK_IM_MODULE": "gtk-im-context-none",
            "XCOMPOSEFILE": str(no_compose),
            # Without it Firefox ignores the setting of another server for its lists, and looks for Mozilla's.
            "MOZ_REMOTE_SETTINGS_DEVTOOLS": "1",
            "MOZ_CRASHREPORTER_DISABLE": "1",
        }
        screen = f"{settings.width}x{settings.height}x24"
        x_server = ["Xvfb", ":0", "-screen", "0", screen, "-nolisten", "tcp", "-noreset", "-dpi", "96"]
        bus = ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--address=systemd:"]
        self._x_server = Program("xvfb", x_server, listening=_listen(_X_SOCKET), again=False)
        # The socket is ours, so no server is alive that a lock could belong to.
        _X_LOCK.unlink(missing_ok=True)
        MACHINE_ID.write_text(os.urandom(16).hex() + "\n")
        self._programs = [
            self._x_server,
            Program("agent", [sys.executable, "-m", "deskbox_guest.agent"], extra=self._agent_environment),
            Program("dbus", bus, listening=_listen(runtime / "bus")),
            Program("jwm", ["jwm"]),
        ]
        self._logs = {program.name: Log(_LOGS / f"{program.name}.log") for program in self._programs}

    def _agent_environment(self, start: int) -> dict[str, str]:
        return {
            "DESKBOX_AGENT_START": str(start),
            "DESKBOX_BOOT_TIME": repr(self._boot_time),
            "DESKBOX_ENGINE": self._engine,
        }

    def run(self) -> int:
        """Keep the desktop up until a signal asks for its end (0) or the X server ends (1)."""
        try:
            return self._run()
        finally:
            self._end()

    def _run(self) -> int:
        signals = _signals_to_pipe()
        poll = select.poll()
        poll.register(signals, select.POLLIN)
        self._start_what_is_due(poll)
        if self._url != "":
            self._add_browser()
        for log in self._logs.values():
            poll.register(log.read_end, select.POLLIN)
        while True:
            self._start_what_is_due(poll)
            ready = {fd for fd, _ in poll.poll(self._milliseconds_to_next_start())}
            for log in self._logs.values():
                if log.read_end in ready:
                    log.copy()
            for program in self._programs:
                if program.pidfd in ready:
                    poll.unregister(program.pidfd)
                    status = _reap(program)
                    print(f"{program.name} ended with status {status}", file=sys.stderr, flush=True)
            if signals in ready or not self._x_server.pid:
                return 0 if signals in ready else 1

    def _add_browser(self) -> None:
        from deskbox_guest import browser

        browser.prepare_profile()
        command = browser.command() if self._url is None else browser.command(self._url)
        self._programs.append(Program("firefox", command, again=False))
        self._logs["firefox"] = Log(_LOGS / "firefox.log")

    def _start_what_is_due(self, poll: select.poll) -> None:
        for program in self._programs:
            if program.due is not None and program.due <= time.monotonic():
                _start(program, self._environment, self._logs[program.name].write_end)
                poll.register(program.pidfd, select.POLLIN)

    def _milliseconds_to_next_start(self) -> float | None:
        due = [program.due for program in self._programs if program.due is not None]
        return max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None

    def _end(self) -> None:
        """Ask the programs to end, the X server last, so that none of them dies of its loss; then insist."""
        clients = [program for program in self._programs if program is not self._x_server]
        for programs, within in ((clients, END_WITHIN), ([self._x_server], END_WITHIN / 2)):
            for program in programs:
                _kill(program, signal.SIGTERM)
            _wait_for_end(programs, within)
            for program in programs:
                _kill(program, signal.SIGKILL)


def _fill_home(archive: str) -> None:
    import subprocess

    done = subprocess.run(
        ["tar", "--extract", "--file", archive, "--directory", str(Path.home())],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        raise ValueError(f"the home directory of the snapshot can't be restored: {done.stderr.strip()}")


def _listen(path: Path) -> socket.socket:
    """A listening socket at `path`; it replaces one that nobody listens on any more, never a live one."""
    if path.exists():
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise ValueError(f"another session is running here: something answers on {path}")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(128)
    return listening


def _start(program: Program, environment: dict[str, str], output: int) -> None:
    program.starts += 1
    program.started = time.monotonic()
    program.due = None
    environment = {**environment, **program.extra(program.starts)}
    program.pid = os.fork()
    if program.pid == 0:
        _become(program, environment, output)
    program.pidfd = os.pidfd_open(program.pid)


def _become(program: Program, environment: dict[str, str], output: int) -> NoReturn:
    """In the child: the rest of a start. A session of its own keeps signals to ours away from it."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if program.listening is not None:
            os.dup2(program.listening.fileno(), _FIRST_LISTENING_FD)
            # Without effect if it was that number already; and then it would be closed on exec.
            os.set_inheritable(_FIRST_LISTENING_FD, True)
            environment |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
        for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(program.argv[0], program.argv, environment)
    except OSError as error:
        os.write(2, f"can't start {program.argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _reap(program: Program) -> int:
    """Take note of a program's end and plan its next start; return its exit code (negative: the signal)."""
    _, status = os.waitpid(program.pid, 0)
    os.close(program.pidfd)
    program.pid, program.pidfd = 0, -1
    if program.again:
        now = time.monotonic()
        program.failures = 0 if now - program.started >= STEADY else program.failures + 1
        # At once the first time, then after 0.1, 0.2, 0.4 … seconds.
        program.due = now + (min(LONGEST_PAUSE, 0.05 * 2**program.failures) if program.failures > 1 else 0.0)
    return os.waitstatus_to_exitcode(status)


def _kill(program: Program, number: signal.Signals) -> None:
    """Signal a program and what it has started, as far as that has not left its process group."""
    if program.pid:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, number)


def _wait_for_end(programs: list[Program], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    poll = select.poll()
    running = {program.pidfd: program for program in programs if program.pid}
    for pidfd in running:
        poll.register(pidfd, select.POLLIN)
    while running and (left := deadline - time.monotonic()) > 0:
        for pidfd, _ in poll.poll(left * 1000):
            poll.unregister(pidfd)
            _reap(running.pop(pidfd))


def _signals_to_pipe() -> int:
    """SIGTERM and SIGINT as bytes in a pipe, whose reading end is returned."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    return reading


def main() -> int:
    try:
        session = Session(Settings.from_environment())
    except ValueError as error:
        print(f"deskbox session: {error}", file=sys.stderr)
        return 2
    return session.run()


if __name__ == "__main__":
    sys.exit(main())
