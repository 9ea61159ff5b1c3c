"""What a host lacks, and whose engine it is. No engine is touched here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from deskbox import backends, images, provision
from deskbox.errors import Refused
from deskbox.processes import Process
from deskbox.provision import choose_packages


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    monkeypatch.setenv("DESKBOX_STATE_DIR", str(state))
    monkeypatch.setenv("DESKBOX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return state


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "_PID_FILE", tmp_path / "docker.pid")
    monkeypatch.setattr(provision, "_EXEC_ROOT", tmp_path / "run" / "ours")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[provision.EngineState]:
    """What the engine is found to be, one answer after the other; the last one stays."""
    states: list[provision.EngineState] = []
    monkeypatch.setattr(provision, "probe_engine", lambda: states.pop(0) if len(states) > 1 else states[0])
    return states


@pytest.mark.parametrize(
    ("found", "root", "apparmor", "programs", "packages"),
    [
        ("absent", True, False, [], ["docker.io", "mmdebstrap"]),
        ("absent", True, True, [], ["docker.io", "apparmor", "mmdebstrap"]),
        ("absent", True, True, ["apparmor_parser", "mmdebstrap"], ["docker.io"]),
        ("absent", False, False, [], ["docker.io", "mmdebstrap", "uidmap", "acl"]),
        ("stopped", True, True, ["mmdebstrap"], []),
        ("running", False, False, ["mmdebstrap"], ["uidmap"]),
        ("running", False, False, ["mmdebstrap", "newuidmap"], []),
        ("closed", False, False, ["mmdebstrap", "newuidmap"], ["acl"]),
        ("closed", False, False, ["mmdebstrap", "newuidmap", "setfacl"], []),
    ],
)
def test_packages(
    found: provision.EngineState, root: bool, apparmor: bool, programs: list[str], packages: list[str]
) -> None:
    chosen = choose_packages(
        "docker", engine=found, root=root, apparmor=apparmor, has=lambda program: program in programs
    )
    assert chosen == packages


def test_packages_of_other_backends() -> None:
    def lacking(backend: str, programs: list[str], root: bool = True) -> list[str]:
        return choose_packages(
            backend, engine="absent", root=root, apparmor=True, has=lambda program: program in programs
        )

    assert lacking("bwrap", []) == ["bubblewrap", "mmdebstrap"]
    assert lacking("bwrap", ["bwrap", "mmdebstrap"], root=False) == ["uidmap"]
    packages = lacking("qemu", [])
    assert packages[0].startswith("qemu-system-")
    assert {"squashfs-tools", "mmdebstrap"} <= set(packages)
    assert "docker.io" not in packages


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ("absent", "it is not installed.*make up"),
        ("stopped", "it is installed, but does not run.*systemctl start docker"),
        ("closed", "this user may not use it.*usermod -aG docker"),
        ("remote", "does not answer.*DOCKER_HOST"),
    ],
)
def test_without_setup_nothing_is_changed_and_the_sentence_says_what_to_do(
    engine: list[provision.EngineState], found: provision.EngineState, sentence: str
) -> None:
    engine.append(found)
    with pytest.raises(Refused, match=sentence):
        provision.ensure_host(print, install=False, backend="docker")


def test_an_engine_elsewhere_is_not_replaced_by_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert provision.probe_engine() == "remote"


def test_a_running_engine_is_left_alone(
    engine: list[provision.EngineState], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.append("running")
    monkeypatch.setattr(provision, "_start_engine", lambda: pytest.fail("started another engine"))
    provision.ensure_host(print, install=False, backend="docker")
    assert not provision.stop_engine()


class TestOfAUser:
    """The engine runs, and the user may not use it."""

    @pytest.fixture
    def commands(self, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        """What was run as root."""
        commands: list[list[str]] = []

        def run(command: list[str]) -> subprocess.CompletedProcess[str]:
            commands.append(command)
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(provision, "_run_as_root", run)
        return commands

    def test_sudo_opens_it(
        self,
        engine: list[provision.EngineState],
        commands: list[list[str]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        engine += ["closed", "running"]
        monkeypatch.setattr(provision, "_which", lambda name: f"/usr/bin/{name}")
        said: list[str] = []
        provision._ensure_engine(said.append, install=True)
        assert commands == [["setfacl", "--modify", f"user:{os.getuid()}:rw", "/var/run/docker.sock"]]
        assert said == [f"opening the Docker engine to {provision._user()} until it restarts"]

    @pytest.mark.parametrize(("install", "sudo"), [(True, ""), (False, "/usr/bin/sudo")])
    def test_without_setup_or_sudo_it_stays_closed(
        self,
        engine: list[provision.EngineState],
        commands: list[list[str]],
        monkeypatch: pytest.MonkeyPatch,
        install: bool,
        sudo: str,
    ) -> None:
        engine.append("closed")
        monkeypatch.setattr(provision, "_which", lambda name: sudo)
        with pytest.raises(Refused, match=r"this user may not use it.*usermod -aG docker .* log in again"):
            provision._ensure_engine(print, install=install)
        assert commands == []


@pytest.mark.parametrize(
    ("found", "packages", "user", "terminal", "asked"),
    [
        ("running", ["uidmap"], 1000, True, True),
        ("closed", [], 1000, True, True),
        ("stopped", [], 1000, True, True),
        ("running", [], 1000, True, False),
        ("closed", ["acl"], 1000, False, False),
        ("stopped", ["mmdebstrap"], 0, True, False),
    ],
)
def test_sudo_asks_before_anything_is_drawn_if_it_will_be_needed(
    engine: list[provision.EngineState],
    monkeypatch: pytest.MonkeyPatch,
    found: provision.EngineState,
    packages: list[str],
    user: int,
    terminal: bool,
    asked: bool,
) -> None:
    engine.append(found)
    ran: list[list[str]] = []
    monkeypatch.setattr(provision, "missing_packages", lambda backend: packages)
    monkeypatch.setattr(provision, "_which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: terminal))
    monkeypatch.setattr(subprocess, "run", ran.append)
    provision.ask_for_password("docker")
    assert ran == ([["sudo", "--validate"]] if asked else [])


class TestOfAnotherProcessor:
    """Programs that this one can't run. The kernel's register is a directory."""

    @pytest.fixture
    def commands(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        """What was run as root. As soon as it is `self.enough`, such programs run."""
        commands: list[list[str]] = []

        def run(command: list[str]) -> subprocess.CompletedProcess[str]:
            commands.append(command)
            return subprocess.CompletedProcess(command, 1, "", f"{command[0]}: not permitted\n")

        monkeypatch.setattr(provision, "_run_as_root", run)
        monkeypatch.setattr(provision, "_apt_install", lambda names, progress: commands.append(list(names)))
        monkeypatch.setattr(provision, "_BINFMT", tmp_path)
        monkeypatch.setattr(images, "runs_programs_of", lambda arch: len(commands) >= self.enough)
        return commands

    enough = 0
    install: ClassVar[list[str]] = ["qemu-user-static", "binfmt-support", "arch-test"]
    enable: ClassVar[list[str]] = ["update-binfmts", "--enable", "qemu-aarch64"]

    @pytest.mark.parametrize("enough", [0, 1, 3])
    def test_no_more_is_done_than_is_needed(
        self, commands: list[list[str]], tmp_path: Path, enough: int
    ) -> None:
        self.enough = enough
        provision.ensure_runs("arm64", print)
        mount = ["mount", "-t", "binfmt_misc", "binfmt_misc", str(tmp_path)]
        assert commands == [self.install, mount, self.enable][:enough]

    def test_a_register_that_is_there_is_not_mounted_again(
        self, commands: list[list[str]], tmp_path: Path
    ) -> None:
        (tmp_path / "register").touch()
        self.enough = 2
        provision.ensure_runs("arm64", print)
        assert commands == [self.install, self.enable]

    def test_a_kernel_that_does_not_take_it(self, commands: list[list[str]]) -> None:
        self.enough = 4
        with pytest.raises(
            Refused, match=r"can't be made to run programs for arm64: update-binfmts: not perm"
        ):
            provision.ensure_runs("arm64", print)
        assert len(commands) == 3


class TestByHand:
    """Without an init system: a stand-in for dockerd."""

    @pytest.fixture(autouse=True)
    def no_init(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(provision, "_has_init", lambda: False)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(provision, "_runs_containers", lambda: False)
        monkeypatch.setattr(provision, "_ENGINE_LAUNCH_S", 1.0)

    def dockerd(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
        program = tmp_path / "dockerd"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(provision, "_which", lambda name: str(program))

    def living(self, tmp_path: Path) -> str:
        """It notes its process, and makes the directory that it was told to use."""
        return f'echo $$ > {tmp_path}/docker.pid; mkdir -p "$2/sockets"; exec sleep 300'

    def engine_written_down(self, state: Path) -> Process:
        return Process(**json.loads((state / "dockerd.json").read_text()))

    def test_it_is_started_written_down_and_ended(
        self,
        engine: list[provision.EngineState],
        tmp_path: Path,
        state: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.dockerd(tmp_path, monkeypatch, self.living(tmp_path))
        (tmp_path / "run" / "system").mkdir(parents=True)
        engine += ["stopped", "stopped", "stopped", "running"]
        said: list[str] = []
        provision._ensure_engine(said.append, install=True)
        assert said == ["starting the Docker engine"]
        started = self.engine_written_down(state)
        assert started.alive()
        assert os.getsid(started.pid) == started.pid
        assert (tmp_path / "run" / "ours").is_dir()
        assert provision.stop_engine()
        assert not started.alive()
        assert list(state.iterdir()) == []
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["system"]
        assert not provision.stop_engine()

    @pytest.mark.parametrize("others", [False, True])
    def test_one_that_ends_at_once_is_quoted(
        self,
        engine: list[provision.EngineState],
        tmp_path: Path,
        state: Path,
        monkeypatch: pytest.MonkeyPatch,
        others: bool,
    ) -> None:
        """Even if somebody else's process is written down, as in a pid file that was left behind."""
        if others:
            (tmp_path / "docker.pid").write_text(str(os.getpid()))
        self.dockerd(tmp_path, monkeypatch, "echo first >&2; echo 'failed to start daemon: no iptables.' >&2")
        engine.append("stopped")
        with pytest.raises(
            Refused, match=r"dockerd does not start: failed to start daemon: no iptables\. All"
        ):
            provision._ensure_engine(print, install=True)
        assert not (state / "dockerd.json").exists()

    def test_it_stays_while_containers_run(
        self, engine: list[provision.EngineState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.dockerd(tmp_path, monkeypatch, self.living(tmp_path))
        engine += ["stopped", "stopped", "running"]
        provision._ensure_engine(print, install=True)
        monkeypatch.setattr(provision, "_runs_containers", lambda: True)
        assert not provision.stop_engine()
        monkeypatch.setattr(provision, "_runs_containers", lambda: False)
        assert provision.stop_engine()

    @pytest.mark.parametrize("another", [False, True])
    def test_what_another_engine_may_use_stays(self, tmp_path: Path, state: Path, another: bool) -> None:
        """Ours has ended by itself; since then, another may have started."""
        (tmp_path / "run" / "ours").mkdir(parents=True)
        if another:
            (tmp_path / "docker.pid").write_text(str(os.getpid()))
        state.mkdir(mode=0o700)
        (state / "dockerd.json").write_text(json.dumps(asdict(Process(os.getpid(), 1))))
        assert not provision.stop_engine()
        assert (tmp_path / "run" / "ours").exists() == another
        assert list(state.iterdir()) == []

    def test_one_of_root_is_ended_through_sudo(
        self,
        engine: list[provision.EngineState],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.dockerd(tmp_path, monkeypatch, self.living(tmp_path))
        engine += ["stopped", "stopped", "running"]
        provision._ensure_engine(print, install=True)

        def forbidden(pid: int, number: int) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "kill", forbidden)
        assert provision.stop_engine()

    def test_without_root_and_sudo_the_command_is_shown(
        self, engine: list[provision.EngineState], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setattr(provision, "_which", lambda name: "/sbin/dockerd" if name == "dockerd" else "")
        engine.append("stopped")
        with pytest.raises(Refused, match=r"run `setsid --fork /sbin/dockerd .*` as root, then repeat"):
            provision._ensure_engine(print, install=True)


def test_a_process_with_the_same_number_is_not_the_same(state: Path) -> None:
    state.mkdir(mode=0o700)
    sleeper = subprocess.Popen(["sleep", "300"])
    try:
        process = Process.of(sleeper.pid)
        assert process.alive()
        other = Process(process.pid, process.started + 1)
        (state / "dockerd.json").write_text(json.dumps(asdict(other)))
        assert not provision.stop_engine()
        assert sleeper.poll() is None
        process.end(5)
        assert not process.alive()
    finally:
        sleeper.kill()
        sleeper.wait()
    assert Process.of(sleeper.pid).started == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_record_ends_nothing(state: Path, text: str) -> None:
    state.mkdir(mode=0o700)
    (state / "dockerd.json").write_text(text)
    assert not provision.stop_engine()


def test_without_root_and_sudo_the_command_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(provision, "_which", lambda name: "/bin/apt-get" if name == "apt-get" else "")
    with pytest.raises(Refused, match=r"run `apt-get install .*mmdebstrap` as root, then repeat"):
        provision._apt_install(["mmdebstrap"], print)


def test_checks_name_what_they_found(engine: list[provision.EngineState]) -> None:
    engine.append("closed")
    checks = {check.name: check for check in provision.check_host()}
    named = [f"backend {name}" for name in backends.NAMES]
    assert list(checks) == ["system", *named, "mmdebstrap", "noVNC", "disk", "memory"]
    assert not checks["backend docker"].ok
    assert "usermod" in checks["backend docker"].fix
    assert all(check.detail for check in checks.values())
