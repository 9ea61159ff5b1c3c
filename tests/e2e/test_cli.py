"""Every command of `deskbox` as a user runs it: a process of its own, against a real desktop."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from PIL import Image
from tests.support.cli import DESKBOX, read, run, wait_for_title

from deskbox import Desktop

NAME = "cli-e2e"

# What is typed into the page shows in the window's title, which `windows` can read.
PAGE = """<!doctype html><meta charset=utf-8><title>empty</title>
<textarea autofocus style="position:fixed;inset:0;width:100%;height:100%"
 oninput="document.title = 'typed: ' + this.value"></textarea>"""


@pytest.fixture(scope="module")
def up(state_dir: Path) -> Iterator[dict[str, Any]]:
    """What `up --json` prints. The commands act on this desktop unless they name another."""
    os.environ["DESKBOX_NAME"] = NAME
    try:
        done = run("up", "--json", "--size", "1024x768", timeout=900)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stderr, "a start must show what it is doing"
        yield json.loads(done.stdout)
    finally:
        run("down")
        del os.environ["DESKBOX_NAME"]


@pytest.fixture
def page(up: dict[str, Any], tmp_path: Path) -> Callable[[str], None]:
    """Show the page, focused; the function it gives waits for a text to have arrived in it."""
    (tmp_path / "page.html").write_text(PAGE)
    assert run("cp", str(tmp_path / "page.html"), f"{NAME}:/tmp/page.html").returncode == 0
    assert run("open", "file:///tmp/page.html").returncode == 0
    _wait_for_title("empty")
    assert run("do", "mousemove 500 400 click 1").returncode == 0
    return lambda text: _wait_for_title(f"typed: {text}")


def _wait_for_title(text: str) -> None:
    wait_for_title(lambda title: text in title)


def test_up_gives_the_facts(up: dict[str, Any]) -> None:
    assert up["name"] == NAME
    assert up["size"] == [1024, 768]
    assert up["state"] == "running"
    assert up["engine"] == "xtest"
    assert 0 < up["timings_ms"]["agent"] < up["timings_ms"]["painted"]
    assert up["view_url"].startswith("http://127.0.0.1:")


def test_up_again_is_quick_and_prints_the_same_summary(up: dict[str, Any]) -> None:
    started = time.monotonic()
    done = run("up")
    assert time.monotonic() - started < 3
    assert done.returncode == 0
    summary = done.stdout.decode()
    for part in (f"{NAME} is already running", up["backend"], "1024x768", "http://127.0.0.1:"):
        assert part in summary
    for command in ("shot", "do", "drill", "down", "view"):
        assert f"deskbox {command}" in summary


def test_up_of_another_size_or_engine_is_refused(up: dict[str, Any]) -> None:
    assert "1024x768" in read("up", "--size", "800x600", code=1)["error"]["message"]
    error = read("up", "--engine", "xdotool", code=1)["error"]
    assert "already runs with the engine xtest: stop it first" in error["message"]


def test_ls(up: dict[str, Any]) -> None:
    [found] = [info for info in read("ls") if info["name"] == NAME]
    for key in ("name", "backend", "size", "engine", "state", "timings_ms"):
        assert found[key] == up[key]
    assert NAME in run("ls").stdout.decode()


def test_shot(up: dict[str, Any], tmp_path: Path) -> None:
    facts = read("shot", "-o", str(tmp_path / "whole.png"))
    assert facts["image_size"] == [1024, 768]
    with Image.open(tmp_path / "whole.png") as image:
        assert (image.format, image.size) == ("PNG", (1024, 768))
    read("shot", "-o", str(tmp_path / "part.webp"), "--region", "100,50,300,200", "--image-size", "150x100")
    assert read("shot", "-o", str(tmp_path / "now.png"), "--settle", "none")["settled"] == "none"
    assert read("shot", "-o", str(tmp_path / "fast.png"), "--settle", "0.1,1")["settle_ms"] <= 1050
    with Image.open(tmp_path / "part.webp") as image:
        assert (image.format, image.size) == ("WEBP", (150, 100))
    with Image.open(io.BytesIO(run("shot", "-o", "-").stdout)) as image:
        assert image.size == (1024, 768)


def test_shot_beyond_the_screen_is_bad_usage(up: dict[str, Any], tmp_path: Path) -> None:
    error = read("shot", "-o", str(tmp_path / "x.png"), "--region", "1000,0,100,100", code=2)["error"]
    assert error["kind"] == "invalid_input"
    assert list(tmp_path.iterdir()) == []


def test_shot_has_at_most_so_many_bytes(up: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "small.png"
    error = read("shot", "-o", str(path), "--max-bytes", "1500", code=1)["error"]
    assert error["kind"] == "image_too_large"
    assert error["data"]["limit"] == 1500 < error["data"]["bytes"]
    assert list(tmp_path.iterdir()) == []
    facts = read("shot", "-o", str(path), "--max-bytes", "9000", "--shrink")
    assert path.stat().st_size == facts["bytes"] <= 9000
    with Image.open(path) as image:
        assert list(image.size) == facts["image_size"]


def test_do_moves_the_pointer(up: dict[str, Any]) -> None:
    assert read("do", "mousemove 123 45")["pointer"] == [123, 45]
    done = run("do", "mousemove", "321", "54", "getmouselocation")
    assert done.returncode == 0
    assert b"x:321 y:54" in done.stdout


def test_do_refuses_a_bad_script_before_any_effect(up: dict[str, Any]) -> None:
    read("do", "mousemove 10 20")
    error = read("do", "mousemove 700 600 windowkill", code=2)["error"]
    assert "windowkill" in error["message"]
    assert read("do", "mousemove_relative 0 0")["pointer"] == [10, 20]


def test_type_and_key(page: Callable[[str], None]) -> None:
    assert run("type", "Zażółć 漢字 🙂").returncode == 0
    page("Zażółć 漢字 🙂")
    assert run("key", "CTRL+A", "DELETE").returncode == 0
    assert run("type", "-", stdin=b"from a pipe: $(id) 'quoted'").returncode == 0
    page("from a pipe: $(id) 'quoted'")
    assert run("key", "CTRL+A", "DELETE").returncode == 0
    started = time.monotonic()
    assert run("type", "--pace", "20", "at a hand's pace é").returncode == 0
    assert time.monotonic() - started > 18 / 20
    page("at a hand's pace é")
    assert "give 0.1 to 50" in read("type", "--pace", "500", "no", code=2)["error"]["message"]


def test_open_starts_a_closed_browser_again(page: Callable[[str], None]) -> None:
    assert run("key", "CTRL+Q").returncode == 0
    deadline = time.monotonic() + 20
    while any("Firefox" in window["app"] or "firefox" in window["app"] for window in read("windows")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert run("open", "file:///tmp/page.html").returncode == 0
    _wait_for_title("empty")


def test_exec_passes_everything_on(up: dict[str, Any]) -> None:
    done = run("exec", "-i", "--", "sh", "-c", "cat; echo no >&2; exit 7", stdin=b"yes\xff")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"yes\xff", b"no\n")
    result = read("exec", "--", "id", "-u")
    assert (result["stdout"], result["exit_code"]) == ("1000\n", 0)


def test_exec_streams(up: dict[str, Any]) -> None:
    process = subprocess.Popen(
        [DESKBOX, "exec", "--", "sh", "-c", "echo first; sleep 30"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=5) == 130
    process.stdout.close()
    assert "sleep 30" not in run("exec", "--", "ps", "ax").stdout.decode()


def test_exec_limits_time_and_output(up: dict[str, Any]) -> None:
    done = run("exec", "--timeout", "1", "--", "sleep", "30")
    assert done.returncode == 124
    assert b"killed after 1 s" in done.stderr
    done = run("exec", "--output-limit", "1000", "--", "seq", "100000")
    assert len(done.stdout) == 1000
    assert b"cut after 1000 bytes" in done.stderr


def test_exec_of_no_program_fails(up: dict[str, Any]) -> None:
    assert "no-such-program" in read("exec", "--", "no-such-program", code=1)["error"]["message"]


def test_cp_both_ways(up: dict[str, Any], tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "here.bin").write_bytes(data)
    assert read("cp", str(tmp_path / "here.bin"), f"{NAME}:there.bin")["bytes"] == len(data)
    assert read("cp", ":there.bin", str(tmp_path / "back.bin"))["bytes"] == len(data)
    assert (tmp_path / "back.bin").read_bytes() == data
    assert read("cp", ":no-such-file", str(tmp_path), code=1)["error"]["message"]
    assert read("cp", "here", "there", code=2)["error"]["kind"] == "invalid_input"


def test_windows(page: Callable[[str], None]) -> None:
    [active] = [window for window in read("windows") if window["active"]]
    assert active["width"] > 0
    assert active["title"] in run("windows").stdout.decode()


def test_view_gives_a_new_address_each_time(up: dict[str, Any]) -> None:
    first, second = read("view")["url"], run("view").stdout.decode().strip()
    assert first != second
    assert {url.split("/")[2].split(":")[0] for url in (first, second)} == {"127.0.0.1"}


def test_doctor_finds_the_desktop_well(up: dict[str, Any]) -> None:
    done = run("doctor", "--json")
    report = json.loads(done.stdout)
    assert report["ok"] == (done.returncode == 0)
    assert [check for check in report["checks"] if check["subject"] == NAME and not check["ok"]] == []


def test_ctrl_c_leaves_nothing_held(up: dict[str, Any]) -> None:
    process = subprocess.Popen([DESKBOX, "do", "keydown shift mousedown 1 sleep 30"])
    with Desktop.attach(NAME, observe=True) as observer:
        deadline = time.monotonic() + 10
        while not observer.held_inputs():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=5) == 130
        assert time.monotonic() - started < 1
        assert not observer.held_inputs()


def test_ctrl_c_stops_a_slow_text(page: Callable[[str], None]) -> None:
    process = subprocess.Popen([DESKBOX, "type", "--pace", "0.5", "slowly"])
    page("sl")
    assert process.poll() is None
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=5) == 130
    assert time.monotonic() - started < 1
    page("sl")


def test_no_such_desktop(up: dict[str, Any]) -> None:
    for command in (["shot", "-o", "x.png"], ["do", "click 1"], ["exec", "--", "true"], ["down"]):
        words = [command[0], "--name", "absent", *command[1:]]
        assert "absent" in read(*words, code=1)["error"]["message"]
        assert run(*words).returncode == 1


def test_bad_usage(up: dict[str, Any]) -> None:
    for words in (["shot", "--region", "1"], ["up", "--size", "1x1", "--name", "tiny"], ["key", "NOPE"]):
        done = run(*words)
        assert (done.returncode, done.stdout) == (2, b"")
        assert read(*words, code=2)["error"]["message"]


def test_down_leaves_nothing(up: dict[str, Any], state_dir: Path) -> None:
    """The last one here: it stops the desktop of the others."""
    assert read("down", NAME) == {"stopped": [NAME]}
    assert NAME not in [info["name"] for info in read("ls")]
    client = docker.from_env()
    assert client.containers.list(all=True, filters={"label": f"deskbox.name={NAME}"}) == []
    client.close()
    assert [path for path in state_dir.rglob("*") if NAME in path.name] == []
