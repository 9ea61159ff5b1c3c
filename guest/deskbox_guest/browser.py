"""Firefox in the guest: started with the page asked for, handed another one later.

There is one profile, in the home directory, and so at most one Firefox. Firefox itself settles who has the
profile: a second start with the same profile hands its URL to the running one and ends with exit code 0.
Whoever closed or killed Firefox gets it back with `open_url`, or with the button on the bar.

    python3 -m deskbox_guest.browser [URL]      the same from a menu or a shell
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from deskbox_guest.protocol import Fault

if TYPE_CHECKING:  # the session imports this module and has no time for the X library
    from deskbox_guest.x11.display import Link

START_PAGE = "file:///usr/share/deskbox/start.html"
MAX_URL = 64 * 1024  # bytes: what surely fits on a command line
OPEN_WITHIN = 20.0  # seconds; it takes 0.1 s, and a few when Firefox has to start on a loaded machine

_SEED = Path("/usr/share/deskbox/profile")  # made when the image was built
_ACCEPTED = "a URL must begin with http://, https:// or file:///, or be about:blank"


def profile() -> Path:
    return Path.home() / ".config" / "mozilla" / "deskbox"


def command(url: str = START_PAGE) -> list[str]:
    """How Firefox is started; with one tab, which shows `url`, or a new one in the Firefox that runs."""
    return ["firefox-esr", "--profile", str(profile()), "--new-tab", url]


def prepare_profile() -> None:
    """Make the profile, and free it from the lock of a Firefox that was killed."""
    folder = profile()
    if not folder.exists():
        _plant(folder)
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
    from deskbox_guest.x11.display import Link

    check_url(url)
    deadline = time.monotonic() + OPEN_WITHIN
    link = Link()
    try:
        while True:
            owner = _steady_owner(link, deadline)
            process = launch(url)
            if not _ended_well(process, deadline):
                threading.Thread(target=process.wait, name="firefox", daemon=True).start()
                return  # it has become the Firefox
            # Handed over; but a Firefox whose last window was being closed has taken the URL to its grave.
            if owner is not None and _steady_owner(link, deadline) == owner:
                return
    finally:
        link.close()


def _steady_owner(link: Link, deadline: float) -> int | None:
    """The running Firefox, once it has a window: without one it is still starting, or about to end."""
    while True:
        owner = _lock_owner(profile())
        if owner is None or not _is_firefox(owner):
            return None
        if _has_window(link, owner):
            return owner
        _check(deadline)
        _wait_for_end(owner, 0.02)


def _ended_well(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Wait until the started process has handed its URL over (True) or has become the Firefox (False)."""
    # The end of a process is an event; that it has locked the profile shows only in the profile.
    while not _wait_for_end(process.pid, 0.02):
        if _lock_owner(profile()) == process.pid:
            return False
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            _check(deadline)
    status = process.wait()
    if status:
        raise Fault("interrupted", f"Firefox did not start: it ended with exit code {status}")
    return True


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Fault(
            "interrupted",
            f"Firefox did not take the URL within {OPEN_WITHIN:.0f} s and may be hanging: end it "
            "(`pkill -9 firefox`) and open the URL again",
        )


def _wait_for_end(pid: int, seconds: float) -> bool:
    """True if the process has ended, or does within that time."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        # Older kernels, such as 6.12, say EINVAL of one that has ended while others are in its session.
        if error.errno not in (errno.ESRCH, errno.EINVAL):
            raise
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)


def _has_window(link: Link, pid: int) -> bool:
    from Xlib.error import XError

    from deskbox_guest.x11.windows import client_pid

    windows = link.cardinals(link.root, "_NET_CLIENT_LIST")
    try:
        return any(client_pid(link, window) == pid for window in windows)
    except XError:  # one of them went away meanwhile
        return False


def check_url(url: str) -> None:
    """Raise Fault("refused") unless `url` is one that a person would open: a page or a file."""
    if url == "about:blank":
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    where = {"http": parts.netloc, "https": parts.netloc, "file": not parts.netloc and parts.path}
    if not where.get(parts.scheme):
        raise Fault("refused", f"can't open {_shortened(url)}: {_ACCEPTED}")
    if not url.isprintable() or " " in url:
        raise Fault("refused", f"can't open {_shortened(url)}: write spaces and control characters %-encoded")
    if len(url.encode()) > MAX_URL:
        raise Fault("refused", f"can't open a URL of {len(url.encode())} bytes: at most {MAX_URL} are taken")


def _shortened(url: str) -> str:
    return repr(url if len(url) <= 100 else url[:97] + "...")


def _plant(folder: Path) -> None:
    """Make the profile from the image's seed: what Firefox has compiled there need not be compiled again."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as half_made:
        new = Path(half_made) / "profile"
        if _SEED.exists():
            shutil.copytree(_SEED, new)
        else:
            new.mkdir()
        new.chmod(0o700)
        with contextlib.suppress(FileExistsError, NotADirectoryError):
            new.rename(folder)


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
