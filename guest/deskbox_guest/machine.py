"""Process 1 of a guest that is a machine of its own: what a container engine does for a container.

    kernel ── initramfs (vm/init) ── this, as root
                                      ├─ mounts, limits, ports; then waits on the control port
                                      ├─ start: the session, as the one user, who can't become another
                                      ├─ wake:  clock, random numbers and identity of a copied machine
                                      └─ the session's end: power off

The root and the agent's disk are read-only; what can be written is in memory, with the same sizes as in a
container (`limits.py`). The session and all that it starts have no capability and no way to one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from deskbox_guest import limits, ports
from deskbox_guest.session import MACHINE_ID

OUTPUT_LIMIT = 32 * 1024  # bytes of the session's own output that reach the console

_CGROUP = Path("/sys/fs/cgroup/desktop")
_PORTS = Path("/sys/class/virtio-ports")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OWN_BOOT_ID = Path("/dev/boot-id")  # where only root can write
# The session; no capability, none to be had by running a program, no group but the user's own.
_SESSION = [
    "setpriv",
    f"--reuid={limits.UID}",
    f"--regid={limits.UID}",
    "--clear-groups",
    "--no-new-privs",
    "--inh-caps=-all",
    "--bounding-set=-all",
    "--",
    sys.executable,
    "-m",
    "deskbox_guest.session",
]
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/home/user",
    "DISPLAY": ":0",
    "DESKBOX_PORTS": ports.DIRECTORY,
}

# Flags of linux/mount.h.
_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "remount": 32, "bind": 4096, "rw": 0, "exec": 0}
# linux/random.h: _IOW('R', 3, int[2]) and _IO('R', 7).
_RNDADDENTROPY, _RNDRESEEDCRNG = 0x40085203, 0x5207
_POWER_OFF = 0x4321FEDC  # linux/reboot.h


class Refusal(Exception):
    """A request that is not carried out, and why: one sentence."""


# --- the machine, before anybody uses it -----------------------------------------------------------------
def mount(source: str, target: str, kind: str, options: str = "") -> None:
    """mount(2). `options` as in fstab. Raises OSError."""
    words = [word for word in options.split(",") if word]
    flags = sum(_FLAGS[word] for word in words if word in _FLAGS)
    data = ",".join(word for word in words if word not in _FLAGS)
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [text.encode() for text in (source, target, kind)]
    if libc.mount(*arguments, ctypes.c_ulong(flags), data.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def set_up() -> None:
    """Everything that programs expect to find. The initramfs has mounted /dev, /proc and /sys."""
    os.umask(0o022)
    os.makedirs("/dev/pts", exist_ok=True)
    mount("devpts", "/dev/pts", "devpts", "nosuid,noexec,gid=5,mode=620,ptmxmode=666")
    os.makedirs("/dev/shm", exist_ok=True)
    mount("tmpfs", "/dev/shm", "tmpfs", f"nosuid,nodev,noexec,size={limits.SHM},mode=1777")
    for folder, (size, mode) in limits.TMPFS.items():
        owner = "" if mode & 0o002 else f",uid={limits.UID},gid={limits.UID}"
        mount("tmpfs", folder, "tmpfs", f"nosuid,nodev,size={size},mode={mode:o}{owner}")
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", "nosuid,nodev,noexec")
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+pids")
    _CGROUP.mkdir()
    (_CGROUP / "pids.max").write_text(str(limits.TASKS))
    # As in a container: nobody looks into another's process.
    Path("/proc/sys/kernel/yama/ptrace_scope").write_text("2")
    socket.sethostname(limits.HOSTNAME)
    _loopback_up()
    for link, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        with contextlib.suppress(FileExistsError):
            os.symlink(target, f"/dev/{link}")
    name_ports()


def _loopback_up() -> None:
    """SIOCGIFFLAGS and SIOCSIFFLAGS, with IFF_UP (netdevice(7)): there is no program for it in the root."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = bytearray(struct.pack("16sh14x", b"lo", 0))
        fcntl.ioctl(sock, 0x8913, request)
        _, flags = struct.unpack("16sh14x", request)
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", flags | 1))


def name_ports(known: Path = _PORTS, devices: Path = Path("/dev")) -> None:
    """Links by the ports' names, as udev makes them; the agent's ports become the user's."""
    folder = devices / "virtio-ports"
    folder.mkdir(exist_ok=True)
    for port in sorted(known.iterdir()):
        name = (port / "name").read_text().strip() if (port / "name").exists() else ""
        if name:
            with contextlib.suppress(FileExistsError):
                (folder / name).symlink_to(f"../{port.name}")
        if name in ports.RPC:
            os.chown(devices / port.name, limits.UID, limits.UID)
            (devices / port.name).chmod(0o600)


