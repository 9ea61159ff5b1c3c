"""Firefox in the guest: there at once, hard to lose, and nothing in the way of the page.

What goes wrong elsewhere, and which test watches for it here:

- pages crash because shared memory is small: `test_heavy_pages_do_not_crash`
- first-run pages, privacy notices and other bars cover or shift the page: `test_one_tab_and_...`
- closing the browser ends the container, or it can't be opened again: `test_..._opens_again`
- the lock of a browser that was killed keeps the next one away: `test_a_lock_...`
- two desktops share a profile and only one browses: `test_two_desktops_browse_at_once`
- lock files of an X server that is gone keep the next one away, or those of a living one are removed:
  `test_what_an_x_server_left_behind...`, `test_a_second_session_is_refused`
- processes that have ended are never waited for: `test_nothing_is_left_defunct`
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import docker
import pytest
from PIL import Image
from tests.support.timing import emulated, eventually

from deskbox.backends.base import ImageSpec
from deskbox.backends.docker import DockerBackend, Limits, hardening
from deskbox.desktop import Desktop
from deskbox_guest.protocol import Settle

pytestmark = pytest.mark.slow("qemu")

PROFILE = ".config/mozilla/deskbox"


@pytest.fixture(scope="module")
def own(state_dir: object) -> Iterator[Desktop]:
    """A desktop whose browser may be ended; each test opens the page that it needs."""
    with Desktop.launch() as desktop:
        yield desktop


def shows(desktop: Desktop, title: str) -> bool:
    return any(window.title.startswith(title) for window in desktop.windows())


def open_page(desktop: Desktop, title: str, body: str) -> None:
    desktop.write_file(f"{title}.html", f"<title>{title}</title>{body}".encode())
    desktop.open_url(f"file://{desktop.facts().home}/{title}.html")
    eventually(lambda: shows(desktop, title), within=20)


def plain(colour: str) -> str:
    return f"<body style='background:{colour}'>"


def picture(desktop: Desktop) -> Image.Image:
    return Image.open(io.BytesIO(desktop.screenshot(cursor=False, settle=Settle()))).convert("RGB")


def browsers(desktop: Desktop) -> list[int]:
    """The processes that are a Firefox of their own, not a part of one."""
    found = desktop.exec(["pgrep", "-f", "^firefox-esr --profile"]).stdout.split()
    return [int(pid) for pid in found]


def test_one_tab_and_nothing_else(own: Desktop) -> None:
    """In the browser's first minute: closing its one tab ends it, and a page fills all of its window."""
    boot = own.facts()
    assert [window.title.partition(" ")[0] for window in own.windows()] == ["Deskbox"]
    own.step("key ctrl+w")
    eventually(lambda: own.windows() == [])
    eventually(lambda: browsers(own) == [])
    open_page(own, "green", plain("#107010"))
    [window] = own.windows()
    image = picture(own)
    rows = [
        y
        for y in range(image.height)
        if image.crop((window.x, y, window.x + window.width, y + 1)).getcolors()
        == [(window.width, (0x10, 0x70, 0x10))]
    ]
    # From below the tabs and the address to the end of the window.
    assert rows == list(range(rows[0], window.y + window.height))
    assert rows[0] - window.y < 100
    assert own.facts() == boot


@pytest.mark.parametrize("way", ["tab", "menu", "killed", "terminated"])
def test_a_browser_that_ended_opens_again(own: Desktop, way: str) -> None:
    boot = own.facts()
    open_page(own, "before", plain("#fff"))
    match way:
        case "tab":
            while shows(own, ""):
                own.step("key ctrl+w", settle=Settle())
        case "menu":
            own.step("key ctrl+q")
            if emulated():  # a browser that is asked to end and has not begun to takes the page to its grave
                eventually(lambda: not own.windows())
        case "killed":
            own.exec(["pkill", "-KILL", "-f", "firefox-esr"])
        case _:
            own.exec(["pkill", "-TERM", "-f", "^firefox-esr --profile"])
    open_page(own, f"after-{way}", plain("#fff"))
    assert len(browsers(own)) == 1
    assert own.facts() == boot


@pytest.mark.parametrize("owner", ["1", "999999", "no number"])
def test_a_lock_without_a_browser_stops_nobody(own: Desktop, owner: str) -> None:
    """Process 1 lives and is no browser: after a restart a killed one's number is anybody's."""
    own.exec(["pkill", "-KILL", "-f", "firefox-esr"])
    eventually(lambda: browsers(own) == [])
    own.exec(["ln", "-sfn", f"127.0.0.1:+{owner}", f"{PROFILE}/lock"])
    open_page(own, f"owner-{owner[0]}", plain("#fff"))
    assert len(browsers(own)) == 1


def test_a_browser_that_runs_keeps_its_lock_and_gets_the_page(own: Desktop) -> None:
    open_page(own, "first", plain("#fff"))
    before = browsers(own)
    open_page(own, "second", plain("#fff"))
    assert browsers(own) == before
    assert own.exec(["readlink", f"{PROFILE}/lock"]).stdout.strip().endswith(b":+%d" % before[0])


