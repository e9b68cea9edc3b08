"""An address for the other endpoints: links and metrics are there, and nowhere else. SPEC section 1.2."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from broker.core.model import Endpoint
from broker.endpoint import ClientSocket, EndpointServer
from broker.serve import listen
from broker.store.embedded import EmbeddedStore
from protocol.pages import fetch
from tests.cluster.processes import eventually, free_port
from tests.conftest import Logged

from .running import PATIENCE_S, SECRET, certificate, ingeborg, plain, round_trip, running, scheme, serving_tls

pytestmark = pytest.mark.usefixtures("transport", "logged")


@asynccontextmanager
async def with_internal(directory: Path, advertise: int = 1) -> AsyncIterator[tuple[EndpointServer, str, str]]:
    """An endpoint with an internal address; the clients' URL, and that one. ``advertise``: which of the two."""
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
            return "Links come in at this endpoint's internal address only" in caplog.text

        await eventually(complained, "the reason why there is no link")
        assert caplog.text.count("it answers 404") == 1  # though it is tried again and again
        assert dialler.router.errors["peer_handshake"] >= 1
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
    real = ClientSocket.connection_made

    def elsewhere(self: ClientSocket, transport: asyncio.Transport) -> None:
        real(self, transport)
        look = transport.get_extra_info

        class Far:
            """The transport, of a connection from another machine."""

            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

            def get_extra_info(self, name: str) -> object:
                return {"peername": (comes_from, 1234), "sockname": ("192.0.2.2", 9000)}.get(name) or look(name)

        self.transport = Far()  # type: ignore[assignment]

    async with running(tmp_path) as endpoint:
        async with connect(endpoint.url + "_peer") as link:  # of this machine
            assert await link.recv()
        monkeypatch.setattr(ClientSocket, "connection_made", elsewhere)
        comes_from = "192.0.2.2"  # where it goes to: of this machine, too
        async with connect(endpoint.url + "_peer") as link:
            assert await link.recv()
        comes_from = "192.0.2.7"
        with pytest.raises(InvalidStatus) as refused:
            async with connect(endpoint.url + "_peer"):
                pass
        assert refused.value.response.status_code == 403
        assert b"--internal-address" in (refused.value.response.body or b"")


async def test_serve_tells_the_others_the_internal_address(tmp_path: Path) -> None:
    port = free_port()
    options = ("--port", "0", "--internal-address", f"127.0.0.1:{port}", "--store", f"lmdb:{tmp_path / 'store'}")
    options += serving_tls()
    async with ingeborg(tmp_path, "serve", *options) as process:
        url = await process.ready_url()
        assert f":{port}" not in url  # people are told the clients' port
        await round_trip(url)
        assert (await fetch(f"{scheme()}://127.0.0.1:{port}", "/metrics")).status == 200
        assert await process.end() == 0
