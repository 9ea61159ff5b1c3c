"""Watching a real desktop: the page in a real browser, and an independent VNC client."""

from __future__ import annotations

import base64
import contextlib
import io
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image, ImageChops, ImageStat
from tests.support.chromium import Page, chromium

from deskbox import Desktop
from deskbox_guest.protocol import Settle

WITNESS = (
    "<title>quiet</title><body style='background:#{color};margin:0;height:100vh' "
    "onkeydown='document.title=`key`' onmousedown='document.title=`click`' "
    "onmousemove='document.title=`move`'>"
)
LIVE = "document.body && document.body.dataset.state === 'live'"


@pytest.fixture
def watching(desktop: Desktop) -> Iterator[Page]:
    """A browser that watches the desktop."""
    with chromium() as browser:
        page = browser.page()
        page.goto(desktop.view_url())
        page.wait_for(LIVE)
        yield page


def show(desktop: Desktop, color: str) -> None:
    """Show a page of that color, that tells in its title what it has been done to."""
    page = f"{desktop.facts().home}/witness-{color}.html"
    desktop.write_file(page, WITNESS.format(color=color).encode())
    desktop.step("mousemove 640 0")
    desktop.open_url(f"file://{page}")
    eventually(lambda: title(desktop) == "quiet" and middle(desktop.screenshot()) == rgb(color))
    desktop.step(settle=Settle())


def title(desktop: Desktop) -> str:
    titles = [window.title for window in desktop.windows() if "Firefox" in window.title]
    return titles[0].split(" — ")[0] if titles else ""


def rgb(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color))


