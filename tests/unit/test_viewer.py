"""Who may watch: the viewer's door, with a stream that no guest stands behind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from deskbox import viewer as viewer_module
from deskbox.errors import Refused, Unavailable
from deskbox.viewer import Viewer, locate_novnc

BINARY = [Subprotocol("binary")]


class Echo:
    """A stream that greets, then returns what it gets."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.queue.put_nowait(b"RFB 003.008\n")
        self.reads = 0
        self.closed = False

    async def read(self) -> bytes:
        self.reads += 1
        return await self.queue.get()

    async def write(self, data: bytes) -> None:
        self.queue.put_nowait(data)

    async def close(self) -> None:
        self.closed = True


class Served:
    """A running viewer and what its guests' streams did."""

    def __init__(self, novnc: Path, **options: Any) -> None:
        self.streams: list[Any] = []
        self.make: Any = Echo
        self.viewer = Viewer(self.open_stream, novnc=novnc, title='a<b>"', **options)

    async def open_stream(self) -> Any:
        self.streams.append(self.make())
        return self.streams[-1]

    @property
    def port(self) -> int:
        match = re.search(r":(\d+)/", self.viewer.new_url())
        assert match
        return int(match[1])

    async def get(self, path: str, *headers: str, host: str | None = None) -> tuple[int, dict[str, str], str]:
        """One GET, by hand, because the clients that there are would correct what must be wrong here."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = [f"GET {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.port}'}", *headers, "", ""]
        writer.write("\r\n".join(lines).encode())
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).decode().partition("\r\n\r\n")
        writer.close()
        first, *rest = head.split("\r\n")
        return int(first.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in rest)}, body

    async def login(self) -> tuple[str, str]:
        """Use a link: (the base path, the cookie header)."""
        url = self.viewer.new_url()
        status, headers, _ = await self.get(url[url.index("/?") :])
        assert status == 303
        return headers["location"], "Cookie: " + headers["set-cookie"].split(";")[0]

    @asynccontextmanager
    async def watch(self, *, origin: str = "", cookie: bool = True, **options: Any) -> AsyncIterator[Any]:
        base, cookie_header = await self.login()
        headers = {"Cookie": cookie_header.removeprefix("Cookie: ")} if cookie else {}
        origin = origin or f"http://127.0.0.1:{self.port}"
        options = {"subprotocols": BINARY, "additional_headers": headers, "proxy": None, **options}
        if origin != "none":
            options["origin"] = origin
        async with connect(f"ws://127.0.0.1:{self.port}{base}stream", **options) as socket:
            yield socket


@pytest.fixture
def novnc(tmp_path: Path) -> Path:
    (tmp_path / "core").mkdir()
    (tmp_path / "vendor" / "pako").mkdir(parents=True)
    (tmp_path / "core" / "rfb.js").write_text("export default class {}")
    (tmp_path / "vendor" / "pako" / "x.js").write_text("1")
    (tmp_path / "secret.js").write_text("not served")
    return tmp_path


@pytest.fixture
async def served(novnc: Path) -> AsyncIterator[Served]:
    served = Served(novnc)
    await served.viewer.start()
    yield served
    await served.viewer.close()


async def test_a_link_opens_the_page_once(served: Served) -> None:
    url = served.viewer.new_url()
    assert url.startswith("http://127.0.0.1:")
    path = url[url.index("/?") :]
    status, headers, _ = await served.get(path)
    assert status == 303
    cookie = headers["set-cookie"]
    assert cookie.endswith(f"; Path={headers['location']}; HttpOnly; SameSite=Strict")
    status, headers, body = await served.get(headers["location"], "Cookie: " + cookie.split(";")[0])
    assert status == 200
    assert "a&lt;b&gt;&quot; · Deskbox" in body
    assert (await served.get(path))[0] == 403


async def test_every_answer_protects_itself(served: Served) -> None:
    base, cookie = await served.login()
    for path in ("/", base, base + "viewer.js", base + "none"):
        _, headers, _ = await served.get(path, cookie)
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers


async def test_without_the_cookie_there_is_nothing(served: Served) -> None:
    base, _ = await served.login()
    wrong = [(), ("Cookie: deskbox=",), ("Cookie: deskbox=x; other=y",), ("Cookie: nonsense",)]
    for headers in wrong:
        for name in ("", "viewer.js", "novnc/core/rfb.js", "session", "stream"):
            assert (await served.get(base + name, *headers))[0] == 403
    for path in ("/", "/?token=", "/?token=x", "/?other=x", "/favicon.ico"):
        assert (await served.get(path))[0] == 403


async def test_links_expire(novnc: Path) -> None:
    served = Served(novnc, link_valid_s=0.05)
    await served.viewer.start()
    url = served.viewer.new_url()
    await asyncio.sleep(0.1)
    assert (await served.get(url[url.index("/?") :]))[0] == 403
    await served.viewer.close()


async def test_only_files_of_the_viewer_are_served(served: Served) -> None:
    base, cookie = await served.login()
    status, headers, _ = await served.get(base + "novnc/core/rfb.js", cookie)
    assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert (await served.get(base + "novnc/vendor/pako/x.js", cookie))[0] == 200
    for name in ("novnc/secret.js", "novnc/../secret.js", "novnc/core/../../secret.js", "../../etc/passwd"):
        assert (await served.get(base + name, cookie))[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "[::1]:{port}"])
async def test_a_wrong_host_is_refused(served: Served, host: str) -> None:
    base, cookie = await served.login()
    url = served.viewer.new_url()
    for path in (base, url[url.index("/?") :]):
        assert (await served.get(path, cookie, host=host.format(port=served.port)))[0] == 403
    # The link was not used up by that.
    assert (await served.get(url[url.index("/?") :]))[0] == 303
    assert (await served.get(base, cookie, host=f"localhost:{served.port}"))[0] == 200


async def test_two_hosts_are_refused(served: Served) -> None:
    base, cookie = await served.login()
    assert (await served.get(base, cookie, f"Host: 127.0.0.1:{served.port}"))[0] == 403


async def test_a_viewer_gets_a_stream_of_its_own(served: Served) -> None:
    async with served.watch() as one, served.watch() as two:
        assert one.subprotocol == "binary"
        for socket, word in ((one, b"one"), (two, b"two")):
            assert await socket.recv() == b"RFB 003.008\n"
            await socket.send(word)
            assert await socket.recv() == word
        assert len(served.streams) == 2
    await _eventually(lambda: all(stream.closed for stream in served.streams))


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1:{port}", "null", "none"])
async def test_a_wrong_origin_is_refused(served: Served, origin: str) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        async with served.watch(origin=origin.format(port=served.port)):
            pass
    assert served.streams == []


async def test_no_stream_without_cookie_or_subprotocol(served: Served) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        async with served.watch(cookie=False):
            pass
    with pytest.raises(InvalidStatus, match="400"):
        async with served.watch(subprotocols=None):
            pass
    assert served.streams == []


async def test_a_guest_that_hangs_up_ends_the_viewer(served: Served) -> None:
    async with served.watch() as socket:
        await socket.recv()
        served.streams[0].queue.put_nowait(b"")
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    await _eventually(lambda: served.streams[0].closed)


async def test_a_guest_that_is_gone_ends_the_viewer(served: Served) -> None:
    def gone() -> Any:
        raise Unavailable("the desktop is gone")

    served.make = gone
    async with served.watch() as socket:
        with pytest.raises(ConnectionClosed, match="no stream"):
            await socket.recv()
    served.make = Echo
    async with served.watch() as socket:
        await socket.recv()


async def test_text_and_too_long_messages_end_the_viewer(served: Served) -> None:
    for message in ("text", b"x" * 100_000):
        async with served.watch() as socket:
            await socket.recv()
            await socket.send(message)
            with pytest.raises(ConnectionClosed):
                await socket.recv()
    await _eventually(lambda: all(stream.closed for stream in served.streams))


async def test_a_slow_viewer_holds_up_its_own_stream_only(served: Served) -> None:
    class Flood(Echo):
        async def read(self) -> bytes:
            self.reads += 1
            await asyncio.sleep(0)
            return b"x" * 65536

    served.make = Flood
    async with served.watch(max_queue=1) as slow:
        await asyncio.sleep(0.5)
        read = served.streams[0].reads
        await asyncio.sleep(0.3)
        # What was read is what the kernel's and both libraries' buffers hold: a few MB at most.
        assert served.streams[0].reads == read < 200
        served.make = Echo
        async with served.watch() as other:
            assert await asyncio.wait_for(other.recv(), 1) == b"RFB 003.008\n"
        slow.transport.abort()
    await _eventually(lambda: served.streams[0].closed)


async def test_more_viewers_than_allowed_are_told(novnc: Path) -> None:
    served = Served(novnc, max_viewers=1)
    await served.viewer.start()
    async with served.watch() as socket:
        await socket.recv()
        base, cookie = await served.login()
        status, _, text = await served.get(base + "session", cookie)
        assert status == 503
        assert "At most 1 may watch" in text
        async with served.watch() as second:
            await _closed(second)
    assert len(served.streams) == 1
    await served.viewer.close()


async def test_close_hangs_up(served: Served) -> None:
    async with served.watch() as socket:
        await socket.recv()
        await served.viewer.close()
        await _closed(socket)
    assert served.streams[0].closed


def test_novnc_is_found_or_the_sentence_says_what_to_do(
    novnc: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(viewer_module, "novnc_places", lambda: (tmp_path / "none", novnc))
    assert locate_novnc() == novnc
    monkeypatch.setattr(viewer_module, "novnc_places", lambda: (tmp_path / "none",))
    with pytest.raises(Refused, match="run `make up`"):
        locate_novnc()


async def _closed(socket: ClientConnection) -> None:
    with pytest.raises(ConnectionClosed):
        await asyncio.wait_for(socket.recv(), 5)


async def _eventually(condition: Any) -> None:
    async with asyncio.timeout(3):
        while not condition():
            await asyncio.sleep(0.01)
