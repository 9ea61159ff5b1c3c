"""A headless Chromium for tests, driven over its DevTools protocol: open a page, ask it, take a picture."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from websockets.sync.client import ClientConnection, connect

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
]


class Page:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._id = 0
        self.events: list[dict[str, Any]] = []  # console messages, exceptions and failed requests
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._id += 1
        self._socket.send(json.dumps({"id": self._id, "method": method, "params": parameters}))
        while True:
            message: dict[str, Any] = json.loads(self._socket.recv(timeout=20))
            if message.get("id") == self._id:
                assert "error" not in message, message
                return dict(message["result"])
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.events.append(message)

    def goto(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str, within: float = 10.0) -> float:
        """Wait until it is true; return how long that took, in seconds."""
        began = time.monotonic()
        while not self.evaluate(expression):
            waited = time.monotonic() - began
            assert waited < within, f"not true after {within} s: {expression}; {self.evaluate(_STATE)}"
            time.sleep(0.05)
        return time.monotonic() - began

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])


_STATE = "document.body.dataset.state + ': ' + document.body.innerText"


class Chromium:
    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._opener = build_opener(ProxyHandler({}))
        self._sockets = ExitStack()

    def page(self) -> Page:
        request = Request(f"{self._origin}/json/new?about:blank", method="PUT")
        with self._opener.open(request, timeout=10) as answer:
            address = json.load(answer)["webSocketDebuggerUrl"]
        return Page(self._sockets.enter_context(connect(address, proxy=None, max_size=None)))

    def close(self) -> None:
        self._sockets.close()


@contextmanager
def chromium(width: int = 1280, height: int = 900) -> Iterator[Chromium]:
    """A browser with a profile of its own; both are gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = ["chromium", *FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "TMPDIR": profile},  # it leaves its sockets there
        )
        try:
            browser = Chromium(f"http://127.0.0.1:{_port(process, Path(profile))}")
            try:
                yield browser
            finally:
                browser.close()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(process: subprocess.Popen[bytes], profile: Path) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            text = (profile / "DevToolsActivePort").read_text()
        except FileNotFoundError:
            text = ""
        if "\n" in text:
            return int(text.split("\n")[0])
        time.sleep(0.05)
    raise AssertionError(f"Chromium did not start: exit code {process.poll()}")
