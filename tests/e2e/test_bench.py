"""`deskbox bench --quick` on a real guest: everybody has had their turn, and ours was exact. Not how fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deskbox import backends
from deskbox_bench.starts import MEMORY, MOMENTS
from deskbox_bench.works import SLEEPS, WORKS
from deskbox_guest.protocol import POLICIES

pytestmark = pytest.mark.timeout(1500)  # the first one may prepare what desktops are started from
DESKBOX = str(Path(sys.executable).with_name("deskbox"))
FACTS = {"date", "cpu", "cores", "memory", "kernel", "docker", "python", "xvfb", "firefox-esr", "xdotool"}


@pytest.fixture(scope="module")
def report(state_dir: Path) -> dict[str, Any]:
    done = subprocess.run([DESKBOX, "bench", "--quick", "--json"], capture_output=True, timeout=1440)
    assert done.returncode == 0, done.stderr.decode()
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_it_says_where_it_was_measured(report: dict[str, Any]) -> None:
    assert report["machine"].keys() >= FACTS
    assert all(report["machine"].values())


def test_everybody_took_part_in_everything(report: dict[str, Any]) -> None:
    took_part = {(result["work"], result["subject"]) for result in report["results"]}
    for work in WORKS:
        if work.name == "settle":
            wanted = {(f"settle {pad}", who) for pad in work.quick for who in (*POLICIES, *SLEEPS)}
        else:
            wanted = {(work.name, subject) for subject in work.quick}
        assert wanted <= took_part


def test_desktops_were_started_on_every_backend_that_works_here(report: dict[str, Any]) -> None:
    took_part = {(result["work"], result["subject"]) for result in report["results"]}
    usable = [name for name in backends.NAMES if backends.check(name).usable]
    works = {f"{kind} {moment}" for kind in ("start-warm", "start-fork") for moment in MOMENTS}
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        works |= {f"start-cold {moment}" for moment in MOMENTS}
    if os.geteuid() == 0:  # others may not look at the processes of every backend
        works |= {f"memory {kind}" for kind in (*MEMORY, "keeper")}
    assert {(work, backend) for work in works for backend in usable} <= took_part
    assert [what for what in report["left_out"] if what.startswith(tuple(usable))] == []


def test_what_happens_later_takes_longer(report: dict[str, Any]) -> None:
    found = {(result["work"], result["subject"]): result for result in report["results"]}
    for (work, backend), result in found.items():
        if work.startswith("start-warm"):
            times = [found[f"start-warm {moment}", backend]["p50_ms"] for moment in MOMENTS]
            assert times == sorted(times), backend
        if work == "memory alone":  # an X server and a browser, in at most what the guest may use
            assert 100 < result["memory_mb"] < 2200, backend


def test_numbers_are_numbers_of_something(report: dict[str, Any]) -> None:
    for result in report["results"]:
        assert 0 < result["p50_ms"] <= result["p95_ms"], result
        assert result["n"] > 0
        assert result.get("bytes_per_frame", 1e9) > 10_000, result
        assert 0 <= result.get("stale", 0) <= result["n"], result
    (agent,) = (result for result in report["results"] if result["work"] == "agent")
    assert agent["memory_mb"] > 10


def test_ours_is_exact(report: dict[str, Any]) -> None:
    typed = [result for result in report["results"] if result["work"].startswith("type-")]
    ours = [result for result in typed if result["subject"] == "deskbox"]
    assert len(ours) == 4
    assert [result["wrong_chars"] for result in ours] == [0, 0, 0, 0]
    # The count of wrong characters does tell: this one has no keys for most of them.
    (other,) = (
        result for result in typed if (result["work"], result["subject"]) == ("type-mixed-100", "pyautogui")
    )
    assert other["wrong_chars"] > 20


def test_a_picture_that_waits_for_what_it_knows_is_never_stale(report: dict[str, Any]) -> None:
    """Else the page would say the wrong thing, or be read wrongly."""
    limits = [
        result
        for result in report["results"]
        if result["subject"] == "limit" and result["work"].startswith("true-frame")
    ]
    assert [result["stale"] for result in limits] == [0, 0]
