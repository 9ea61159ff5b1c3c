"""A guest whose processors are taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled


@contextmanager
def busy(desktop: Desktop, processes: int = 4) -> Iterator[None]:
    """So many endless loops run in the guest, for as long as the context is open."""
    ended = threading.Event()

    def burn() -> None:
        with suppress(Cancelled):
            desktop.exec(["sh", "-c", "while :; do :; done"], timeout=3600, cancelled=ended.is_set)

    burners = [threading.Thread(target=burn) for _ in range(processes)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        ended.set()
        for burner in burners:
            burner.join()
