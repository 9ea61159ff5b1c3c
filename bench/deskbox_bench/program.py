"""A program in the guest that takes orders: started by the Docker engine, not by the agent, so that what is
measured is not what carries the orders."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import docker
from docker.utils.socket import frames_iter

from deskbox.errors import DeskboxError

TIMEOUT_S = 120.0  # the slowest order types a thousand characters, one each 24 ms
_STDOUT = 1


@dataclass(frozen=True)
class Done:
    """What was done, as its doer timed it. The moments are seconds since 1970."""

    ms: float
    started: float
    ended: float
    image: bytes = b""
    result: Any = None


class Program:
    """`runner.py` in the guest with one of the modules beside it."""

    def __init__(
        self,
        client: docker.DockerClient,
        guest_id: str,
        folder: str,
        module: str,
        environment: dict[str, str],
    ) -> None:
        self._module = module
        created = client.api.exec_create(
            guest_id,
            ["python3", f"{folder}/runner.py", module],
            stdin=True,
            environment=environment,
            workdir=folder,
        )
        self._response = client.api.exec_start(created["Id"], socket=True)
        self._socket: socket.socket = cast(Any, self._response)._sock
        self._socket.settimeout(TIMEOUT_S)
        self._lines = self._read()
        next(self._lines)  # it is there

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()  # it reads an end of file, and ends
        self._response.close()

    def do(self, action: str, *arguments: Any) -> Done:
        """Let it call that function of its module."""
        self._socket.sendall(json.dumps({"do": action, "with": arguments}).encode() + b"\n")
        answer = next(self._lines)
        if "error" in answer:
            raise DeskboxError(f"the bench's {self._module} failed to {action}: {answer['error']}")
        image = base64.b64decode(answer.get("image", ""))
        return Done(answer["ms"], answer["started"], answer["ended"], image, answer.get("result"))

    def _read(self) -> Iterator[dict[str, Any]]:
        waiting, said = b"", b""
        for kind, data in frames_iter(self._response, tty=False):  # type: ignore[no-untyped-call]
            if kind != _STDOUT:
                said = (said + data)[-4000:]
                continue
            waiting += data
            while b"\n" in waiting:
                line, _, waiting = waiting.partition(b"\n")
                yield json.loads(line)
        last = (said.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise DeskboxError(f"the bench's {self._module} ended in the guest: {last}")