def middle(png: bytes) -> tuple[int, ...]:
    image = Image.open(io.BytesIO(png)).convert("RGB")
    pixel = image.getpixel((image.width // 2, image.height // 2))
    assert isinstance(pixel, tuple)
    return pixel


def canvas(page: Page) -> bytes:
    """What the page shows, in pixels of the desktop's screen."""
    url = page.evaluate("document.querySelector('#screen canvas')?.toDataURL('image/png') ?? ''")
    return base64.b64decode(url.partition(",")[2])


def same_picture(seen: bytes, real: bytes) -> bool:
    one, two = (Image.open(io.BytesIO(png)).convert("RGB") for png in (seen, real))
    assert one.size == two.size
    # VNC's JPEG is not exact; another picture, a shift or a wrong scale is much further away.
    difference = ImageChops.difference(one, two)
    return max(ImageStat.Stat(difference).mean) < 1.5


def eventually(condition: Callable[[], bool], within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def test_the_page_shows_the_desktop(desktop: Desktop, watching: Page) -> None:
    for color in ("e0218a", "1d7a46"):
        show(desktop, color)
        eventually(lambda color=color: near(middle(canvas(watching)), rgb(color)))  # type: ignore[misc]
        # VNC does not say when a picture is whole.
        eventually(lambda: same_picture(canvas(watching), desktop.screenshot()))
    assert watching.evaluate("document.title") == f"{desktop.name} · Deskbox"
    assert watching.evaluate("document.getElementById('size').textContent") == "{} × {}".format(*desktop.size)
    assert watching.events == []  # no error, nothing that the security policy had to block


def near(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    return all(abs(a - b) <= 6 for a, b in zip(one, two, strict=True))


def test_the_picture_fits_the_window(watching: Page) -> None:
    box = watching.evaluate(
        "(r => [r.width / r.height, r.left >= 0, r.right <= innerWidth, r.bottom <= innerHeight])"
        "(document.querySelector('#screen canvas').getBoundingClientRect())"
    )
    assert box[0] == pytest.approx(1.6, rel=0.01)
    assert box[1:] == [True, True, True]


def test_input_to_the_page_reaches_nothing(desktop: Desktop, watching: Page) -> None:
    show(desktop, "204080")
    pointer = desktop.step().result.pointer
    for kind in ("mousePressed", "mouseReleased", "mouseMoved"):
        watching.call("Input.dispatchMouseEvent", type=kind, x=500, y=400, button="left", clickCount=1)
    for kind in ("keyDown", "keyUp"):
        watching.call("Input.dispatchKeyEvent", type=kind, key="a", text="a", code="KeyA")
    time.sleep(0.5)  # what must not come has no event
    assert title(desktop) == "quiet"
    assert desktop.step().result.pointer == pointer


def test_it_comes_back_when_x11vnc_is_killed(desktop: Desktop, watching: Page) -> None:
    assert desktop.exec(["pkill", "-KILL", "-x", "x11vnc"]).exit_code == 0
    watching.wait_for(f"!({LIVE})", within=3)
    desktop.step("mousemove 10 10")
    assert watching.wait_for(LIVE, within=5) < 5
    eventually(lambda: same_picture(canvas(watching), desktop.screenshot()))


def test_a_link_works_once_and_nothing_works_without(desktop: Desktop) -> None:
    url = desktop.view_url()
    assert get(url).startswith("HTTP/1.1 303 ")
    assert get(url).startswith("HTTP/1.1 403 ")
    other = desktop.view_url()
    port = urlsplit(url).port
    assert get(other, host=f"evil.example:{port}").startswith("HTTP/1.1 403 ")
    assert get(f"http://127.0.0.1:{port}/").startswith("HTTP/1.1 403 ")
    answer = get(other)
    assert answer.startswith("HTTP/1.1 303 ")
    base, cookie = re.findall(r"^(?:Location|Set-Cookie): ([^;\r]+)", answer, re.M)
    handshake = (
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol: binary",
    )
    stream, mine = f"http://127.0.0.1:{port}{base}stream", f"http://127.0.0.1:{port}"
    allowed = (f"Cookie: {cookie}", f"Origin: {mine}")
    assert get(stream, *handshake, *allowed).startswith("HTTP/1.1 101 ")
    assert get(stream, *handshake, allowed[1]).startswith("HTTP/1.1 403 ")
    assert get(stream, *handshake, allowed[0], "Origin: http://evil.example").startswith("HTTP/1.1 403 ")


def get(url: str, *headers: str, host: str = "") -> str:
    """The head of the answer to a GET."""
    parts = urlsplit(url)
    assert parts.hostname
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=10) as connection:
        lines = [f"GET {path} HTTP/1.1", f"Host: {host or parts.netloc}", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            data = connection.recv(4096)
            assert data
            head += data
    return head.decode(errors="replace")


def test_it_listens_on_the_loopback_address_only(desktop: Desktop) -> None:
    port = urlsplit(desktop.view_url()).port
    assert port is not None
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()
    ]
    listening = [line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")]
    assert listening == [f"0100007F:{port:04X}"]


def test_the_guest_gets_no_port_and_keeps_its_keyboard(desktop: Desktop) -> None:
    def keyboard() -> bytes:
        return desktop.exec(["sh", "-c", "xkbcomp -xkb $DISPLAY - 2>/dev/null"]).stdout

    before = keyboard()
    assert b"xkb_keymap" in before
    with contextlib.closing(desktop.open_view()) as view:
        assert view.recv(12) == b"RFB 003.008\n"
        assert keyboard() == before
        ports = desktop.exec(["sh", "-c", "cat /proc/net/tcp /proc/net/tcp6"]).stdout.decode().splitlines()
        assert [line for line in ports if line.split()[3] == "0A"] == []
    assert keyboard() == before


@contextmanager
def bridge(desktop: Desktop) -> Iterator[int]:
    """Lets a VNC client that wants a port reach the desktop: one TCP connection, one view."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def carry(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def serve() -> None:
            with contextlib.suppress(OSError):
                client, _ = server.accept()
                with client, contextlib.closing(desktop.open_view()) as view:
                    back = threading.Thread(target=carry, args=(view, client))
                    back.start()
                    carry(client, view)
                    back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join()


def vncdo(port: int, *commands: str) -> None:
    program = Path(sys.executable).with_name("vncdo")
    subprocess.run(
        [program, "--server", f"127.0.0.1::{port}", "--timeout", "30", "--nocursor", *commands],
        check=True,
        timeout=60,
        capture_output=True,
    )


def test_an_independent_client_sees_the_same(desktop: Desktop, tmp_path: Path) -> None:
    show(desktop, "c06010")
    with bridge(desktop) as port:
        vncdo(port, "capture", str(tmp_path / "vnc.png"))
    assert same_picture((tmp_path / "vnc.png").read_bytes(), desktop.screenshot())


def test_an_independent_client_can_do_nothing(desktop: Desktop) -> None:
    show(desktop, "306090")
    pointer = desktop.step().result.pointer
    clicks = ["move", "300", "400", "pause", "0.2", "click", "1"]
    keys = ["type", "abc", "key", "ctrl-w", "pause", "0.5"]
    with bridge(desktop) as port:
        vncdo(port, *clicks, *keys)
        assert not desktop.held_inputs()
    assert title(desktop) == "quiet"
    assert desktop.step().result.pointer == pointer
    # The witness would have told.
    desktop.step("mousemove 300 400 click 1", settle=Settle())
    eventually(lambda: title(desktop) == "click")


def test_viewers_come_and_go_and_leave_no_process(desktop: Desktop) -> None:
    def processes() -> int:
        script = "grep -l '^x11vnc$' /proc/[0-9]*/comm 2>/dev/null | wc -l"
        return int(desktop.exec(["sh", "-c", script]).stdout)

    eventually(lambda: processes() == 0)
    views = [desktop.open_view() for _ in range(3)]
    assert all(view.recv(12) == b"RFB 003.008\n" for view in views)
    assert processes() == 3
    for view in views:
        view.close()
    eventually(lambda: processes() == 0)


def test_a_viewer_that_reads_nothing_holds_up_nobody(desktop: Desktop) -> None:
    show(desktop, "000000")
    with contextlib.closing(desktop.open_view()) as lazy:
        lazy.recv(12)
        lazy.sendall(b"RFB 003.008\n")
        assert lazy.recv(2) == b"\x01\x01"
        lazy.sendall(b"\x01")
        lazy.recv(4)
        lazy.sendall(b"\x01")
        lazy.recv(24, socket.MSG_WAITALL)
        width, height = desktop.size
        everything = b"\x03\x00\x00\x00\x00\x00" + width.to_bytes(2, "big") + height.to_bytes(2, "big")
        lazy.sendall(everything * 50)  # 4 MB each, never read
        time.sleep(1)
        slowest = 0.0
        for step in range(20):
            began = time.monotonic()
            desktop.step(f"mousemove {100 + step} 200")
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.5
