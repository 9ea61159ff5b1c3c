"""Desktops that are copies of one machine: each one is a machine of its own, and they share nothing."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tests.support.guests import guest_id

from deskbox.backends.qemu import frozen
from deskbox.backends.qemu.frozen import Frozen
from deskbox.desktop import Desktop
from deskbox.processes import Process

pytestmark = pytest.mark.backends("qemu")

MANY = 10


@pytest.fixture(scope="module")
def pair(state_dir: Path) -> Iterator[tuple[Desktop, Desktop]]:
    with Desktop.launch("first") as first, Desktop.launch("second") as second:
        yield first, second


def output(desktop: Desktop, *command: str) -> str:
    return desktop.exec(list(command), timeout=120).stdout.decode()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def source(desktop: Desktop) -> Path:
    return Frozen.source(Process.parse(guest_id(desktop))).path


def test_they_come_from_one_machine(pair: tuple[Desktop, Desktop]) -> None:
    first, second = pair
    assert source(first) == source(second)


@pytest.mark.parametrize(
    "command",
    [
        ["hostname"],
        ["cat", "/etc/machine-id"],
        ["cat", "/proc/sys/kernel/random/boot_id"],
        ["head", "-c", "32", "/dev/urandom"],
        ["python3", "-c", "import uuid; print(uuid.uuid4())"],
    ],
    ids=lambda command: command[-1],
)
def test_what_must_differ_does(pair: tuple[Desktop, Desktop], command: list[str]) -> None:
    first, second = (desktop.exec(command, timeout=60).stdout for desktop in pair)
    assert first
    assert first != second


def test_boot_ids_are_told_by_all_who_know_them(pair: tuple[Desktop, Desktop]) -> None:
    ids = {desktop.facts().boot_id for desktop in pair}
    assert len(ids) == 2
    for desktop in pair:
        boot_id = desktop.facts().boot_id
        assert output(desktop, "cat", "/etc/machine-id").strip() == boot_id
        kernels = output(desktop, "cat", "/proc/sys/kernel/random/boot_id")
        assert kernels.strip().replace("-", "") == boot_id


def test_the_browser_has_random_numbers_of_its_own(pair: tuple[Desktop, Desktop]) -> None:
    """It was copied while it ran, with the state of its generators."""
    page = (
        b"<script>document.title = 'R ' + crypto.getRandomValues(new Uint32Array(2)) + Math.random()</script>"
    )

    def title(desktop: Desktop) -> str:
        return next((w.title for w in desktop.windows() if w.title.startswith("R ")), "")

    for desktop in pair:
        desktop.write_file("/tmp/random.html", page)
        desktop.open_url("file:///tmp/random.html")
        until(partial(title, desktop))
    assert title(pair[0]) != title(pair[1])


def test_none_may_touch_another_ones_process(pair: tuple[Desktop, Desktop]) -> None:
    users = {Path(f"/proc/{Process.parse(guest_id(desktop)).pid}").stat().st_uid for desktop in pair}
    if os.getuid() == 0:  # else all are ours
        assert len(users) == 2
        assert 0 not in users


def test_the_clock_is_right(pair: tuple[Desktop, Desktop]) -> None:
    for desktop in pair:
        before = time.time()
        told = float(output(desktop, "date", "+%s.%N"))
        assert before - 1 <= told <= time.time() + 1


def test_a_file_of_one_is_in_no_other(pair: tuple[Desktop, Desktop]) -> None:
    first, second = pair
    first.write_file("only-here", b"first")
    assert "only-here" not in output(second, "ls", "-A")
    assert first.read_file("only-here") == b"first"


def test_what_one_writes_to_memory_is_in_no_other_nor_in_the_template(pair: tuple[Desktop, Desktop]) -> None:
    first, second = pair
    mark = hashlib.sha256(b"a mark that is nowhere else").hexdigest()
    before = hashlib.file_digest((source(first) / frozen.RAM).open("rb"), "sha256").hexdigest()
    first.exec(["sh", "-c", f"for n in $(seq 2000); do echo {mark}; done >/dev/shm/marks"], timeout=60)
    assert hashlib.file_digest((source(first) / frozen.RAM).open("rb"), "sha256").hexdigest() == before
    assert "marks" not in output(second, "ls", "/dev/shm")
    Frozen(source(first))  # as it was written


def test_what_one_shows_is_not_shown_by_the_other(pair: tuple[Desktop, Desktop]) -> None:
    first, second = pair
    before = second.screenshot(settle="settled")
    first.step("key ctrl+t", settle="settled")
    until(lambda: first.screenshot() != before)
    assert second.screenshot() == before
    first.step("key ctrl+w")


@pytest.mark.parametrize(
    "url", ["file:///usr/share/deskbox/start.html?two", "file:///etc/hostname", "about:blank"]
)
def test_another_first_page_is_the_only_one(launch: Callable[..., Desktop], url: str) -> None:
    desktop = launch(url=url)
    [before] = desktop.windows()
    desktop.step("key alt+Left", settle="wait")  # back, where nothing is
    [after] = desktop.windows()
    assert after.title == before.title
    desktop.step("key ctrl+w")  # with its last tab the window goes
    until(lambda: not desktop.windows())


def test_many_at_once(launch: Callable[..., Desktop]) -> None:
    with ThreadPoolExecutor(MANY) as pool:
        desktops = list(pool.map(lambda number: launch(f"many-{number}"), range(MANY)))
        assert len(set(pool.map(lambda desktop: desktop.facts().boot_id, desktops))) == MANY
        assert all(picture.startswith(b"\x89PNG") for picture in pool.map(Desktop.screenshot, desktops))
