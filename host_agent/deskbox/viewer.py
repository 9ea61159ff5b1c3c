"""The page on which a person watches a desktop: noVNC on 127.0.0.1, view-only, behind a one-time link.

The link's token is exchanged once for a cookie that scripts can't read, is sent to no other site, and is sent
to no other server on this machine either, because it is bound to a path that only this viewer has. Each
WebSocket gets its own RFB stream from the guest, so viewers can't disturb each other.
"""

from __future__ import annotations

import asyncio
import hmac
import html
import http
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from deskbox.cache import cache_dir
from deskbox.errors import DeskboxError, Refused

_log = logging.getLogger(__name__)

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_NO_LINK = "This link is used up or has expired. Run `deskbox view` for a new one."
# What a viewer sends are requests for frames: 10 bytes each, a few hundred at the start.
_MAX_MESSAGE = 64 * 1024


def locate_novnc() -> Path:
    """The directory of noVNC: Debian's package, installed or unpacked. Raises Refused without one."""
    for place in novnc_places():
        if (place / "core" / "rfb.js").is_file():
            return place
    raise Refused(
        "noVNC, which shows the desktop in a browser, is not on this machine: run `make up` or "
        "`deskbox up --setup`, which fetch it, or install Debian's package novnc."
    )


def novnc_places() -> tuple[Path, Path]:
    """Where Debian's package puts noVNC, and where `provision` unpacks it without installing it."""
    return Path("/usr/share/novnc"), cache_dir() / "novnc"


class Stream(Protocol):
    """One RFB byte stream from the guest, in both directions."""

    async def read(self) -> bytes:
        """The next bytes; b"" when the guest has hung up."""

    async def write(self, data: bytes) -> None: ...
    async def close(self) -> None: ...


class Viewer:
    """Serves the page for one desktop.

    open_stream   opens a new RFB stream; whatever DeskboxError it raises, the page tries again
    novnc         the directory of noVNC, with core/ and vendor/ in it
    title         the desktop's name
    link_valid_s  how long a link from `new_url` may wait for its one use, in seconds
    max_viewers   how many may watch at a time: each costs the guest a process and 1 % of a core or more
    """

    def __init__(
        self,
        open_stream: Callable[[], Awaitable[Stream]],
        *,
        novnc: Path,
        title: str,
        link_valid_s: float = 3600.0,
        max_viewers: int = 8,
    ) -> None:
        self._open_stream = open_stream
        self._link_valid_s = link_valid_s
        self._max_viewers = max_viewers
        self._base = f"/{secrets.token_hex(8)}/"
        self._files = {self._base + name: data for name, data in _load_files(novnc, title).items()}
        self._links: dict[str, float] = {}  # token -> when it expires
        self._sessions: set[str] = set()
        self._watching = 0
        self._server: Server | None = None
        self._port = 0

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._server = await serve(
            self._watch,
            "127.0.0.1",
            0,
            process_request=self._answer,
            subprotocols=[Subprotocol("binary")],
            compression=None,  # pictures are compressed already
            max_size=_MAX_MESSAGE,
            max_queue=4,
            server_header=None,
            logger=_log,
        )
        self._port = next(iter(self._server.sockets)).getsockname()[1]

    async def close(self) -> None:
        """Hang up on all viewers and stop listening. Links and cookies are worth nothing afterwards."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def new_url(self) -> str:
        """A link that opens the page once, within `link_valid_s` seconds."""
        now = time.monotonic()
        self._links = {token: expires for token, expires in self._links.items() if expires > now}
        token = secrets.token_urlsafe(32)
        self._links[token] = now + self._link_valid_s
        return f"http://127.0.0.1:{self._port}/?token={token}"

    # --- HTTP --------------------------------------------------------------------------------------------
    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a request; None lets a WebSocket that may watch go on."""
        host = _only(request.headers, "Host")
        if host not in (f"127.0.0.1:{self._port}", f"localhost:{self._port}"):
            # A name that someone else lets point to 127.0.0.1 (DNS rebinding).
            return _reply(403, "This server answers to 127.0.0.1 and localhost only.")
        url = urlsplit(request.path)
        if url.path == "/":
            return self._open_session(parse_qs(url.query).get("token", []))
        if not self._has_session(request.headers):
            return _reply(403, _NO_LINK)
        if url.path == self._base + "stream":
            # Browsers let any page open a WebSocket to anywhere, with cookies in some cases.
            if _only(request.headers, "Origin") != f"http://{host}":
                return _reply(403, "The stream is for this viewer's own page.")
            return None
        if url.path == self._base + "session":
            if self._watching >= self._max_viewers:
                return _reply(503, f"At most {self._max_viewers} may watch at a time: close another viewer.")
            return _reply(204)
        body = self._files.get(url.path)
        if body is None:
            return _reply(404, "There is nothing here.")
        return _reply(200, body, _TYPES.get(Path(url.path).suffix, "text/html"))

    def _open_session(self, tokens: list[str]) -> Response:
        found = _find(tokens[0], self._links) if len(tokens) == 1 else None
        if found is None or self._links.pop(found) <= time.monotonic():
            return _reply(403, _NO_LINK)
        session = secrets.token_urlsafe(32)
        self._sessions.add(session)
        response = _reply(303)
        response.headers["Location"] = self._base
        response.headers["Set-Cookie"] = (
            f"deskbox={session}; Path={self._base}; HttpOnly; SameSite=Strict"  # ends with the browser
        )
        return response

    def _has_session(self, headers: Headers) -> bool:
        pairs = (
            pair.strip().partition("=") for line in headers.get_all("Cookie") for pair in line.split(";")
        )
        return any(name == "deskbox" and _find(value, self._sessions) for name, _, value in pairs)

    # --- WebSocket ---------------------------------------------------------------------------------------
    async def _watch(self, socket: ServerConnection) -> None:
        if self._watching >= self._max_viewers:
            await socket.close(1013, "too many viewers")
            return
        self._watching += 1
        try:
            stream = await self._open_stream()
            try:
                await _first_of(_to_viewer(stream, socket), _to_guest(socket, stream))
            finally:
                await stream.close()
        except (DeskboxError, OSError) as error:
            _log.info("a viewer lost its stream: %s", error)
            await socket.close(1011, "no stream")
        finally:
            self._watching -= 1


