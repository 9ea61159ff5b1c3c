"""The client for QEMU's monitor, with a monitor made of a socket."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deskbox.backends.qemu.qmp import CommandFailed, Qmp
from deskbox.errors import Unavailable

GREETING = {"QMP": {"version": {"qemu": {"major": 7}}, "capabilities": []}}
Answer = Callable[[dict[str, Any], list[int]], list[dict[str, Any]] | None]


class Monitor:
    """Serves one connection after the other; `answer` says what is sent for a command, None to hang up."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self.path = path
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(4)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(ConnectionError):  # it gave up waiting for its turn
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        client.sendall(json.dumps(GREETING).encode() + b"\r\n")
        data, fds = b"", list[int]()
        while True:
            piece, new, _, _ = socket.recv_fds(client, 4096, 4)
            if not piece:
                return
            data, fds = data + piece, fds + new
            while b"\n" in data:
                line, _, data = data.partition(b"\n")
                request = json.loads(line)
                if request["execute"] == "qmp_capabilities":
                    answers: list[dict[str, Any]] | None = [{"return": {}, "id": request["id"]}]
                else:
                    answers = self._answer(request, fds)
                if answers is None:
                    return
                for answer in answers:
                    client.sendall(json.dumps(answer).encode() + b"\r\n")


@pytest.fixture
def monitor() -> Iterator[Callable[[Answer], Path]]:
    directory = Path(tempfile.mkdtemp(prefix="dbx-qmp-", dir="/tmp"))
    made: list[Monitor] = []

    def make(answer: Answer) -> Path:
        made.append(Monitor(directory / f"{len(made)}.qmp", answer))
        return made[-1].path

    yield make
    for one in made:
        one.close()
    shutil.rmtree(directory)


def test_commands_and_events(monitor: Callable[[Answer], Path]) -> None:
    def answer(request: dict[str, Any], fds: list[int]) -> list[dict[str, Any]]:
        assert request["arguments"] == {"some-name": 1}
        return [
            {"event": "STOP", "data": {}},
            {"return": {"status": "paused"}, "id": request["id"]},
            {"event": "MIGRATION", "data": {"status": "active"}},
            {"event": "MIGRATION", "data": {"status": "completed"}},
        ]

    with Qmp(monitor(answer)) as qmp:
        assert qmp.execute("query-status", some_name=1) == {"status": "paused"}
        found = qmp.wait_for("MIGRATION", lambda data: data["status"] == "completed", timeout=5)
        assert found["data"] == {"status": "completed"}


def test_a_descriptor_is_passed(monitor: Callable[[Answer], Path], tmp_path: Path) -> None:
    def answer(request: dict[str, Any], fds: list[int]) -> list[dict[str, Any]]:
        with os.fdopen(fds.pop(), "w") as file:
            file.write("through the monitor")
        return [{"return": {}, "id": request["id"]}]

    with (tmp_path / "state").open("w") as file, Qmp(monitor(answer)) as qmp:
        qmp.execute("getfd", fd=file.fileno(), fdname="state")
    assert (tmp_path / "state").read_text() == "through the monitor"


def test_a_refusal_is_in_qemus_words(monitor: Callable[[Answer], Path]) -> None:
    def answer(request: dict[str, Any], fds: list[int]) -> list[dict[str, Any]]:
        return [{"error": {"class": "GenericError", "desc": "No such thing"}, "id": request["id"]}]

    with (
        Qmp(monitor(answer)) as qmp,
        pytest.raises(CommandFailed, match="QEMU could not cont: No such thing"),
    ):
        qmp.execute("cont")


def test_a_late_answer_is_not_the_next_ones(monitor: Callable[[Answer], Path]) -> None:
    numbers: list[int] = []

    def answer(request: dict[str, Any], fds: list[int]) -> list[dict[str, Any]]:
        numbers.append(request["id"])
        if len(numbers) == 1:
            return []
        return [{"return": number, "id": number} for number in numbers]

    with Qmp(monitor(answer)) as qmp:
        with pytest.raises(Unavailable, match="the virtual machine did not answer stop in time"):
            qmp.execute("stop", timeout=0.05)
        assert qmp.execute("stop") == numbers[-1]


def test_a_machine_that_ends(monitor: Callable[[Answer], Path], tmp_path: Path) -> None:
    with Qmp(monitor(lambda request, fds: None)) as qmp:
        with pytest.raises(Unavailable, match="the virtual machine has ended"):
            qmp.execute("cont")
        assert list(qmp.events()) == []
    with pytest.raises(Unavailable, match=r"no virtual machine answers on .*: No such file"):
        Qmp(tmp_path / "none")


def test_connections_take_turns(monitor: Callable[[Answer], Path]) -> None:
    path = monitor(lambda request, fds: [{"return": request["execute"], "id": request["id"]}])
    with Qmp(path) as first:
        with pytest.raises(Unavailable, match="did not greet us in time"):
            Qmp(path, timeout=0.05)
        assert first.execute("one") == "one"
    with Qmp(path) as second:
        assert second.execute("two") == "two"


def test_closing_ends_a_wait_for_events(monitor: Callable[[Answer], Path]) -> None:
    qmp = Qmp(monitor(lambda request, fds: []))
    threading.Timer(0.05, qmp.close).start()
    began = time.monotonic()
    assert list(qmp.events()) == []
    assert time.monotonic() - began < 10
