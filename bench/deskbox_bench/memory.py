"""How much of the host's memory a guest takes, as the host sees it.

It is the sum, over all processes that make up the guest, of what the kernel calls PSS, the proportional set
size (proc_pid_smaps(5)): pages that one process has alone count whole, a page that n processes have mapped
counts 1/n in each of them, whoever these are. So a page that two guests share is half in the figure of each,
and what is shared shows when there are two: the figures of both together exceed that of one by what the
second one costs.

Which processes these are: those of the PID namespace that the guest's first process is in. Where that is
our own namespace the guest is a virtual machine, and the process is the emulator, which has all of the
guest's memory mapped, as far as the guest has touched it.

What is not in it, since no process has it mapped: the kernel's own memory for the guest, and what the guest
has written to its file systems in memory. In a virtual machine both are the guest's memory, and in it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from deskbox import processes
from deskbox.backends.docker import connect


def of_guest(backend: str, guest_id: str) -> float:
    """MB (of 1,000,000 bytes). Raises PermissionError where only root may see it."""
    first = _first_process(backend, guest_id)
    namespace = processes.namespace(first)
    if namespace == processes.namespace(os.getpid()):
        return of_process(first)
    total = 0.0
    for pid in processes.members(namespace):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            total += of_process(pid)
    return total


def of_process(pid: int) -> float:
    """MB. Raises FileNotFoundError or ProcessLookupError if it has ended, PermissionError as above."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def _first_process(backend: str, guest_id: str) -> int:
    """A guest's id is its container's, or else begins with the number of its process."""
    if backend != "docker":
        return int(guest_id.partition(":")[0])
    with contextlib.closing(connect()) as client:
        return int(client.api.inspect_container(guest_id)["State"]["Pid"])
