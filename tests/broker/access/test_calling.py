"""One call of the operator's server, over real sockets: the request, the answer, and the failures."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest

from ingeborg.broker.access.callback import BODY_BYTES_MAX, Answer, CallFailed, Question, read_answer
from ingeborg.broker.access.calling import Calling
from ingeborg.broker.command.serve import listen

from ..transports import Authority
from .asked import HOSTILE, Behaviour, Server, always, asked_server, claims, response, silence

PATIENCE_S = 20.0
NOBODY = Question(())
ANN = Question((("authorization", "Bearer a.b"), ("cookie", "s=1; t=\u00e9")))


@asynccontextmanager
async def calling(url: str, timeout_s: float = PATIENCE_S) -> AsyncIterator[Calling]:
    made = Calling(url, timeout_s)
    try:
        yield made
    finally:
        await made.close()


async def failure(made: Calling) -> CallFailed:
    with pytest.raises(CallFailed) as failed:
        async with asyncio.timeout(PATIENCE_S):
            read_answer(await made.ask(ANN), 0)
    return failed.value


async def test_it_sends_the_headers_and_nothing_else_of_the_client() -> None:
    async with asked_server(always(response(200, claims()))) as server, calling(f"{server.url}?key=1") as made:
        assert await made.ask(ANN) == Answer(200, claims())
        assert await made.ask(NOBODY) == Answer(200, claims())
        assert await made.ask(Question((("x-twice", "1"), ("x-twice", "2")))) == Answer(200, claims())
    assert server.lines == ["GET /may-connect?key=1 HTTP/1.1"] * 3
    ours = {"host": server.url.split("/")[2], "accept": "application/json", "accept-encoding": "identity"}
    ours["user-agent"] = "ingeborg"
    assert server.requests[0] == {**ours, **dict(ANN.headers)}
    assert server.requests[1] == ours
    assert server.heads[2].count(b"x-twice: ") == 2
    assert server.connections == 1  # it stays open


async def test_a_body_may_have_so_many_bytes() -> None:
    body = claims().ljust(BODY_BYTES_MAX)
    async with asked_server(always(response(200, body))) as server, calling(server.url) as made:
        assert await made.ask(ANN) == Answer(200, body)
        server.behaviour = always(response(200, body + b" "))
        failed = await failure(made)
    assert "65,536 bytes" in str(failed)
    assert not failed.is_down


async def test_a_cookie_that_is_set_is_not_sent_with_the_next_client_s_call() -> None:
    told = response(200, claims(), "Set-Cookie: session=ann; Path=/\r\n")
    async with asked_server(always(told)) as server, calling(server.url.replace("127.0.0.1", "localhost")) as made:
        for _ in range(2):
            await made.ask(NOBODY)
    assert [request.get("cookie") for request in server.requests] == [None, None]


async def test_a_proxy_of_the_environment_is_not_told_tokens() -> None:
    async with asked_server(always(response(200, claims()))) as server, calling(server.url) as made:
        with mock.patch.dict("os.environ", http_proxy="http://127.0.0.1:1", HTTP_PROXY="http://127.0.0.1:1"):
            assert (await made.ask(ANN)).status == 200


@pytest.mark.parametrize("status", [401, 403])
async def test_a_denial_s_body_is_not_waited_for(status: int) -> None:
    begun = f"HTTP/1.1 {status} No\r\nContent-Length: 1000000\r\n\r\n".encode()
    async with asked_server(always(begun)) as server, calling(server.url) as made:
        assert await made.ask(ANN) == Answer(status)
        assert await made.ask(ANN) == Answer(status)


async def test_a_kept_connection_that_the_server_has_closed_is_no_failure() -> None:
    async def once(server: Server, request: dict[str, str], writer: asyncio.StreamWriter) -> None:
        """Close on the second request of a connection, as a server does whose idle time-out is over."""
        if len(server.requests) == 2:
            raise ConnectionError
        writer.write(response(200, claims()))

    async with asked_server(once) as server, calling(server.url) as made:
        for _ in range(2):
            assert (await made.ask(ANN)).status == 200
    assert len(server.requests) == 3


async def test_nobody_listens() -> None:
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    sock.close()
    async with calling(f"http://127.0.0.1:{port}/") as made:
        failed = await failure(made)
    assert str(failed).startswith("no connection: ")
    assert failed.is_down
    assert not failed.timed_out


@pytest.mark.parametrize("behaviour", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_server_gets_no_answer_accepted_and_no_time(behaviour: Behaviour) -> None:
    async with asked_server(behaviour) as server, calling(server.url, 0.3) as made:
        failed = await failure(made)
        assert "s3cr3t" not in str(failed)
        assert str(failed)
        # It has not affected later calls.
        server.behaviour = always(response(200, claims()))
        made._timeout_s = PATIENCE_S
        assert await made.ask(ANN) == Answer(200, claims())
    assert set(server.lines) == {"GET /may-connect HTTP/1.1"}


async def test_a_silent_server_has_so_much_time() -> None:
    async with asked_server(silence) as server, calling(server.url, 0.1) as made:
        failed = await failure(made)
    assert (str(failed), failed.is_down, failed.timed_out) == ("no answer within 0.1 s", True, True)


async def test_a_certificate_is_verified(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    pair = authority.issue(1)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.chain, pair.key)
    async with asked_server(always(response(200, claims())), tls) as server:
        with mock.patch.dict("os.environ", SSL_CERT_FILE=str(authority.file)):
            async with calling(server.url) as made:
                assert await made.ask(ANN) == Answer(200, claims())
        with mock.patch.dict("os.environ", SSL_CERT_FILE=str(other.file)):
            async with calling(server.url) as made:
                failed = await failure(made)
        assert str(failed).startswith("the endpoint does not accept the server's certificate: ")
        assert failed.is_down
        async with calling(server.url.replace("https:", "http:")) as made:  # the caller tries no TLS without https
            assert (await failure(made)).is_down
    assert len(server.requests) == 1


async def test_authorities_that_are_renewed_are_taken_by_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingeborg.broker.shell.tls.LOOK_S", 0.0)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    trusted = tmp_path / "authorities.pem"
    trusted.write_bytes(other.file.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    pair = authority.issue(1)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.chain, pair.key)
    async with asked_server(always(response(200, claims())), tls) as server, calling(server.url) as made:
        assert str(await failure(made)).startswith("the endpoint does not accept the server's certificate: ")
        trusted.write_bytes(other.file.read_bytes() + authority.file.read_bytes())
        assert await made.ask(ANN) == Answer(200, claims())
        connections = server.connections
        assert await made.ask(ANN) == Answer(200, claims())
        assert server.connections == connections  # an unchanged file is not read, and makes no new connection


async def test_a_call_that_is_given_up_leaves_nothing_behind() -> None:
    async with asked_server(silence) as server:
        async with calling(server.url) as made:
            task = asyncio.create_task(made.ask(ANN))
            await server.asked()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        server.release.set()
        await server.left()
