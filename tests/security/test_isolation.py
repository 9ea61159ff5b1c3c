"""What keeps the guest in: asserted from inside it and on the host, not read from our own configuration."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import docker
import pytest
from tests.support.guests import backend

from deskbox import backends, processes, registry
from deskbox.backends.base import GuestSpec, ImageSpec
from deskbox.backends.docker import DockerBackend, Limits, hardening
from deskbox.desktop import Desktop

PROBE = r"""
import json, os, socket
facts = {}
status = dict(line.split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
facts["capabilities"] = [status[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")]
facts["no_new_privs"] = status["NoNewPrivs"].strip()
facts["seccomp"] = status["Seccomp"].strip()
facts["uid"] = status["Uid"].split()
facts["interfaces"] = sorted(name for _, name in socket.if_nameindex())
facts["routes"] = len(open("/proc/net/route").readlines()) - 1
facts["writable"] = sorted(
    line.split()[1] for line in open("/proc/mounts")
    if "rw" in line.split()[3].split(",") and os.access(line.split()[1], os.W_OK)
)
facts["mounts"] = [line.split() for line in open("/proc/mounts")]
facts["setuid"] = []
for top, _, files in os.walk("/usr"):
    for name in files:
        path = os.path.join(top, name)
        if not os.path.islink(path) and os.stat(path).st_mode & 0o6000:
            facts["setuid"].append(path)
facts["listening"] = [
    line.split()[1] for name in ("tcp", "tcp6") for line in list(open("/proc/net/" + name))[1:]
    if line.split()[3] == "0A"
]
facts["environment"] = dict(os.environ)
facts["socket_dir"] = os.listdir("/rpc")
def attempt(action):
    try:
        action()
        return "done"
    except OSError as error:
        return error.strerror
facts["write_root"] = attempt(lambda: open("/etc/new", "w"))
facts["write_rpc"] = attempt(lambda: open("/rpc/new", "w"))
facts["replace_socket"] = attempt(lambda: os.unlink("/rpc/guest.sock"))
facts["connect_out"] = attempt(lambda: socket.create_connection(("192.0.2.1", 80), 2))
facts["docker"] = [path for path in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(path)]
facts["devices"] = sorted(os.listdir("/dev"))
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def facts(shared_desktop: Desktop) -> dict[str, Any]:
    result = shared_desktop.exec(["python3", "-c", PROBE])
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_no_privilege_and_no_way_to_one(facts: dict[str, Any]) -> None:
    assert facts["uid"] == ["1000"] * 4
    assert facts["capabilities"] == ["0000000000000000"] * 5
    assert facts["no_new_privs"] == "1"
    # A virtual machine's kernel is the guest's own: there is nothing to keep it from.
    assert facts["seccomp"] == ("0" if backend() == "qemu" else "2")
    assert facts["setuid"] == []


def test_no_network(facts: dict[str, Any]) -> None:
    assert facts["interfaces"] == ["lo"]
    assert facts["routes"] == 0
    assert facts["connect_out"] in ("Network is unreachable", "timed out")


def test_nothing_listens(facts: dict[str, Any]) -> None:
    assert facts["listening"] == []


def test_only_memory_is_writable(facts: dict[str, Any]) -> None:
    assert facts["write_root"] == "Read-only file system"
    assert facts["write_rpc"] == "Read-only file system"
    assert facts["replace_socket"] == "Read-only file system"
    for _, place, kind, options, *_ in facts["mounts"]:
        if place in ("/tmp", "/run", "/home/user", "/dev/shm"):
            assert kind == "tmpfs"
            assert {"nosuid", "nodev"} <= set(options.split(","))
        elif place in facts["writable"]:
            # What the kernel offers each container: its terminals and message queues.
            assert place.startswith(("/dev", "/proc")), place


def test_nothing_of_the_host_is_visible(facts: dict[str, Any]) -> None:
    assert facts["socket_dir"] == ([] if backend() == "qemu" else ["guest.sock"])
    assert facts["docker"] == []
    own = {"vda", "mem", "kmsg", "fuse"} if backend() == "qemu" else set()  # the machine's, and root's there
    assert not ({"kvm", "sda", "vda", "mem", "kmsg", "fuse"} - own) & set(facts["devices"])
    inside = facts["environment"]
    same = {name for name, value in os.environ.items() if len(value) > 8 and inside.get(name) == value}
    assert same <= {"PATH", "LANG"}


BOMB = r"""
import os, signal, time
children = []
try:
    while len(children) < 3000:
        if child := os.fork():
            children.append(child)
        else:
            time.sleep(60)
except OSError as error:
    print(error.strerror, flush=True)
time.sleep(2)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@pytest.mark.backends("docker")
def test_limits_hold(shared_desktop: Desktop) -> None:
    found: list[Any] = docker.from_env().containers.list(
        filters={"label": [f"deskbox.name={shared_desktop.name}", f"deskbox.owner={registry.state_id()}"]}
    )
    [container] = found
    limits = container.attrs["HostConfig"]
    assert limits["Memory"] == limits["MemorySwap"] == 2 * 1024**3
    assert limits["PidsLimit"] == 512
    assert limits["ShmSize"] == 256 * 1024**2
    assert limits["NetworkMode"] == "none"
    assert limits["ReadonlyRootfs"] is True
    assert not limits["Privileged"]
    assert not limits["PortBindings"]


def test_a_fork_bomb_meets_its_limit(shared_desktop: Desktop) -> None:
    """And the desktop goes on while it burns."""
    pictures: list[bytes] = []
    result = shared_desktop.exec(
        ["python3", "-c", BOMB], on_output=lambda *_: pictures.append(shared_desktop.screenshot())
    )
    assert result.stdout == b"Resource temporarily unavailable\n"
    assert pictures[0].startswith(b"\x89PNG")


def test_host_side_is_closed_to_others(shared_desktop: Desktop) -> None:
    home = registry.Home(shared_desktop.name)
    for path in (registry.state_dir(), home.path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.control_socket.stat().st_mode) == 0o600
    keeper = home.read()
    assert keeper is not None
    # A keeper listens on no port; once asked for the viewer, on one that only this machine reaches.
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    ours = [line.split()[3] for line in listening.splitlines() if f"pid={keeper.keeper_pid}," in line]
    assert all(address.startswith("127.0.0.1:") for address in ours)
    with Desktop.launch("unwatched", url="about:blank"):
        keeper = registry.Home("unwatched").read()
        assert keeper is not None
        listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
        assert f"pid={keeper.keeper_pid}," not in listening


@pytest.mark.skipif(os.getuid() != 0, reason="only root can pretend to be another user")
def test_another_user_is_refused_by_the_keeper(shared_desktop: Desktop, tmp_path: Path) -> None:
    home = registry.Home(shared_desktop.name)
    # Root opens the directories' doors to show that the keeper itself checks who calls.
    modes = [(path, path.stat().st_mode) for path in (registry.state_dir(), home.path.parent, home.path)]
    try:
        for path in (*(path for path, _ in modes), home.control_socket):
            path.chmod(0o777)
        pid = os.fork()
        if pid == 0:
            os.setgid(65534)
            os.setuid(65534)
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(5)
            sock.connect(str(home.control_socket))
            try:
                sock.sendall(b'{"op": "record"}\n')
                answer = sock.recv(1000)
            except OSError:
                answer = b""
            os._exit(0 if answer == b"" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        for path, mode in [*modes, (home.control_socket, 0o600)]:
            path.chmod(stat.S_IMODE(mode))


@pytest.mark.backends("docker", "bwrap")
def test_no_process_of_a_guest_is_taken_for_a_guest(shared_desktop: Desktop) -> None:
    """Whatever its arguments say: the host would end it, and clear away what it names, for another one."""
    owner = registry.state_id()
    before = sorted((runner.name, guest) for runner, guest, _ in backends.guests(owner))
    arguments = f"-name deskbox:{owner}:other DESKBOX_GUEST {owner}.other DESKBOX_IMAGE root-1/site-1"
    pretend = f"python3 -c 'import time; time.sleep(60)' {arguments}"
    nested = f"unshare --user --map-root-user --pid --fork --kill-child {pretend}"
    shared_desktop.exec(["sh", "-c", f"setsid {pretend} >/dev/null 2>&1 & setsid {nested} >/dev/null 2>&1 &"])
    try:
        deadline = time.monotonic() + 20
        while len(list(processes.running(f"deskbox:{owner}:other".encode()))) < 3:  # unshare(1) is the third
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert sorted((runner.name, guest) for runner, guest, _ in backends.guests(owner)) == before
    finally:
        shared_desktop.exec(["pkill", "-KILL", "-f", "time.sleep"])


FLOOD = r"""
import os, socket
for number in range(400):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(1)
    try:
        sock.connect("/rpc/guest.sock")
        if number % 2:
            sock.sendall(os.urandom(4096))
        globals()[f"keep_{number}"] = sock
    except OSError:
        pass
print("flooded")
"""


def test_a_guest_that_floods_its_keeper_harms_only_itself(shared_desktop: Desktop) -> None:
    assert shared_desktop.exec(["python3", "-c", FLOOD]).stdout == b"flooded\n"
    keeper = registry.Home(shared_desktop.name).read()
    assert keeper is not None
    assert len(os.listdir(f"/proc/{keeper.keeper_pid}/fd")) < 40
    # A stream asked for now must come from the agent again.
    with Desktop.attach(shared_desktop.name, observe=True) as observer:
        assert observer.screenshot().startswith(b"\x89PNG")


@pytest.mark.backends("docker")
def test_engine_without_a_protection_gets_its_own_default() -> None:
    limits = Limits()
    assert limits.facts() == {"seccomp": "deskbox", "open_files": "65536"}
    weaker = limits.without("OCI runtime create failed: invalid seccomp profile")
    assert weaker is not None
    assert not any(option.startswith("seccomp=") for option in hardening(weaker)["security_opt"])
    weakest = weaker.without("error setting rlimit type 7: operation not permitted")
    assert weakest is not None
    assert hardening(weakest)["ulimits"] == []
    assert weakest.without("seccomp rlimit") is None
    assert limits.without("no space left on device") is None


@pytest.mark.backends("docker")
def test_the_engine_default_profile_works_too(state_dir: Path) -> None:
    backend = DockerBackend()
    spec = GuestSpec(
        "weaker", (640, 480), "", state_dir, registry.state_id(), backend.prepare(ImageSpec(), print)
    )
    guest = backend._start(spec, Limits(seccomp=False, open_files=False))
    try:
        status: Any = (
            docker.from_env().containers.get(guest.id).exec_run(["grep", "Seccomp:", "/proc/1/status"])
        )
        assert status.output.split() == [b"Seccomp:", b"2"]
        assert guest.facts["seccomp"] == "engine default"
    finally:
        backend.stop(guest.id)
    assert not backend.alive(guest.id)
