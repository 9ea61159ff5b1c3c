"""Each call to the guest as data: what to send, how long to wait, how to read the answer.

Pure, and shared by `Desktop` and `AsyncDesktop`, which only differ in how they send it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from deskbox import actions
from deskbox.errors import InvalidInput
from deskbox_guest import protocol
from deskbox_guest.protocol import POLICIES, Exec, Facts, Frame, Held, Settle, Step, StepResult, Window

T = TypeVar("T")

# A call that only reads answers in milliseconds; this much silence means that the guest is not answering.
ANSWER = 15.0
# A script may type a long text slowly, or sleep.
SCRIPT = 120.0

Region = tuple[int, int, int, int]
Size = tuple[int, int]
ImageFormat = Literal["png", "jpeg", "webp"]
Oversize = Literal["error", "shrink"]
# How quiet the screen must be before a picture: a name from `protocol.POLICIES`, numbers, or None for "none".
SettlePolicy = Settle | Literal["none", "fast", "settled", "wait"] | None


@dataclass(frozen=True)
class Call(Generic[T]):
    path: str
    head: dict[str, Any]
    timeout: float  # seconds
    read: Callable[[dict[str, Any], bytes], T]
    payload: bytes = b""
    acts: bool = False  # it may change the desktop, so a lost answer leaves its effect unknown


@dataclass(frozen=True)
class StepOutcome:
    result: StepResult
    image: bytes  # encoded; empty if no frame was asked for


@dataclass(frozen=True)
class ExecResult:
    exit_code: int  # 128 + n after signal n
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool  # the output limit was reached; what came after it is lost


def policy(settle: SettlePolicy) -> Settle | None:
    """The numbers that a policy stands for. Raises InvalidInput."""
    if settle is None or isinstance(settle, Settle):
        return settle
    if settle not in POLICIES:
        raise InvalidInput(
            f"{settle!r} is no settle policy: use {', '.join(POLICIES)}, or Settle(quiet=…, cap=…) in seconds"
        )
    return POLICIES[settle]


def step(
    script: str, settle: SettlePolicy, frame: Frame | None, timeout: float = SCRIPT
) -> Call[StepOutcome]:
    wait = policy(settle)
    return Call(
        protocol.STEP,
        protocol.to_head(Step(script, wait, frame)),
        timeout + (wait.cap if wait else 0),
        lambda head, payload: StepOutcome(protocol.step_result_from_head(head), payload),
        acts=bool(script),
    )


def type_text(text: str, pace: float | None) -> Call[StepOutcome]:
    delay = actions.type_delay(pace) if pace is not None else 0
    return step(actions.type_script(text, delay), None, None, SCRIPT + len(text) * delay / 1000)


def frame(
    region: Region | None,
    image_size: Size | None,
    format: ImageFormat,
    cursor: bool,
    max_bytes: int | None = None,
    oversize: Oversize = "error",
) -> Frame:
    x, y, width, height = region or (0, 0, 0, 0)
    if region is not None and (x < 0 or y < 0 or width < 1 or height < 1):
        raise InvalidInput(
            f"region {region} is not one: give x, y >= 0 and width, height >= 1 in screen pixels"
        )
    image_width, image_height = image_size or (0, 0)
    if image_size is not None and (image_width < 1 or image_height < 1):
        raise InvalidInput(f"image size {image_size} is not one: give a width and height of at least 1")
    if max_bytes is not None and max_bytes < 0:
        raise InvalidInput(f"a limit of {max_bytes} bytes is not one: give 1 or more, or None for no limit")
    return Frame(x, y, width, height, image_width, image_height, format, cursor, max_bytes or 0, oversize)


def held() -> Call[Held]:
    return Call(protocol.HELD, {}, ANSWER, lambda head, _: protocol.held_from_head(head))


def release() -> Call[Held]:
    return Call(protocol.RELEASE, {}, ANSWER, lambda head, _: protocol.held_from_head(head))


def facts() -> Call[Facts]:
    return Call(protocol.FACTS, {}, ANSWER, lambda head, _: Facts(**head))


def windows() -> Call[list[Window]]:
    return Call(
        protocol.WINDOWS, {}, ANSWER, lambda head, _: [Window(**window) for window in head["windows"]]
    )


def open_url(url: str) -> Call[None]:
    return Call(protocol.OPEN_URL, {"url": url}, 30.0, lambda head, _: None, acts=True)


def read_file(path: str) -> Call[bytes]:
    return Call(protocol.GET_FILE, {"path": path}, SCRIPT, lambda _, payload: payload)


def write_file(path: str, data: bytes, mode: int) -> Call[None]:
    return Call(
        protocol.PUT_FILE,
        {"path": path, "mode": mode, "size": len(data)},
        SCRIPT,
        lambda head, _: None,
        payload=data,
        acts=True,
    )


EXEC_CANCELLED = "stopped, because the caller cancelled: the guest kills the command and its children"
EXEC_LOST = "the guest did not say how the command ended"


def exec_head(
    argv: Sequence[str], timeout: float, output_limit: int, cwd: str, env: dict[str, str]
) -> dict[str, Any]:
    """Checked parameters of a command. Raises InvalidInput."""
    if isinstance(argv, str) or not argv or not all(isinstance(word, str) and word for word in argv[:1]):
        raise InvalidInput("exec needs a command: a sequence of words, the first one the program")
    if any("\0" in word for word in argv):
        raise InvalidInput("a word of a command can't contain a NUL character")
    if timeout <= 0:
        raise InvalidInput(f"timeout {timeout} s is not one: give seconds above 0")
    if output_limit < 0:
        raise InvalidInput(f"output limit {output_limit} is not one: give bytes, 0 or more")
    return protocol.to_head(Exec(tuple(argv), timeout, output_limit, cwd, env))


class ExecOutput:
    """Collects a command's output frames until the one that says how it ended."""

    def __init__(self, on_output: Callable[[int, bytes], None] | None, *, keep: bool = True) -> None:
        """`keep` False: `on_output` is told all, and the result holds none of it."""
        self._on_output = on_output
        self._keep = keep
        self._reader = protocol.ExecReader()
        self._output = {protocol.EXEC_STDOUT: bytearray(), protocol.EXEC_STDERR: bytearray()}

    def feed(self, piece: bytes) -> ExecResult | None:
        for kind, data in self._reader.feed(piece):
            if kind == protocol.EXEC_EXIT:
                end = json.loads(data)
                stdout, stderr = (bytes(output) for output in self._output.values())
                return ExecResult(end["exit_code"], stdout, stderr, end["timed_out"], end["truncated"])
            if self._keep:
                self._output[kind] += data
            if self._on_output is not None:
                self._on_output(kind, data)
        return None


def lost(call: Call[Any], error: Exception) -> str:
    """What to say when the connection broke while `call` was acting."""
    return (
        f"the connection to the guest broke during {call.path} ({error}): part of it may have happened, "
        "and nothing is held any more"
    )
