"""Which accelerator is chosen, after how long, and what is remembered. Real processes, but no QEMU."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from deskbox.backends.qemu import probe
from deskbox.backends.qemu.backend import _how_fast
from deskbox.backends.qemu.command import Accelerator, Machine
from deskbox.errors import DeskboxError, Refused
from deskbox.machine_image import MachineImage

# What is asked of QEMU; each test says what it does then.
_BEGINNING = """#!{python}
import os, re, sys, time
open({pid!r}, "w").write(str(os.getpid()))
secret = re.search("deskbox.probe=([0-9a-f]+)", " ".join(sys.argv))[1]
"""


def program(tmp_path: Path, body: str) -> Machine:
    """A machine whose QEMU is a small program; it is given the same words."""
    path = tmp_path / "qemu"
    path.write_text(_BEGINNING.format(python=sys.executable, pid=str(tmp_path / "pid")) + body)
    path.chmod(0o755)
    return Machine(
        program=str(path),
        arch="x86_64",
        accelerator="tcg",
        system="linux",
        kernel=tmp_path / "kernel",
        initramfs=tmp_path / "initramfs",
        disks=(),
        directory=tmp_path,
        owner="probe",
        name="x",
        console="output",
    )


def gone(tmp_path: Path) -> bool:
    return not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


def test_the_word_on_the_console_is_what_counts(tmp_path: Path) -> None:
    machine = program(tmp_path, "print('noise\\ndeskbox: reached', secret, flush=True); time.sleep(60)")
    assert probe.boots(machine) is None
    assert gone(tmp_path)


def test_a_kernel_that_only_repeats_its_command_line_has_not_booted(tmp_path: Path) -> None:
    machine = program(tmp_path, "print('Command line: deskbox.probe=' + secret, flush=True); time.sleep(60)")
    assert probe.boots(machine, 1.5) == "no kernel boots within 1.5 s"
    assert gone(tmp_path)


def test_silence_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    began = time.monotonic()
    assert probe.boots(program(tmp_path, "time.sleep(600)"), 1.0) == "no kernel boots within 1 s"
    assert time.monotonic() - began < 60
    assert gone(tmp_path)


def test_an_early_end_is_told_with_its_reason(tmp_path: Path) -> None:
    machine = program(tmp_path, "sys.exit('qemu: could not access KVM kernel module: Permission denied.')")
    assert probe.boots(machine) == (
        "it ended early, and said: qemu: could not access KVM kernel module: Permission denied"
    )


def test_a_console_without_end_takes_no_memory(tmp_path: Path) -> None:
    body = "\nfor _ in range(5000): print('x' * 1000)\nprint('deskbox: reached', secret)\n"
    assert probe.boots(program(tmp_path, body)) is None


def boots_with(*good: Accelerator) -> tuple[list[Accelerator], object]:
    asked: list[Accelerator] = []

    def boots(accelerator: Accelerator) -> str | None:
        asked.append(accelerator)
        return None if accelerator in good else "no kernel boots within 8 s"

    return asked, boots


def test_the_first_that_boots_is_chosen_and_the_others_are_told() -> None:
    asked, boots = boots_with("tcg")
    found = probe.choose([("kvm", None), ("tcg", None)], boots)  # type: ignore[arg-type]
    assert found == probe.Found("tcg", "kvm: no kernel boots within 8 s")
    assert asked == ["kvm", "tcg"]


def test_what_is_out_of_the_question_is_not_tried() -> None:
    asked, boots = boots_with("kvm", "tcg")
    found = probe.choose([("kvm", "there is no /dev/kvm"), ("tcg", None)], boots)  # type: ignore[arg-type]
    assert found == probe.Found("tcg", "kvm: there is no /dev/kvm")
    assert asked == ["tcg"]


def test_if_nothing_boots_all_reasons_are_told() -> None:
    _, boots = boots_with()
    with pytest.raises(DeskboxError, match=r"kvm: there is none; tcg: no kernel boots within 8 s\)"):
        probe.choose([("kvm", "there is none"), ("tcg", None)], boots)  # type: ignore[arg-type]


def test_another_architecture_can_only_be_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert probe.candidates("aarch64")[0][1] == "this computer is no aarch64"
    assert probe.candidates("aarch64")[1] == ("tcg", None)


def test_on_a_mac_hvf_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert probe.candidates("aarch64") == [("hvf", None), ("tcg", None)]


class TestMemory:
    @pytest.fixture
    def image(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineImage:
        monkeypatch.setenv("DESKBOX_CACHE_DIR", str(tmp_path))
        machine = program(
            tmp_path, f"open({str(tmp_path / 'boots')!r}, 'a').write('x'); print('reached', secret)"
        )
        monkeypatch.setattr(probe, "find_program", lambda arch: machine.program)
        monkeypatch.setattr(probe, "candidates", lambda arch: [("tcg", None)])
        for name in ("kernel", "initramfs"):
            (tmp_path / name).touch()
        root = tmp_path / "root"
        return MachineImage("x86_64", machine.kernel, machine.initramfs, root, root, "digest")

    def boots(self, tmp_path: Path) -> int:
        return len((tmp_path / "boots").read_text())

    def test_it_boots_once(self, image: MachineImage, tmp_path: Path) -> None:
        said: list[str] = []
        for _ in range(2):
            assert probe.probe(image, said.append) == probe.Found("tcg", "")
        assert self.boots(tmp_path) == len(said) == 1
        assert sorted(path.name for path in tmp_path.glob("accelerator*")) == ["accelerator-x86_64.json"]

    def test_another_kernel_is_tried_anew(self, image: MachineImage, tmp_path: Path) -> None:
        probe.probe(image, print)
        os.utime(image.kernel, ns=(1, 1))
        probe.probe(image, print)
        assert self.boots(tmp_path) == 2

    def test_what_was_found_can_be_told_without_an_image(
        self, image: MachineImage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(probe, "candidates", lambda arch: [("kvm", "there is none"), ("tcg", None)])
        assert probe.remembered("x86_64") is None
        assert _how_fast("x86_64").startswith("whether it can use KVM is found by a boot")
        found = probe.probe(image, print)
        assert probe.remembered("x86_64") == found == probe.Found("tcg", "kvm: there is none")
        assert _how_fast("x86_64") == "it has to emulate the processor (kvm: there is none)"
        image.kernel.unlink()
        assert probe.remembered("x86_64") is None

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"fingerprint": "x"}', "null"])
    def test_a_spoiled_memory_is_none(self, image: MachineImage, tmp_path: Path, text: str) -> None:
        (tmp_path / "accelerator-x86_64.json").write_text(text)
        assert probe.probe(image, print).accelerator == "tcg"
        assert json.loads((tmp_path / "accelerator-x86_64.json").read_text())["found"]["accelerator"] == "tcg"

    def test_a_failure_is_not_remembered(
        self, image: MachineImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(probe, "candidates", lambda arch: [("kvm", "there is none")])
        with pytest.raises(DeskboxError):
            probe.probe(image, print)
        assert not list(tmp_path.glob("accelerator*"))


def test_without_qemu_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    image = MachineImage("x86_64", tmp_path, tmp_path, tmp_path, tmp_path, "")
    with pytest.raises(Refused, match="qemu-system-x86_64 is not installed"):
        probe.probe(image, print)
