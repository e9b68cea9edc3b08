"""An address for the other endpoints: links and metrics are only there. SPEC section 1.2."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from ingeborg.bench.starting import Ports, claim
from ingeborg.broker.command.serve import listen
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.shell.client_socket import ClientSocket
from ingeborg.broker.shell.server import EndpointServer
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.pages import fetch
from tests import wants
from tests.cluster.processes import eventually
from tests.conftest import Logged

from ..running import (
    PATIENCE_S,
    SECRET,
    certificate,
    ingeborg,
    plain,
    raw,
    raw_frame,
    round_trip,
    running,
    scheme,
    serving,
    serving_tls,
)

pytestmark = pytest.mark.usefixtures("transport", "logged")


@asynccontextmanager
async def with_internal(directory: Path, advertise: int = 1) -> AsyncIterator[tuple[EndpointServer, str, str]]:
    """An endpoint with an internal address; yields the clients' URL, and that one. ``advertise``: one of the two."""
    outside, inside = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    ports = [sock.getsockname()[1] for sock in (outside, inside)]
    urls = [f"{scheme()}://127.0.0.1:{port}/" for port in ports]
    me = Endpoint(f"endpoint-{ports[0]}", secrets.token_hex(8), urls[advertise].rstrip("/"), 0)
    server = EndpointServer(me, EmbeddedStore(directory), secret=SECRET, store_name="lmdb", certificate=certificate())
    await server.start(outside, inside)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await server.ready.wait()
        yield server, urls[0], urls[1]
    finally:
        await server.stop()


async def test_one_that_advertises_the_wrong_address_is_told_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, logged: Logged
) -> None:
    logged.expect("no link with .* it answers 404")
    async with with_internal(tmp_path, 0):
        sock = listen("127.0.0.1", 0)
        url = f"{scheme()}://127.0.0.1:{sock.getsockname()[1]}"
        # The smaller incarnation is the one that dials.
        dialler = EndpointServer(
            Endpoint("dialler", "0" * 16, url, 0),
            EmbeddedStore(tmp_path),
            secret=SECRET,
            store_name="lmdb",
            certificate=certificate(),
        )
        await dialler.start(sock)

        async def complained() -> bool:
            return "This endpoint accepts links only at its internal address" in caplog.text

        await eventually(complained, "the reason why there is no link")
        assert caplog.text.count("it answers 404") == 1  # though it dials repeatedly
        assert dialler.router.counters.errors["peer_handshake"] >= 1
        await dialler.stop()


async def test_links_and_metrics_are_there_and_only_there(tmp_path: Path) -> None:
    async with with_internal(tmp_path) as (one, outside, inside), with_internal(tmp_path) as (other, outside_2, _):

        async def linked() -> bool:
            return "ingeborg_peer_up{" in (await fetch(inside, "/metrics")).text

        await eventually(linked, "a link over the internal address")
        assert one.router.members.view() == [other.router.me.incarnation]
        await round_trip(outside)
        await round_trip(outside_2)
        assert (await fetch(inside, "/metrics")).status == 200
        page = await fetch(outside, "/metrics")
        assert (page.status, "internal address" in page.text) == (404, True)
        for url in (outside, inside):
            assert (await fetch(url, "/healthz")).status == (await fetch(url, "/readyz")).status == 200
        with pytest.raises(InvalidStatus, match="404"):
            async with connect(outside + "_peer"):
                pass
        with pytest.raises(InvalidStatus, match="404"):
            async with plain(inside):
                pass


async def test_without_one_links_of_other_machines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    real = ClientSocket.connection_made

    def elsewhere(self: ClientSocket, transport: asyncio.Transport) -> None:
        real(self, transport)
        look = transport.get_extra_info

        class Far:
            """The transport of a connection from another machine."""

            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

            def get_extra_info(self, name: str) -> object:
                return {"peername": (comes_from, 1234), "sockname": ("192.0.2.2", 9000)}.get(name) or look(name)

        self.transport = Far()

    async with running(tmp_path) as endpoint:
        async with connect(endpoint.url + "_peer") as link:  # from this machine
            assert await link.recv()
        monkeypatch.setattr(ClientSocket, "connection_made", elsewhere)
        comes_from = "192.0.2.2"  # its own destination: also this machine
        async with connect(endpoint.url + "_peer") as link:
            assert await link.recv()
        comes_from = "192.0.2.7"
        with pytest.raises(InvalidStatus) as refused:
            async with connect(endpoint.url + "_peer"):
                pass
        assert refused.value.response.status_code == 403
        assert b"--internal-address" in (refused.value.response.body or b"")


@pytest.fixture
def internal() -> Iterator[Ports]:
    """Return the port of an internal address."""
    with claim() as port:
        yield port


async def test_serve_tells_the_others_the_internal_address(tmp_path: Path, internal: Ports) -> None:
    port = internal.first
    options = ("--port", "0", "--internal-address", f"127.0.0.1:{port}", "--store", f"lmdb:{tmp_path / 'store'}")
    async with ingeborg(tmp_path, "serve", *options, *serving_tls()) as process:
        url = await process.ready_url()
        assert f":{port}" not in url  # people see the clients' port
        await round_trip(url)
        assert (await fetch(f"{scheme()}://127.0.0.1:{port}", "/metrics")).status == 200
        assert await process.end() == 0


