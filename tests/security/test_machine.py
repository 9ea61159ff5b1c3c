"""A machine under QEMU: what its process 1 gives to the desktop, and what is for the host and root only."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator

import pytest

from deskbox.backends.qemu.trial import TrialMachine
from deskbox.errors import DeskboxError
from deskbox_guest import limits, protocol

pytestmark = pytest.mark.backends("qemu")


@pytest.fixture(scope="module")
def booted() -> Iterator[TrialMachine]:
    with TrialMachine({"DESKBOX_SIZE": "800x600", "DESKBOX_URL": ""}) as running:
        yield running


def wake(booted: TrialMachine, **changes: object) -> dict[str, object]:
    request: dict[str, object] = {
        "time_ns": time.time_ns(),
        "seed": os.urandom(64).hex(),
        "hostname": "deskbox",
        "machine_id": os.urandom(16).hex(),
    }
    return booted.control.ask("wake", timeout=60, **{**request, **changes})


def test_the_session_has_no_privilege_and_no_way_to_one(booted: TrialMachine) -> None:
    status = dict(line.split(":\t", 1) for line in booted.run("cat /proc/self/status").splitlines())
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Groups"].strip() == ""
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(limits.UID)}
    assert booted.run("find / -xdev -perm /6000 -type f 2>/dev/null") == ""
    assert booted.run("cat /proc/sys/kernel/yama/ptrace_scope") == "2\n"


def test_only_memory_is_writable_and_its_size_is_that_of_a_container(booted: TrialMachine) -> None:
    mounts: dict[str, tuple[str, set[str]]] = {}
    for line in booted.run("cat /proc/mounts").splitlines():
        _, folder, kind, options, *_ = line.split()
        mounts[folder] = (kind, set(options.split(",")))
    for folder, (size, mode) in {**limits.TMPFS, "/dev/shm": (limits.SHM, 0o1777)}.items():
        assert mounts[folder][0] == "tmpfs"
        assert {"nosuid", "nodev", f"size={size // 1024}k"} <= mounts[folder][1]
        assert int(booted.run(f"stat -c %a {folder}"), 8) == mode
    for folder in ("/", "/usr/local/lib/python3.13/dist-packages"):
        assert mounts[folder][0] == "squashfs"
        assert {"ro", "nosuid", "nodev"} <= mounts[folder][1]
    writable = booted.run("find / -xdev -writable ! -type l 2>/dev/null").split()
    assert sorted(writable) == sorted(limits.TMPFS)  # where those are mounted
    assert booted.run("stat -c '%a %U' /") == "755 root\n"


def test_limits_of_processes_and_files(booted: TrialMachine) -> None:
    assert booted.run("cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/pids.max") == f"{limits.TASKS}\n"
    assert booted.run("echo max >/sys/fs/cgroup/desktop/pids.max").endswith("Permission denied\n")
    assert booted.run("ulimit -Sn; ulimit -Hn") == f"{limits.OPEN_FILES}\n" * 2
    assert booted.run("id -u; cd; pwd; pgrep -x python3 >/dev/null && echo yes").split() == [
        "1000",
        "/home/user",
        "yes",
    ]


def test_no_network_but_loopback(booted: TrialMachine) -> None:
    devices = re.findall(r"^ *(\w+):", booted.run("cat /proc/net/dev"), re.MULTILINE)
    assert devices == ["lo"]
    answer = booted.run(
        'python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        "socket.create_connection(s.getsockname()); print(1)'"
    )
    assert answer == "1\n"


def test_devices_are_the_hosts_and_roots(booted: TrialMachine) -> None:
    for device in ("console", "ttyS0", "vda", "mem", "virtio-ports/deskbox.control"):
        assert booted.run(f"test -e /dev/{device} && cat /dev/{device}").endswith("Permission denied\n")


def test_waking_gives_time_identity_and_randomness(booted: TrialMachine) -> None:
    long_ago = 1_000_000_000 * 10**9
    assert wake(booted, time_ns=long_ago, hostname="other", machine_id="0123456789abcdef" * 2)["ok"]
    assert booted.run("date +%Y") == "2001\n"
    assert booted.run("hostname; cat /etc/machine-id; stat -c %u /run/machine-id") == (
        "other\n" + "0123456789abcdef" * 2 + f"\n{limits.UID}\n"
    )
    facts, _ = booted.call(protocol.FACTS)
    assert facts["boot_id"] == "0123456789abcdef" * 2
    assert wake(booted)["ok"]
    assert abs(float(booted.run("date +%s")) - time.time()) < 300


def test_the_user_gains_nothing_from_where_root_writes(booted: TrialMachine) -> None:
    for trap in ("/run/machine-id.new", "/run/machine-id"):
        booted.run(f"rm -f {trap}; ln -s /proc/sys/kernel/hostname {trap}")
        with contextlib.suppress(DeskboxError):
            wake(booted, hostname="mine")
        assert booted.run("hostname") == "mine\n"
        booted.run(f"rm -f {trap}")
    booted.run("mkdir /run/machine-id.new")
    with pytest.raises(DeskboxError, match="machine-id could not be written: "):
        wake(booted)
    booted.run("rmdir /run/machine-id.new")
    assert wake(booted)["ok"]


def test_a_host_that_leaves_in_the_middle_of_a_word_spoils_nothing(booted: TrialMachine) -> None:
    for last_words in (b'{"id": "1", "do": "power', b"x" * 100_000, b'\n{"id": "2", "do": "status"}\n'):
        booted.reconnect(last_words)
        assert booted.control.ask("status", timeout=60)["state"] == "running"


def test_nobody_writes_to_the_console_in_the_sessions_name(booted: TrialMachine) -> None:
    """Its own output has a limit besides; see tests/unit/test_machine.py."""
    output = "/proc/$(pgrep -o -f deskbox_guest.session)/fd/2"
    assert "Permission denied" in booted.run(f"echo x >{output}")


def test_the_end_of_the_session_is_the_end_of_the_machine(booted: TrialMachine) -> None:
    """The last test here: it uses the machine up."""
    end = {"argv": ["pkill", "-x", "Xvfb"], "timeout": 60.0, "output_limit": 1, "cwd": "", "env": {}}
    booted.channel.open(protocol.EXEC, end)  # the machine may be gone before it answers
    assert booted.ended()
    assert "the session ended with status 1" in booted.console()
    assert booted.process.poll() is None  # stopped, so that somebody can read this
