"""The machine for ARM, up to its desktop: on another processor it is emulated, which takes minutes."""

from __future__ import annotations

import io
import platform
import re

import pytest
from PIL import Image

from deskbox.backends.qemu.trial import TrialMachine
from deskbox_guest import protocol


@pytest.mark.backends("qemu")
@pytest.mark.slow
@pytest.mark.timeout(5400)  # most of it to build the root, whose programs are emulated meanwhile
def test_an_arm_machine_comes_up_to_a_painted_desktop() -> None:
    with TrialMachine({"DESKBOX_SIZE": "1280x800"}, "aarch64") as machine:
        if platform.machine() != "aarch64":
            assert machine.found.accelerator == "tcg"
        assert machine.run("uname -m") == "aarch64\n"
        picture = Image.open(io.BytesIO(machine.picture())).convert("RGB")
        assert picture.size == (1280, 800)
        windows, _ = machine.call(protocol.WINDOWS)
        assert [window["title"] for window in windows["windows"]] == ["Deskbox — Mozilla Firefox"]
        # The page's own colours: its background over most of the screen, and its heading.
        colours = {colour: count for count, colour in picture.getcolors(1 << 24) or []}
        assert colours[(0xF4, 0xF5, 0xF7)] > 400_000
        assert colours[(0x20, 0x24, 0x2B)] > 1000
        status = machine.run("cat /proc/self/status")
        assert re.search(r"CapBnd:\s*0+\n", status)
        machine.control.ask("poweroff", timeout=60)
        assert machine.ended()
