"""What a host needs to run desktops: checked for `deskbox doctor`, and brought about for `up --setup`.

Only three things: what runs guests (a Docker engine, or bubblewrap, which needs none), mmdebstrap to build
the guest's image, and noVNC's files to watch it. The engine is a service of the machine: where an init system
runs, that starts it, and it stays. Where none runs (a container, a minimal machine) `dockerd` is started by
hand; then we write down which process that is and where it keeps its sockets, and `stop_engine` ends it
again, so that nothing is left that was not there.

Whoever may use the engine can become root through it. A user who is not root and not in the group docker
gets access to its socket by an access list, set through sudo: that works at once, in every shell, and is gone
when the engine restarts, whereas a membership is for good and holds only from the next login on.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import docker
import docker.errors
import requests.exceptions
import tenacity

from deskbox import backends, images, viewer
from deskbox.cache import cache_dir
from deskbox.errors import InvalidInput, Refused
from deskbox.processes import Process
from deskbox.registry import state_dir

Progress = Callable[[str], None]
"""Told one line of text at each step that takes a while."""

_ENGINE_LAUNCH_S = 5.0  # until dockerd has written down its process
_ENGINE_START_S = 60.0
_ENGINE_STOP_S = 20.0
_SOCKET = Path("/var/run/docker.sock")
# Where an engine that we start keeps what it needs while it runs, and its process's number: not in the
# system's places, which may be in use by another or hold what another left.
_EXEC_ROOT = Path("/run/deskbox-engine")
_PID_FILE = Path("/run/deskbox-engine.pid")
# Programs for another processor: what emulates them, and where the kernel is told so.
_EMULATION = ("qemu-user-static", "binfmt-support", "arch-test")
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
# Where daemons and what they need are, though a user's PATH may not say so.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
_APT_WAIT = ("-o", "DPkg::Lock::Timeout=300")
# The guest's image (650 MB at most), its archive, and the root while it is built.
_DISK_NEEDED = 3_000_000_000
_MEMORY_NEEDED = 2_000_000_000


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str  # what was found
    fix: str  # what to do, if it is not ok
    needed: bool = True  # whether it is a fault if it is not ok


def check_host() -> list[Check]:
    """Look at this machine and change nothing."""
    checks = (_check_mmdebstrap, _check_novnc, _check_disk, _check_memory)
    return [_check_system(), *_check_backends(), *(check() for check in checks)]


def ask_for_password(backend: str | None = None, arch: str | None = None) -> None:
    """Let sudo ask for a password now, if `ensure_host` with `install`, or `ensure_runs`, will need it.

    Once a progress line is drawn on the terminal, that hides the question. If the answer is wrong, the step
    that needs it will say so.
    """
    if os.geteuid() == 0 or not sys.stdin.isatty() or not _which("sudo"):
        return
    chosen = _choose(backend, install=True)
    engine = chosen == "docker" and probe_engine() in ("closed", "stopped")
    foreign = arch is not None and not images.runs_programs_of(images.LINUX_ARCHITECTURES[arch])
    if missing_packages(chosen) or engine or foreign:
        subprocess.run(["sudo", "--validate"])


def ensure_host(progress: Progress, install: bool, backend: str | None = None) -> str:
    """Make sure that a desktop can be built, started and watched here; return the backend to use.

    That is what `backends.resolve` makes of `backend`. With `install` what is missing is installed and
    started, as root or through sudo; without it nothing is changed. Raises Refused with one sentence that
    says what to do.
    """
    chosen = _choose(backend, install)
    if install:
        packages = missing_packages(chosen)
        if packages:
            _apt_install(packages, progress)
    if chosen == "docker":
        _ensure_engine(progress, install)
    else:
        verdict = backends.check(chosen)
        if not verdict.usable:
            raise Refused(f"The backend {chosen} can't be used: {verdict.found}. {verdict.fix}")
    if install and not _check_novnc().ok:
        try:
            _fetch_novnc(progress)
        except Refused as refused:  # a desktop that can't be watched can still be used
            progress(str(refused))
    return chosen


def _choose(backend: str | None, install: bool) -> str:
    """What `backends.resolve` says; if nothing works, what we would rather install."""
    try:
        return backends.resolve(backend)
    except InvalidInput:
        raise
    except Refused:
        if not install:
            raise
        return backends.NAMES[0]


# --- checks ----------------------------------------------------------------------------------------------
def _check_system() -> Check:
    kernel = os.uname()
    found = f"{kernel.sysname} {kernel.release} {kernel.machine}, Python {sys.version.split()[0]}"
    return Check("system", sys.platform == "linux", found, "Deskbox runs on Linux.")


def _check_backends() -> list[Check]:
    """Each of them, tried; one that works is enough."""
    verdicts = {name: _verdict(name) for name in backends.NAMES}
    needed = not any(verdict.usable for verdict in verdicts.values())
    return [
        Check(f"backend {name}", verdict.usable, verdict.found, verdict.fix, needed)
        for name, verdict in verdicts.items()
    ]


def _verdict(name: str) -> backends.Verdict:
    if name == "docker" and (state := probe_engine()) != "running":
        return backends.Verdict(False, _ENGINE_FOUND[state], _engine_fix(state))
    return backends.check(name)


def _check_mmdebstrap() -> Check:
    if os.environ.get("DESKBOX_BASE_IMAGE"):
        return Check("mmdebstrap", True, "it is not needed: DESKBOX_BASE_IMAGE is set", "")
    if not _which("mmdebstrap"):
        fix = "Run `make up`, or `apt-get install mmdebstrap` as root: it builds the guest's image."
        return Check("mmdebstrap", False, "it is not installed", fix)
    if os.geteuid() != 0 and not _which("newuidmap"):
        fix = "Run `apt-get install uidmap` as root: without root, mmdebstrap needs it."
        return Check("mmdebstrap", False, "it is installed, but newuidmap is not", fix)
    return Check("mmdebstrap", True, "it is installed", "")


def _check_novnc() -> Check:
    try:
        return Check("noVNC", True, f"found in {viewer.locate_novnc()}", "")
    except Refused as refused:
        return Check("noVNC", False, "it was not found", str(refused))


def _check_disk() -> Check:
    place = next(path for path in (cache_dir(), *cache_dir().parents) if path.exists())
    free = shutil.disk_usage(place).free
    needed = f"{_DISK_NEEDED / 1e9:.0f} GB"
    fix = f"Free {needed} to build the guest's image, or set DESKBOX_CACHE_DIR to another disk."
    return Check("disk", free >= _DISK_NEEDED, f"{free / 1e9:.1f} GB are free at {place}", fix)


def _check_memory() -> Check:
    lines = _read("/proc/meminfo").splitlines()
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    fix = f"Stop something: a desktop may use {_MEMORY_NEEDED / 1e9:.0f} GB."
    return Check("memory", free >= _MEMORY_NEEDED, f"{free / 1e9:.1f} GB are available", fix)


# --- packages --------------------------------------------------------------------------------------------
def missing_packages(backend: str) -> list[str]:
    """The Debian packages that this host lacks; not noVNC's, which is unpacked instead of installed."""
    return choose_packages(
        backend,
        engine=probe_engine(),
        root=os.geteuid() == 0,
        apparmor=_read("/sys/module/apparmor/parameters/enabled").startswith("Y"),
        has=lambda program: _which(program) != "",
    )


