"""When a machine is at rest, so that it may be frozen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from deskbox.backends.qemu.template import _load
from deskbox.errors import DeskboxError
from deskbox.processes import Process


@contextmanager
def python(code: str) -> Iterator[int]:
    argv = [sys.executable, "-c", f"import sys\nprint(flush=True)\n{code}"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        made.stdout.readline()
        yield made.pid
        made.kill()


def test_what_waits_for_a_processor_is_as_busy_as_what_has_one() -> None:
    """Else a machine on a busy computer would look as if it rested."""
    with ExitStack() as stack:
        pids = [stack.enter_context(python("while True: pass")) for _ in range(8)]
        for pid in pids:
            os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})
        assert _load(Process.of(pids[0]), 0.5) > 0.8


def test_what_sleeps_has_no_load() -> None:
    with python("sys.stdin.read()") as pid:
        assert _load(Process.of(pid), 0.3) < 0.1


def test_what_has_ended_can_not_be_frozen() -> None:
    with python("sys.stdin.read()") as pid:
        process = Process.of(pid)
    with pytest.raises(DeskboxError, match="ended before it could be frozen"):
        _load(process, 0.0)