def test_two_desktops_browse_at_once(own: Desktop, desktop: Desktop) -> None:
    colours = {own: (0x20, 0x40, 0x60), desktop: (0x60, 0x40, 0x20)}

    def browse(one: Desktop) -> None:
        for _ in range(3):
            open_page(one, "mine", plain("#{:02x}{:02x}{:02x}".format(*colours[one])))
        assert picture(one).getpixel((640, 400)) == colours[one]

    with ThreadPoolExecutor() as pool:
        list(pool.map(browse, colours))


HEAVY = """<body style="margin:0"><script>
  const sides = [];
  for (let index = 0; index < 16; index++) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 2048;
    canvas.style.width = "150px";
    document.body.append(canvas);
    const pen = canvas.getContext("2d");
    pen.fillStyle = `hsl(${index * 20} 90% 50%)`;
    pen.fillRect(0, 0, 2048, 2048);
    sides.push(pen.getImageData(2047, 2047, 1, 1).data[3]);
  }
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.title = sides.every((alpha) => alpha === 255) ? "heavy: drawn" : "heavy: failed";
  }));
</script>"""


def test_heavy_pages_do_not_crash(own: Desktop) -> None:
    """A quarter of a GB of canvas on one page, in view: as much as all of the shared memory."""
    size = own.exec(["df", "--block-size=1M", "--output=size", "/dev/shm"]).stdout.split()[-1]
    assert size == b"256"
    open_page(own, "heavy", HEAVY)
    eventually(lambda: shows(own, "heavy: drawn"), within=30)
    red, green, blue = picture(own).getpixel((75, 200))  # type: ignore[misc]
    assert (red > 200, green < 40, blue < 40) == (True, True, True)
    open_page(own, "light", plain("#fff"))


def test_a_drag_draws(own: Desktop) -> None:
    open_page(own, "drawing", DRAWING)
    own.step(settle=Settle())
    points = [SimpleNamespace(x=x, y=y) for x, y in ((300, 300), (900, 300), (900, 600))]
    own.computer_driver().drag(SimpleNamespace(type="drag", path=points, keys=None))  # type: ignore[arg-type]
    image = picture(own)
    on_path = [(x, 300) for x in range(310, 890, 10)] + [(900, y) for y in range(310, 590, 10)]
    assert {image.getpixel(point) for point in on_path} == {(0xC0, 0, 0)}
    assert {image.getpixel((x, 450)) for x in range(300, 880, 10)} == {(255, 255, 255)}


DRAWING = """<body style="margin:0;background:#fff;overflow:hidden"><canvas></canvas><script>
  const canvas = document.querySelector("canvas"), pen = canvas.getContext("2d");
  canvas.width = innerWidth; canvas.height = innerHeight;
  pen.lineWidth = 8; pen.strokeStyle = "#c00000";
  canvas.onmousedown = (event) => { pen.beginPath(); pen.moveTo(event.clientX, event.clientY); };
  canvas.onmousemove = (event) => {
    if (event.buttons === 1) { pen.lineTo(event.clientX, event.clientY); pen.stroke(); }
  };
</script>"""


def test_a_second_session_is_refused(own: Desktop) -> None:
    """What it finds belongs to a living X server, so it touches nothing."""
    before = own.exec(["cat", "/tmp/.X0-lock"]).stdout
    second = own.exec(["python3", "-m", "deskbox_guest.session"], timeout=20)
    assert second.exit_code == 2
    assert b"another session is running here" in second.stderr
    assert own.exec(["cat", "/tmp/.X0-lock"]).stdout == before
    own.step("mousemove 5 6 click 1")


# The worst that a start can find: a socket on which nobody listens, and a lock whose number is alive.
LEFT_BEHIND = """
mkdir -m 1777 /tmp/.X11-unix && echo '         1' > /tmp/.X0-lock
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/tmp/.X11-unix/X0")'
exec python3 -m deskbox_guest.session
"""
ASK = "from Xlib.display import Display; print(Display(':0').screen().width_in_pixels)"


@pytest.mark.backends("docker")  # elsewhere a start finds nothing: what it could find is made anew
def test_what_an_x_server_left_behind_stops_nobody(state_dir: object) -> None:
    image = DockerBackend().prepare(ImageSpec(), lambda _: None)
    guest: Any = docker.from_env().containers.run(
        image,
        entrypoint=["dumb-init", "--", "sh", "-c", LEFT_BEHIND],
        environment={"DESKBOX_URL": "", "DESKBOX_SIZE": "640x480"},
        detach=True,
        **hardening(Limits(open_files=False)),
    )
    try:
        eventually(lambda: guest.exec_run(["python3", "-c", ASK]).output == b"640\n")
    finally:
        guest.remove(force=True)


def test_nothing_is_left_defunct(own: Desktop) -> None:
    """After browsers, commands and viewers that were killed in other tests, and these."""
    own.exec(["sh", "-c", "sleep 20 & sleep 20"], timeout=0.2)
    with own.open_view() as view:
        view.recv(12)
        own.exec(["pkill", "-KILL", "-x", "x11vnc"])
    eventually(lambda: b"Z" not in own.exec(["ps", "-eo", "stat="]).stdout)
