"""What the tests share: a state directory of their own, and desktops in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from deskbox import registry
from deskbox.desktop import Desktop
from deskbox_guest.protocol import EngineName


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", default=None, help="run desktops on this one instead of docker")
    parser.addoption("--slow", action="store_true", help="also run what takes long on this backend")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["DESKBOX_BACKEND"] = config.getoption("--backend") or os.environ.get(
        "DESKBOX_BACKEND", "docker"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not about the chosen backend, and without `--slow` what takes long on it."""
    chosen = os.environ["DESKBOX_BACKEND"]

    def is_wanted(item: pytest.Item) -> bool:
        about, slow = item.get_closest_marker("backends"), item.get_closest_marker("slow")
        if about is not None and chosen not in about.args:
            return False
        rarely = slow is not None and (not slow.args or chosen in slow.args)
        # The second engine is the same program in every guest, and needs desktops of its own.
        rarely |= chosen != "docker" and _engine_of(item) == "xdotool"
        return not rarely or bool(config.getoption("--slow"))

    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = [item for item in items if is_wanted(item)]


def _engine_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("engine", "")) if callspec is not None else ""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.engines("xtest", "xdotool")`, of a test or its module: with a desktop of each."""
    marker = metafunc.definition.get_closest_marker("engines")
    if marker is not None:
        metafunc.parametrize("engine", marker.args, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> EngineName:
    """Of the shared desktop."""
    chosen: EngineName = getattr(request, "param", "xtest")
    return chosen


@pytest.fixture(scope="session")
def desktops(state_dir: Path) -> Iterator[Callable[[EngineName], Desktop]]:
    """One desktop an engine, started when it is needed first."""
    with ExitStack() as running:

        @cache
        def desktop(engine: EngineName) -> Desktop:
            launched = Desktop.launch(f"shared-{engine}", engine=engine, url="about:blank")
            return running.enter_context(launched)

        yield desktop


@pytest.fixture(scope="session")
def shared_desktop(desktops: Callable[[EngineName], Desktop], engine: EngineName) -> Desktop:
    return desktops(engine)


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
