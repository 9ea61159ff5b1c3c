"""Process 1 of a machine, without one: requests, answers, ends of processes, and what it refuses."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deskbox_guest import machine, ports

GOOD_WAKE = {"time_ns": 1, "seed": "ab" * 32, "hostname": "deskbox", "machine_id": "0" * 32}

# A process of its own, as process 1 is: it collects all its children, and its signals are its own.
_PROGRAM = """
import sys, os
from deskbox_guest import machine
def wake(request):
    if request.get("hostname") == "bad":
        raise machine.Refusal("no such name")
    print("woken", request["hostname"], file=sys.stderr, flush=True)
control = int(sys.argv[1])
os.set_blocking(control, False)
os.set_inheritable(control, False)
print(machine.Machine(control, sys.argv[2:], lambda: None, wake).run(), file=sys.stderr)
"""


class Host:
    def __init__(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.sock = sock
        self.process = process
        self._lines = ports.Lines()
        self._answers: list[dict[str, Any]] = []

    def ask(self, **request: Any) -> dict[str, Any]:
        self.sock.sendall(ports.encode({"id": "x1", **request}))
        return self.answer()

    def answer(self) -> dict[str, Any]:
        while not self._answers:
            self._answers += self._lines.feed(self.sock.recv(65536))
        return self._answers.pop(0)

    def end(self) -> bytes:
        """What process 1 has said, once it has ended."""
        return self.process.communicate(timeout=20)[1]


@pytest.fixture
def start() -> Iterator[Any]:
    hosts = []

    def run(*session: str, program: str = _PROGRAM) -> Host:
        ours, theirs = socket.socketpair()
        ours.settimeout(20)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno()), *session],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        hosts.append(Host(ours, process))
        return hosts[-1]

    yield run
    for host in hosts:
        host.sock.close()
        host.process.kill()
        host.process.communicate()


def test_it_waits_runs_the_session_and_ends_with_it(start: Any) -> None:
    host = start("sh", "-c", "echo up $DESKBOX_SIZE $HOME; exit 7")
    status = host.ask(do="status")
    assert status["state"] == "waiting"
    assert status["uptime_s"] > 0
    assert host.ask(do="start", environment={"DESKBOX_SIZE": "800x600"}) == {"id": "x1", "ok": True}
    said = host.end()
    assert b"up 800x600 /home/user\n" in said
    assert said.endswith(b"the session ended with status 7\n")


def test_a_second_session_is_refused_and_the_first_goes_on(start: Any) -> None:
    host = start("sleep", "60")
    assert host.ask(do="start", environment={})["ok"]
    assert host.ask(do="start", environment={})["error"] == "the session runs already"
    assert host.ask(do="status")["state"] == "running"
    assert host.ask(do="poweroff")["ok"]
    assert host.end() == b"the host asked for the end\n"


@pytest.mark.parametrize("environment", [None, [], {"A": 1}])
def test_an_environment_is_texts(start: Any, environment: object) -> None:
    host = start("true")
    assert (
        host.ask(do="start", environment=environment)["error"]
        == "start takes environment, an object of texts"
    )
    assert host.ask(do="status")["state"] == "waiting"


@pytest.mark.parametrize("what", ["reboot", None, 5, ["start"]])
def test_other_requests_are_refused_by_name(start: Any, what: object) -> None:
    assert start("true").ask(do=what)["error"].endswith("those are start, wake, status and poweroff")


def test_wake_is_carried_out_or_says_why_not(start: Any) -> None:
    host = start("true")
    assert host.ask(do="wake", hostname="one") == {"id": "x1", "ok": True}
    assert host.ask(do="wake", hostname="bad") == {"id": "x1", "error": "no such name"}


def test_what_is_no_message_is_passed_over(start: Any) -> None:
    host = start("true")
    host.sock.sendall(b'{"id":"cut","do":"powero' + ports.encode({"id": "next", "do": "status"}))
    assert host.answer()["id"] == "next"
    host.sock.sendall(b"\xff\n[1]\n" + b"x" * (3 * ports.MAX_LINE) + b"\n\n")
    assert host.ask(do="status")["state"] == "waiting"


def test_a_host_that_reads_late_gets_its_answers_and_one_that_never_does_harms_nobody(start: Any) -> None:
    host = start("true")
    for number in range(300):
        host.sock.sendall(ports.encode({"id": str(number), "do": "status"}))
    assert [host.answer()["id"] for _ in range(300)] == [str(number) for number in range(300)]
    flood = threading.Thread(target=lambda: host.sock.sendall(ports.encode({"do": "status"}) * 50_000))
    flood.start()
    flood.join(20)
    assert not flood.is_alive()  # all was read, though none of the answers was
    host.sock.sendall(ports.encode({"id": "last", "do": "poweroff"}))
    assert host.end() == b"the host asked for the end\n"


def test_a_host_that_the_kernel_has_not_heard_of_yet_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its question can be read before the kernel knows that it is there: till then nothing can be written."""
    question = ports.encode({"id": "1", "do": "status"})
    reads = [question[:9], b"", question[9:], b""]
    there, written = False, b""

    def write(fd: int, data: bytes) -> int:
        nonlocal written
        if not there:
            raise BlockingIOError
        written += data
        return len(data)

    monkeypatch.setattr(os, "read", lambda fd, size: reads.pop(0))
    monkeypatch.setattr(os, "write", write)
    process_1 = machine.Machine(-1, [], lambda: None, lambda request: None)
    assert not process_1._serve()
    assert not process_1._serve()
    assert written == b""
    there = True
    process_1._write_answers()
    assert [message["id"] for message in ports.Lines().feed(written)] == ["1"]