# --- what a copied machine changes -----------------------------------------------------------------------
def wake(request: dict[str, Any]) -> None:
    """Give the machine the time, randomness and identity of its own that a copy does not have."""
    time_ns, seed, hostname, machine_id = (
        request.get(k) for k in ("time_ns", "seed", "hostname", "machine_id")
    )
    if not isinstance(time_ns, int) or time_ns <= 0:
        raise Refusal("wake takes time_ns, the nanoseconds since 1970 as a whole number")
    if not isinstance(seed, str) or not re.fullmatch(r"([0-9a-f]{2}){32,512}", seed):
        raise Refusal("wake takes seed, 32 to 512 bytes in lower-case hex")
    if not isinstance(hostname, str) or not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", hostname):
        raise Refusal("wake takes hostname, letters, digits and hyphens, 63 at most")
    if not isinstance(machine_id, str) or not re.fullmatch(r"[0-9a-f]{32}", machine_id):
        raise Refusal("wake takes machine_id, 32 lower-case hex digits")
    time.clock_settime_ns(time.CLOCK_REALTIME, time_ns)
    add_randomness(bytes.fromhex(seed))
    socket.sethostname(hostname)
    write_as_user(MACHINE_ID, machine_id + "\n")
    replace_boot_id(machine_id)


def replace_boot_id(machine_id: str) -> None:
    """What the kernel gives as the number of this start: it was made before the machine was copied."""
    text = f"{uuid.UUID(machine_id)}\n"
    _OWN_BOOT_ID.write_text(text)
    if _BOOT_ID.read_text() != text:
        mount(str(_OWN_BOOT_ID), str(_BOOT_ID), "", "bind")


def add_randomness(seed: bytes) -> None:
    """Feed the kernel's random numbers, and have it use that at once (random(4))."""
    device = os.open("/dev/urandom", os.O_RDWR)
    try:
        fcntl.ioctl(device, _RNDADDENTROPY, struct.pack(f"ii{len(seed)}s", len(seed) * 8, len(seed), seed))
        fcntl.ioctl(device, _RNDRESEEDCRNG)
    finally:
        os.close(device)


def write_as_user(path: Path, text: str) -> None:
    """Replace a file in a directory of the user's, with no more rights than theirs.

    Whatever they have put in its place, a link to elsewhere perhaps, gives them nothing that they lack.
    """
    partial = path.with_name(path.name + ".new")
    os.setegid(limits.UID)
    os.seteuid(limits.UID)
    try:
        partial.write_text(text)
        partial.replace(path)
    except OSError as error:
        raise Refusal(f"{path} could not be written: {error.strerror}") from error
    finally:
        os.seteuid(0)
        os.setegid(0)


def power_off() -> NoReturn:
    os.sync()
    ctypes.CDLL(None).reboot(_POWER_OFF)
    while True:  # it is on its way
        signal.pause()


