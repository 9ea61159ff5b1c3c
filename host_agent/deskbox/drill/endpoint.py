"""A Responses endpoint on 127.0.0.1 that a function answers: no key of anybody's, no network."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from deskbox.drill import rules, wire

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""Request body -> Response, both as JSON objects. A ValueError is told as HTTP 400."""

_BODY_LIMIT = 256 * 1024 * 1024  # a request repeats every screenshot so far


class Endpoint:
    """Serves `POST /v1/responses` while the context is open, as JSON or, if asked to stream, as events.

    Each has a port and a key of its own. Requests that the true API would refuse are refused in its way.
    """

    def __init__(self, answer: Answer) -> None:
        self.api_key = f"drill-{secrets.token_urlsafe(24)}"
        self.requests = 0  # that were answered
        self._server = _Server(self, answer)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="drill-endpoint",
            daemon=True,
        )

    def __enter__(self) -> Endpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()  # waits for the threads of the connections


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that server_close waits for them

    def __init__(self, endpoint: Endpoint, answer: Answer) -> None:
        self.endpoint = endpoint
        self.answer = answer
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            with self._open_lock:
                self._open.discard(request)

    def hang_up(self) -> None:
        """End the connections that clients keep open for a next request."""
        with self._open_lock:
            for connection in self._open:
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        endpoint = self.server.endpoint
        length = int(self.headers.get("Content-Length") or 0)
        if length > _BODY_LIMIT:
            self.close_connection = True
            self._send(413, wire.error(f"The request is larger than {_BODY_LIMIT} bytes."))
            return
        data = self.rfile.read(length)
        given = self.headers.get("Authorization") or ""
        if not hmac.compare_digest(given.encode(), f"Bearer {endpoint.api_key}".encode()):
            self._send(401, wire.error("Incorrect API key provided.", code="invalid_api_key"))
        elif self.path != "/v1/responses":
            self._send(404, wire.error(f"Unknown request URL: POST {self.path}.", code="unknown_url"))
        else:
            self._respond(data)

    def _respond(self, data: bytes) -> None:
        try:
            body = json.loads(data)
            refused = rules.problem(body)
            if refused is not None:
                raise ValueError(refused)
            answer = self.server.answer(body)
        except ValueError as error:  # of the JSON, the rules, the image
            self._send(400, wire.error(str(error)))
            return
        self.server.endpoint.requests += 1
        if body.get("stream"):
            self._stream(answer)
        else:
            self._send(200, answer)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, answer: dict[str, Any]) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in wire.events(answer):
            self.wfile.write(event)

    def log_message(self, format: str, *args: object) -> None:
        pass  # the run reports what matters
