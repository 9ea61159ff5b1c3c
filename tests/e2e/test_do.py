"""What `deskbox do` promises of its script language, with both engines: a page in Firefox tells what came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.cli import read, run, wait_for_title

# The window's title says what happened last. A line of the text is 40 pixels high.
PAGE = """<!doctype html><meta charset=utf-8><title>loading</title>
<style>
  * { position: fixed; left: 0; width: 600px; margin: 0; border: 0; padding: 0; font: 20px/40px monospace }
  #text { top: 0; height: 120px } #other { top: 140px; height: 80px } #pad { top: 240px; height: 200px }
</style>
<textarea id=text>first line\nsecond line\nthird line</textarea><textarea id=other></textarea>
<div id=pad></div>
<script>
  let down = 0
  const say = (words) => document.title = words
  const values = () => say(`${text.value.replaceAll("\\n", "|")}; ${other.value};`)
  text.oninput = other.oninput = values
  pad.onmousedown = (event) => down = event.timeStamp
  pad.onmouseup = (event) => say(`held ${Math.round(event.timeStamp - down)}`)
  pad.onmousemove = (event) => say(`at ${event.clientX} ${event.clientY}`)
  requestAnimationFrame(() => requestAnimationFrame(() => say(`ready ${mozInnerScreenX} ${mozInnerScreenY}`)))
</script>"""
TITLE_END = " — Mozilla Firefox"


@dataclass
class Page:
    desktop: str
    left: int  # of the page on the screen
    top: int

    def do(self, *lines: str) -> None:
        done = run("do", "--name", self.desktop, *lines)
        assert done.returncode == 0, done.stderr.decode()

    def move(self, x: int, y: int) -> str:
        return f"mousemove {self.left + x} {self.top + y}"

    def says(self, start: str) -> str:
        """What follows `start` in the title, once it begins so."""
        title = wait_for_title(lambda title: title.startswith(start), "--name", self.desktop)
        return title.removeprefix(start).removesuffix(TITLE_END)


@pytest.fixture(scope="module", params=["xtest", "xdotool"])
def desktop(request: pytest.FixtureRequest, state_dir: Path) -> Iterator[str]:
    name = f"do-{request.param}"
    done = run("up", "--name", name, "--engine", request.param, "--url", "about:blank", timeout=900)
    assert done.returncode == 0, done.stderr.decode()
    yield name
    run("down", name)


@pytest.fixture
def page(desktop: str, tmp_path: Path) -> Page:
    (tmp_path / "do.html").write_text(PAGE)
    assert run("cp", str(tmp_path / "do.html"), f"{desktop}:/tmp/do.html").returncode == 0
    assert run("open", "--name", desktop, "file:///tmp/do.html").returncode == 0
    where = Page(desktop, 0, 0).says("ready ")
    assert run("shot", "--name", desktop, "-o", str(tmp_path / "painted.png")).returncode == 0
    left, top = map(round, map(float, where.split()))
    return Page(desktop, left, top)


def test_press_and_hold(page: Page) -> None:
    page.do(page.move(50, 300), "mousedown 1", "sleep 0.4", "mouseup 1")
    assert 400 <= int(page.says("held ")) < 1400


def test_a_triple_click_selects_a_line(page: Page) -> None:
    page.do(page.move(20, 60) + " click --repeat 3 --delay 40 1", "type -- 'new'")
    assert page.says("first line|new") == "|third line; ;"


def test_a_double_click_selects_a_word(page: Page) -> None:
    page.do(page.move(20, 60) + " click --repeat 2 1", "type -- 'new'")
    assert page.says("first line|new") == " line|third line; ;"


def test_relative_moves(page: Page) -> None:
    page.do(page.move(100, 300) + " mousemove_relative 30 40 mousemove_relative -- -20 -10")
    assert page.says("at 110 330") == ""


def test_the_middle_button_pastes_the_selection(page: Page) -> None:
    page.do(page.move(20, 20) + " click --repeat 3 1", page.move(20, 170) + " click 2")
    assert page.says("first line|second line|third line; ") == "first line;"


def test_what_is_no_command_is_refused_with_the_list_of_all(desktop: str) -> None:
    run("do", "--name", desktop, "mousemove 10 20")
    for command in ("windowkill", "search --name x", "exec xterm"):
        error = read("do", "--name", desktop, "mousemove 700 600 click 1", command, code=2)["error"]
        assert error["kind"] == "invalid_input"
        assert error["message"] == (
            f"{command.split()[0]!r} is no command of the script language, which is: mousemove, "
            "mousemove_relative, mousedown, mouseup, click [--repeat N] [--delay MS], key [--delay MS], "
            "keydown, keyup, type [--delay MS] [--] TEXT, sleep, getmouselocation"
        )
    assert read("do", "--name", desktop, "getmouselocation")["pointer"] == [10, 20]