# --- process 1 -------------------------------------------------------------------------------------------
class Machine:
    """Waits for the host's requests and for the ends of processes. What needs root is given to it."""

    def __init__(
        self,
        control: int,
        session: list[str],
        confine: Callable[[], None],
        wake: Callable[[dict[str, Any]], None],
    ) -> None:
        """`control` is the control port, opened for reading and writing without blocking.

        `session` is the command that `start` runs, after `confine` in its process; `wake` what `wake` does.
        """
        self._control = control
        self._command = session
        self._confine = confine
        self._wake = wake
        self._lines = ports.Lines()
        self._answers = b""  # not written yet
        self._session = 0  # its process; 0: none was started
        self._output = -1  # the reading end of its standard output and error
        self._output_left = OUTPUT_LIMIT

    def run(self) -> str:
        """Serve until the session has ended or the host asks for the end; say which."""
        wakeup = _signals_to_pipe()
        # While no host is there, the port says so for as long as one asks. Edge-triggered, it says it once.
        control = select.epoll()
        control.register(self._control, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        while True:
            poll = select.poll()
            poll.register(wakeup, select.POLLIN)
            poll.register(control, select.POLLIN)
            if self._output >= 0:
                poll.register(self._output, select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            if self._output in ready:
                self._copy_output()
            if wakeup in ready:
                os.read(wakeup, 512)
                ended = self._reap()
                if ended is not None:
                    self._copy_output()
                    return f"the session ended with status {ended}"
            if control.fileno() in ready:
                control.poll(0)
                self._write_answers()
                if self._serve():
                    return "the host asked for the end"

    def _serve(self) -> bool:
        """Carry out what the control port has; True if the host wants the end."""
        while True:
            try:
                data = os.read(self._control, ports.MAX_LINE)
            except BlockingIOError:
                return False
            if not data:
                # No host, as far as the kernel has heard: of the next one it may hear later than we read what
                # that one says. So nothing is forgotten here; that a message begins with an end of line parts
                # it from what another has left.
                return False
            if any(self._answer_to(request) for request in self._lines.feed(data)):
                return True

    def _answer_to(self, request: dict[str, Any]) -> bool:
        """Carry a request out and say so; True if it asks for the end."""
        answer = {"id": request.get("id")}
        try:
            answer |= self._carry_out(request)
        except (Refusal, OSError) as error:
            self._answer({**answer, "error": str(error)})
            return False
        self._answer({**answer, "ok": True})
        return request.get("do") == "poweroff"

    def _carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request.get("do")
        if what == "start":
            self._start(request.get("environment"))
        elif what == "status":
            return {"state": "running" if self._session else "waiting", "uptime_s": time.monotonic()}
        elif what == "wake":
            self._wake(request)
        elif what != "poweroff":
            raise Refusal(f"{what!r} is no request: those are start, wake, status and poweroff")
        return {}

    def _answer(self, message: dict[str, Any]) -> None:
        self._answers += ports.encode(message)
        if len(self._answers) > ports.MAX_LINE:
            self._answers = b""  # whoever asks so much and reads nothing gets no answer
        self._write_answers()

    def _write_answers(self) -> None:
        """What the port takes now: it is busy for a moment after each write, and while no host is there."""
        try:
            while self._answers:
                self._answers = self._answers[os.write(self._control, self._answers) :]
        except BlockingIOError:
            pass
        except OSError:  # nobody can be answered: no reason for process 1 to end
            self._answers = b""

    def _start(self, environment: object) -> None:
        if self._session:
            raise Refusal("the session runs already")
        if not isinstance(environment, dict) or not all(isinstance(v, str) for v in environment.values()):
            raise Refusal("start takes environment, an object of texts")
        self._output, write_end = os.pipe()
        self._session = os.fork()
        if self._session == 0:
            self._become_session({**_ENVIRONMENT, **environment}, write_end)
        os.close(write_end)

    def _become_session(self, environment: dict[str, str], output: int) -> NoReturn:
        """In the child."""
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            self._confine()
            os.execvpe(self._command[0], self._command, environment)
        except OSError as error:
            os.write(2, f"deskbox: the session can't be started: {error}\n".encode())
        finally:
            os._exit(127)

    def _copy_output(self) -> None:
        """The session's output goes to the console, up to a limit: the user could write there for ever."""
        if self._output < 0:
            return
        os.set_blocking(self._output, False)
        try:
            data = os.read(self._output, 65536)
        except BlockingIOError:
            return
        if not data:
            os.close(self._output)
            self._output = -1
        os.write(2, data[: self._output_left])
        self._output_left -= min(len(data), self._output_left)

    def _reap(self) -> int | None:
        """Collect every process that has ended; the session's exit code if it is among them."""
        ended = None
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self._session:
                    ended = os.waitstatus_to_exitcode(found[1])
        return ended


def confine() -> None:
    """The limits of the session and all that it starts."""
    (_CGROUP / "cgroup.procs").write_text("0")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.OPEN_FILES, limits.OPEN_FILES))
    os.chdir(_ENVIRONMENT["HOME"])


def _signals_to_pipe() -> int:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reading


def say(text: str) -> None:
    """One line on the console, which the host keeps the end of."""
    print(f"deskbox: {text}", file=sys.stderr, flush=True)


def main() -> NoReturn:
    try:
        set_up()
        control = os.open(f"{ports.DIRECTORY}/{ports.CONTROL}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        say(f"machine ready after {time.monotonic():.2f} s")
        say(Machine(control, _SESSION, confine, wake).run())
    except BaseException as error:  # whatever it is, a process 1 that ends is a kernel's panic
        say(f"machine failed: {error!r}")
    power_off()


if __name__ == "__main__":
    main()
