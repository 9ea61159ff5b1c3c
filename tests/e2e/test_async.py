"""The async desktop on a real guest: the same answers as the blocking one, and clean cancellation."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from PIL import Image

from deskbox import registry
from deskbox.async_desktop import AsyncDesktop
from deskbox.desktop import Desktop
from deskbox.errors import Cancelled, ImageTooLarge, InvalidInput, Refused, Unavailable
from deskbox_guest.protocol import Held


@pytest.fixture
async def desktop() -> AsyncIterator[AsyncDesktop]:
    async with await AsyncDesktop.launch("awaited", url="about:blank") as desktop:
        yield desktop
    assert registry.find("awaited") is None


async def test_the_engine_is_chosen_at_the_start(state_dir: Path) -> None:
    async with await AsyncDesktop.launch(engine="xdotool", url="about:blank") as desktop:
        assert desktop.engine == "xdotool"
    with pytest.raises(InvalidInput, match="there is no engine 'other': use 'xtest' or 'xdotool'"):
        await AsyncDesktop.launch(engine="other")  # type: ignore[arg-type]


async def test_every_call(desktop: AsyncDesktop) -> None:
    assert (await desktop.step("mousemove 12 34")).result.pointer == (12, 34)
    image = Image.open(io.BytesIO(await desktop.screenshot(region=(0, 0, 640, 400), image_size=(320, 200))))
    assert image.size == (320, 200)
    await desktop.write_file("note.txt", "grüße 日本".encode())
    assert await desktop.read_file("note.txt") == "grüße 日本".encode()
    pieces: list[bytes] = []
    result = await desktop.exec(
        ["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"in", on_output=lambda _, data: pieces.append(data)
    )
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"in", b"err\n")
    assert sorted(b"".join(pieces)) == sorted(b"inerr\n")
    assert [window.app for window in await desktop.windows()] == ["firefox-esr"]
    assert (await desktop.facts()).agent_start == 1
    with pytest.raises(ImageTooLarge):
        await desktop.screenshot(max_bytes=100)
    assert len(await desktop.screenshot(max_bytes=4000, oversize="shrink")) <= 4000
    began = time.monotonic()
    await desktop.type_text("slowly", pace=10)
    assert 0.6 <= time.monotonic() - began < 2
    with pytest.raises(InvalidInput, match="pace"):
        await desktop.type_text("no", pace=0)
    with pytest.raises(InvalidInput):
        await desktop.step("fly")
    with pytest.raises(Refused, match="nowhere"):
        await desktop.exec(["nowhere"])
    with pytest.raises(Unavailable, match="driven by"):
        Desktop.attach("awaited")
    async with await AsyncDesktop.attach("awaited", observe=True) as observer:
        with pytest.raises(Refused, match="observer"):
            await observer.type_text("x")


async def test_a_cancelled_task_holds_nothing(desktop: AsyncDesktop) -> None:
    drag = "mousemove 100 300 keydown shift mousedown 1 " + "mousemove 1100 500 mousemove 100 300 " * 40
    task = asyncio.create_task(desktop.step(drag))
    await asyncio.sleep(0.3)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await desktop.held_inputs() == Held()
    cancel_at = time.monotonic() + 0.3
    with pytest.raises(Cancelled):
        await desktop.step("sleep 20", cancelled=lambda: time.monotonic() > cancel_at)
    assert time.monotonic() - cancel_at < 5
    text = "".join(map(chr, range(0x4E00, 0x8000)))
    cancel_at = time.monotonic() + 0.8
    with pytest.raises(Cancelled) as caught:
        await desktop.type_text(text, cancelled=lambda: time.monotonic() > cancel_at)
    assert 0 < caught.value.data["characters"] < len(text)
    # The event loop goes on while the guest works.
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await desktop.step("sleep 0.5")
    ticking.cancel()
    assert ticks > 20
