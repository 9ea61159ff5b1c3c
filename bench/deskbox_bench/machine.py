"""Where the figures come from."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from deskbox import backends
from deskbox_bench import peers
from deskbox_bench.stage import PACKAGES, Stage

_GUEST_PACKAGES = ("firefox-esr", "xdotool", "xvfb", *PACKAGES)


def facts() -> dict[str, str]:
    """Of the machine itself, and what it has found out about its backends."""
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "cpu": cpus[0] if cpus else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 1e9:.1f} GB",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{f"backend {name}": backends.check(name).found for name in backends.NAMES},
    }


def guest_facts(stage: Stage) -> dict[str, str]:
    """Of the guest that everybody works on."""
    query = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\n", *_GUEST_PACKAGES]
    guest = stage.desktop.exec(query).stdout.decode().splitlines()
    width, height = stage.desktop.size
    return {
        "docker": str(stage.client.version()["Version"]),
        "screen": f"{width}x{height}",
        **dict(line.split(" ", 1) for line in guest),
        **peers.versions(),
    }
