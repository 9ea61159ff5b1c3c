"""`deskbox` as a user runs it: a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DESKBOX = str(Path(sys.executable).with_name("deskbox"))


def run(*words: str, stdin: bytes = b"", timeout: float = 60) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([DESKBOX, *words], input=stdin, capture_output=True, timeout=timeout)


def read(*words: str, code: int = 0, stdin: bytes = b"") -> Any:
    """The document that a command prints with --json."""
    done = run(words[0], "--json", *words[1:], stdin=stdin)
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)


def wait_for_title(accepted: Callable[[str], bool], *options: str) -> str:
    """The first title of a window that is accepted."""
    deadline = time.monotonic() + 20
    while not (found := [title for title in _titles(*options) if accepted(title)]):
        assert time.monotonic() < deadline, _titles(*options)
        time.sleep(0.1)
    return found[0]


def _titles(*options: str) -> list[str]:
    return [window["title"] for window in read("windows", *options)]