#: Ways in which a client can try to pass for another: the request's target, and its answer at the internal address.
TARGETS = {
    "/": 404,
    "/?x": 404,
    "/anything": 404,
    "/_peer": 101,
    "/_peer?x": 101,
    "/_peer?access_token=x&y=/metrics": 101,
    "/_peer/": 404,
    "//_peer": 404,
    "/./_peer": 404,
    "/%5fpeer": 404,
    "/_PEER": 404,
    "/_peer#x": 404,
    "/_peer;x": 404,
    "_peer": 400,
    "/publish": 404,
    "/history?topic=a": 404,
    "ws://127.0.0.1/_peer": 404,
    "http://127.0.0.1": 404,
    "http://127.0.0.1/": 404,
    "http://127.0.0.1/metrics": 200,
    "http://127.0.0.1/_peer?x": 101,
    "http://127.0.0.1//_peer": 404,
    "http://127.0.0.1?/_peer": 404,
    "*": 404,
    "127.0.0.1:80": 400,
    "/metrics": 200,
    "/metrics?x": 200,
    "/Metrics": 404,
    "/metrics/": 404,
    "/healthz?x": 200,
    "/readyz?x": 200,
    "/console": 404,
    "/console?x": 404,
    "/console/": 404,
    "/console/console.js": 404,
    "/console/access": 404,
    "/console/access?origin=http://localhost": 404,
}

_WEBSOCKET = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"

#: The request's purpose: its headers, and whether that is a WebSocket.
UPGRADES = {
    "a WebSocket": (f"Upgrade: websocket\r\nConnection: Upgrade\r\n{_WEBSOCKET}", True),
    "in capitals": (f"UPGRADE: WebSocket\r\nCONNECTION: keep-alive, UPGRADE\r\n{_WEBSOCKET}", True),
    "nothing": ("", False),
    "no Upgrade": (f"Connection: Upgrade\r\n{_WEBSOCKET}", False),
    "no Connection": (f"Upgrade: websocket\r\n{_WEBSOCKET}", False),
    "HTTP/2": (
        f"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n{_WEBSOCKET}",
        False,
    ),
    "both": (f"Upgrade: h2c, websocket\r\nConnection: Upgrade\r\n{_WEBSOCKET}", False),
    "another version": (f"Upgrade: websocket\r\nConnection: Upgrade\r\n{_WEBSOCKET}".replace("13", "12"), False),
}

#: Requests with a body, and malformed ones: method, target, headers, status.
REQUESTS = (
    ("GET", "/metrics", "Content-Length: 5\r\n", 200),
    ("POST", "/metrics", "Content-Length: 5\r\n", 405),
    ("POST", "/_peer", "Transfer-Encoding: chunked\r\n", 405),
    ("GET", "/_peer", f"Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 5\r\n{_WEBSOCKET}", 400),
    ("GET", "/metrics", "Content-Length: x\r\n", 400),
)

_LISTEN = b'{"command": "listen", "client_id": "intruder"}'


async def _answer(port: int, target: str, headers: str) -> tuple[int, bytes]:
    """Return the status of the answer, and everything after it once a client's command was sent."""
    async with raw(f"{scheme()}://127.0.0.1:{port}") as connection:
        connection.writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            head = await connection.reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        if status == 101:
            connection.writer.write(raw_frame(0x81, _LISTEN) + raw_frame(0x88))
        return status, await connection.rest()


async def _status(port: int, method: str, target: str, headers: str) -> int:
    """Return the status of the answer to a request with a body."""
    async with raw(f"{scheme()}://127.0.0.1:{port}") as connection:
        connection.writer.write(f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n12345".encode())
        return int((await connection.rest()).split()[1])


async def test_the_internal_address_has_no_clients_however_they_ask(tmp_path: Path, internal: Ports) -> None:
    port = internal.first
    async with serving(tmp_path, "--internal-address", f"127.0.0.1:{port}") as (process, url):
        for target, expected in TARGETS.items():
            for asks, (headers, upgrades) in UPGRADES.items():
                status, rest = await _answer(port, target, headers)
                if expected == 101 and not upgrades:
                    assert status in (400, 426), (target, asks)
                    continue
                assert status == expected, (target, asks)
                # a link's handshake: the challenge, and then the end, since a command is not valid there
                if status == 101:
                    assert b"challenge" in rest, (target, asks)
                    assert b"success" not in rest, (target, asks)
        for method, target, headers, expected in REQUESTS:
            assert await _status(port, method, target, headers) == expected, (method, target, headers)
        outside = int(url.rstrip("/").rpartition(":")[2])
        for target in ("/_peer", "/_peer?x", "/metrics", "/metrics?x", "http://x/_peer", "HTTPS://x:1/metrics?x"):
            for asks, (headers, _) in UPGRADES.items():
                assert (await _answer(outside, target, headers))[0] == 404, (target, asks)
        metrics = (await fetch(f"{scheme()}://127.0.0.1:{port}", "/metrics")).text
        assert "\ningeborg_connections_accepted_total 0" in metrics
        assert await process.end() == 0
        assert "Traceback" not in process.said()
