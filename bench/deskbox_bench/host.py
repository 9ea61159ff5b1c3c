"""The machine that desktops are started on: which backends work here, and its page cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deskbox import backends
from deskbox.desktop import Desktop
from deskbox.errors import DeskboxError

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass
class Host:
    backends: tuple[str, ...]  # that have started a desktop here
    progress: Callable[[str], None] = lambda _: None
    left_out: list[str] = field(default_factory=list)  # what could not be measured, and why
    facts: dict[str, str] = field(default_factory=dict)  # about their guests

    def leave_out(self, what: str) -> None:
        if what not in self.left_out:
            self.left_out.append(what)


def find(progress: Callable[[str], None]) -> Host:
    """Try every backend: one that works has started a desktop, and all that a start needs is there."""
    host = Host((), progress)
    for name in backends.NAMES:
        verdict = backends.check(name)
        if not verdict.usable:
            host.leave_out(f"{name}: {verdict.found}")
            continue
        try:
            with Desktop.launch(backend=name, progress=progress) as desktop:
                facts = [f"{what} {fact}" for what, fact in desktop.guest_facts.items()]
        except DeskboxError as error:
            host.leave_out(f"{name}: {error}")
        else:
            host.backends += (name,)
            host.facts[f"guest on {name}"] = ", ".join(facts)
    return host


def drop_page_cache() -> None:
    """Forget all files that were read, and their names: what is used next comes from the disk.

    What a process has mapped stays, and so would what is not on the disk yet: that is written first. Raises
    OSError.
    """
    os.sync()
    _DROP_CACHES.write_text("3")  # see proc_sys_vm(5)
