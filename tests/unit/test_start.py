"""A guest that is started beside its keeper: what the keeper hears of it, and how little it waits for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deskbox import backends
from deskbox.backends import Guest, GuestSpec
from deskbox.errors import Refused, Unavailable
from deskbox.keeper.start import Start
from deskbox.registry import DesktopRecord, Home

RECORD = DesktopRecord(name="it", backend="bwrap", size=(640, 480), url="", image="of that name", created=0)


class Backend:
    """One that starts nothing."""

    def start(self, spec: GuestSpec) -> Guest:
        return Guest(f"{spec.name} from {spec.image}")


class Dead:
    def __init__(self) -> None:
        raise Unavailable("it does not answer")


class Failing:
    def start(self, spec: GuestSpec) -> Guest:
        raise Refused("there is no room")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("DESKBOX_STATE_DIR", str(tmp_path / "state"))
    return Home("it")


def start(home: Home, kind: type, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setattr(backends, "kind", lambda name: kind)
    return Start(home, RECORD)


def test_a_guest_that_starts(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    interval = sys.getswitchinterval()
    started = start(home, Backend, monkeypatch)
    backend: object = started.backend()
    assert isinstance(backend, Backend)
    assert started.guest().id == "it from of that name"
    ended: object = started.end()
    assert ended is backend
    assert sys.getswitchinterval() == interval


def test_a_backend_that_does_not_answer(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    started = start(home, Dead, monkeypatch)
    with pytest.raises(Unavailable, match="it does not answer"):
        started.backend()
    with pytest.raises(Unavailable, match="it does not answer"):
        started.guest()
    assert started.end() is None


def test_a_guest_that_does_not_start(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    started = start(home, Failing, monkeypatch)
    assert started.backend() is not None
    with pytest.raises(Refused, match="there is no room"):
        started.guest()
    assert started.end() is not None


@pytest.mark.parametrize("backend", ["bwrap", "qemu"])
def test_a_start_waits_for_few_imports(backend: str) -> None:
    """What speaks to a guest takes as long to import as all that its start needs."""
    heavy = {"asyncio", "h2", "openai", "docker", "deskbox.images", "deskbox.rpc"}
    code = f"import sys, deskbox.keeper.start as start; start.backends.kind({backend!r}); "
    code += f"print({heavy!r} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.stdout == b"set()\n", done.stderr
