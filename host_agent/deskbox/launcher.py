"""Start a keeper and wait until its desktop is usable; take over a desktop whose keeper has died."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from deskbox import backends, registry, snapshots
from deskbox.control import KINDS
from deskbox.errors import InvalidInput, Refused, Unavailable
from deskbox.registry import DesktopRecord, Home
from deskbox.snapshots import Snapshot
from deskbox_guest.protocol import ENGINES, EngineName

MIN_SIZE = (320, 240)
MAX_SIZE = (3840, 2160)
DEFAULT_SIZE = (1280, 800)
DEFAULT_NAME = "default"
DEFAULT_ENGINE: EngineName = "xtest"


@dataclass
class Keeping:
    """A keeper that this process started. Closing `tie` (or dying) ends its desktop."""

    home: Home
    tie: int | None
    process: subprocess.Popen[bytes]

    def release(self) -> None:
        """End the desktop, if it is tied to us, and wait until nothing is left of it."""
        if self.tie is not None:
            os.close(self.tie)
            self.tie = None
            self.process.wait(registry.STOP_TIMEOUT)


def launch(
    name: str | None,
    *,
    backend: str | None,
    size: tuple[int, int],
    url: str | None,
    packages: Sequence[str],
    engine: EngineName,
    detach: bool,
    progress: backends.Progress,
    snapshot: Snapshot | None = None,
) -> Keeping:
    """Start a desktop, from a snapshot if one is given, and wait until it is painted.

    Raises InvalidInput, Refused, Unavailable.
    """
    wanted = image_spec(size, packages, engine)
    home = Home(name if name is not None else f"desk-{secrets.token_hex(4)}")
    backend = backends.resolve(backend)
    lock = home.lock()
    if lock is None:
        raise Refused(f"desktop {home.name!r} runs already: attach to it, or stop it first")
    try:
        # A machine that was saved goes on without what others start from.
        whole = snapshot is not None and snapshot.contents == "machine"
        image = "" if whole else backends.create(backend).prepare(wanted, progress)
        if home.exists():
            raise Refused(
                f"desktop {home.name!r} has lost its keeper: attach to it, or clear it away with "
                f"`deskbox down {home.name}`"
            )
        progress("starting the guest")
        home.create()
        record = DesktopRecord(
            name=home.name,
            backend=backend,
            size=size,
            url=url or "",
            packages=tuple(packages),
            engine=engine,
            image=image,
            snapshot=snapshot.name if snapshot else "",
            created=time.time(),
        )
        home.write(record)
        return _start_keeper(home, lock, adopt=False, detach=detach, progress=progress)
    finally:
        home.unlock(lock)


def image_spec(size: tuple[int, int], packages: Sequence[str], engine: EngineName) -> backends.ImageSpec:
    """What a desktop of that kind starts from. Raises InvalidInput."""
    if not (MIN_SIZE[0] <= size[0] <= MAX_SIZE[0] and MIN_SIZE[1] <= size[1] <= MAX_SIZE[1]):
        raise InvalidInput(
            f"size {size[0]}x{size[1]} is not possible: use {MIN_SIZE[0]}x{MIN_SIZE[1]} "
            f"to {MAX_SIZE[0]}x{MAX_SIZE[1]} pixels"
        )
    if engine not in ENGINES:
        raise InvalidInput(f"there is no engine {engine!r}: use {' or '.join(map(repr, ENGINES))}")
    return backends.ImageSpec(tuple(packages), size, engine)


def fork(name: str | None, snapshot: str, *, detach: bool, progress: backends.Progress) -> Keeping:
    """Start a desktop from a snapshot. Raises as `launch` does, and Refused if there is no such snapshot."""
    found = snapshots.find(snapshot)
    return launch(
        name,
        backend=found.backend,
        size=found.size,
        url=found.url,
        packages=found.packages,
        engine=found.engine,
        detach=detach,
        progress=progress,
        snapshot=found,
    )


def adopt(home: Home, progress: backends.Progress = lambda _: None) -> None:
    """Give a desktop whose keeper died a new one, if it needs one and its guest lives."""
    if not home.exists():
        raise Unavailable(f"there is no desktop {home.name!r}: start it with `deskbox up --name {home.name}`")
    lock = home.lock()
    if lock is None:
        return  # it has a keeper
    try:
        record = home.read()
        if record is None or not record.guest_id:
            raise Unavailable(f"desktop {home.name!r} never started: run `deskbox down {home.name}`")
        if not backends.create(record.backend).alive(record.guest_id):
            raise Unavailable(
                f"desktop {home.name!r} is dead: run `deskbox down {home.name}`, then start it again"
            )
        _start_keeper(home, lock, adopt=True, detach=True, progress=progress)
    finally:
        home.unlock(lock)


def _start_keeper(
    home: Home, lock: int, *, adopt: bool, detach: bool, progress: backends.Progress
) -> Keeping:
    status_read, status_write = os.pipe()
    tie_read, tie_write = os.pipe()
    command = [sys.executable, "-m", "deskbox.keeper", home.name]
    command += ["--status-fd", str(status_write), "--lock-fd", str(lock)]
    command += ["--adopt"] if adopt else []
    command += [] if detach else ["--tie-fd", str(tie_read)]
    try:
        with open(home.log, "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[status_write, lock, tie_read],
                start_new_session=True,
                cwd="/",
            )
    except BaseException:
        for fd in (status_read, status_write, tie_read, tie_write):
            os.close(fd)
        if not adopt:
            home.remove()
        raise
    os.close(status_write)
    os.close(tie_read)
    try:
        with os.fdopen(status_read) as status:
            _wait_ready(home, status, progress)
    except BaseException:
        # Also Ctrl-C: a start that was given up leaves nothing.
        os.close(tie_write)
        if not adopt:
            _end(process)
            if home.exists():  # the keeper was gone before it could clean up
                registry.reap(home)
        raise
    if detach:
        os.close(tie_write)
        return Keeping(home, None, process)
    return Keeping(home, tie_write, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(registry.STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_ready(home: Home, status: TextIO, progress: backends.Progress) -> None:
    for line in status:
        message = json.loads(line)
        if "progress" in message:
            progress(message["progress"])
        elif "error" in message:
            raise KINDS[message["kind"]](message["error"])
        else:
            return
    log = home.log.read_text(errors="replace").strip().splitlines() if home.log.exists() else []
    raise Unavailable(
        f"the keeper of desktop {home.name!r} died while it started{': ' + log[-1] if log else ''}"
    )
