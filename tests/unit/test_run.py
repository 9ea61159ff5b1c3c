"""The guest's command runner, on this machine: the same code, other processes."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deskbox_guest import protocol
from deskbox_guest.protocol import EXEC_EXIT, EXEC_STDERR, EXEC_STDOUT, Exec, Fault
from deskbox_guest.run import run


class Output:
    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.times: list[float] = []

    def __call__(self, kind: int, data: bytes) -> None:
        self.frames.append((kind, data))
        self.times.append(time.monotonic())

    def of(self, kind: int) -> bytes:
        return b"".join(data for k, data in self.frames if k == kind)

    @property
    def exit(self) -> dict[str, Any]:
        kind, data = self.frames[-1]
        assert kind == EXEC_EXIT
        assert sum(k == EXEC_EXIT for k, _ in self.frames) == 1
        return dict(json.loads(data))


def execute(*argv: str, stdin: bytes = b"", **parameters: Any) -> Output:
    output = Output()
    run(Exec(argv=argv, **parameters), stdin, output)
    return output


def eventually(condition: Callable[[], bool], within: float = 3.0) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_output_status_and_both_streams() -> None:
    output = execute("sh", "-c", "echo out; echo err >&2; exit 7")
    assert output.of(EXEC_STDOUT) == b"out\n"
    assert output.of(EXEC_STDERR) == b"err\n"
    assert output.exit == {"exit_code": 7, "timed_out": False, "truncated": False}


def test_arguments_reach_the_program_as_they_are() -> None:
    nasty = ["$(touch /tmp/x)", "a b", "'\"", "*", "", "żółć 🙂"]
    output = execute(sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *nasty)
    assert output.of(EXEC_STDOUT).decode().strip() == ascii(nasty)


def test_a_signal_is_128_plus_its_number() -> None:
    assert execute("sh", "-c", "kill -KILL $$").exit["exit_code"] == 137


def test_stdin_larger_than_a_pipe_goes_through_while_output_comes() -> None:
    data = os.urandom(3_000_000)
    output = execute("cat", stdin=data, output_limit=4_000_000)
    assert output.of(EXEC_STDOUT) == data


def test_stdin_that_is_not_read_harms_nobody() -> None:
    assert execute("true", stdin=b"x" * 1_000_000).exit["exit_code"] == 0


def test_without_stdin_the_command_reads_an_end_of_file() -> None:
    assert execute("cat").exit["exit_code"] == 0


def test_output_comes_as_it_is_written() -> None:
    output = execute("sh", "-c", "echo a; sleep 0.4; echo b")
    assert output.times[1] - output.times[0] > 0.2


def test_directory_and_environment(tmp_path: Path) -> None:
    output = execute("sh", "-c", "pwd; echo $A; echo $DISPLAY", cwd=str(tmp_path), env={"A": "ü"})
    assert output.of(EXEC_STDOUT).decode().split("\n")[:2] == [str(tmp_path), "ü"]
    assert output.of(EXEC_STDOUT).split(b"\n")[2]
    assert execute("pwd").of(EXEC_STDOUT).decode().strip() == os.path.expanduser("~")


def test_output_over_the_limit_is_dropped_and_the_command_goes_on(tmp_path: Path) -> None:
    done = tmp_path / "done"
    output = execute("sh", "-c", f"head -c 1000000 /dev/zero; touch {done}; exit 3", output_limit=1000)
    assert len(output.of(EXEC_STDOUT)) == 1000
    assert output.exit == {"exit_code": 3, "timed_out": False, "truncated": True}
    assert done.exists()


def test_exactly_the_limit_is_not_truncated() -> None:
    assert not execute("head", "-c", "1000", "/dev/zero", output_limit=1000).exit["truncated"]


def test_the_limit_counts_both_streams() -> None:
    output = execute("sh", "-c", "echo 12345; echo 12345 >&2", output_limit=8)
    assert len(output.of(EXEC_STDOUT)) + len(output.of(EXEC_STDERR)) == 8


def test_timeout_ends_grandchildren_that_hold_the_pipes() -> None:
    began = time.monotonic()
    output = execute("sh", "-c", "sleep 300 & setsid sleep 300 & echo $!; wait", timeout=0.3)
    assert time.monotonic() - began < 10
    assert output.exit == {"exit_code": 143, "timed_out": True, "truncated": False}
    assert not alive(int(output.of(EXEC_STDOUT)))


def test_timeout_finds_what_became_a_daemon() -> None:
    daemon = (
        "import os,time\n"
        "if os.fork() == 0:\n"
        "  os.setsid()\n"
        "  if os.fork() == 0:\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(300)\n"
        "  os._exit(0)\n"
        "time.sleep(300)\n"
    )
    output = execute(sys.executable, "-c", daemon, timeout=1.0)
    assert not alive(int(output.of(EXEC_STDOUT)))


def test_timeout_gives_time_to_save_and_kills_what_ignores_it() -> None:
    output = execute("sh", "-c", "trap 'echo saved; exit 5' TERM; while :; do sleep 0.05; done", timeout=0.3)
    assert output.of(EXEC_STDOUT) == b"saved\n"
    assert output.exit["exit_code"] == 5
    assert output.exit["timed_out"]
    began = time.monotonic()
    output = execute("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", timeout=0.3)
    assert output.exit["exit_code"] == 137
    assert 2.0 < time.monotonic() - began < 20


def test_a_background_process_does_not_hold_up_the_answer_and_lives_on() -> None:
    began = time.monotonic()
    output = execute("sh", "-c", "sleep 30 & echo $!")
    assert time.monotonic() - began < 10
    pid = int(output.of(EXEC_STDOUT))
    assert alive(pid)
    os.kill(pid, 9)


def test_the_last_words_of_a_helper_are_heard() -> None:
    output = execute("sh", "-c", "(sleep 0.05; echo late) & exit 0")
    assert output.of(EXEC_STDOUT) == b"late\n"


def test_cancelled_stops_everything_at_once() -> None:
    stop = threading.Event()
    output = Output()
    threading.Timer(0.3, stop.set).start()
    began = time.monotonic()
    script = "trap '' TERM; setsid sleep 300 & echo $!; while :; do sleep 0.05; done"
    with pytest.raises(Fault, match=r"^cancelled") as caught:
        run(Exec(argv=("sh", "-c", script)), b"", output, stop.is_set)
    assert time.monotonic() - began < 10
    assert caught.value.kind == "interrupted"
    assert caught.value.data["cancelled"]
    assert not alive(int(output.of(EXEC_STDOUT)))


def test_a_listener_that_goes_away_ends_the_command() -> None:
    pids: list[int] = []

    def emit(kind: int, data: bytes) -> None:
        pids.append(int(data))
        raise ConnectionError

    with pytest.raises(ConnectionError):
        run(Exec(argv=("sh", "-c", "echo $$; sleep 300")), b"", emit)
    assert not alive(pids[0])


def test_nothing_is_left_open() -> None:
    execute("true")
    before = set(os.listdir("/proc/self/fd"))
    execute("cat", stdin=b"x")
    execute("sleep", "30", timeout=0.1)
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (Exec(argv=()), "command is empty"),
        (Exec(argv=("",)), "command is empty"),
        (Exec(argv=("no-such-program",)), "has no command 'no-such-program'"),
        (Exec(argv=("/etc/passwd",)), "not a program that"),
        (Exec(argv=("/etc",)), "not a program that"),
        (Exec(argv=("a\0b",)), "NUL"),
        (Exec(argv=("true",), cwd="/no/such"), "no directory '/no/such'"),
        (Exec(argv=("true",), timeout=0), "timeout of 0 s"),
        (Exec(argv=("true",), timeout=float("nan")), "timeout of nan s"),
        (Exec(argv=("true",), output_limit=-1), "output limit of -1"),
        (Exec(argv=("true",), env={"A=B": "c"}), "Environment names"),
        (Exec(argv=("true", "x" * 3_000_000)), "could not be started: Argument list too long"),
    ],
)
def test_what_cannot_run_is_refused_with_a_sentence(request_: protocol.Exec, sentence: str) -> None:
    output = Output()
    with pytest.raises(Fault, match=sentence) as caught:
        run(request_, b"", output)
    assert caught.value.kind == "refused"
    assert output.frames == []
