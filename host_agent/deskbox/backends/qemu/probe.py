"""Which accelerator runs a machine on this computer: found by letting one boot, and remembered.

That a device can be opened proves nothing: a KVM inside another virtual machine may make virtual machines in
which no kernel ever gets through its start. So a machine's own kernel is started with a word that only this
boot knows, and has to say it on the console from its first program, after all drivers are loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from deskbox.backends.qemu.command import (
    Accelerator,
    Architecture,
    Machine,
    Ram,
    System,
    architecture,
    command,
    find_program,
    identity,
)
from deskbox.cache import cache_dir
from deskbox.errors import DeskboxError, InvalidInput
from deskbox.images import Progress
from deskbox.machine_image import MachineImage

# Seconds that a boot may take. With an accelerator it takes less than one, without one three to ten.
PATIENCE: dict[Accelerator, float] = {"kvm": 8.0, "hvf": 8.0, "tcg": 120.0}

_KVM = Path("/dev/kvm")
_RAM_MIB = 256
_OUTPUT_LIMIT = 64 * 1024  # bytes of a console that are looked at


@dataclass(frozen=True)
class Found:
    accelerator: Accelerator
    detail: str  # a clause: what else was tried, and why it is not that


def probe(image: MachineImage, progress: Progress) -> Found:
    """The best accelerator for this image here; from memory, if nothing that it depends on has changed.

    Raises Refused if QEMU is not installed, DeskboxError if no machine boots at all.
    """
    program = find_program(image.arch)
    kernel = [str(image.kernel), str(image.initramfs)]
    known = remembered(image.arch, kernel)
    if known is None:
        progress("finding out how fast a virtual machine can run here")
        known = _probe(image, program)
        _remember(image.arch, kernel, _fingerprint(image.arch, program, kernel), known)
    return known


def remembered(arch: Architecture, kernel: Sequence[str] | None = None) -> Found | None:
    """What was found with that kernel (None: with any), as far as that still holds. Raises Refused."""
    program = find_program(arch)
    try:
        known = json.loads(_memory(arch).read_text())
        if kernel is not None and known["kernel"] != list(kernel):
            return None
        if known["fingerprint"] != _fingerprint(arch, program, known["kernel"]):
            return None
        return Found(**known["found"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _probe(image: MachineImage, program: str) -> Found:
    with tempfile.TemporaryDirectory(prefix="deskbox-probe-") as directory:
        machine = Machine(
            program=program,
            arch=image.arch,
            accelerator="tcg",
            system=system(),
            kernel=image.kernel,
            initramfs=image.initramfs,
            disks=(),
            directory=Path(directory),
            owner="probe",
            name=secrets.token_hex(4),
            ram=Ram(_RAM_MIB),
            cpus=1,
            console="output",
        )
        return choose(
            candidates(image.arch), lambda accelerator: boots(replace(machine, accelerator=accelerator))
        )


def choose(tried: list[tuple[Accelerator, str | None]], boots: Callable[[Accelerator], str | None]) -> Found:
    """The first one with which a machine boots. `tried`: each with why it is out of the question, or None."""
    reasons: list[str] = []
    for accelerator, obstacle in tried:
        reason = obstacle or boots(accelerator)
        if reason is None:
            return Found(accelerator, "; ".join(reasons))
        reasons.append(f"{accelerator}: {reason}")
    raise DeskboxError(f"No virtual machine boots on this computer ({'; '.join(reasons)}).")


def candidates(arch: str) -> list[tuple[Accelerator, str | None]]:
    """What there is on this system, the fastest first, each with why it can't be used, if that is plain."""
    fast: Accelerator = "kvm" if system() == "linux" else "hvf"
    return [(fast, _obstacle(fast, arch)), ("tcg", None)]


def _obstacle(accelerator: Accelerator, arch: str) -> str | None:
    try:
        same = architecture(platform.machine()) == arch
    except InvalidInput:
        same = False
    if not same:
        return f"this computer is no {arch}"
    if accelerator == "kvm" and not _KVM.exists():
        return f"there is no {_KVM}"
    if accelerator == "kvm" and not os.access(_KVM, os.R_OK | os.W_OK):
        return f"this user may not use {_KVM} (the group kvm may)"
    return None


def boots(machine: Machine, patience: float | None = None) -> str | None:
    """Start the machine and wait for its word. None: it came; else why not, as a clause. Leaves nothing."""
    patience = patience or PATIENCE[machine.accelerator]
    secret = secrets.token_hex(8)
    words = command(replace(machine, kernel_words=(f"deskbox.probe={secret}",)))
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        return _await(process, f"reached {secret}".encode(), patience)
    finally:
        process.kill()
        process.communicate()


def _await(process: subprocess.Popen[bytes], wanted: bytes, patience: float) -> str | None:
    assert process.stdout is not None
    deadline = time.monotonic() + patience
    seen = b""
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([process.stdout], [], [], left)
        data = os.read(process.stdout.fileno(), 4096) if ready else b""
        seen = (seen + data)[-_OUTPUT_LIMIT:]
        if wanted in seen:
            return None
        if ready and not data:
            return f"it ended early, and said: {_last_words(seen)}"
    return f"no kernel boots within {patience:g} s"


def _last_words(seen: bytes) -> str:
    lines = seen.decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[-200:].rstrip(".") if lines else "nothing"


# --- memory ----------------------------------------------------------------------------------------------
def system() -> System:
    """What this computer runs."""
    return "darwin" if sys.platform == "darwin" else "linux"


def _memory(arch: Architecture) -> Path:
    return cache_dir() / f"accelerator-{arch}.json"


def _fingerprint(arch: Architecture, program: str, kernel: Sequence[str]) -> str:
    """What the answer depends on: the kernel's files, QEMU, this computer's kernel, its KVM."""
    try:
        status = _KVM.stat()  # made anew at each boot, and changed by whoever gives access to it
        device = f"{status.st_rdev} {status.st_ino} {status.st_ctime_ns} {os.access(_KVM, os.R_OK | os.W_OK)}"
    except OSError:
        device = "none"
    files = [f"{file} {os.stat(file).st_size} {os.stat(file).st_mtime_ns}" for file in kernel]
    text = "\n".join([arch, identity(Path(program)), device, *os.uname(), *files])
    return hashlib.sha256(text.encode()).hexdigest()


def _remember(arch: Architecture, kernel: Sequence[str], fingerprint: str, found: Found) -> None:
    memory = _memory(arch)
    partial = memory.with_name(f"{memory.name}.{os.getpid()}")
    partial.write_text(json.dumps({"kernel": kernel, "fingerprint": fingerprint, "found": asdict(found)}))
    partial.replace(memory)
