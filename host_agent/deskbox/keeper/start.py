"""The start of a guest, which takes place beside that of its keeper: this imports no more than it needs."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import TypeVar

from deskbox import backends, registry

# The signals that ask a keeper to end.
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_INTERVAL_S = 0.0002  # for which a thread of Python keeps others waiting; else it is 5 ms

T = TypeVar("T")


class Start:
    """A guest that is being started, in a thread."""

    def __init__(self, home: registry.Home, record: registry.DesktopRecord) -> None:
        self.began = time.monotonic()
        # Imported first: beside what the main thread imports next it would take twice as long.
        self._kind = backends.kind(record.backend)
        self._home = home
        self._record = record
        self._backend: backends.Backend | None = None
        self._guest: backends.Guest | None = None
        self._error: BaseException | None = None
        self._made = threading.Event()
        self._over = threading.Event()
        # The main thread imports meanwhile. Each file that this one opens would wait for it as long as that.
        self._usual_interval = sys.getswitchinterval()
        sys.setswitchinterval(_INTERVAL_S)
        threading.Thread(target=self._run, name="start", daemon=True).start()

    def backend(self) -> backends.Backend:
        """What is to run the guest, as soon as it is there. Raises what `backends.create` does."""
        self._made.wait()
        return self._found(self._backend)

    def guest(self) -> backends.Guest:
        """The guest, as soon as it has started. Raises what `Backend.start` does."""
        self._over.wait()
        return self._found(self._guest)

    def end(self) -> backends.Backend | None:
        """Wait until it has started or failed; what has run it, if anything."""
        self._over.wait()
        return self._backend

    def _found(self, result: T | None) -> T:
        if result is None:
            assert self._error is not None
            raise self._error
        return result

    def _run(self) -> None:
        try:
            self._backend = self._kind()
            self._made.set()
            self._guest = self._backend.start(_spec(self._home, self._record))
        except BaseException as error:
            self._error = error
            self._made.set()
        sys.setswitchinterval(self._usual_interval)
        self._over.set()
        # What is tied to its parent is tied to the thread that has started it, which has to stay.
        threading.Event().wait()


def _spec(home: registry.Home, record: registry.DesktopRecord) -> backends.GuestSpec:
    snapshot = None
    if record.snapshot:
        from deskbox import snapshots  # most desktops are started without one

        snapshot = snapshots.find(record.snapshot).path
    return backends.GuestSpec(
        name=record.name,
        size=record.size,
        url=record.url,
        engine=record.engine,
        directory=home.guest_dir,
        owner=registry.state_id(),
        image=record.image,
        snapshot=snapshot,
    )
