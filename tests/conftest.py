"""What the tests share: a state directory of their own, and desktops in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deskbox import registry
from deskbox.desktop import Desktop


@pytest.fixture(scope="session", autouse=True)
def state_dir() -> Iterator[Path]:
    """Desktops of the tests are not those of the user. Nothing may be left when the tests end."""
    # A socket's path is short, so neither pytest's own directories nor a deep TMPDIR will do.
    path = Path(tempfile.mkdtemp(prefix="dbx-", dir="/tmp"))
    os.environ["DESKBOX_STATE_DIR"] = str(path)
    yield path
    registry.stop_all()
    left = sorted(str(entry.relative_to(path)) for entry in path.rglob("*"))
    shutil.rmtree(path)
    assert left == []


@pytest.fixture(scope="session")
def shared_desktop(state_dir: Path) -> Iterator[Desktop]:
    with Desktop.launch("shared", url="about:blank") as desktop:
        yield desktop


@pytest.fixture
def desktop(shared_desktop: Desktop) -> Iterator[Desktop]:
    """A running desktop that other tests use too: nothing held before and after."""
    assert not shared_desktop.held_inputs()
    yield shared_desktop
    assert not shared_desktop.held_inputs()


@pytest.fixture
def launch(state_dir: Path) -> Iterator[Callable[..., Desktop]]:
    """Starts desktops that end with the test."""
    started: list[Desktop] = []

    def start(name: str | None = None, **options: object) -> Desktop:
        desktop = Desktop.launch(name, **options)  # type: ignore[arg-type]
        started.append(desktop)
        return desktop

    yield start
    for desktop in started:
        desktop.close()
