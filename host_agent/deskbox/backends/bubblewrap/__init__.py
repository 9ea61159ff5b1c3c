"""Guests in bubblewrap: namespaces and a system call filter, without a daemon and without root.

A guest ends with its keeper: the kernel sees to that. Where the host lets us make control groups, they limit
its memory and its processes; elsewhere only its processes are limited.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from deskbox import processes
from deskbox.backends import seccomp
from deskbox.backends.base import Backend, Guest, GuestSpec, ImageSpec, Progress, Verdict
from deskbox.backends.bubblewrap import sandbox
from deskbox.backends.cgroups import Cgroup
from deskbox.errors import Refused, Unavailable
from deskbox.processes import Process, tied_to_us, unused_user
from deskbox_guest import limits

_START_S = 20.0
_END_S = 10.0
_OUTPUT_LIMIT = 64 * 1024  # bytes of what a guest says that are passed on to the keeper's log
_MARKER = "DESKBOX_GUEST"
_IMAGE = "DESKBOX_IMAGE"
_PROGRAMS = {"bwrap": "bubblewrap", "prlimit": "util-linux", "tar": "tar"}


class BubblewrapBackend(Backend):
    name = "bwrap"

    def __init__(self) -> None:
        self._children: dict[int, tuple[subprocess.Popen[bytes], _Output]] = {}  # by its first process

    @classmethod
    def check(cls) -> Verdict:
        missing = sorted({package for program, package in _PROGRAMS.items() if shutil.which(program) is None})
        if missing:
            names = " ".join(missing)
            return Verdict(False, f"{names} is not installed", f"Run `apt-get install {names}` as root.")
        try:
            failure = _try()
        except Refused as refused:
            return Verdict(False, str(refused), "Run `apt-get install libseccomp2` as root.")
        if failure:
            return Verdict(False, f"bubblewrap can't make a sandbox here ({failure})", _SANDBOX_FIX)
        held = _limits()
        names = ", ".join(f"{what} {'limited' if there else 'not limited'}" for what, there in held.items())
        return Verdict(True, f"a trial sandbox works; {names}")

    def prepare(self, wanted: ImageSpec, progress: Progress) -> str:
        from deskbox.backends.bubblewrap import tree  # what a start can do without, and need not wait for

        return tree.image(wanted.packages, progress)

    def prune(self, progress: Progress) -> None:
        from deskbox.backends.bubblewrap import tree

        used = {image for process in _sandboxes() if (image := _setting(process, _IMAGE))}
        tree.prune(tree.image((), progress), used, progress)

    def start(self, spec: GuestSpec) -> Guest:
        key = f"{spec.owner}.{spec.name}"
        spec.hand_over_home()
        group = Cgroup(key)
        held = group.make(limits.MEMORY, limits.TASKS)
        try:
            process = self._start(spec, key, group)
        except BaseException:
            group.remove()
            raise
        facts = {
            "seccomp": "deskbox",
            "open_files": str(_open_files()),
            "memory": "limited" if held["memory"] else "not limited by this host",
            "tasks": "limited",
        }
        return Guest(_guest_id(process, key), facts)

    def _start(self, spec: GuestSpec, key: str, group: Cgroup) -> Process:
        places = sandbox.Places.of(spec.image, spec.directory)
        with _Launch(places) as launch:
            options, program = sandbox.arguments(
                launch.places,
                spec.environment(),
                open_files=_open_files(),
                seccomp_fd=launch.seccomp_fd,
                info_fd=launch.info_fd,
            )
            child = launch.run(options, program, marker=(key, spec.image), enter=group.entrances())
            try:
                process = launch.first_process(child)
            except BaseException:
                child.kill()
                child.wait()
                raise
        self._children[process.pid] = child, launch.output
        return process

    def wait(self, guest_id: str) -> str:
        process, _ = _parse(guest_id)
        process.wait()
        if process.pid not in self._children:
            return "bubblewrap ended"
        child, output = self._children[process.pid]
        return f"bubblewrap ended with exit code {child.wait()}: {output.last_words()}"

    def alive(self, guest_id: str) -> bool:
        return _parse(guest_id)[0].alive()

    def pause(self, guest_id: str) -> None:
        self._freeze(guest_id, True)

    def resume(self, guest_id: str) -> None:
        self._freeze(guest_id, False)

    def _freeze(self, guest_id: str, frozen: bool) -> None:
        process, key = _parse(guest_id)
        group = Cgroup(key)
        try:
            if group.freezer() is not None:
                group.freeze(frozen)
            else:
                _signal_all(process, signal.SIGSTOP if frozen else signal.SIGCONT)
        except OSError as error:
            raise Unavailable(
                f"the guest could not be {'frozen' if frozen else 'thawed'}: {error}"
            ) from error

    def stop(self, guest_id: str) -> None:
        process, key = _parse(guest_id)
        group = Cgroup(key)
        # The first process of a PID namespace takes all others with it, frozen or not.
        process.send(signal.SIGKILL)
        if process.started and not process.wait(_END_S):
            raise Unavailable(f"the guest's process {process.pid} did not end within {_END_S:g} s")
        group.remove()

    def guests(self, owner: str) -> dict[str, str]:
        found = {}
        for process in _sandboxes():
            key = _setting(process, _MARKER)
            if key.startswith(f"{owner}."):
                found[key] = process
        for key in Cgroup.names(f"{owner}.") - set(found):
            found[key] = Process(0, 0)
        return {_guest_id(process, key): key.partition(".")[2] for key, process in found.items()}


_SANDBOX_FIX = (
    "Let users make user namespaces: `sysctl -w kernel.unprivileged_userns_clone=1`, and where AppArmor "
    "restricts them `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`; or use another backend."
)


class _Launch:
    """One start of bubblewrap: the descriptors that it inherits, who it runs as, and what it says."""

    def __init__(self, places: sandbox.Places) -> None:
        """`places` are on the host; `self.places` is where bubblewrap finds them. Raises Refused."""
        self._staged = places if os.geteuid() == 0 else None
        self.places = places.staged() if self._staged else places
        self.seccomp_fd = _memory("seccomp", seccomp.compiled())
        self._info, self.info_fd = os.pipe()
        self.output = _Output()

    def __enter__(self) -> _Launch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.seccomp_fd)
        os.close(self._info)
        self._close_info()

    def _close_info(self) -> None:
        if self.info_fd >= 0:
            os.close(self.info_fd)
            self.info_fd = -1

    def run(
        self,
        options: Sequence[str],
        program: Sequence[str],
        *,
        marker: tuple[str, str] = ("", ""),
        enter: Sequence[Path] = (),
    ) -> subprocess.Popen[bytes]:
        """`marker`, of a guest: by what it and its image can be found again. `enter`: its control groups."""
        arguments = _memory("arguments", b"".join(f"{option}\0".encode() for option in options))
        command = ["bwrap", "--args", str(arguments)]
        for name, value in zip((_MARKER, _IMAGE), marker, strict=True):
            command += ["--setenv", name, value, "--unsetenv", name] if value else []
        # bubblewrap ties itself to us as well, but later, and does not look whether we are still there.
        command = tied_to_us([*command, "--", *program])
        if self._staged:
            command = sandbox.staging(self._staged, unused_user(), command)
        try:
            child = subprocess.Popen(
                sandbox.entering(enter, command),
                stdin=subprocess.DEVNULL,
                stdout=self.output.write_end,
                stderr=self.output.write_end,
                pass_fds=[self.seccomp_fd, self.info_fd, arguments],
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(arguments)
            self.output.read()
        self._close_info()
        return child

    def first_process(self, child: subprocess.Popen[bytes]) -> Process:
        """The guest's first process, once bubblewrap has made it. Raises Refused with what it says else."""
        text = b""
        deadline = time.monotonic() + _START_S
        while True:
            if not select.select([self._info], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise Refused(f"bubblewrap did not start the guest within {_START_S:g} s")
            piece = os.read(self._info, 4096)
            text += piece
            with contextlib.suppress(ValueError):
                return Process.of(json.loads(text)["child-pid"])
            if not piece:
                child.wait()
                raise Refused(f"bubblewrap did not start the guest: {self.output.last_words()}")


class _Output:
    """What a guest says, in the keeper's log.

    All of it is read, and only its beginning kept: it must not fill the host's disk.
    """

    def __init__(self) -> None:
        self._said = b""
        self._read_end, self.write_end = os.pipe()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def read(self) -> None:
        """Begin, once the writer has been started."""
        os.close(self.write_end)
        self._reader.start()

    def last_words(self) -> str:
        """The last line, once the writer has ended."""
        self._reader.join(timeout=2)
        return (self._said.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]

    def _read(self) -> None:
        with os.fdopen(self._read_end, "rb", buffering=0) as file:
            while data := file.read(4096):
                if len(self._said) < _OUTPUT_LIMIT:
                    self._said += data
                    sys.stderr.buffer.write(data)
                    sys.stderr.flush()


def _memory(name: str, data: bytes) -> int:
    """A descriptor from which `data` can be read."""
    fd = os.memfd_create(name)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _try() -> str:
    """Start a program in a sandbox of the host's own files; why that fails, or nothing."""
    host = sandbox.Places(Path("/"), Path("/usr"), Path("/usr"))
    with _Launch(host) as launch:
        options, program = sandbox.trial(
            launch.places.root, seccomp_fd=launch.seccomp_fd, info_fd=launch.info_fd
        )
        try:
            child = launch.run(options, program)
            launch.first_process(child)
            status = child.wait(_START_S)
        except Refused as refused:
            return str(refused).partition(": ")[2] or str(refused)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return "" if status == 0 else f"exit code {status}"


def _limits() -> dict[str, bool]:
    """Which limits hold on this host, found by making a control group and removing it."""
    group = Cgroup(f"trial.{os.getpid()}")
    try:
        return {"memory": group.make(limits.MEMORY, limits.TASKS)["memory"], "processes": True}
    finally:
        group.remove()


def _open_files() -> int:
    """How many files a process of a guest may have open: no more than one of ours may."""
    return min(limits.OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _guest_id(process: Process, key: str) -> str:
    return f"{process}:{key}"


def _parse(guest_id: str) -> tuple[Process, str]:
    pid, started, key = guest_id.split(":", 2)
    return Process(int(pid), int(started)), key


def _sandboxes() -> Iterator[Process]:
    """The first process of every guest that runs, whoever started it."""
    for process in processes.running(_MARKER.encode()):
        # bubblewrap's own process has the same arguments; a guest's first is number 1, one namespace further
        # in. What a guest itself starts, with whatever arguments, is another number there, or deeper still.
        if processes.numbers(process.pid)[1:] == [1]:
            yield process


def _setting(process: Process, name: str) -> str:
    """What `--setenv NAME` says in the arguments of a sandbox's first process."""
    try:
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        return words[words.index(name.encode()) + 1].decode()
    except (OSError, ValueError, IndexError):
        return ""


def _signal_all(first: Process, number: signal.Signals) -> None:
    """Signal all processes of a guest's PID namespace, until none is new."""
    namespace = processes.namespace(first.pid)
    done: set[int] = set()
    while new := set(processes.members(namespace)) - done:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        done |= new
