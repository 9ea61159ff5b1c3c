"""The drill and `deskbox run` on a real desktop: that they succeed, and that they fail when they must."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.lib.computer import Screenshot
from PIL import Image
from typer.testing import CliRunner

from deskbox import registry
from deskbox.cli import app
from deskbox.desktop import Desktop
from deskbox.drill import drill, wire
from deskbox.drill.drill import DrillReport, run_drill
from deskbox.drill.endpoint import Endpoint
from deskbox.drill.job import JOBS
from deskbox.drill.script import ScriptedModel
from deskbox.drill.stage import set_stage, site_source
from deskbox.driver import DesktopComputerDriver
from deskbox.errors import Cancelled, InvalidInput

DESKBOX = [sys.executable, "-m", "deskbox"]

one_pass = pytest.fixture(autouse=False)


def traces(desktop: Desktop) -> tuple[list[int], list[str], list[str]]:
    """What a drill could leave behind: windows, files in the home directory, programs."""
    files = desktop.exec(["ls", "-A"]).stdout.decode().split()
    programs = desktop.exec(["ps", "-e", "-o", "args="]).stdout.decode().splitlines()
    ours = [line for line in programs if "drill-" in line or line.startswith("l3afpad")]
    return sorted(window.id for window in desktop.windows()), files, ours


def test_the_drill_is_verified_in_every_view_and_leaves_nothing(desktop: Desktop) -> None:
    before = traces(desktop)
    started = time.monotonic()
    report = run_drill(desktop)
    assert [each.wrong for each in report.passes] == [(), (), ()]
    assert report.verified
    assert time.monotonic() - started < 60
    assert [each.planned.loop for each in report.passes] == ["toolset", "runner", "runner"]
    assert [each.outcome.usage.complete for each in report.passes] == [False, True, True]
    assert traces(desktop) == before