async def _to_viewer(stream: Stream, socket: ServerConnection) -> None:
    # A slow viewer holds up this loop and nothing else: its stream's window fills, and its x11vnc waits.
    # One that doesn't answer pings any more is closed by the server.
    while data := await stream.read():
        await socket.send(data)


async def _to_guest(socket: ServerConnection, stream: Stream) -> None:
    async for message in socket:
        if isinstance(message, str):
            await socket.close(1003, "binary messages only")
            return
        await stream.write(message)


async def _first_of(*jobs: Awaitable[None]) -> None:
    """Run jobs together until one of them ends; then all of them have ended."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, ConnectionClosed):
            raise result


def _load_files(novnc: Path, title: str) -> dict[str, bytes]:
    """All that is served, by name below the base. Nothing is looked up on disk when a request comes."""
    ours = resources.files(__package__)
    page = (ours / "viewer.html").read_text("utf-8").replace("{{title}}", html.escape(title))
    files = {
        "": page.encode(),
        "viewer.js": (ours / "viewer.js").read_bytes(),
        "viewer.css": (ours / "viewer.css").read_bytes(),
    }
    for part in ("core", "vendor"):
        for path in sorted((novnc / part).rglob("*.js")):
            files[f"novnc/{path.relative_to(novnc).as_posix()}"] = path.read_bytes()
    return files


def _reply(status: int, body: bytes | str = b"", content_type: str = "text/plain") -> Response:
    data = body.encode() if isinstance(body, str) else body
    headers = Headers(
        {
            "Content-Type": f"{content_type}; charset=utf-8",
            "Content-Length": str(len(data)),
            "Connection": "close",
            "Cache-Control": "no-store",
            "Content-Security-Policy": (
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            ),
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
    )
    if status == http.HTTPStatus.NO_CONTENT:
        del headers["Content-Length"]
    return Response(status, http.HTTPStatus(status).phrase, headers, data)


def _only(headers: Headers, name: str) -> str | None:
    values = headers.get_all(name)
    return values[0] if len(values) == 1 else None


def _find(secret: str, known: dict[str, float] | set[str]) -> str | None:
    """The entry that equals `secret`; the time it takes tells nothing about how near a guess is."""
    found = None
    for entry in known:
        if hmac.compare_digest(entry.encode(), secret.encode()):
            found = entry
    return found