def choose_packages(
    backend: str, *, engine: EngineState, root: bool, apparmor: bool, has: Callable[[str], bool]
) -> list[str]:
    """Which packages a host lacks. `has` tells whether it has a program of that name."""
    packages = []
    if backend == "bwrap" and not has("bwrap"):
        packages.append("bubblewrap")
    if backend == "qemu":
        machine = "arm" if os.uname().machine == "aarch64" else "x86"
        program = "qemu-system-aarch64" if machine == "arm" else "qemu-system-x86_64"
        packages += [] if has(program) else [f"qemu-system-{machine}"]
        packages += [] if has("sqfstar") else ["squashfs-tools"]
        packages += [] if has("zstd") else ["zstd"]
    if backend == "docker" and engine == "absent":
        packages.append("docker.io")
        # With AppArmor in the kernel, Docker starts no container unless it can load its profile.
        if apparmor and not has("apparmor_parser"):
            packages.append("apparmor")
    if not has("mmdebstrap"):
        packages.append("mmdebstrap")
    if not root and not has("newuidmap"):
        packages.append("uidmap")
    if backend == "docker" and not root and engine not in ("running", "remote") and not has("setfacl"):
        packages.append("acl")
    return packages


def ensure_runs(arch: str, progress: Progress) -> None:
    """Let this computer run programs for "amd64" or "arm64", as root or through sudo: emulated, if need be.

    Raises Refused with one sentence that says what went wrong.
    """
    linux = images.LINUX_ARCHITECTURES[arch]
    if images.runs_programs_of(linux):
        return
    _apt_install(list(_EMULATION), progress)
    if images.runs_programs_of(linux):
        return
    # An init system would have told the kernel which emulator is for which programs.
    said = ""
    if not (_BINFMT / "register").exists():
        said = _run_as_root(["mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT)]).stderr
    said += _run_as_root(["update-binfmts", "--enable", f"qemu-{linux}"]).stderr
    if not images.runs_programs_of(linux):
        raise Refused(f"This computer can't be made to run programs for {arch}: {_last_words(said)}.")


def _apt_install(packages: list[str], progress: Progress) -> None:
    names = " ".join(packages)
    if not _which("apt-get"):
        raise Refused(f"This machine has no apt-get: install {names} with its package manager, then repeat.")
    progress(f"installing Debian packages: {names}")
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *_APT_WAIT, *packages]
    if _run_as_root(command).returncode != 0:
        # The lists may be missing, as in a fresh container, or old.
        progress("updating the package lists")
        _run_as_root(["apt-get", "update", *_APT_WAIT])
        again = _run_as_root(command)
        if again.returncode != 0:
            raise Refused(f"apt-get could not install {names}: {_last_words(again.stderr)}.")


def _run_as_root(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as root, its error output kept. Raises Refused if we may not."""
    return subprocess.run(_as_root(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _as_root(command: list[str]) -> list[str]:
    whole = ["env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", *command]
    if os.geteuid() == 0:
        return whole
    if not _which("sudo"):
        text = " ".join(command)
        raise Refused(f"This needs root, and there is no sudo: run `{text}` as root, then repeat.")
    # sudo asks for a password on the terminal, where there is one.
    return ["sudo", *([] if sys.stdin.isatty() else ["--non-interactive"]), *whole]


def _fetch_novnc(progress: Progress) -> None:
    """Unpack Debian's package of noVNC into the cache: installing it would bring Node.js and a daemon."""
    if not _which("apt-get"):
        raise Refused(
            "noVNC was not fetched, because this machine has no apt-get: install its package novnc."
        )
    progress("fetching noVNC")
    target = viewer.novnc_places()[1]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="novnc-") as directory:
        # As root, apt would download as the user _apt, who can't write here.
        command = ["apt-get", "download", "-o", "APT::Sandbox::User=root", "novnc"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        if done.returncode != 0:
            _run_as_root(["apt-get", "update", *_APT_WAIT])
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        if done.returncode != 0:
            raise Refused(f"noVNC could not be fetched: {_last_words(done.stderr)}.")
        (package,) = Path(directory).glob("novnc_*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(package), f"{directory}/files"], check=True)
        shutil.rmtree(target, ignore_errors=True)
        (Path(directory) / "files/usr/share/novnc").rename(target)


# --- the Docker engine -----------------------------------------------------------------------------------
EngineState = Literal["running", "closed", "stopped", "absent", "remote"]
_ENGINE_FOUND = {
    "closed": "it runs, but this user may not use it",
    "stopped": "it is installed, but does not run",
    "absent": "it is not installed",
    "remote": "DOCKER_HOST names one that does not answer",
}


def probe_engine() -> EngineState:
    """running   it answers
    closed    it runs, but its socket is closed to this user
    stopped   it is installed, but does not answer
    absent    it is not installed
    remote    DOCKER_HOST says where it is, and it does not answer there
    """
    try:
        client = docker.from_env(timeout=5)
        try:
            client.ping()
            return "running"
        finally:
            client.close()
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError):
        pass
    if os.environ.get("DOCKER_HOST"):
        return "remote"
    if _SOCKET.exists() and not os.access(_SOCKET, os.R_OK | os.W_OK):
        return "closed"
    return "stopped" if _which("dockerd") else "absent"


def _engine_fix(state: EngineState) -> str:
    where = os.environ.get("DOCKER_HOST", "")
    return {
        "running": "",
        "closed": (
            "Run `make up` or `deskbox up --setup`: with sudo, that opens it to you until it restarts. Or, "
            f"for good, run `usermod -aG docker {_user()}` as root and log in again. Whoever may use it can "
            "become root on this machine."
        ),
        "stopped": "Run `make up` or `deskbox up --setup`, or start it: `sudo systemctl start docker`.",
        "absent": "Run `make up` or `deskbox up --setup`, or `apt-get install docker.io` as root.",
        "remote": f"Start the engine at DOCKER_HOST={where}, or unset DOCKER_HOST.",
    }[state]


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _ensure_engine(progress: Progress, install: bool) -> None:
    state = probe_engine()
    if state == "stopped" and install:
        progress("starting the Docker engine")
        _start_engine()
        state = probe_engine()
    if state == "closed" and install and _which("sudo"):
        progress(f"opening the Docker engine to {_user()} until it restarts")
        _run_as_root(["setfacl", "--modify", f"user:{os.getuid()}:rw", str(_SOCKET)])
        state = probe_engine()
    if state != "running":
        raise Refused(f"No Docker engine can be used: {_ENGINE_FOUND[state]}. {_engine_fix(state)}")


def _start_engine() -> None:
    if not _has_init():
        _start_by_hand()
        return
    command = ["systemctl", "start", "docker"] if _has_systemd() else ["service", "docker", "start"]
    started = _run_as_root(command)
    if started.returncode != 0 or not _engine_comes_up():
        said = _last_words(started.stderr)
        raise Refused(f"`{' '.join(command)}` does not start the Docker engine: {said}.")


def _has_systemd() -> bool:
    return Path("/run/systemd/system").is_dir()


def _has_init() -> bool:
    return _has_systemd() or _read("/proc/1/comm").strip() in ("init", "openrc-init", "runit")


def _start_by_hand() -> None:
    """Start an engine that outlives us, in a session of its own."""
    before = _written_down()
    dockerd = [_which("dockerd"), "--exec-root", str(_EXEC_ROOT), "--pidfile", str(_PID_FILE)]
    with _log_file().open("wb") as output:
        launched = subprocess.run(
            _as_root(["setsid", "--fork", *dockerd]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env={**os.environ, "PATH": _PATH},
        )
    process = _appears_after(before) if launched.returncode == 0 else Process(0, 0)
    _record(process)
    if not _engine_comes_up(process):
        said = _last_words(_read(_log_file()))
        _end(process)
        _record_file().unlink(missing_ok=True)
        raise Refused(f"dockerd does not start: {said}. All that it said is in {_log_file()}.")


def _appears_after(before: Process) -> Process:
    """The dockerd that we have started, which may be root's: known by what it writes down, once it does.

    One that has ended already, if none appears.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda process: process == before or not process.alive()),
        wait=tenacity.wait_fixed(0.05),
        stop=tenacity.stop_after_delay(_ENGINE_LAUNCH_S),
        retry_error_callback=lambda _: Process(0, 0),
    )
    return retrying(_written_down)


def _written_down() -> Process:
    """The process of the file in which dockerd notes its own; it may have ended."""
    pid = _read(_PID_FILE).strip()
    return Process.of(int(pid)) if pid.isdigit() else Process(0, 0)


def _engine_comes_up(process: Process | None = None) -> bool:
    """Wait until the engine answers, or refuses us; False if it does not come, or `process` has ended."""

    def waiting(state: EngineState) -> bool:
        return state == "stopped" and (process is None or process.alive())

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(waiting),
        wait=tenacity.wait_fixed(0.1),
        stop=tenacity.stop_after_delay(_ENGINE_START_S),
        retry_error_callback=lambda _: "stopped",
    )
    return retrying(probe_engine) != "stopped"


def stop_engine() -> bool:
    """End the engine if it is one that was started by hand for us and no container runs in it.

    Returns whether it was ended. Its images stay for the next time. Raises Refused, with what to do, if we
    may not end it.
    """
    try:
        process = Process(**json.loads(_record_file().read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return False
    ours = process.alive()
    if ours and _runs_containers():
        return False
    _end(process)
    _record_file().unlink(missing_ok=True)
    _log_file().unlink(missing_ok=True)
    return ours


def _end(process: Process) -> None:
    """End our engine; then nobody uses the sockets that it leaves in its directory: it goes, too."""
    # On SIGTERM dockerd ends its containerd and unmounts what it has mounted.
    process.end(_ENGINE_STOP_S, _signal)
    if process.alive():
        raise Refused(f"The Docker engine still runs: end it with `sudo kill {process.pid}`, then repeat.")
    # It may have ended long ago, and another user's desktops may have started another one there.
    if _EXEC_ROOT.exists() and not _written_down().alive():
        removed = _run_as_root(["rm", "--recursive", "--one-file-system", str(_EXEC_ROOT)])
        if removed.returncode != 0:
            said = _last_words(removed.stderr)
            raise Refused(f"The Docker engine has ended, but {_EXEC_ROOT} can't be removed: {said}.")


def _runs_containers() -> bool:
    if probe_engine() != "running":
        return False
    client = docker.from_env(timeout=10)
    try:
        return bool(client.api.containers())
    finally:
        client.close()


def _signal(process: Process, number: signal.Signals) -> None:
    try:
        process.send(number)
    except PermissionError:  # it was started through sudo; a minimal system has no program `kill`
        _run_as_root([sys.executable, "-c", f"import os; os.kill({process.pid}, {int(number)})"])


def _record(process: Process) -> None:
    _record_file().write_text(json.dumps(asdict(process)))


def _record_file() -> Path:
    return state_dir() / "dockerd.json"


def _log_file() -> Path:
    return state_dir() / "dockerd.log"


def _which(program: str) -> str:
    return shutil.which(program, path=_PATH) or ""


def _last_words(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][-300:].rstrip(".") if lines else "it said nothing"


def _read(path: str | Path) -> str:
    """The text of a file that may not be there: then it is empty."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
