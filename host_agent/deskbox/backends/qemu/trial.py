"""A machine without a keeper: for tests of what is inside it, and for a first look on another computer.

python -m deskbox.backends.qemu.trial --arch aarch64 --picture desktop.png
"""

from __future__ import annotations

import argparse
import secrets
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from deskbox import machine_image
from deskbox.backends.qemu import command, probe
from deskbox.backends.qemu.control import Control
from deskbox.backends.qemu.qmp import Qmp
from deskbox.errors import DeskboxError
from deskbox.rpc.channel import Channel
from deskbox_guest import protocol

PATIENCE = 600.0  # seconds for a boot: emulated, on a busy computer


class TrialMachine:
    """Boots, starts the session with `environment`, and is gone after the `with` block."""

    def __init__(self, environment: dict[str, str], arch: str | None = None) -> None:
        image = machine_image.ensure_machine_image(print, arch=arch)
        self._directory = tempfile.TemporaryDirectory(prefix="dbx-machine-", dir="/tmp")
        self.path = Path(self._directory.name)
        self._control_path = command.control_socket(self.path)
        self.found = probe.probe(image, print)
        machine = command.Machine(
            program=command.find_program(image.arch),
            arch=image.arch,
            accelerator=self.found.accelerator,
            system=probe.system(),
            kernel=image.kernel,
            initramfs=image.initramfs,
            disks=image.disks,
            directory=self.path,
            owner="tests",
            name=secrets.token_hex(4),
        )
        self.process = subprocess.Popen(command.command(machine), stdin=subprocess.DEVNULL)
        try:
            self._dial(self._control_path).close()  # it listens now
            self.control = Control(self._control_path)
            self.control.ask("start", timeout=PATIENCE, environment=environment)
            self.channel = Channel(self._listening(self._dial(command.port_sockets(self.path)[0])))
        except BaseException as error:
            error.add_note(f"The console says: {self.console()}")
            self.close()
            raise

    def __enter__(self) -> TrialMachine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._directory.cleanup()

    def console(self) -> str:
        """The end of what the kernel and process 1 have said."""
        return str(self._monitor("ringbuf-read", device="console", size=command.CONSOLE_BYTES))

    def ended(self, within: float = 60.0) -> bool:
        """Whether the machine powers itself off."""
        deadline = time.monotonic() + within
        while self._monitor("query-status")["status"] != "shutdown":
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def run(self, script: str) -> str:
        """What a shell in the guest prints, as the user."""
        head = {"argv": ["sh", "-c", script], "timeout": 120.0, "output_limit": 1 << 20, "cwd": "", "env": {}}
        _, body = self.channel.call(protocol.EXEC, head, timeout=PATIENCE)
        frames = protocol.ExecReader().feed(body)
        return b"".join(data for kind, data in frames if kind != protocol.EXEC_EXIT).decode()

    def picture(self) -> bytes:
        """The screen as a PNG, once it is painted."""
        self.call(protocol.READY, timeout_s=PATIENCE)
        return self.call(protocol.STEP, frame={})[1]

    def call(self, path: str, **head: Any) -> tuple[dict[str, Any], bytes]:
        return self.channel.call(path, head, timeout=PATIENCE)

    def reconnect(self, last_words: bytes) -> None:
        """Let another host come to the control port, say something, and leave; then come back."""
        self.control.close()
        with self._dial(self._control_path) as sock:
            sock.sendall(last_words)
        self.control = Control(self._control_path)

    def _monitor(self, name: str, **arguments: Any) -> Any:
        qmp = Qmp(command.monitor_sockets(self.path)["commands"])
        try:
            return qmp.execute(name, **arguments)
        finally:
            qmp.close()

    def _dial(self, path: Path) -> socket.socket:
        while True:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(PATIENCE)
            try:
                sock.connect(str(path))
                return sock
            except OSError:
                sock.close()
                if self.process.poll() is not None:
                    raise DeskboxError("QEMU has ended.") from None
                time.sleep(0.02)

    def _listening(self, sock: socket.socket) -> socket.socket:
        heard = b""
        while not heard.endswith(protocol.LISTENING):
            data = sock.recv(1)
            if not data:
                raise DeskboxError("The machine has closed its port.")
            heard += data
        sock.settimeout(None)
        return sock


def main() -> None:
    parser = argparse.ArgumentParser(description="Boot a machine, take a picture of its desktop, and end it.")
    parser.add_argument("--arch", choices=command.ARCHITECTURES, help="another one than this computer's")
    parser.add_argument("--picture", type=Path, default=Path("desktop.png"), help="where to write the PNG")
    chosen = parser.parse_args()
    began = time.monotonic()
    with TrialMachine({}, chosen.arch) as machine:
        found = machine.found
        print(f"accelerator {found.accelerator}{f' ({found.detail})' if found.detail else ''}")
        print(f"the agent answers after {time.monotonic() - began:.1f} s")
        chosen.picture.write_bytes(machine.picture())
        print(f"the desktop is painted after {time.monotonic() - began:.1f} s: {chosen.picture}")


if __name__ == "__main__":
    main()
