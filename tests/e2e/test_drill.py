"""The drill and `deskbox run` on a real desktop: that they succeed, and that they fail when they must."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.lib.computer import Screenshot
from tests.support.timing import patient
from typer.testing import CliRunner

from deskbox import registry
from deskbox.cli import app
from deskbox.desktop import Desktop
from deskbox.drill import drill, wire
from deskbox.drill.drill import PassReport, run_drill
from deskbox.drill.endpoint import Endpoint
from deskbox.drill.stage import site_source
from deskbox.errors import Cancelled, InvalidInput

DESKBOX = str(Path(sys.executable).with_name("deskbox"))
FULL, HALF, CROP = range(3)

slow_if_emulated = pytest.mark.slow("qemu")


def traces(desktop: Desktop) -> tuple[list[int], list[str]]:
    """The windows, and the files in the home directory, once no program of a drill runs any more.

    The guest kills a program within moments of being asked to.
    """
    deadline = time.monotonic() + 2
    while ours := programs(desktop):
        assert time.monotonic() < deadline, ours
        time.sleep(0.05)
    files = desktop.exec(["ls", "-A"]).stdout.decode().split()
    return sorted(window.id for window in desktop.windows()), sorted(files)


def programs(desktop: Desktop) -> list[str]:
    lines = desktop.exec(["ps", "-e", "-o", "args="]).stdout.decode().splitlines()
    return [line for line in lines if "/drill-" in line]


def only(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the drill one run long: each takes some 11 seconds."""
    plan = drill.plan
    monkeypatch.setattr(drill, "plan", lambda screen: plan(screen)[which : which + 1])


