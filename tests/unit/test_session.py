"""The session's parts, without a desktop: what it accepts, how it keeps logs, sockets and programs."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskbox_guest import protocol, session
from deskbox_guest.session import Log, Program, Settings


@pytest.mark.parametrize(
    ("size", "expected"),
    [("", (1280, 800)), ("320x240", (320, 240)), ("3840x2160", (3840, 2160)), ("0800x0600", (800, 600))],
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, size: str, expected: tuple[int, int]) -> None:
    monkeypatch.setenv("DESKBOX_SIZE", size)
    settings = Settings.from_environment()
    assert (settings.width, settings.height) == expected
    assert settings.url is None


@pytest.mark.parametrize(
    "size", ["319x240", "320x239", "3841x2160", "3840x2161", "800", "x", "800x600x24", "-1x5"]
)
def test_other_sizes_are_refused_and_the_limits_named(monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.setenv("DESKBOX_SIZE", size)
    with pytest.raises(ValueError, match="320x240 to 3840x2160"):
        Settings.from_environment()


def test_the_first_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKBOX_URL", "http://127.0.0.1:8000/")
    assert Settings.from_environment().url == "http://127.0.0.1:8000/"
    monkeypatch.setenv("DESKBOX_URL", "")
    assert Settings.from_environment().url == ""
    monkeypatch.setenv("DESKBOX_URL", "javascript:alert(1)")
    with pytest.raises(ValueError, match=r"can't open .*: a URL must begin with http://"):
        Settings.from_environment()


def test_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert protocol.ENGINES[0] == session.DEFAULT_ENGINE
    for engine in protocol.ENGINES:
        monkeypatch.setenv("DESKBOX_ENGINE", engine)
        assert Settings.from_environment().engine == engine
    monkeypatch.setenv("DESKBOX_ENGINE", "mouse")
    with pytest.raises(ValueError, match="'mouse' and must be xtest or xdotool"):
        Settings.from_environment()


def test_logs_are_where_the_host_looks_for_them() -> None:
    assert str(session._LOGS) == protocol.LOGS


def test_all_programs_wait_for_few_imports() -> None:
    """Without those that take as long as all others together."""
    heavy = {"dataclasses", "typing", "subprocess", "deskbox_guest.protocol"}
    code = f"import sys, deskbox_guest.session; print({heavy!r} & sys.modules.keys())"
    site = str(Path(session.__file__).parents[1])
    done = subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": site}, capture_output=True)
    assert done.stdout == b"set()\n", done.stderr


def test_a_log_keeps_the_latest_and_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LOG_LIMIT", 100)
    log = Log(tmp_path / "program.log")
    for line in range(20):
        os.write(log.write_end, b"%02d......\n" % line)
        log.copy()
    assert (tmp_path / "program.log").read_bytes().endswith(b"19......\n")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.log", "program.log.old"]


def test_a_log_that_cannot_be_written_is_dropped(tmp_path: Path) -> None:
    log = Log(tmp_path / "missing" / "program.log")
    os.write(log.write_end, b"lost\n")
    log.copy()


def test_the_socket_of_a_dead_server_is_replaced_and_a_live_one_never(tmp_path: Path) -> None:
    path = tmp_path / "X0"
    dead = session._listen(path)
    dead.close()
    live = session._listen(path)
    with pytest.raises(ValueError, match="another session is running here"):
        session._listen(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    live.close()


@pytest.fixture
def output() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def _run(program: Program, output: int) -> int:
    session._start(program, dict(os.environ), output)
    poll = select.poll()
    poll.register(program.pidfd, select.POLLIN)
    assert poll.poll(10_000)
    return session._reap(program)


def test_a_program_gets_its_output_environment_and_socket(tmp_path: Path, output: tuple[int, int]) -> None:
    code = (
        "import os, socket; s = socket.socket(fileno=3); "
        "print(s.getsockname(), os.environ['START'], os.environ['LISTEN_PID'] == str(os.getpid()))"
    )
    program = Program(
        "it",
        [sys.executable, "-c", code],
        listening=session._listen(tmp_path / "s"),
        extra=lambda start: {"START": str(start)},
    )
    assert _run(program, output[1]) == 0
    assert _run(program, output[1]) == 0
    assert os.read(output[0], 10_000).decode().splitlines() == [f"{tmp_path}/s {n} True" for n in (1, 2)]


def test_a_program_that_cannot_be_started_says_so(output: tuple[int, int]) -> None:
    assert _run(Program("none", ["/nonexistent"]), output[1]) == 127
    assert b"can't start /nonexistent" in os.read(output[0], 1000)


def test_one_failure_is_repaired_at_once_and_a_loop_is_slowed_down(output: tuple[int, int]) -> None:
    program = Program("false", ["false"])
    pauses = []
    for _ in range(10):
        assert _run(program, output[1]) == 1
        assert program.due is not None
        pauses.append(max(0.0, program.due - time.monotonic()))
    assert pauses[0] == 0
    assert pauses[1] == pytest.approx(0.2, abs=0.1)
    assert pauses[2] == pytest.approx(0.4, abs=0.1)
    assert pauses[-1] == pytest.approx(session.LONGEST_PAUSE, abs=0.1)
    # One that ran for long is repaired at once again.
    session._start(program, dict(os.environ), output[1])
    program.started -= session.STEADY
    session._reap(program)
    assert program.due is not None
    assert program.due <= time.monotonic()


def test_what_shall_not_come_back_has_no_next_start(output: tuple[int, int]) -> None:
    program = Program("true", ["true"], again=False)
    assert _run(program, output[1]) == 0
    assert program.due is None
