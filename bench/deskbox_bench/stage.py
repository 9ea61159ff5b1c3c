"""The guest, ready for the bench: its desktop, the programs in it, the pages, and the subjects."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import docker

from deskbox import registry
from deskbox.backends.docker import connect
from deskbox.desktop import Desktop
from deskbox_bench import pages, peers
from deskbox_bench.program import Program
from deskbox_bench.subjects import Deskbox, DockerExec, InGuest, Limit, Subject

PACKAGES = ("imagemagick", "scrot")
SUBJECTS = ("deskbox", "limit", "xdotool+scrot", "docker exec", "pyautogui", "pynput")


@dataclass
class Stage:
    desktop: Desktop
    client: docker.DockerClient
    site: pages.Site
    meter: Program
    subjects: dict[str, Subject]

    def cpu_ms(self) -> float:
        """Processor time that the guest has used so far."""
        return float(self.meter.do("cpu_ms").result)


@contextmanager
def set_up(progress: Callable[[str], None]) -> Iterator[Stage]:
    """A fresh desktop, which ends with the context."""
    progress("fetching what the bench compares with")
    carried = peers.files()
    with ExitStack() as stack:
        desktop = stack.enter_context(Desktop.launch(backend="docker", packages=PACKAGES, progress=progress))
        progress("setting the guest up for the bench")
        client = stack.enter_context(contextlib.closing(connect()))
        record = registry.Home(desktop.name).read()
        assert record is not None, "it runs"
        folder = f"{desktop.facts().home}/bench"
        _carry(desktop, folder, {f"peers/{name}": data for name, data in carried.items()} | _programs())
        environment = {
            "DISPLAY": ":0",
            "XDG_SESSION_TYPE": "x11",  # pyautogui takes no screenshot without
            "PYTHONPATH": f"{folder}/peers",
        }

        def program(module: str) -> Program:
            return stack.enter_context(Program(client, record.guest_id, folder, module, environment))

        subjects: tuple[Subject, ...] = (
            Deskbox(desktop),
            Limit(program("limit")),
            InGuest(program("xdotool_scrot")),
            DockerExec(client, record.guest_id, environment),
            InGuest(program("pyautogui_peer")),
            InGuest(program("pynput_peer")),
        )
        site = stack.enter_context(pages.site(desktop, folder))
        yield Stage(desktop, client, site, program("meter"), dict(zip(SUBJECTS, subjects, strict=True)))


def _programs() -> dict[str, bytes]:
    folder = Path(str(resources.files("deskbox_bench"))) / "guest"
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".py", ".html")}


def _carry(desktop: Desktop, folder: str, carried: dict[str, bytes]) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in carried.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    desktop.exec(["mkdir", "-p", folder])
    desktop.exec(["tar", "-x", "-f", "-", "-C", folder], stdin=archive.getvalue())
