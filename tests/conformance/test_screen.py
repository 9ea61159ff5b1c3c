"""Pictures of the screen: what they show is there, at every size, whoever else looks.

What goes wrong elsewhere, and which test watches for it here:

- a picture of a screen that is not painted yet, or of an X server that is gone: `test_the_first_picture...`,
  `test_without_a_screen_there_is_no_picture`
- large screens are scaled behind the caller's back, so that clicks miss: `..._at_every_size`, `..._grid...`
- all callers share one file, and get each other's pictures: `test_callers_do_not_disturb_each_other`
- the pointer is drawn beside where it points: `test_the_pointer_...`
- one capture that fails ends everything: `test_a_picture_is_asked_for_again`
- a viewer's crash takes the input along: `test_a_viewer_that_crashes_harms_nobody`
"""

from __future__ import annotations

import hashlib
import io
import math
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Literal

import pytest
from PIL import Image, ImageChops, ImageStat
from tests.support import xwd
from tests.support.timing import emulated, eventually, patient
from tests.support.tk_witness import only, tk_witness

from deskbox import registry
from deskbox.desktop import Desktop
from deskbox.errors import DeskboxError, ImageTooLarge, InvalidInput, Unavailable
from deskbox_guest.protocol import Frame, Settle

pytestmark = pytest.mark.slow("qemu")

# Reads the whole screen by itself, without the agent's code: prints the hash of its RGB bytes.
CAPTURE = """
import hashlib
from Xlib import X
from Xlib.display import Display
root = Display().screen().root
size = root.get_geometry()
digest = hashlib.sha256()
for y in range(0, size.height, 40):
    rows = min(40, size.height - y)
    data = root.get_image(0, y, size.width, rows, X.ZPixmap, 0xffffffff).data
    rgb = bytearray(size.width * rows * 3)
    rgb[0::3], rgb[1::3], rgb[2::3] = data[2::4], data[1::4], data[0::4]
    digest.update(rgb)
print(digest.hexdigest())
"""

COLOURFUL = """<title>colourful</title><body style="margin:0;height:100vh;font:20px serif;
background:conic-gradient(red,yellow,lime,cyan,blue,magenta,red)">Ελλάδα 日本 👍 The quick brown fox"""


@pytest.fixture(scope="module", params=[(320, 240), (1280, 800), (3840, 2160)], ids=lambda size: f"{size[0]}")
def sized(request: pytest.FixtureRequest, state_dir: object) -> Iterator[tuple[Desktop, bytes]]:
    """A desktop of each size, and its first picture."""
    with Desktop.launch(size=request.param) as desktop:
        yield desktop, desktop.screenshot()


