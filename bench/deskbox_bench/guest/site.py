"""Serves the pages to the guest's browser, and prints what they report: one JSON object a line.

    python3 site.py PORT

GET /NAME.html         a page that lies beside this file
GET /answer?after=MS   answers after so many milliseconds
POST /report           is printed
"""

from __future__ import annotations

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        page = Path(__file__).with_name(path.strip("/"))
        if path == "/answer":
            time.sleep(int(query.removeprefix("after=")) / 1000)
            self._answer(200, b"{}", "application/json")
        elif page.suffix == ".html" and page.exists():
            self._answer(200, page.read_bytes(), "text/html; charset=utf-8")
        else:
            self._answer(404, b"", "text/plain")

    def do_POST(self) -> None:
        print(self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self._answer(200, b"{}", "application/json")

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
    site = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print('{"kind": "serving"}', flush=True)
    site.serve_forever()
