"""What a host lacks, and whose engine it is. No engine is touched here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from deskbox import provision
from deskbox.errors import Refused
from deskbox.provision import Process, choose_packages


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    monkeypatch.setenv("DESKBOX_STATE_DIR", str(state))
    monkeypatch.setenv("DESKBOX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return state


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[provision.EngineState]:
    """What the engine is found to be, one answer after the other; the last one stays."""
    states: list[provision.EngineState] = []
    monkeypatch.setattr(provision, "probe_engine", lambda: states.pop(0) if len(states) > 1 else states[0])
    return states


@pytest.mark.parametrize(
    ("engine_there", "root", "apparmor", "programs", "packages"),
    [
        (False, True, False, [], ["docker.io", "mmdebstrap"]),
        (False, True, True, [], ["docker.io", "apparmor", "mmdebstrap"]),
        (False, True, True, ["apparmor_parser", "mmdebstrap"], ["docker.io"]),
        (True, True, True, ["mmdebstrap"], []),
        (True, False, False, ["mmdebstrap"], ["uidmap"]),
        (True, False, False, ["mmdebstrap", "newuidmap"], []),
    ],
)
def test_packages(
    engine_there: bool, root: bool, apparmor: bool, programs: list[str], packages: list[str]
) -> None:
    found = choose_packages(
        engine=engine_there, root=root, apparmor=apparmor, has=lambda program: program in programs
    )
    assert found == packages


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
        provision.ensure_host(print, install=False)


def test_an_engine_elsewhere_is_not_replaced_by_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert provision.probe_engine() == "remote"


def test_a_running_engine_is_left_alone(
    engine: list[provision.EngineState], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.append("running")
    monkeypatch.setattr(provision, "_start_dockerd", lambda: pytest.fail("started another engine"))
    provision.ensure_host(print, install=False)
    assert not provision.stop_engine()


class TestByHand:
    """Without an init system: a stand-in for dockerd."""

    @pytest.fixture(autouse=True)
    def no_init(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(provision, "_has_init", lambda: False)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(provision, "_runs_containers", lambda: False)

    def dockerd(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
        program = tmp_path / "dockerd"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(provision, "_which", lambda name: str(program))

    def test_it_is_started_written_down_and_ended(
        self,
        engine: list[provision.EngineState],
        tmp_path: Path,
        state: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.dockerd(tmp_path, monkeypatch, "exec sleep 300")
        engine += ["stopped", "stopped", "stopped", "running"]
        said: list[str] = []
        provision._ensure_engine(said.append, install=True)
        assert said == ["starting the Docker engine"]
        process = Process(**json.loads((state / "dockerd.json").read_text()))
        assert process.alive()
        assert os.getsid(process.pid) == process.pid
        assert provision.stop_engine()
        assert not process.alive()
        assert list(state.iterdir()) == []
        assert not provision.stop_engine()

    def test_one_that_ends_at_once_is_quoted(
        self,
        engine: list[provision.EngineState],
        tmp_path: Path,
        state: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
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
        self.dockerd(tmp_path, monkeypatch, "exec sleep 300")
        engine += ["stopped", "stopped", "running"]
        provision._ensure_engine(print, install=True)
        monkeypatch.setattr(provision, "_runs_containers", lambda: True)
        assert not provision.stop_engine()
        monkeypatch.setattr(provision, "_runs_containers", lambda: False)
        assert provision.stop_engine()

    def test_only_root_can(
        self, engine: list[provision.EngineState], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        engine.append("stopped")
        with pytest.raises(Refused, match="run `sudo dockerd` in another terminal"):
            provision._ensure_engine(print, install=True)


def test_a_process_with_the_same_number_is_not_the_same(state: Path) -> None:
    state.mkdir(mode=0o700)
    sleeper = subprocess.Popen(["sleep", "300"])
    try:
        process = Process.of(sleeper.pid)
        assert process.alive()
        other = Process(process.pid, process.started + 1)
        (state / "dockerd.json").write_text(json.dumps(other.__dict__))
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
    assert list(checks) == ["system", "Docker engine", "mmdebstrap", "noVNC", "disk", "memory"]
    assert not checks["Docker engine"].ok
    assert "usermod" in checks["Docker engine"].fix
    assert all(check.detail for check in checks.values())