def test_answers_wait_while_the_port_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [True, True, False]
    written = b""

    def write(fd: int, data: bytes) -> int:
        nonlocal written
        if busy.pop(0):
            raise BlockingIOError
        written += data
        return len(data)

    monkeypatch.setattr(os, "write", write)
    process_1 = machine.Machine(-1, [], lambda: None, lambda request: None)
    for number in range(3):
        process_1._answer_to({"id": str(number), "do": "status"})
    assert [message["id"] for message in ports.Lines().feed(written)] == ["0", "1", "2"]


def test_a_session_that_can_not_start_says_so(start: Any) -> None:
    host = start("/nonexistent/program")
    assert host.ask(do="start", environment={})["ok"]
    said = host.end()
    assert b"the session can't be started: " in said
    assert b"No such file or directory" in said
    assert said.endswith(b"the session ended with status 127\n")


def test_output_without_end_reaches_the_console_up_to_a_limit(start: Any) -> None:
    host = start("sh", "-c", "head -c 3000000 /dev/zero; exit 0")
    host.ask(do="start", environment={})
    said = host.end()
    assert said.count(b"\0") == machine.OUTPUT_LIMIT
    assert said.endswith(b"status 0\n")


def test_orphans_are_collected(start: Any) -> None:
    # The inner shell ends; its child becomes ours, because we ask for orphans (PR_SET_CHILD_SUBREAPER).
    program = "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n" + _PROGRAM
    host = start("sh", "-c", "sh -c 'sleep 0.1 & echo $!'; sleep 30", program=program)
    host.ask(do="start", environment={})
    orphan = int(host.process.stderr.readline())
    deadline = time.monotonic() + 20
    while Path(f"/proc/{orphan}").exists():
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"time_ns": 0}, "time_ns"),
        ({"time_ns": "now"}, "time_ns"),
        ({"seed": "ab"}, "seed"),
        ({"seed": "xy" * 32}, "seed"),
        ({"hostname": "-a"}, "hostname"),
        ({"hostname": "a" * 64}, "hostname"),
        ({"hostname": "a\n"}, "hostname"),
        ({"machine_id": "0" * 31}, "machine_id"),
        ({"machine_id": "0" * 32 + "\n"}, "machine_id"),
        ({"machine_id": None}, "machine_id"),
    ],
)
def test_wake_changes_nothing_if_any_of_it_is_wrong(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object], told: str
) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("it was carried out")

    monkeypatch.setattr("time.clock_settime_ns", never)
    monkeypatch.setattr(machine, "add_randomness", never)
    monkeypatch.setattr("socket.sethostname", never)
    with pytest.raises(machine.Refusal, match=f"wake takes {told}"):
        machine.wake({**GOOD_WAKE, **wrong})


def test_ports_get_links_by_their_names_and_the_user_gets_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = {}
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: owners.update({Path(path).name: (uid, gid)}))
    known, devices = tmp_path / "class", tmp_path / "dev"
    devices.mkdir()
    for node, name in (("vport0p1", ports.CONTROL), ("vport0p2", ports.RPC[0]), ("vport0p3", "other.0")):
        (known / node).mkdir(parents=True)
        (known / node / "name").write_text(name + "\n")
        (devices / node).touch()
    (known / "vport0p0").mkdir()  # a port without a name
    machine.name_ports(known, devices)
    machine.name_ports(known, devices)
    links = {path.name: os.readlink(path) for path in (devices / "virtio-ports").iterdir()}
    assert links == {
        ports.CONTROL: "../vport0p1",
        ports.RPC[0]: "../vport0p2",
        "other.0": "../vport0p3",
    }
    assert owners == {"vport0p2": (1000, 1000)}


class TestLines:
    def test_messages_in_any_pieces(self) -> None:
        data = ports.encode({"id": "a"}) + ports.encode({"id": "b", "text": "ü\n"})
        for size in (1, 2, 7, len(data)):
            lines = ports.Lines()
            found = [m for at in range(0, len(data), size) for m in lines.feed(data[at : at + size])]
            assert found == [{"id": "a"}, {"id": "b", "text": "ü\n"}]

    def test_a_line_that_is_too_long_is_dropped_and_takes_no_memory(self) -> None:
        lines = ports.Lines()
        for _ in range(100):
            assert lines.feed(b"x" * ports.MAX_LINE) == []
        assert len(lines._buffer) <= ports.MAX_LINE
        assert lines.feed(b'"}\n' + ports.encode({"id": "a"})) == [{"id": "a"}]
