"""Serves `settle.html` and answers that take their time. In the guest: `python3 witness_settle.py PORT`.

GET /?what=…            the page
GET /answer?ms=N        an answer after N ms
GET /news?ms=N          the same, for a page that always keeps such a request open
GET /slow               a page that takes 400 ms, with a style sheet and a picture of 400 ms each
GET /drip               a page whose body comes in six pieces, 250 ms apart
"""

from __future__ import annotations

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

SLOW_S, PIECES, PIECE_S = 0.4, 6, 0.25
SLOW_PAGE = b"""<!doctype html><title>Settle, slowly</title><link rel="stylesheet" href="/slow.css">
<p>Loaded</p><img src="/slow.svg" width="300" height="300">"""
SLOW_STYLE = b"body { background: #cfc; font-size: 60px }"
SLOW_PICTURE = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><rect width="1" height="1"/></svg>'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        match url.path:
            case "/":
                page = Path(__file__).with_name("settle.html").read_bytes()
                self._answer(page, "text/html; charset=utf-8")
            case "/answer" | "/news":
                time.sleep(int(parse_qs(url.query)["ms"][0]) / 1000)
                self._answer(b"ok", "text/plain")
            case "/slow":
                time.sleep(SLOW_S)
                self._answer(SLOW_PAGE, "text/html; charset=utf-8")
            case "/slow.css":
                time.sleep(SLOW_S)
                self._answer(SLOW_STYLE, "text/css")
            case "/slow.svg":
                time.sleep(SLOW_S)
                self._answer(SLOW_PICTURE, "image/svg+xml")
            case "/drip":
                self._drip()
            case _:
                self.send_error(404)

    def _answer(self, body: bytes, kind: str) -> None:
        self._head(kind, len(body))
        self.wfile.write(body)

    def _drip(self) -> None:
        pieces = [f"<p>Piece {number}</p>".ljust(2000).encode() for number in range(PIECES)]
        self._head("text/html; charset=utf-8", sum(map(len, pieces)))
        for piece in pieces:
            self.wfile.write(piece)
            time.sleep(PIECE_S)

    def _head(self, kind: str, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