def decode(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def noise(image: Image.Image, other: Image.Image) -> float:
    """Decibels by which the picture exceeds the difference (PSNR)."""
    squares = ImageStat.Stat(ImageChops.difference(image, other)).sum2
    return 10 * math.log10(255**2 * 3 * image.width * image.height / max(1, sum(squares)))


def show(desktop: Desktop, title: str, page: str) -> None:
    desktop.write_file(f"{title}.html", page.encode())
    desktop.open_url(f"file://{desktop.facts().home}/{title}.html")
    eventually(lambda: any(window.title.startswith(title) for window in desktop.windows()))
    desktop.step(settle="wait" if emulated() else "settled")


def test_the_first_picture_shows_something(sized: tuple[Desktop, bytes]) -> None:
    desktop, first = sized
    image = decode(first)
    assert image.size == desktop.size
    assert len(image.getcolors(1 << 24) or []) > 10
    assert any(window.app.startswith("firefox") for window in desktop.windows())


def test_a_picture_is_the_screen_at_every_size(sized: tuple[Desktop, bytes]) -> None:
    desktop, _ = sized
    show(desktop, "colourful", COLOURFUL)

    def same() -> bool:
        one = decode(desktop.screenshot(cursor=False))
        theirs = desktop.exec(["python3", "-c", CAPTURE]).stdout.decode().strip()
        two = decode(desktop.screenshot(cursor=False))
        # A screen that changed in between, such as a caret, proves nothing.
        return one.tobytes() == two.tobytes() and hashlib.sha256(one.tobytes()).hexdigest() == theirs

    eventually(same, within=20)


def test_regions_and_scales_are_exact(sized: tuple[Desktop, bytes]) -> None:
    desktop, _ = sized
    width, height = desktop.size
    whole = decode(desktop.screenshot(cursor=False, settle=Settle()))
    for region in [(0, 0, 1, 1), (width - 1, height - 1, 1, 1), (7, 5, 101, 99), (0, 100, width, 3)]:
        x, y, w, h = region
        part = decode(desktop.screenshot(region=region, cursor=False))
        assert part.size == (w, h)
        assert part.tobytes() == whole.crop((x, y, x + w, y + h)).tobytes()
    for size in [(width // 2, height // 2), (width, height // 3), (101, 77), (1, 1)]:
        assert decode(desktop.screenshot(image_size=size)).size == size
    assert decode(desktop.screenshot(region=(10, 20, 200, 100), image_size=(50, 25))).size == (50, 25)


@pytest.mark.parametrize("image_format", ["jpeg", "webp"])
def test_formats_with_loss_lose_little(
    sized: tuple[Desktop, bytes], image_format: Literal["jpeg", "webp"]
) -> None:
    desktop, _ = sized
    whole = decode(desktop.screenshot(cursor=False, settle=Settle()))
    image = decode(desktop.screenshot(cursor=False, format=image_format))
    assert image.size == desktop.size
    assert noise(image, whole) > 28


def test_a_click_hits_the_grid_at_every_size(sized: tuple[Desktop, bytes]) -> None:
    """Whatever the size of the image that a model gets, a click lands within half a pixel of that image."""
    desktop, _ = sized
    width, height = desktop.size
    driver = desktop.computer_driver()
    with tk_witness(desktop, f"{width - 40}x{height - 100}+10+10") as witness:
        window = witness.window
        for column in (0.05, 0.5, 0.95):
            for row in (0.1, 0.5, 0.9):
                wanted = round(window.x + window.width * column), round(window.y + window.height * row)
                x, y = driver.geometry.to_image(*wanted)
                witness.clear()
                driver.click(SimpleNamespace(type="click", x=x, y=y, button="left", keys=None))  # type: ignore[arg-type]
                [up] = only(witness.saw("mouseup"), "mouseup")
                assert (up["x"], up["y"]) == driver.geometry.to_screen(x, y)
                scale = width / driver.geometry.image[0]
                assert max(abs(up["x"] - wanted[0]), abs(up["y"] - wanted[1])) <= scale / 2 + 1


def test_the_far_corner_can_be_clicked_and_a_word_typed(sized: tuple[Desktop, bytes]) -> None:
    desktop, _ = sized
    width, height = desktop.size
    assert desktop.step(f"mousemove {width - 1} {height - 1} click 1").result.pointer == (
        width - 1,
        height - 1,
    )
    with tk_witness(desktop, "200x160+20+20") as witness:
        desktop.type_text("Größe")
        witness.until(lambda events: [e["text"] for e in only(events, "content")][-1:] == ["Größe"])


def test_xwd_sees_the_same(launch: Callable[..., Desktop]) -> None:
    """A capture of another project's, in the guest."""
    desktop = launch(packages=["x11-apps"])
    show(desktop, "colourful", COLOURFUL)
    while True:
        one = decode(desktop.screenshot(cursor=False))
        dump = desktop.exec(["xwd", "-root", "-silent"], output_limit=8 << 20)
        two = decode(desktop.screenshot(cursor=False))
        if one.tobytes() == two.tobytes():  # nothing moved in between
            break
    assert dump.exit_code == 0, dump.stderr
    assert xwd.parse(dump.stdout).tobytes() == one.tobytes()


FIELD = """<title>field</title><body style="margin:0;background:#808080">
<textarea style="position:fixed;left:100px;top:100px;width:600px;height:300px;border:0;background:#808080">
</textarea>"""


def pointer_box(desktop: Desktop, x: int, y: int) -> tuple[int, int, int, int]:
    """Where a picture with the pointer differs from one without, relative to where it points."""
    desktop.step(f"mousemove {x} {y}", settle=Settle())
    while True:
        without, shown, again = (decode(desktop.screenshot(cursor=cursor)) for cursor in (False, True, False))
        if without.tobytes() == again.tobytes():
            break
    box = ImageChops.difference(without, shown).getbbox()
    assert box is not None
    left, top, right, bottom = box
    return left - x, top - y, right - x, bottom - y


def test_the_pointer_is_drawn_where_it_points(desktop: Desktop) -> None:
    show(desktop, "field", FIELD)
    # The arrow of a page: its tip is at its top left.
    left, top, right, bottom = pointer_box(desktop, 1000, 600)
    assert -2 <= left <= 1
    assert -2 <= top <= 1
    assert right >= 6
    assert bottom >= 10
    # The bar of a field of text: it points with its middle.
    left, top, right, bottom = pointer_box(desktop, 300, 300)
    assert left < 0 < right
    assert top < -3
    assert bottom > 3
    assert abs(top + bottom) <= 4


def test_the_pointer_at_the_edge_is_cut_off(desktop: Desktop) -> None:
    width, height = desktop.size
    for x, y in [(0, 0), (width - 1, height - 1)]:
        desktop.step(f"mousemove {x} {y}")
        assert decode(desktop.screenshot()).size == desktop.size
    left, top, *_ = pointer_box(desktop, width - 1, height - 1)
    assert left <= 0
    assert top <= 0


HALVES = """<title>halves</title><body style="margin:0;height:100vh;
background:linear-gradient(90deg,#c00000 640px,#0000c0 640px)">"""


def test_callers_do_not_disturb_each_other(desktop: Desktop) -> None:
    """Two take pictures, each of its own part in its own size, while a third one types."""
    show(desktop, "halves", HALVES)
    ended = threading.Event()
    wrong: list[str] = []
    taken = [0, 0]

    def watch(index: int, region: tuple[int, int, int, int], size: tuple[int, int], colour: str) -> None:
        expected = Image.new("RGB", size, colour).tobytes()
        with Desktop.attach(desktop.name, observe=True) as observer:
            while not ended.is_set():
                image = decode(observer.screenshot(region=region, image_size=size))
                taken[index] += 1
                if image.size != size or image.tobytes() != expected:
                    wrong.append(f"{image.size} instead of {size}, or not {colour} all over")

    watchers = [
        threading.Thread(target=watch, args=(0, (50, 150, 300, 100), (300, 100), "#c00000")),
        threading.Thread(target=watch, args=(1, (700, 150, 400, 160), (200, 80), "#0000c0")),
    ]
    text = "The quick brown fox, 日本語 and żółw. " * 10
    with tk_witness(desktop, "600x250+100+350") as witness:
        for watcher in watchers:
            watcher.start()
        try:
            for _ in range(5):
                desktop.type_text(text)
        finally:
            ended.set()
            for watcher in watchers:
                watcher.join()
        witness.until(lambda events: [e["text"] for e in only(events, "content")][-1:] == [text * 5])
    assert wrong == []
    assert min(taken) >= 5


def test_a_picture_has_at_most_so_many_bytes(desktop: Desktop) -> None:
    show(desktop, "colourful", COLOURFUL)
    whole = desktop.screenshot(cursor=False, settle=Settle())
    limit = len(whole) // 3
    for _ in range(2):  # the second time nothing has changed
        with pytest.raises(ImageTooLarge, match=f"{limit} are allowed") as caught:
            desktop.screenshot(cursor=False, max_bytes=limit)
        assert caught.value.data == {"bytes": len(whole), "limit": limit, "image_size": list(desktop.size)}
        outcome = desktop.step(frame=Frame(cursor=False, max_bytes=limit, oversize="shrink"))
        size = outcome.result.image_width, outcome.result.image_height
        assert decode(outcome.image).size == size
        assert 0.9 * limit <= len(outcome.image) <= limit
        assert abs(size[1] - size[0] * desktop.size[1] / desktop.size[0]) <= 0.5
    assert desktop.screenshot(cursor=False, max_bytes=len(whole)) == whole
    with pytest.raises(ImageTooLarge, match="even the smallest image, of 64x40"):
        desktop.screenshot(max_bytes=50, oversize="shrink")
    with pytest.raises(InvalidInput, match="a limit of -1 bytes"):
        desktop.screenshot(max_bytes=-1)


def test_what_a_script_did_before_a_picture_that_is_too_large_stays(desktop: Desktop) -> None:
    with pytest.raises(ImageTooLarge):
        desktop.step("mousemove 321 123 keydown shift", frame=Frame(max_bytes=50))
    assert desktop.held_inputs().keys == ("Shift_L",)
    assert desktop.step("keyup shift").result.pointer == (321, 123)


def test_a_viewer_that_crashes_harms_nobody(desktop: Desktop) -> None:
    view = desktop.open_view()
    view.settimeout(10)
    assert view.recv(12) == b"RFB 003.008\n"
    assert desktop.exec(["pkill", "-KILL", "-x", "x11vnc"]).exit_code == 0
    began = time.monotonic()
    assert desktop.step("mousemove 77 88 key Shift_L").result.pointer == (77, 88)
    assert time.monotonic() - began < patient(1)
    assert view.recv(1) == b""
    view.close()
    with desktop.open_view() as another:
        another.settimeout(5)
        assert another.recv(12) == b"RFB 003.008\n"


def test_a_picture_is_asked_for_again(launch: Callable[..., Desktop]) -> None:
    """A picture has no effect: if the agent dies over it, the next one is asked."""
    desktop = launch(url="about:blank")
    killer = threading.Timer(0.5, desktop.exec, (["pkill", "-KILL", "-f", "deskbox_guest.agent"],))
    with pytest.raises(DeskboxError):  # the killer's own call is lost with the agent
        killer.run()
    assert decode(desktop.screenshot()).size == desktop.size
    assert desktop.facts().agent_start == 2


def test_without_a_screen_there_is_no_picture(launch: Callable[..., Desktop]) -> None:
    """Nothing is made up when the X server is gone: every call says so, and soon."""
    desktop = launch("dark", url="about:blank")
    began = time.monotonic()
    with pytest.raises(DeskboxError):
        desktop.exec(["sh", "-c", "pkill -KILL -x Xvfb; sleep 5"])
    for call in (desktop.screenshot, desktop.windows, desktop.held_inputs, lambda: desktop.step("click 1")):
        with pytest.raises(Unavailable):
            call()
    assert time.monotonic() - began < patient(30)
    eventually(lambda: registry.find("dark") is None)
