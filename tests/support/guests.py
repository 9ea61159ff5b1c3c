"""Guests as the host sees them, whatever runs them: to kill them, and to see that none is left."""

from __future__ import annotations

import contextlib
import os
import signal

import docker

from deskbox import backends, registry
from deskbox.desktop import Desktop
from deskbox.errors import DeskboxError
from deskbox.processes import Process


def backend() -> str:
    """What the desktops of this run are started with; see `--backend`."""
    return os.environ["DESKBOX_BACKEND"]


def guest_id(desktop: Desktop) -> str:
    record = registry.Home(desktop.name).read()
    assert record is not None
    return record.guest_id


def kill_guest(desktop: Desktop) -> None:
    """End it from outside, without a word to its keeper."""
    if desktop.backend == "docker":
        docker.from_env().containers.get(guest_id(desktop)).kill()
    else:
        pid, started = guest_id(desktop).split(":")[:2]
        Process(int(pid), int(started)).send(signal.SIGKILL)


def kill_agent(desktop: Desktop) -> None:
    with contextlib.suppress(DeskboxError):  # nobody is left to tell how it went
        desktop.exec(["pkill", "-KILL", "-f", "deskbox_guest.agent"], timeout=5)


def guests_named(name: str) -> list[str]:
    """What there is of guests of that desktop, running or not."""
    found = backends.create(backend()).guests(registry.state_id())
    return [guest for guest, desktop in found.items() if desktop == name]
