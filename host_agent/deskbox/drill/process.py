"""A program that runs in the guest for as long as it is wanted."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from deskbox.errors import Cancelled, DeskboxError, Unavailable

if TYPE_CHECKING:
    from deskbox.desktop import Desktop

_LONGEST_S = 1800.0


class GuestProcess:
    """Starts with the context and is killed, with its children, at its end."""

    def __init__(self, desktop: Desktop, *argv: str) -> None:
        self._desktop = desktop
        self._argv = argv
        self._unwanted = threading.Event()
        self._changed = threading.Condition()
        self._output = bytearray()
        self._ended = ""  # why, in words
        self._thread = threading.Thread(target=self._run, name=f"guest-{argv[0]}", daemon=True)

    def __enter__(self) -> GuestProcess:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unwanted.set()
        self._thread.join()

    def first_line(self, timeout: float) -> str:
        """The first line that it prints. Unavailable if it ends or `timeout` seconds pass without one."""
        with self._changed:
            self._changed.wait_for(lambda: b"\n" in self._output or self._ended, timeout)
            line, newline, _ = self._output.partition(b"\n")
        if not newline:
            reason = self._ended or f"it printed nothing in {timeout:g} s"
            raise Unavailable(f"{self._argv[0]} in the guest did not start: {reason}")
        return line.decode()

    def _run(self) -> None:
        try:
            result = self._desktop.exec(
                self._argv, timeout=_LONGEST_S, on_output=self._hear, cancelled=self._unwanted.is_set
            )
            ended = f"it ended with code {result.exit_code}: {result.stderr.decode(errors='replace').strip()}"
        except Cancelled:
            ended = "it was stopped"
        except DeskboxError as error:
            ended = str(error)
        with self._changed:
            self._ended = ended
            self._changed.notify_all()

    def _hear(self, stream: int, data: bytes) -> None:
        if stream == 1:
            with self._changed:
                self._output += data
                self._changed.notify_all()
