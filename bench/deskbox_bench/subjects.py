"""Who is measured. Each does the same few things in its own way, and says how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import docker

from deskbox import actions
from deskbox.desktop import Desktop
from deskbox_bench.pages import Click, ClickPage
from deskbox_bench.program import Done, Program
from deskbox_guest.protocol import Frame, Settle

SETTLED = Settle()
FRAME = Frame()


class Subject(Protocol):
    def click(self, click: Click) -> Done: ...

    def screenshot(self) -> Done:
        """A picture of the whole screen, as the bytes of a PNG file."""
        ...

    def click_frame(self, click: Click) -> Done:
        """A click and a picture, with the pause between them that the subject makes by itself."""
        ...

    def true_frame(self, click: Click, page: ClickPage) -> Done:
        """The same, with all that the subject knows about when a picture is true."""
        ...

    def type(self, text: str) -> Done: ...


def timed(action: Callable[[], bytes]) -> Done:
    started, clock = time.time(), time.perf_counter()
    image = action()
    ms = (time.perf_counter() - clock) * 1000
    return Done(ms, started, started + ms / 1000, image)


def script(click: Click) -> str:
    return f"mousemove {click.x} {click.y} click 1"


class Deskbox:
    """Ours, from the call on the host until its answer is there."""

    def __init__(self, desktop: Desktop) -> None:
        self._desktop = desktop

    def click(self, click: Click) -> Done:
        return timed(lambda: self._desktop.step(script(click)).image)

    def screenshot(self) -> Done:
        return timed(lambda: self._desktop.step(frame=FRAME).image)

    def click_frame(self, click: Click) -> Done:
        return timed(lambda: self._desktop.step(script(click), frame=FRAME).image)

    def true_frame(self, click: Click, page: ClickPage) -> Done:
        return timed(lambda: self._desktop.step(script(click), settle=SETTLED, frame=FRAME).image)

    def type(self, text: str) -> Done:
        return timed(lambda: self._desktop.step(actions.type_script(text)).image)


class InGuest:
    """A program in the guest, timed there: no call from outside is in its figures."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def click(self, click: Click) -> Done:
        return self._program.do("click", click.x, click.y)

    def screenshot(self) -> Done:
        return self._program.do("screenshot")

    def click_frame(self, click: Click) -> Done:
        return self._program.do("click_frame", click.x, click.y)

    def true_frame(self, click: Click, page: ClickPage) -> Done:
        return self.click_frame(click)

    def type(self, text: str) -> Done:
        return self._program.do("type_text", text)


class Limit(InGuest):
    """Told what a true picture looks like, it waits for exactly that."""

    def true_frame(self, click: Click, page: ClickPage) -> Done:
        return self._program.do("true_frame", click.x, click.y, page.points, page.bits(click.number))


class DockerExec:
    """A `docker exec` for each action from the host: xdotool, and ImageMagick's import for a picture.

    By Docker's API, which saves the start of the program `docker`.
    """

    def __init__(self, client: docker.DockerClient, guest_id: str, environment: dict[str, str]) -> None:
        self._container = client.containers.get(guest_id)
        self._environment = environment

    def click(self, click: Click) -> Done:
        return timed(lambda: self._click(click))

    def screenshot(self) -> Done:
        return timed(self._import)

    def click_frame(self, click: Click) -> Done:
        return timed(lambda: self._click(click) + self._import())

    def true_frame(self, click: Click, page: ClickPage) -> Done:
        return self.click_frame(click)

    def type(self, text: str) -> Done:
        return timed(lambda: self._exec("xdotool", "type", "--", text))

    def _click(self, click: Click) -> bytes:
        return self._exec("xdotool", "mousemove", str(click.x), str(click.y), "click", "1")

    def _import(self) -> bytes:
        return self._exec("import", "-window", "root", "png:-")

    def _exec(self, *argv: str) -> bytes:
        done = self._container.exec_run(list(argv), stderr=False, environment=self._environment)
        assert isinstance(done.output, bytes), "it was not asked to stream"
        return done.output
