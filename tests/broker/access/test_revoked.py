"""Revoked tokens over real sockets: closed connections, refused ones, and the messages of the command line. SPEC
section 2.4."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.exceptions import InvalidStatus

from ingeborg.broker.access.admission import Access, _not_accepted
from ingeborg.broker.access.callback import Callback
from ingeborg.broker.access.calling import Calling
from ingeborg.broker.access.claims import TokenError, TokenRevoked
from ingeborg.broker.access.tokens import Keys, make_token, new_keys
from ingeborg.broker.command.serve import listen
from ingeborg.broker.core.model import SUB, Endpoint, Revocation
from ingeborg.broker.shell.server import EndpointServer
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol import sockets
from ingeborg.protocol.client import Client, ClosedForGood
from ingeborg.protocol.errors import TOKEN_REVOKED
from ingeborg.protocol.pages import fetch

from ..running import (
    PATIENCE_S,
    SECRET,
    UNHURRIED,
    Running,
    certificate,
    ingeborg,
    plain,
    raw,
    raw_frame,
    running,
    scheme,
    serving,
)
from .asked import always, asked_server, claims, response

pytestmark = [pytest.mark.usefixtures("transport", "logged"), pytest.mark.above_sockets]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    new_keys(tmp_path / "keys")
    return tmp_path / "keys"


@pytest.fixture
async def endpoint(tmp_path: Path, file: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "store", access=Access(Keys(file))) as endpoint:
        yield endpoint


def token(file: Path, client: str, **claims: Any) -> str:
    return make_token(file, client, publish=[""], subscribe=[""], **claims)


def bearer(token: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {token}"}}


async def refused(url: str, token: str) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as error:
        async with plain(url, **bearer(token)):
            pass
    response = error.value.response
    return response.status_code, (response.body or b"").decode()


def ops(endpoint: Running, file: Path) -> Client:
    return Client(endpoint.url, "ops", token=make_token(file, "ops", revoke=True), timeout_s=PATIENCE_S)


async def test_who_is_revoked_is_sent_away_and_not_let_in_again(endpoint: Running, file: Path) -> None:
    mine, other = token(file, "anna", jti="t-1"), token(file, "anna", jti="t-2")
    async with plain(endpoint.url, **bearer(mine)) as named, plain(endpoint.url, **bearer(other)) as stays:
        for each, client in ((named, "anna"), (stays, "anna")):
            assert await each.ask({"command": "subscribe", "client_id": client, "topic": "t"}) == {"result": "success"}
        async with ops(endpoint, file) as operator:
            await operator.revoke(jti="t-1")
        assert await named.closed() == (TOKEN_REVOKED.code, TOKEN_REVOKED.reason)
        assert await stays.ask({"command": "listen", "client_id": "anna"}) == {"result": "success"}
    status, text = await refused(endpoint.url, mine)
    assert (status, text) == (401, "The token is not accepted: it has been revoked\n")
    metrics = await endpoint.metrics()
    assert metrics["ingeborg_connections_revoked_total"] == 1
    assert metrics["ingeborg_revoked_refused_total"] == 1
    assert metrics["ingeborg_revocations"] == 1
    assert metrics['ingeborg_connections_closed_total{code="4006"}'] == 1


async def test_the_python_client_is_told_and_does_not_connect_again(endpoint: Running, file: Path) -> None:
    lost: list[str] = []
    client = Client(
        endpoint.url, "anna", token=token(file, "anna"), listen=True, on_lost=lambda error: lost.append(str(error))
    )
    async with client, ops(endpoint, file) as operator:
        await operator.revoke(sub="anna")
        with pytest.raises(ClosedForGood) as ended:
            await asyncio.wait_for(anext(client), PATIENCE_S)
    assert (ended.value.code, client.reconnects) == (4006, 0)


async def test_of_a_subject_later_tokens_are_let_in(endpoint: Running, file: Path) -> None:
    now = time.time()
    async with ops(endpoint, file) as operator:
        revoked = await operator.revoke(sub="anna")
    assert revoked.issued_until is not None
    assert (await refused(endpoint.url, token(file, "anna", clock=lambda: now - 60)))[0] == 401
    issued = float(revoked.issued_until)
    assert (await refused(endpoint.url, token(file, "anna", clock=lambda: issued)))[0] == 401
    for later in (token(file, "anna", clock=lambda: issued + 1), token(file, "anna*", clock=lambda: now - 60)):
        async with plain(endpoint.url, **bearer(later)) as client:
            assert await client.ask({"command": "listen", "client_id": "anna"}) == {"result": "success"}


async def test_it_takes_a_permission(endpoint: Running, file: Path) -> None:
    async with plain(endpoint.url, **bearer(token(file, "anna", inspect=True))) as client:
        reply = await client.ask({"command": "revoke", "client_id": "anna", "jti": "t"})
        assert (reply["error"], reply["info"]) == ("forbidden", "The token does not permit revoking")
        reply = await client.ask({"command": "revoke", "client_id": "ops", "jti": "t"})
        assert reply["error"] == "unauthorized"


async def test_where_nobody_needs_a_token_there_is_none_to_be_revoked(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as endpoint, plain(endpoint.url) as client:
        reply = await client.ask({"command": "revoke", "client_id": "ops", "jti": "t"})
        assert (reply["error"], "requires no tokens" in reply["info"]) == ("forbidden", True)


async def test_a_client_that_reads_nothing_is_cut(endpoint: Running, file: Path) -> None:
    """Earlier messages block its connection, and so does the close after them."""
    async with raw(endpoint.url) as deaf, ops(endpoint, file) as operator:
        assert (await deaf.upgrade(f"/?access_token={token(file, 'anna', jti='t')}")).startswith(b"HTTP/1.1 101 ")
        for command in (b"listen", b"subscribe"):
            deaf.writer.write(raw_frame(0x81, b'{"command":"%b","client_id":"anna","topic":"t"}' % command))
        await endpoint.until(lambda metrics: metrics["ingeborg_clients"] == 1)
        async with Client(endpoint.url, "bert", token=token(file, "bert")) as bert:
            for number in range(12):
                await bert.publish("t", [number, "x" * 900_000], dedup=False, ack=True)
        await operator.revoke(jti="t")
        revoked_at = time.monotonic()
        await endpoint.until(lambda metrics: metrics["ingeborg_connections"] == 1)
        assert time.monotonic() - revoked_at < sockets.PATIENCE_S - 1  # the longest that the close could take


async def test_until_the_store_has_said_what_is_revoked_nobody_is_let_in(tmp_path: Path, file: Path) -> None:
    store = EmbeddedStore(tmp_path / "store", timeout_s=PATIENCE_S)
    revocations, answers = store.revocations, asyncio.Event()

    async def late() -> list[Revocation]:
        await answers.wait()
        return await revocations()

    store.revocations = late  # type: ignore[method-assign]
    sock = listen("127.0.0.1", 0)
    url = f"{scheme()}://127.0.0.1:{sock.getsockname()[1]}"
    options: dict[str, Any] = {"secret": SECRET, "store_name": "lmdb", "certificate": certificate()}
    access = Access(Keys(file))
    server = EndpointServer(Endpoint("a", "a-1", url, 0), store, access=access, patience=UNHURRIED, **options)
    await server.start(sock)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (page := await fetch(url, "/readyz")).text.count("revoked") == 0:
                pass
        assert (page.status, page.text) == (503, "the store has not said yet which tokens have been revoked\n")
        text = "This endpoint does not know yet which tokens have been revoked; try again in a moment\n"
        assert await refused(url, token(file, "anna")) == (503, text)
        assert not server.ready.is_set()
        answers.set()
        async with asyncio.timeout(PATIENCE_S):
            await server.ready.wait()
        assert (await fetch(url, "/readyz")).status == 200
        async with plain(url, **bearer(token(file, "anna"))) as client:
            assert await client.ask({"command": "listen", "client_id": "anna"}) == {"result": "success"}
    finally:
        answers.set()
        await server.stop()


async def test_by_the_operators_server_what_is_kept_lets_nobody_in_and_a_later_answer_does(tmp_path: Path) -> None:
    async with asked_server(always(response(200, claims(sub="anna", ingeborg={"subscribe": [""]})))) as server:
        calling = Calling(server.url, 5.0)
        now = [time.time()]
        callback = Callback(calling.ask, unix_clock=lambda: now[0])
        async with running(tmp_path / "store", access=Access(callback=callback)) as endpoint:
            async with plain(endpoint.url, **bearer("x")) as client:
                endpoint.server.router.clients.revoking._learn([Revocation(SUB, "anna", int(now[0]), int(now[0]) + 60)])
                endpoint.server.driver.turn()
                assert (await client.closed())[0] == TOKEN_REVOKED.code
            status, text = await refused(endpoint.url, "x")
            assert (status, text) == (401, "You may not connect: your access has been revoked\n")
            assert callback.answers["cache"] == 1
            now[0] += 1
            async with plain(endpoint.url, **bearer("y")):  # another session: the endpoint asks the server again
                pass
        await calling.close()


# The command line


@pytest.mark.over_tcp
async def test_a_token_is_taken_back_by_a_command(tmp_path: Path, file: Path) -> None:
    async with serving(tmp_path, "--auth-keys", str(file)) as (endpoint, url):
        for name, made in (("ops", make_token(file, "ops", revoke=True)), ("anna", token(file, "anna", jti="t-1"))):
            (tmp_path / name).write_text(made + "\n", encoding="utf-8")
        (tmp_path / "none").write_text("nonsense", encoding="utf-8")
        command = ("revoke", "--url", url, "--client-id", "ops", "--token-file", str(tmp_path / "ops"))
        async with plain(url, **bearer((tmp_path / "anna").read_text().strip())) as client:
            async with ingeborg(tmp_path, *command, "--token", str(tmp_path / "anna")) as process:
                await process.line(r"^revoked: token t-1; every endpoint knows it, and remembers it until 20\d\d-")
                assert await process.ended() == 0
            assert (await client.closed())[0] == TOKEN_REVOKED.code
        async with ingeborg(tmp_path, *command, "--subject", "bert", "--json") as process:
            said = orjson.loads(await process.line(r"^\{"))
            assert (said["sub"], said["expires_at"] - said["issued_until"] >= 30 * 86_400) == ("bert", True)
            assert await process.ended() == 0
        async with ingeborg(tmp_path, *command, "--token", str(tmp_path / "none")) as process:
            assert await process.ended() == 2
            assert "it is not a JWT" in process.said()
        async with ingeborg(tmp_path, *command, "--jti", "t", "--expires-at", "5") as process:
            assert await process.ended() == 1
            assert "bad_state" in process.said()
        assert "t-1" not in endpoint.said()


def test_the_answer_says_to_programs_that_a_token_has_been_revoked() -> None:
    said = {error: _not_accepted(error).headers["WWW-Authenticate"] for error in (TokenRevoked("x"), TokenError("y"))}
    assert list(said.values()) == [
        'Bearer error="invalid_token", error_description="revoked"',
        'Bearer error="invalid_token"',
    ]
