"""Serves `events.html` and keeps what the page reports: run it in the guest, `python3 witness_web.py [PORT]`.

GET  /        the page
GET  /log     {"events": [...], "state": {...}}: every event since the last clear, and the page as it is
GET  /state   only the page as it is
POST /clear   forget the events, and let the page obey {"focus": id, "clear": true, "scroll": [x, y]}; answers
              once it has
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 8765
PAGE_TIMEOUT_S = 20.0
POLL_S = 2.0  # how long the page's question for orders is held


class Log:
    """What the page has said and what it is to do next."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._events: list[dict[str, Any]] = []
        self._state: dict[str, Any] = {}
        self._order: dict[str, Any] = {}
        self._serial = 0
        self._done = 0

    def report(self, message: dict[str, Any]) -> None:
        with self._condition:
            self._state = message["state"]
            self._events += message.get("events", [])
            self._done = message.get("done", self._done)
            self._condition.notify_all()

    def read(self) -> dict[str, Any]:
        with self._condition:
            return {"events": list(self._events), "state": self._state}

    def order(self, order: dict[str, Any]) -> bool:
        """Give the page an order and wait until it has obeyed; then the log is empty."""
        with self._condition:
            self._serial += 1
            serial = self._serial
            self._order = {**order, "serial": serial}
            self._condition.notify_all()
            obeyed = self._condition.wait_for(lambda: self._done == serial, PAGE_TIMEOUT_S)
            self._events.clear()
            return obeyed

    def next_order(self, after: int) -> dict[str, Any]:
        """The order behind number `after`; {} if none comes soon."""
        with self._condition:
            self._condition.wait_for(lambda: self._serial > after, POLL_S)
            return self._order if self._serial > after else {}


LOG = Log()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/log":
            self._answer(200, json.dumps(LOG.read()).encode(), "application/json")
        elif self.path == "/state":
            self._answer(200, json.dumps(LOG.read()["state"]).encode(), "application/json")
        elif self.path.startswith("/orders?after="):
            order = LOG.next_order(int(self.path.rpartition("=")[2]))
            self._answer(200, json.dumps(order).encode(), "application/json")
        elif self.path.partition("?")[0] == "/":
            page = Path(__file__).with_name("events.html").read_bytes()
            self._answer(200, page, "text/html; charset=utf-8")
        else:
            self._answer(404, b"", "text/plain")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"
        if self.path == "/events":
            LOG.report(json.loads(body))
            self._answer(200, b"{}", "application/json")
        elif self.path == "/clear":
            obeyed = LOG.order(json.loads(body))
            self._answer(200 if obeyed else 504, b"{}", "application/json")
        else:
            self._answer(404, b"", "text/plain")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
