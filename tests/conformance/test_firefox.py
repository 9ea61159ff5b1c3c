"""How Firefox is set up in the guest: sandboxed, silent, at rest, and in sight.

- it asks for nothing that no page and no person asked for: `test_nothing_is_fetched_uninvited`
- its own sandbox is whole, though it runs in a container: `test_pages_are_in_a_sandbox_of_their_own`
- blinking and gliding keep a screen from ever being at rest: `test_a_caret_does_not_blink`, `..._motion`
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import pytest
from PIL import Image, ImageChops
from tests.support.apps import editor
from tests.support.guests import backend
from tests.support.timing import emulated, eventually

from deskbox.calls import ExecResult
from deskbox.desktop import Desktop
from deskbox.errors import Refused
from deskbox_guest.protocol import Settle

pytestmark = pytest.mark.slow("qemu")

# A second Firefox, with the same settings, a new profile and a screen of its own, that writes down whom it
# asks for what.
PROBE = """
mkdir /tmp/probe-profile
Xvfb :9 -nolisten tcp &
until [ -S /tmp/.X11-unix/X9 ]; do sleep 0.1; done
export MOZ_LOG=sync,timestamp,nsHttp:3,nsHostResolver:5 MOZ_LOG_FILE=/tmp/probe DISPLAY=:9
export DBUS_SESSION_BUS_ADDRESS=disabled:
timeout 75 firefox-esr --new-instance --profile /tmp/probe-profile http://invited.test/
echo "ended with $?"
kill %1
"""
EDITOR = (300, 300)  # a screen pixel that the editor covers
# For each process that shows pages: how many system call filters it has, and where it differs from ours.
SANDBOX = r"""
import json, os
facts = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if "-isForBrowser" not in open(f"/proc/{pid}/cmdline").read() or int(pid) == os.getpid():
            continue
        status = dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status") if ":\t" in line)
        link = lambda name, pid=pid: os.readlink(f"/proc/{pid}/{name}")
        facts.append({
            "filters": int(status["Seccomp_filters"]),
            "capabilities": status["CapEff"].strip(),
            "own": [name for name in ("ns/user", "ns/net", "ns/ipc", "root")
                    if link(name) != os.readlink(f"/proc/self/{name}")],
        })
    except FileNotFoundError:
        pass
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def own(state_dir: object) -> Iterator[Desktop]:
    """A desktop of this module, in which the probe runs meanwhile."""
    with Desktop.launch() as desktop:
        yield desktop


@pytest.fixture(scope="module", autouse=True)
def probe(own: Desktop) -> Iterator[Future[ExecResult]]:
    ended = Event()
    with ThreadPoolExecutor() as pool:
        yield pool.submit(own.exec, ["sh", "-c", PROBE], timeout=120, cancelled=ended.is_set)
        ended.set()


def show(desktop: Desktop, title: str, body: str) -> None:
    desktop.write_file("page.html", f"<title>{title}</title>{body}".encode())
    desktop.open_url(f"file://{desktop.facts().home}/page.html")
    eventually(lambda: title in first_title(desktop), within=20)
    desktop.step(settle="wait" if emulated() else None)


def first_title(desktop: Desktop) -> str:
    return next((window.title for window in desktop.windows() if window.app == "firefox-esr"), "")


def picture(desktop: Desktop) -> Image.Image:
    return Image.open(io.BytesIO(desktop.screenshot(cursor=False, settle=Settle()))).convert("RGB")


def test_pages_are_in_a_sandbox_of_their_own(own: Desktop) -> None:
    show(own, "a page", "")
    facts = json.loads(own.exec(["python3", "-c", SANDBOX]).stdout)
    assert facts
    for page in facts:
        # In a machine of its own a guest has no filter around it, but a kernel.
        assert page["filters"] >= (1 if backend() == "qemu" else 2), "Firefox's own, on top of the guest's"
        assert page["capabilities"] == "0000000000000000"
        assert page["own"] == ["ns/user", "ns/net", "ns/ipc", "root"]


def test_policies_are_in_force(own: Desktop) -> None:
    settings = own.read_file(".config/mozilla/deskbox/prefs.js").decode()
    assert 'user_pref("browser.policies.applied", true);' in settings


def test_a_caret_does_not_blink(own: Desktop) -> None:
    show(own, "a field", "<textarea autofocus rows=20 cols=60>some text</textarea>")
    first = picture(own)
    # Longer than a caret's usual half period, and than the settling that precedes either picture.
    own.step(settle=Settle(quiet=1.5, cap=5))
    assert ImageChops.difference(first, picture(own)).getbbox() is None


def test_pages_are_asked_for_less_motion(own: Desktop) -> None:
    script = "document.title = `motion ${matchMedia('(prefers-reduced-motion: reduce)').matches}`"
    show(own, "motion true", f"<script>{script}</script>")


def test_a_page_comes_to_the_front(own: Desktop) -> None:
    with editor(own):
        covered = picture(own).getpixel(EDITOR)
        show(own, "in front", "<body style='background:#107010'>")
        eventually(lambda: any(window.active for window in own.windows() if window.app == "firefox-esr"))
        assert covered != (0x10, 0x70, 0x10)
        assert picture(own).getpixel(EDITOR) == (0x10, 0x70, 0x10)


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "about:config", "data:text/html,x", "/etc/passwd", ""]
)
def test_what_is_no_page_is_refused(own: Desktop, url: str) -> None:
    before = own.windows()
    with pytest.raises(Refused, match="must begin with http://"):
        own.open_url(url)
    assert own.windows() == before


def test_the_browser_is_there_again_after_the_message_bus_was_lost(own: Desktop) -> None:
    """Firefox ends with its bus, and hands URLs over by it."""
    show(own, "before", "")
    own.exec(["pkill", "-KILL", "dbus-daemon"])
    eventually(lambda: first_title(own) == "")
    show(own, "after", "")
    show(own, "handed over", "")


@pytest.mark.parametrize(
    ("button", "app"),
    [(50, "firefox-esr"), (150, "L3afpad"), (250, "XTerm")],
    ids=["browser", "editor", "terminal"],
)
def test_the_bar_starts_programs(own: Desktop, button: int, app: str) -> None:
    own.exec(["pkill", "-f", "firefox-esr --profile|l3afpad|xterm"])
    eventually(lambda: own.windows() == [])
    own.step(f"mousemove {button} {own.size[1] - 20} click 1")
    eventually(lambda: [window.app for window in own.windows()] == [app], within=20)


@pytest.mark.slow("bwrap", "qemu")  # the same browser with the same profile everywhere
def test_nothing_is_fetched_uninvited(own: Desktop, probe: Future[ExecResult]) -> None:
    """In more than a minute: what a browser does behind its user's back, it does by then."""
    assert b"ended with 124" in probe.result().stdout, "it ran for all of its time"
    log = own.read_file("/tmp/probe.moz_log").decode(errors="replace")
    asked = set(re.findall(r"Resolving host \[([^\]]*)\]", log))
    fetched = set(re.findall(r"uri=(\S+)", log))
    assert asked == {"invited.test"}
    assert fetched == {"http://invited.test/", "http://invited.test/favicon.ico"} & fetched
    assert "http://invited.test/" in fetched
