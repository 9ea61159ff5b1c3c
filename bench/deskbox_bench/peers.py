"""The Python packages of the peers, which run in the guest as their users install them: from PyPI."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from importlib import resources
from pathlib import Path, PurePosixPath

from deskbox.cache import cache_dir
from deskbox.errors import DeskboxError

_LOCK = "peers.lock"


def files() -> dict[PurePosixPath, bytes]:
    """What a directory on the guest's PYTHONPATH must hold. The first time it is downloaded."""
    found: dict[PurePosixPath, bytes] = {}
    for wheel in sorted(_wheels().glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name[-1] != "/" and ".dist-info/" not in name]
            found |= {PurePosixPath(name): archive.read(name) for name in names}
    return found


def versions() -> dict[str, str]:
    return dict(re.findall(r"^(\w+)==(\S+)", _lock().read_text(), re.M))


def _lock() -> Path:
    return Path(str(resources.files("deskbox_bench"))) / _LOCK


def _wheels() -> Path:
    """A directory with a wheel of each package: pip checks the hashes, and makes wheels of pure sources."""
    target = cache_dir() / f"peers-{hashlib.sha256(_lock().read_bytes()).hexdigest()[:12]}"
    if not target.exists():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="partial-") as partial:
            into = Path(partial) / "wheels"
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--require-hashes"]
            command += ["--no-build-isolation", "--wheel-dir", str(into), "--requirement", str(_lock())]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
                raise DeskboxError(
                    "pyautogui and pynput, which the bench compares with, could not be fetched from PyPI "
                    f"nor made into wheels: {reason}"
                )
            into.rename(target)
    return target
