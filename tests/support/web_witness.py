"""The witness page in the guest's Firefox, and what it has seen."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.timing import patient

from deskbox.desktop import Desktop
from deskbox.errors import Cancelled
from deskbox_guest.protocol import Settle

SOURCES = Path(__file__).parent.parent / "witness"
PORT = 8765
HOME = "witness"
CURL = """
import sys, urllib.request
body = sys.argv[2].encode() if len(sys.argv) > 2 else None
print(urllib.request.urlopen(sys.argv[1], body, timeout=30).read().decode())
"""
# The guest ends a server within moments of being asked to, and the next one needs its port.
FREE = """
import socket, sys, time
end = time.monotonic() + 10
while time.monotonic() < end:
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
    except ConnectionRefusedError:
        sys.exit()
    time.sleep(0.02)
sys.exit("another witness still listens")
"""
LISTENING = """
import socket, sys, time
end = time.monotonic() + 10
while time.monotonic() < end:
    try:
        sys.exit(socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close())
    except ConnectionRefusedError:
        time.sleep(0.02)
sys.exit("the witness does not listen")
"""

Event = dict[str, Any]


class WebWitness:
    """Speaks with the witness server in the guest; the page is open and reports to it."""

    def __init__(self, desktop: Desktop) -> None:
        self._desktop = desktop

    def clear(self, **order: Any) -> None:
        """Forget all events and empty the fields; `focus` and `scroll` say how the page is to stand."""
        self._ask("/clear", {"clear": True, "scroll": [0, 0], **order})

    def log(self) -> tuple[list[Event], dict[str, Any]]:
        """Every event since the last clear, and the page's state."""
        answer = self._ask("/log")
        return answer["events"], answer["state"]

    def state(self) -> dict[str, Any]:
        """The page's state; `log` has too many events for one answer behind a long text."""
        return self._ask("/state")

    def until(
        self, condition: Callable[[list[Event], dict[str, Any]], bool], timeout: float = 5.0
    ) -> list[Event]:
        """Wait for events that arrive behind the action that caused them; the events as they are then."""
        deadline = time.monotonic() + patient(timeout)
        while True:
            events, state = self.log()
            if condition(events, state):
                return events
            assert time.monotonic() < deadline, f"not seen within {timeout} s: {brief(events)}, {state}"

    def saw(self, kind: str, count: int = 1) -> list[Event]:
        """Wait until so many events of a kind have arrived, and return all that came."""
        return self.until(lambda events, _: len(only(events, kind)) >= count)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        argv = ["python3", "-c", CURL, f"http://127.0.0.1:{PORT}{path}"]
        done = self._desktop.exec(argv if body is None else [*argv, json.dumps(body)])
        assert done.exit_code == 0, done.stderr.decode()
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def only(events: list[Event], *kinds: str) -> list[Event]:
    return [event for event in events if event["type"] in kinds]


def brief(events: list[Event]) -> list[str]:
    return [f"{event['type']}({event.get('x', '')},{event.get('y', '')})" for event in events]


@contextmanager
def web_witness(desktop: Desktop) -> Iterator[WebWitness]:
    """Serve the page inside the guest and show it, for as long as the context is open."""
    desktop.exec(["mkdir", "-p", HOME])
    for source in ("witness_web.py", "events.html"):
        desktop.write_file(f"{HOME}/{source}", (SOURCES / source).read_bytes())
    assert desktop.exec(["python3", "-c", FREE, str(PORT)]).exit_code == 0
    ended = threading.Event()

    def serve() -> None:
        command = ["python3", f"{HOME}/witness_web.py", str(PORT)]
        with suppress(Cancelled):
            desktop.exec(command, timeout=3600, cancelled=ended.is_set)

    server = threading.Thread(target=serve)
    server.start()
    try:
        witness = WebWitness(desktop)
        assert desktop.exec(["python3", "-c", LISTENING, str(PORT)]).exit_code == 0
        desktop.open_url(f"http://127.0.0.1:{PORT}/")
        witness.clear()  # answers once the page is there
        desktop.step(settle=Settle())  # and a page takes clicks only once it is painted
        yield witness
    finally:
        ended.set()
        server.join()
