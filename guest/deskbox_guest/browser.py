"""Firefox in the guest: started with the page asked for, handed another one later.

There is one profile, in the home directory, and so at most one Firefox. Firefox itself settles who has the
profile: a second start with the same profile hands its URL to the running one and ends with exit code 0.
Whoever closed or killed Firefox gets it back with `open_url`, or with the button on the bar.

    python3 -m deskbox_guest.browser [URL]      the same from a menu or a shell
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from deskbox_guest.protocol import Fault

START_PAGE = "file:///usr/share/deskbox/start.html"
MAX_URL = 64 * 1024  # bytes: what surely fits on a command line
HAND_OVER_TIMEOUT = 15.0  # seconds; it takes 0.1 s, and 2 s when Firefox has to be read from disk

_ACCEPTED = "a URL must begin with http://, https://, file:/// or data:, or be about:blank"


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

    Returns once a Firefox has the URL, not when the page is loaded.
    Raises Fault("refused") as `check_url` does, Fault("interrupted") if Firefox did not take it in time.
    """
    check_url(url)
    process = launch(url)
    if not _was_taken(process):
        process.kill()
        process.wait()
        raise Fault(
            "interrupted",
            f"Firefox did not take the URL within {HAND_OVER_TIMEOUT:.0f} s: it may be hanging; end it "
            "(`pkill -9 firefox`) and open the URL again",
        )
    threading.Thread(target=process.wait, name="firefox", daemon=True).start()


def check_url(url: str) -> None:
    """Raise Fault("refused") unless `url` is one that a person would open: a page or a file."""
    if url == "about:blank":
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    where = {"http": parts.netloc, "https": parts.netloc, "file": not parts.netloc and parts.path}
    if not where.get(parts.scheme, parts.scheme == "data"):
        raise Fault("refused", f"can't open {_shortened(url)}: {_ACCEPTED}")
    if not url.isprintable() or " " in url:
        raise Fault("refused", f"can't open {_shortened(url)}: write spaces and control characters %-encoded")
    if len(url.encode()) > MAX_URL:
        raise Fault("refused", f"can't open a URL of {len(url.encode())} bytes: at most {MAX_URL} are taken")


def _was_taken(process: subprocess.Popen[bytes]) -> bool:
    """Wait until the started process has handed its URL over, which ends it, or has become the Firefox."""
    deadline = time.monotonic() + HAND_OVER_TIMEOUT
    ended = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        while time.monotonic() < deadline:
            # The end of a process is an event; that it has locked the profile shows only in the profile.
            if poll.poll(20):
                return process.wait() == 0
            if _lock_owner(profile()) == process.pid:
                return True
    finally:
        os.close(ended)
    return False


def _shortened(url: str) -> str:
    return repr(url if len(url) <= 100 else url[:97] + "...")


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
