"""What the guest has used: processor time of all that runs in it, and what its agent takes."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_TICKS_MS = 1000 / os.sysconf("SC_CLK_TCK")


def cpu_ms() -> float:
    """Processor time of the whole guest."""
    old = _CGROUP / "cpuacct/cpuacct.usage"  # version 1 counts in nanoseconds
    if old.exists():
        return int(old.read_text()) / 1e6
    fields = (_CGROUP / "cpu.stat").read_text().split()
    return int(fields[fields.index("usage_usec") + 1]) / 1e3


def agent() -> dict[str, float]:
    """The agent's processor time so far, and the memory that it has in use."""
    process = next(path for path in Path("/proc").iterdir() if path.name.isdigit() and _is_agent(path))
    # "pid (name) state …": the times in user and kernel mode are the 14th and 15th field.
    times = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    return {"cpu_ms": sum(map(int, times)) * _TICKS_MS, "rss_mb": int(status["VmRSS"].split()[0]) / 1000}


def _is_agent(process: Path) -> bool:
    try:
        return b"deskbox_guest.agent" in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return False