def drill_once(desktop: Any, which: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> PassReport:
    only(which, monkeypatch)
    report = run_drill(desktop, **options)
    (single,) = report.passes
    assert report.verified is single.verified
    return single


def test_the_drill_is_verified_in_every_view_and_leaves_nothing(desktop: Desktop) -> None:
    before = traces(desktop)
    started = time.monotonic()
    report = run_drill(desktop)
    said = [each.outcome.final_text for each in report.passes]
    assert [each.wrong for each in report.passes] == [(), (), ()], said
    assert report.verified
    assert time.monotonic() - started < patient(60)
    assert [each.planned.loop for each in report.passes] == ["toolset", "runner", "runner"]
    assert [each.outcome.usage.complete for each in report.passes] == [False, True, True]
    assert traces(desktop) == before


# --- a record that is wrong, whatever the model says --------------------------------------------------------
INSERT = 'database.execute("INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?)", row)'
SITES = [
    pytest.param(
        "    return page(CONFIRMED,",
        "    with closing(sqlite3.connect(DATABASE)) as database, database:\n"
        '        database.execute("DELETE FROM reservations")\n'
        "    return page(CONFIRMED,",
        "The record is missing",
        id="dropped",
    ),
    pytest.param(
        INSERT,
        f"{INSERT}\n"
        "        row = (number[::-1] if number != number[::-1] else 'x' + number, *row[1:])\n"
        f"        {INSERT}",
        "The record is duplicated: the database holds 2 reservations.",
        id="duplicated",
    ),
    pytest.param(
        "(asked[field] for field in FIELDS)",
        '(asked[field] if field != "note" else asked[field].strip("🎂🍜🥂") for field in FIELDS)',
        "The record is altered: note is",
        id="altered",
    ),
]


@slow_if_emulated
@pytest.mark.parametrize(("good", "bad", "said"), SITES)
def test_a_wrong_record_is_found(
    good: str, bad: str, said: str, desktop: Desktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_source().decode()
    assert site.count(good) == 1
    single = drill_once(desktop, HALF, monkeypatch, site=site.replace(good, bad).encode())
    assert single.outcome.status == "done"
    assert "Reserved under" in single.outcome.final_text, "the model believes that it succeeded"
    assert not single.verified
    assert single.wrong[0].startswith(said)


# --- a driver that is wrong ---------------------------------------------------------------------------------
class Altered:
    """The desktop, except for its computer driver."""

    def __init__(self, desktop: Desktop, driver: Callable[..., Any]) -> None:
        self._desktop = desktop
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desktop, name)

    def computer_driver(self, image_size: Any = None, crop: Any = None, *, settle: Any = None) -> Any:
        return self._driver(self._desktop, image_size, crop)


class SplitDriver:
    """Looks through one driver and acts through another."""

    def __init__(self, looks: Any, acts: Any) -> None:
        self.screenshot = looks.screenshot
        self._acts = acts

    def __getattr__(self, member: str) -> Any:
        return getattr(self._acts, member)


class StaleDriver(SplitDriver):
    """Shows the screen as it was before the last actions."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver, driver)
        self._take = driver.screenshot
        self._last: Screenshot = driver.screenshot()
        self.screenshot = self._stale

    def _stale(self, *, cancelled: Callable[[], bool] | None = None) -> Screenshot:
        stale, self._last = self._last, self._take(cancelled=cancelled)
        return stale


def unscaled(desktop: Desktop, image_size: Any, crop: Any) -> SplitDriver:
    return SplitDriver(desktop.computer_driver(image_size, crop), desktop.computer_driver())


def without_offset(desktop: Desktop, image_size: Any, crop: Any) -> SplitDriver:
    return SplitDriver(
        desktop.computer_driver(image_size, crop), desktop.computer_driver(image_size, (0, 0, *crop[2:]))
    )


def stale(desktop: Desktop, image_size: Any, crop: Any) -> StaleDriver:
    return StaleDriver(desktop.computer_driver(image_size, crop))


@slow_if_emulated
@pytest.mark.parametrize(
    ("which", "driver"),
    [
        pytest.param(HALF, unscaled, id="wrong scale"),
        pytest.param(CROP, without_offset, id="crop without its offset"),
        pytest.param(FULL, stale, id="stale frame"),
    ],
)
def test_a_driver_that_does_not_act_on_what_it_shows_fails(
    which: int, driver: Callable[..., Any], desktop: Desktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = drill_once(Altered(desktop, driver), which, monkeypatch)
    assert not single.verified
    assert single.wrong[0] == "The record is missing: the database holds no reservation."


@slow_if_emulated
# --- the other ways to end ----------------------------------------------------------------------------------
def test_a_cancelled_drill_leaves_nothing(desktop: Desktop) -> None:
    before = traces(desktop)
    stop: list[bool] = []
    with pytest.raises(Cancelled):
        run_drill(desktop, on_event=lambda event: stop.append(True), cancelled=lambda: len(stop) > 8)
    assert traces(desktop) == before
    assert not desktop.held_inputs()


@slow_if_emulated
def test_a_screen_that_is_too_small_is_refused(launch: Callable[..., Desktop]) -> None:
    with pytest.raises(InvalidInput, match="at least 1280x800 pixels, and this one has 800x600"):
        run_drill(launch(size=(800, 600)))


# --- the commands -------------------------------------------------------------------------------------------
def test_the_command_prints_verified(
    tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(CROP, monkeypatch)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["drill"])
    assert result.exit_code == 0
    assert "Verified: 1 reservations and 1 saved files are byte for byte what was asked for" in result.stdout
    assert list(tmp_path.iterdir()) == []


@slow_if_emulated
def test_the_command_fails_with_the_reason_and_a_picture(
    tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(FULL, monkeypatch)
    monkeypatch.chdir(tmp_path)
    good, bad, said = SITES[1].values
    broken = site_source().decode().replace(str(good), str(bad)).encode()
    monkeypatch.setattr(drill, "site_source", lambda: broken)
    result = CliRunner().invoke(app, ["drill", "--json"])
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["verified"] is False
    assert document["passes"][0]["wrong"] == [said]
    assert Path(document["screenshot"]).read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def named(state_dir: Path) -> Iterator[str]:
    """A desktop that other processes can attach to."""
    name = "run-e2e"
    with Desktop.launch(name, detach=True):
        pass
    yield name
    registry.stop(name)


CLICK = {"type": "click", "button": "left", "x": 640, "y": 600}
CHECK = {"id": "sc_1", "code": "irrelevant_domain", "message": "Is this the right page?"}
# Back and forth over the page, paced so that it takes far longer than the test waits.
LONG_DRAG = {"type": "drag", "path": [{"x": 200 + 800 * (n % 2), "y": 300 + n} for n in range(100)]}


def turns(*answers: list[wire.Item]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A model that gives these answers, one a request."""
    left = list(answers)
    return lambda body: wire.response(*left.pop(0), model="m", input_tokens=10, output_tokens=2)


def run_command(name: str, endpoint: Endpoint, *options: str) -> tuple[list[str], dict[str, str]]:
    command = [DESKBOX, "run", "Try it.", "--name", name, "--base-url", endpoint.base_url, *options]
    return command, {**os.environ, "OPENAI_API_KEY": endpoint.api_key}


@slow_if_emulated
def test_run_shows_its_steps_and_what_they_cost(named: str, tmp_path: Path) -> None:
    model = turns(
        [wire.computer_call({"type": "screenshot"})],
        [wire.message("I click.", final=False), wire.computer_call(CLICK)],
        [wire.message("All is well.", final=True)],
    )
    with Endpoint(model) as endpoint:
        command, environment = run_command(named, endpoint)
        ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert [line.strip() for line in lines[:4]] == [
        "1 look at the screen",
        "2 I click.",
        "click left at 640,600",
        "3 All is well.",
    ]
    assert "2 steps, 36 tokens (30 in, 6 out)." in ended.stdout
    (picture,) = tmp_path.glob(f"run-{named}-*.png")
    assert f"Last screenshot: {picture}" in ended.stdout
    assert endpoint.api_key not in ended.stdout + ended.stderr


@slow_if_emulated
def test_run_gives_one_document(named: str, tmp_path: Path) -> None:
    with Endpoint(turns([wire.computer_call(CLICK)], [wire.message("Done.", final=True)])) as endpoint:
        command, environment = run_command(
            named, endpoint, "--json", "-o", "last.png", "--image-size", "640x400"
        )
        ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1, "the point lies outside an image of that size"
    document = json.loads(ended.stdout)
    assert document["status"] == "failed"
    assert "640" in document["error"]
    assert document["usage"]["total_tokens"] == 12
    assert Path(document["screenshot"]) == tmp_path / "last.png"
    assert (tmp_path / "last.png").read_bytes().startswith(b"\x89PNG")


@slow_if_emulated
@pytest.mark.parametrize("approve", ["ask", "deny"])
def test_run_denies_a_safety_check_that_nobody_approves(approve: str, named: str, tmp_path: Path) -> None:
    with Endpoint(turns([wire.computer_call(CLICK, checks=[CHECK])])) as endpoint:
        command, environment = run_command(named, endpoint, "--approve", approve)
        ended = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    assert ended.returncode == 1
    assert "not approved: Is this the right page?" in ended.stdout
    assert "was not approved; nothing of that step was done" in ended.stderr
    assert ("Nobody can be asked" in ended.stdout) is (approve == "ask")


@slow_if_emulated
@pytest.mark.parametrize(("typed", "approved"), [(b"y\n", True), (b"\n", False), (b"yep\n", False)])
def test_run_asks_whoever_sits_at_the_terminal(
    typed: bytes, approved: bool, named: str, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    answers = turns([wire.computer_call(CLICK, checks=[CHECK])], [wire.message("Done.", final=True)])
    with Endpoint(answers) as endpoint:
        command, environment = run_command(named, endpoint)
        with subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, text=True
        ) as running:
            os.close(theirs)
            assert running.stdout is not None
            shown = [running.stdout.readline().strip() for _ in range(3)]
            os.write(ours, typed)
            rest = running.stdout.read()
            code = running.wait()
    os.close(ours)
    assert shown == ["The model wants to:", "click left at 640,600", "Safety check: Is this the right page?"]
    assert ("not approved: Is this" in rest) is not approved
    assert code == (0 if approved else 1)


@slow_if_emulated
def test_ctrl_c_stops_a_run_within_a_second_with_nothing_held(named: str, tmp_path: Path) -> None:
    with Endpoint(turns([wire.computer_call(LONG_DRAG)])) as endpoint:
        command, environment = run_command(named, endpoint)
        with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert b"drag" in running.stdout.readline()
            with Desktop.attach(named, observe=True) as watching:
                while watching.held_inputs().buttons != (1,):
                    time.sleep(0.02)
                running.send_signal(signal.SIGINT)
                stopped = time.monotonic()
                while watching.held_inputs():
                    time.sleep(0.02)
                assert time.monotonic() - stopped < patient(1)
                assert running.wait(timeout=10) == 130
                assert not watching.held_inputs()
