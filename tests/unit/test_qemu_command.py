"""The command line of a machine, for each architecture, accelerator and host."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from deskbox.backends.qemu import command
from deskbox.backends.qemu.command import Accelerator, Architecture, Machine, Ram, System
from deskbox.errors import InvalidInput, Refused
from deskbox_guest import ports

MACHINE = Machine(
    program="/usr/bin/qemu-system-x86_64",
    arch="x86_64",
    accelerator="tcg",
    system="linux",
    kernel=Path("/c/kernel"),
    initramfs=Path("/c/initramfs"),
    disks=(Path("/c/root.squashfs"), Path("/c/agent.squashfs")),
    directory=Path("/d"),
    owner="owner",
    name="one",
)
HOSTS: list[tuple[System, Accelerator]] = [
    ("linux", "kvm"),
    ("linux", "tcg"),
    ("darwin", "hvf"),
    ("darwin", "tcg"),
]
ALL = [(arch, accelerator, system) for arch in command.ARCHITECTURES for system, accelerator in HOSTS]


def values(words: list[str], option: str) -> list[str]:
    return [value for word, value in itertools.pairwise(words) if word == option]


def value(words: list[str], option: str) -> str:
    (only,) = values(words, option)
    return only


def made(arch: Architecture, accelerator: Accelerator, system: System) -> list[str]:
    return command.command(replace(MACHINE, arch=arch, accelerator=accelerator, system=system))


@pytest.mark.parametrize(("arch", "accelerator", "system"), ALL)
class TestEverywhere:
    def test_board_processor_and_accelerator(
        self, arch: Architecture, accelerator: Accelerator, system: System
    ) -> None:
        words = made(arch, accelerator, system)
        board, cpu = value(words, "-machine"), value(words, "-cpu")
        assert board.startswith("q35,hpet=off" if arch == "x86_64" else "virt,")
        assert board.endswith(",memory-backend=ram")
        if arch == "aarch64":
            controller = {"kvm": "host", "hvf": "2", "tcg": "3"}[accelerator]
            assert f"gic-version={controller}," in board
        emulated = {"x86_64": "Nehalem,+rdrand", "aarch64": "max,pauth-impdef=on"}[arch]
        assert cpu == (emulated if accelerator == "tcg" else "host")
        expected = {"tcg": "tcg,thread=multi,tb-size=512"}.get(accelerator, accelerator)
        assert value(words, "-accel") == expected

    def test_it_has_no_network_no_display_and_no_writable_disk(
        self, arch: Architecture, accelerator: Accelerator, system: System
    ) -> None:
        words = made(arch, accelerator, system)
        assert "-nodefaults" in words
        assert "-no-user-config" in words
        assert value(words, "-display") == "none"
        assert not {"-nic", "-netdev", "-net", "-vga", "-usb", "-drive", "-hda", "-fsdev"} & set(words)
        kinds = {device.split(",")[0] for device in values(words, "-device")}
        usual = {"virtio-blk-pci", "virtio-rng-pci", "virtio-serial-pci", "virtserialport"}
        assert kinds == (usual | {"vmgenid"} if arch == "x86_64" else usual)
        assert all(disk.endswith(",read-only=on") for disk in values(words, "-blockdev"))

    def test_the_sandbox_is_on_where_there_is_one(
        self, arch: Architecture, accelerator: Accelerator, system: System
    ) -> None:
        sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
        assert values(made(arch, accelerator, system), "-sandbox") == ([sandbox] if system == "linux" else [])

    def test_the_kernel_is_told_where_its_console_is(
        self, arch: Architecture, accelerator: Accelerator, system: System
    ) -> None:
        said = value(made(arch, accelerator, system), "-append").split()
        assert ("console=ttyS0" in said) == (arch == "x86_64")
        assert ("console=ttyAMA0" in said) == (arch == "aarch64")
        assert ("mitigations=off" in said) == (accelerator == "tcg")

    def test_the_ports(self, arch: Architecture, accelerator: Accelerator, system: System) -> None:
        words = made(arch, accelerator, system)
        names = [ports.CONTROL, *ports.RPC]
        devices = [device for device in values(words, "-device") if device.startswith("virtserialport")]
        assert [device.split("name=")[1].split(",")[0] for device in devices] == names
        assert len({device.split("nr=")[1] for device in devices}) == len(names)
        sockets = [chardev for chardev in values(words, "-chardev") if chardev.startswith("socket")]
        assert [chardev.split("path=")[1].split(",")[0] for chardev in sockets] == [
            "/d/control.sock",
            *(f"/d/port{number}.sock" for number in range(len(ports.RPC))),
        ]
        assert all(chardev.endswith(",server=on,wait=off") for chardev in sockets)


def test_it_can_be_found_by_its_owner_and_name() -> None:
    assert value(command.command(MACHINE), "-name") == command.marker("owner", "one") == "deskbox:owner:one"
    assert command.marker("owner", "one").startswith(command.marker("owner"))


def test_memory() -> None:
    def backend(ram: Ram) -> str:
        words = command.command(replace(MACHINE, ram=ram))
        assert value(words, "-m") == f"{ram.mib}M"
        return next(text for text in values(words, "-object") if text.startswith("memory-backend"))

    file = Path("/d/ram")
    assert backend(Ram(512)) == "memory-backend-ram,id=ram,size=512M"
    assert backend(Ram(512, file)) == "memory-backend-file,id=ram,size=512M,mem-path=/d/ram,share=off"


def test_a_copy_is_the_same_machine_and_waits() -> None:
    first = replace(MACHINE, ram=Ram(512, Path("/b/ram")))
    copy = replace(MACHINE, ram=Ram(512, Path("/t/ram")), incoming=True, directory=Path("/e"), name="two")
    before, after = command.command(first), command.command(copy)
    assert after[-2:] == ["-incoming", "defer"]
    for option in ("-machine", "-cpu", "-smp", "-append", "-device", "-accel", "-blockdev"):
        assert values(before, option) == values(after, option)


def test_the_console_stays_in_memory_or_is_the_output() -> None:
    words = command.command(MACHINE)
    assert f"ringbuf,id=console,size={command.CONSOLE_BYTES}" in values(words, "-chardev")
    assert value(words, "-action") == "reboot=shutdown,shutdown=pause"
    words = command.command(replace(MACHINE, console="output", kernel_words=("deskbox.probe=x",)))
    assert "stdio,id=console,signal=off" in values(words, "-chardev")
    assert value(words, "-action") == "reboot=shutdown,shutdown=poweroff"
    assert value(words, "-append").endswith(" deskbox.probe=x")


def test_commas_in_paths_are_no_options() -> None:
    machine = replace(
        MACHINE,
        directory=Path("/a,readonly=x"),
        disks=(Path("/b,c"),),
        ram=Ram(512, Path("/r,share=on")),
    )
    words = command.command(machine)
    assert "driver=file,node-name=disk0,filename=/b,,c,read-only=on" in words
    assert "memory-backend-file,id=ram,size=512M,mem-path=/r,,share=on,share=off" in words
    assert any(text.startswith("unix:/a,,readonly=x/") for text in values(words, "-qmp"))
    assert all("path=/a,,readonly" in text for text in values(words, "-chardev") if "path=" in text)


@pytest.mark.parametrize(
    ("name", "arch"), [("x86_64", "x86_64"), ("amd64", "x86_64"), ("AMD64", "x86_64"), ("arm64", "aarch64")]
)
def test_architectures_by_any_of_their_names(name: str, arch: str) -> None:
    assert command.architecture(name) == arch


def test_another_architecture_is_refused() -> None:
    with pytest.raises(InvalidInput, match="can't be 'riscv64': it is x86_64 or aarch64"):
        command.architecture("riscv64")


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Refused, match=r"aarch64 is not installed: .*apt-get install qemu-system-arm"):
        command.find_program("aarch64")


def test_qemu_accepts_it(tmp_path: Path) -> None:
    """With -S nothing runs; QEMU has then parsed every word and made every device."""
    (tmp_path / "kernel").write_bytes(b"")
    machine = replace(MACHINE, program=command.find_program("x86_64"), directory=tmp_path, ram=Ram(64))
    for name in ("root", "agent"):
        (tmp_path / name).write_bytes(bytes(4096))
    words = command.command(replace(machine, disks=(tmp_path / "root", tmp_path / "agent")))
    # It has no kernel to load here, so it is told of none.
    for option in ("-kernel", "-initrd", "-append"):
        at = words.index(option)
        del words[at : at + 2]
    quit_at_once = '{"execute":"qmp_capabilities"}{"execute":"query-status"}{"execute":"quit"}'
    words += ["-S", "-chardev", "stdio,id=test,signal=off", "-mon", "chardev=test,mode=control"]
    done = subprocess.run(words, input=quit_at_once, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"status": "prelaunch"' in done.stdout
