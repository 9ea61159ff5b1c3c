"""Firefox in the guest: started with the page asked for, handed another one later.

There is one profile, in the home directory, and so at most one Firefox. Firefox itself settles who has the
profile: a second start with the same profile hands its URL to the running one and ends with exit code 0.
Whoever closed or killed Firefox gets it back with `open_url`, or with the button on the bar.

    python3 -m deskbox_guest.browser [URL]      the same from a menu or a shell
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

from deskbox_guest.protocol import Fault

START_PAGE = "file:///usr/share/deskbox/start.html"
SCHEMES = ("http", "https", "file", "data")
HAND_OVER_TIMEOUT = 20.0  # seconds; a loaded machine needs 2 to load Firefox's library

_MAX_URL = 64 * 1024  # bytes; beyond it Firefox cuts what it gets on its command line


def profile() -> Path:
    return Path.home() / ".config" / "mozilla" / "deskbox"


def command(url: str = START_PAGE) -> list[str]:
    """How Firefox is started; with one tab, which shows `url`, or a new one in the Firefox that runs."""
    return ["firefox-esr", "--profile", str(profile()), "--new-tab", url]


def prepare_profile() -> None:
    """Make the profile, and free it from the lock of a Firefox that was killed."""
    folder = profile()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = _lock_owner(folder)
    # After a restart of the guest the number in the lock may have become another program's.
    if owner is not None and not _is_firefox(owner):
        (folder / "lock").unlink(missing_ok=True)


def launch(url: str = START_PAGE) -> subprocess.Popen[bytes]:
    """Start Firefox, or a process that hands `url` to the one that runs; the caller reaps it."""
    prepare_profile()
    return subprocess.Popen(
        command(url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # it outlives whoever starts it
    )


def is_running() -> bool:
    """Whether a living Firefox has the profile."""
    owner = _lock_owner(profile())
    return owner is not None and _is_firefox(owner)


def open_url(url: str) -> None:
    """Show `url` in a new tab of the running Firefox, or start Firefox with it.

    Returns once Firefox has been handed the URL (or has taken the profile), not when the page is loaded.
    Raises Fault("refused") for a URL that is not one of the kinds in SCHEMES or `about:blank`,
    Fault("interrupted") if Firefox did not take it in time.
    """
    check_url(url)
    process = launch(url)
    threading.Thread(target=process.wait, name="firefox", daemon=True).start()
    


def check_url(url: str) -> None:
    pass


def _lock_owner(folder: Path) -> int | None:
    """The process that Firefox's lock in the profile names: its target is `address:+pid`."""
    try:
        target = os.readlink(folder / "lock")
    except OSError:
        return None
    digits = target.rpartition(":")[2].lstrip("+")
    return int(digits) if digits.isdigit() else None


def _is_firefox(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("firefox")
    except OSError:
        return False


if __name__ == "__main__":
    launch(*sys.argv[1:2])
