"""A control group for one guest: how much memory and how many processes, and a way to freeze them all.

Whether we may make one depends on the host. As root it lies beside those of the system, otherwise beside
those of the user's own services, if systemd has given these to the user. Version 2 of the interface is one
tree, version 1 a tree for each controller; see cgroups(7).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_OURS = "deskbox"
# Files of version 1 and 2, and the controller (of version 1) that they belong to.
_MEMORY = {1: ("memory", "memory.limit_in_bytes"), 2: ("", "memory.max")}
_SWAP = {1: ("memory", "memory.memsw.limit_in_bytes"), 2: ("", "memory.swap.max")}
_TASKS = {1: ("pids", "pids.max"), 2: ("", "pids.max")}
_FREEZE_S = 10.0


@dataclass(frozen=True)
class Cgroup:
    """The group of that name; `make` makes it, as far as the host allows."""

    name: str

    def make(self, memory: int, tasks: int) -> dict[str, bool]:
        """Make the group, with limits in bytes and processes. Returns which limits hold: memory, tasks."""
        for base in _bases():
            with contextlib.suppress(OSError):
                base.mkdir(exist_ok=True)
                if _version() == 2:
                    for parent in (base.parent, base):
                        (parent / "cgroup.subtree_control").write_text("+memory +pids")
            with contextlib.suppress(OSError):
                (base / self.name).mkdir(exist_ok=True)
        limited = self._write(_MEMORY, str(memory))
        # Version 1 limits memory and swap together, version 2 swap alone; not every kernel counts swap.
        self._write(_SWAP, str(memory) if _version() == 1 else "0")
        return {"memory": limited, "tasks": self._write(_TASKS, str(tasks))}

    def entrances(self) -> list[Path]:
        """The files that a process writes its number to in order to enter the group."""
        return [path / "cgroup.procs" for path in self._paths()]

    def freezer(self) -> Path | None:
        """The file that freezes the group, if there is one that leaves what it has frozen to be killed."""
        return next((file for path in self._paths() if (file := path / "cgroup.freeze").exists()), None)

    def freeze(self, frozen: bool) -> None:
        """Stop all processes of the group, or let them go on, if it has a `freezer`. Raises OSError."""
        file = self.freezer()
        assert file is not None
        file.write_text(str(int(frozen)))
        deadline = time.monotonic() + _FREEZE_S
        while frozen and "frozen 1" not in file.with_name("cgroup.events").read_text():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not freeze within {_FREEZE_S:g} s")
            time.sleep(0.002)  # it takes about one

    def remove(self) -> None:
        """Remove the group, whose processes have ended or are about to. Idempotent."""
        deadline = time.monotonic() + _FREEZE_S
        for path in self._paths():
            while path.exists():
                try:
                    path.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.005)  # the kernel takes a moment to let go of ended processes
            with contextlib.suppress(OSError):  # there may be other guests
                path.parent.rmdir()

    @staticmethod
    def names(prefix: str) -> set[str]:
        """The groups there are whose names begin with `prefix`."""
        return {path.name for base in _bases() for path in base.glob(f"{prefix}*") if path.is_dir()}

    def _paths(self) -> list[Path]:
        return [path for base in _bases() if (path := base / self.name).is_dir()]

    def _file(self, wanted: dict[int, tuple[str, str]]) -> Path | None:
        controller, name = wanted[_version()]
        for path in self._paths():
            if (path / name).exists() and (not controller or f"/{controller}/" in f"{path}/"):
                return path / name
        return None

    def _write(self, wanted: dict[int, tuple[str, str]], value: str) -> bool:
        file = self._file(wanted)
        if file is None:
            return False
        try:
            file.write_text(value)
        except OSError:
            return False
        return True


def _version() -> int:
    return 2 if (_MOUNT / "cgroup.controllers").exists() else 1


def _bases() -> Iterator[Path]:
    """The directories that our groups are made in."""
    uid = os.getuid()
    if _version() == 1:
        for controller in ("memory", "pids"):
            if uid == 0 and (_MOUNT / controller).exists():
                yield _MOUNT / controller / _OURS
    elif uid == 0:
        yield _MOUNT / _OURS
    else:
        # What systemd gives to a user; a group right under it needs no further permission.
        yield _MOUNT / f"user.slice/user-{uid}.slice/user@{uid}.service/{_OURS}.slice"
