"""Guests as virtual machines: a kernel of their own, no network card, no disk that can be written to.

A desktop starts as a copy of a machine that was frozen with its desktop painted, and is saved by freezing it
again: see `frozen` and `template`.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from deskbox.backends.base import Backend, Contents, Guest, GuestSpec, ImageSpec, Progress, Verdict
from deskbox.backends.qemu import command, frozen, process
from deskbox.backends.qemu.frozen import Frozen
from deskbox.backends.qemu.qmp import Qmp
from deskbox.errors import DeskboxError, Unavailable
from deskbox.processes import Process

if TYPE_CHECKING:  # a guest is started before anything is needed that waits for it
    from concurrent.futures import Future

    from deskbox.backends.connections import Connections

_TRIAL_S = 20.0
_OFF_S = 2.0  # seconds for a machine to switch itself off; it takes a tenth of one
_REINSTALL = "Install its Debian package again: qemu-system-x86 or qemu-system-arm."
_CONSOLE = "console.log"
_CONSOLE_KEPT = 256 * 1024  # characters
# Why QEMU says that a machine has ended (the event SHUTDOWN), as a clause.
_REASONS = {
    "guest-shutdown": "its machine switched itself off",
    "guest-reset": "its machine restarted, as after a fatal error of its kernel",
    "guest-panic": "its kernel had a fatal error",
    "host-signal": "its QEMU process was asked to end by a signal",
    "host-qmp-quit": "its QEMU process was asked to end",
}
# States of a machine that will never run again (query-status).
_OVER = {"shutdown", "guest-panicked", "internal-error"}


class QemuBackend(Backend):
    name = "qemu"
    saves: Contents = "machine"
    builds_for_others = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[str, Future[str]] = {}

    @classmethod
    def check(cls) -> Verdict:
        try:
            arch = command.architecture(os.uname().machine)
            program = command.find_program(arch)
        except DeskboxError as error:
            return Verdict(False, "there is no QEMU", str(error))
        trial = [program, "-machine", "none", "-nodefaults", "-display", "none", "-monitor", "stdio"]
        try:
            done = subprocess.run(
                trial, input="info version\nquit\n", capture_output=True, text=True, timeout=_TRIAL_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Verdict(False, f"QEMU does not start ({error})", _REINSTALL)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return Verdict(False, f"QEMU does not start ({said})", _REINSTALL)
        version = re.search(r"^\d+(\.\d+)+", done.stdout, re.MULTILINE)
        found = f"QEMU {version[0]} starts" if version else "QEMU starts"
        return Verdict(True, f"{found}; {_how_fast(arch)}")

    def prepare(self, wanted: ImageSpec, progress: Progress) -> str:
        from deskbox import machine_image  # what a start can do without, and need not wait for
        from deskbox.backends.qemu import template
        from deskbox.backends.qemu.probe import probe

        image = machine_image.ensure_machine_image(progress, packages=wanted.packages)
        found = probe(image, progress)
        return str(template.ensure(image, found.accelerator, wanted, progress))

    def discard(self, image: str) -> None:
        from deskbox.backends.qemu import template

        template.discard(Path(image))

    def build_for(self, arch: str, progress: Progress) -> None:
        from deskbox import machine_image

        machine_image.ensure_machine_image(progress, arch=command.architecture(arch))

    def prune(self, progress: Progress) -> None:
        from deskbox import machine_image
        from deskbox.backends.qemu import template

        machine_image.prune(progress)
        template.prune(progress)

    def start(self, spec: GuestSpec) -> Guest:
        source = Frozen(spec.snapshot if spec.snapshot is not None else Path(spec.image))
        record = source.record
        machine = source.machine(command.find_program(record.arch), record.kind.accelerator, spec.directory)
        running = process.launch(replace(machine, owner=spec.owner, name=spec.name))
        try:
            source.load(running)
            frozen.wake(running, url="" if spec.snapshot is not None else spec.url)
        except BaseException:
            process.end(running)
            raise
        return Guest(str(running), {"accelerator": record.kind.accelerator, "qemu": record.kind.program})

    def connections(self, directory: Path) -> Connections:
        from deskbox.backends.qemu.ports import Ports

        return Ports(directory)

    def wait(self, guest_id: str) -> str:
        from concurrent.futures import Future

        # One monitor tells it, and to one client only.
        with self._lock:
            end = self._ends.get(guest_id)
            if end is None:
                end = self._ends[guest_id] = Future()
                thread = threading.Thread(
                    target=lambda: end.set_result(_await_end(Process.parse(guest_id))),
                    daemon=True,
                    name="machine end",
                )
                thread.start()
        return end.result()

    def alive(self, guest_id: str) -> bool:
        running = Process.parse(guest_id)
        if not running.alive():
            return False
        try:
            with process.commands(running) as qmp:
                return qmp.execute("query-status")["status"] not in _OVER
        except Unavailable:  # it ends, or is being saved
            return running.alive()

    def pause(self, guest_id: str) -> None:
        with process.commands(Process.parse(guest_id)) as qmp:
            qmp.execute("stop")

    def resume(self, guest_id: str) -> None:
        with process.commands(Process.parse(guest_id)) as qmp:
            qmp.execute("cont")

    def save(self, guest_id: str, into: Path, progress: Progress) -> None:
        running = Process.parse(guest_id)
        progress("writing the machine's memory")
        frozen.write(running, Frozen.source(running).origin, into)

    def console(self, guest_id: str, directory: Path) -> str:
        # QEMU gives what it has once; so it is kept for the next one who asks. Not in the machine's own
        # directory: that may be another user's, who could have made a link of that name.
        log = directory.parent / _CONSOLE
        before = log.read_text(errors="replace") if log.exists() else ""
        text = (before + _read_console(Process.parse(guest_id)))[-_CONSOLE_KEPT:]
        log.write_text(text)
        return text

    def stop(self, guest_id: str) -> None:
        running = Process.parse(guest_id)
        process.power_off(running, _OFF_S)
        process.end(running)

    def guests(self, owner: str) -> dict[str, str]:
        prefix = command.marker(owner)
        return {
            str(running): marker.removeprefix(prefix)
            for running, marker in process.machines()
            if marker.startswith(prefix)
        }


def _how_fast(arch: command.Architecture) -> str:
    from deskbox.backends.qemu import probe

    known = probe.remembered(arch)
    if known is None:
        return "whether it can use KVM is found by a boot, at the first start"
    if known.accelerator == "tcg":
        return f"it has to emulate the processor ({known.detail})"
    return f"machines run with {known.accelerator}"


def _await_end(running: Process) -> str:
    """Wait until the machine has ended, or QEMU; why, as a clause."""
    try:
        with Qmp(command.monitor_sockets(process.directory_of(running))["end"]) as qmp:
            for event in qmp.events():
                if event["event"] == "SHUTDOWN":
                    reason = event["data"].get("reason", "")
                    why = _REASONS.get(reason, f"its machine ended ({reason})")
                    return f"{why}{_last_words(running)}"
    except Unavailable:
        pass
    running.wait()
    return "its QEMU process ended"


def _last_words(running: Process) -> str:
    """The console's last line. QEMU stays for it when the machine has ended."""
    try:
        lines = _read_console(running).strip().splitlines()
    except DeskboxError:
        return ""
    return f" and said: {lines[-1].strip()}" if lines else ""


def _read_console(running: Process) -> str:
    """What the console has said since the last time, as far as QEMU keeps it."""
    with process.commands(running) as qmp:
        return str(qmp.execute("ringbuf-read", device="console", size=command.CONSOLE_BYTES))
