"""`auth-url`: clients of an endpoint that asks the operator's server whether they may connect. SPEC section 1.5."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import shlex
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.exceptions import InvalidStatus

from ingeborg.broker.access.admission import SENT_ON_BYTES_MAX, Access
from ingeborg.broker.access.callback import (
    BODY_BYTES_MAX,
    CALLS_MAX,
    DENIED_S,
    FAILURES_MAX,
    GRANTED_S,
    LIFETIME_MAX_S,
    OPEN_S,
    WAITING_MAX,
    Callback,
)
from ingeborg.broker.access.calling import Calling
from ingeborg.broker.command.config import ServeOptions
from ingeborg.broker.command.serve import listen
from ingeborg.protocol import sockets
from ingeborg.protocol.client import Client
from ingeborg.protocol.pages import fetch, samples
from tests.conftest import Logged

from ..running import (
    HANDSHAKE,
    PATIENCE_S,
    Running,
    ingeborg,
    plain,
    raw,
    raw_frame,
    running,
    serving,
    serving_tls,
    started_by,
)
from .asked import HOSTILE, Behaviour, Server, always, asked_server, claims, response, silence

pytestmark = [pytest.mark.usefixtures("transport", "logged"), pytest.mark.above_sockets]

ROOT = Path(__file__).parents[3]
SUCCESS = {"result": "success"}
ANN = {"client_id": "ann"}
COMPLAINT = r"auth-url: the endpoint could not ask"


@asynccontextmanager
async def endpoint_of(
    url: str, directory: Path, timeout_s: float = PATIENCE_S, **options: Any
) -> AsyncIterator[Running]:
    """Run an endpoint that asks this URL."""
    calling = Calling(url, timeout_s)
    access = Access(callback=Callback(calling.ask), **options)
    try:
        async with running(directory / "store", access=access) as endpoint:
            yield endpoint
    finally:
        await calling.close()


@asynccontextmanager
async def asking(behaviour: Behaviour, directory: Path, **options: Any) -> AsyncIterator[tuple[Server, Running]]:
    """Run a server with that behaviour, and an endpoint that asks it."""
    async with asked_server(behaviour) as server, endpoint_of(server.url, directory, **options) as endpoint:
        yield server, endpoint


def callback(endpoint: Running) -> Callback:
    found = endpoint.server.status.callback
    assert found is not None
    return found


async def asked_about(endpoint: Running, number: int) -> None:
    """Wait until the endpoint asks about ``number`` connections."""
    async with asyncio.timeout(PATIENCE_S):
        while len(endpoint.server.clients.asking) < number:  # noqa: ASYNC110 - nothing of the endpoint says so
            await asyncio.sleep(0.01)


def bearer(token: str, **headers: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {token}", **headers}}


def cookie(value: str) -> dict[str, Any]:
    return {"additional_headers": {"Cookie": value}}


async def refused(url: str, **options: Any) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text."""
    with pytest.raises(InvalidStatus) as error:
        async with asyncio.timeout(PATIENCE_S), plain(url, **options):
            pass
    answer = error.value.response
    return answer.status_code, dict(answer.headers), (answer.body or b"").decode()


async def by_token(server: Server, request: dict[str, str], writer: asyncio.StreamWriter) -> None:
    """Answer a token that begins with `slow` when the test says so, and one that ends in a status with that status."""
    words = request.get("authorization", "").split()
    if "slow" in words:
        await server.release.wait()
    status = int(words[-1]) if words and words[-1].isdigit() else 200
    writer.write(response(status, claims() if status == 200 else b"s3cr3t"))


# -- Admission


@pytest.mark.parametrize("where", ["header", "query", "cookie"])
async def test_a_client_may_do_what_the_server_says(tmp_path: Path, where: str) -> None:
    body = claims(ingeborg={"publish": ["a/"], "subscribe_topics": ["a/1"]}, exp=1, iss="x")
    async with asking(always(response(200, body)), tmp_path) as (server, endpoint):
        url = f"{endpoint.url}?access_token=a.b%2Fc" if where == "query" else endpoint.url
        headers = {"header": bearer("a.b/c", **{"X-Forwarded-For": "1.2.3.4"}), "query": {}, "cookie": cookie("s=1")}
        async with plain(url, **headers[where]) as ann:
            assert await ann.ask({**ANN, "command": "listen"}) == SUCCESS
            assert await ann.ask({**ANN, "command": "subscribe", "topic": "a/1"}) == SUCCESS
            assert (await ann.ask({**ANN, "command": "subscribe", "topic": "a/2"}))["error"] == "forbidden"
            assert (await ann.ask({**ANN, "command": "broadcast", "payload": 1}))["error"] == "forbidden"
            assert (await ann.ask({"client_id": "bob", "command": "listen"}))["error"] == "unauthorized"
            for number in range(3):
                await ann.send({**ANN, "command": "publish", "topic": "a/1", "payload": number})
                assert await ann.hear() == {"key": "a/1", "broadcast": number}
        assert server.lines == ["GET /may-connect HTTP/1.1"]  # once, without any part of the client's path
        expected = {"cookie": "s=1"} if where == "cookie" else {"authorization": "Bearer a.b/c"}
        ours = {"host", "accept", "accept-encoding", "user-agent"}
        assert {name: value for name, value in server.requests[0].items() if name not in ours} == expected


async def test_a_token_of_the_query_does_not_stand_in_for_the_header(tmp_path: Path) -> None:
    async with asking(by_token, tmp_path) as (server, endpoint):
        async with plain(f"{endpoint.url}?access_token=401", **bearer("200")):
            pass
        async with (
            endpoint_of(server.url, tmp_path / "other", headers=("cookie",)) as other,
            plain(f"{other.url}?access_token=401"),  # the token does not go there if the header is not named
        ):
            pass
    assert [request.get("authorization") for request in server.requests] == ["Bearer 200", None]


async def test_named_headers_are_sent_on_and_no_others(tmp_path: Path) -> None:
    async with asking(by_token, tmp_path, headers=("x-key",)) as (server, endpoint):
        headers = {"Authorization": "Bearer 401", "Cookie": "s=1", "X-Key": "caf\u00e9"}
        async with raw(endpoint.url) as connection:
            sent = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            assert b" 101 " in await connection.upgrade(headers=sent)
    assert server.requests[0].get("x-key") == "caf\u00e9"
    assert server.requests[0].keys() == {"host", "accept", "accept-encoding", "user-agent", "x-key"}


async def test_a_denial_has_the_server_s_status_and_a_text_of_ours(tmp_path: Path) -> None:
    async with asking(by_token, tmp_path) as (server, endpoint):
        for status in (401, 403):
            for _ in range(2):
                found, headers, text = await refused(endpoint.url, **bearer(f"{status}"))
                assert found == status
                assert text.startswith("You may not connect: ")
                assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
        assert len(server.requests) == 2
        metrics = await endpoint.metrics()
        assert metrics["ingeborg_connections_refused_total"] == 4
        assert metrics['ingeborg_auth_calls_total{outcome="denied"}'] == 2
        assert metrics['ingeborg_auth_answers_total{source="cache"}'] == 2


@pytest.mark.over_tcp
async def test_a_hostile_server_lets_nobody_in(
    tmp_path: Path, logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    logged.expect(COMPLAINT)
    async with asking(by_token, tmp_path, timeout_s=1.0) as (server, endpoint):
        asked = 0
        for number, (name, behaviour) in enumerate(HOSTILE.items()):
            callback(endpoint).breaker.succeeded()  # otherwise the breaker would stop the calls
            server.behaviour = behaviour
            status, headers, text = await refused(endpoint.url, **cookie(f"{number}"))
            assert (status, headers.get("retry-after")) == (503, "1"), name
            assert text == "The endpoint could not ask whether you may connect; try again in a moment\n"
            assert len(server.requests) > asked, name
            asked = len(server.requests)
        assert {line.split()[1] for line in server.lines} == {"/may-connect"}
        server.behaviour = by_token
        async with plain(endpoint.url, **bearer("200")) as ann:
            assert await ann.ask({**ANN, "command": "listen"}) == SUCCESS
        assert (await endpoint.metrics())["ingeborg_connections_accepted_total"] == 1
    assert "s3cr3t" not in caplog.text
    assert 1 <= len(re.findall(COMPLAINT, caplog.text)) <= 4


async def test_a_server_that_is_down_is_left_alone_for_a_while(tmp_path: Path, logged: Logged) -> None:
    logged.expect(COMPLAINT)
    sock = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/"
    sock.close()
    async with endpoint_of(url, tmp_path) as endpoint:
        for _ in range(7):
            status, headers, _text = await refused(endpoint.url, **bearer("x"))
            assert (status, headers["retry-after"]) == (503, "1")
        metrics = await endpoint.metrics()
        assert metrics['ingeborg_auth_calls_total{outcome="failed"}'] == 5
        assert metrics['ingeborg_auth_answers_total{source="breaker"}'] == 2
        assert metrics["ingeborg_auth_breaker_open"] == 1


async def test_it_counts_what_it_asks(tmp_path: Path) -> None:
    async with asking(by_token, tmp_path) as (server, endpoint), AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(plain(endpoint.url, **bearer("200")))
        waits = asyncio.create_task(stack.enter_async_context(plain(endpoint.url, **bearer("slow"))))
        await server.asked(2)
        metrics = await endpoint.metrics()
        assert {name: value for name, value in metrics.items() if name.startswith("ingeborg_auth") and value} == {
            'ingeborg_auth_calls_total{outcome="granted"}': 1,
            'ingeborg_auth_answers_total{source="call"}': 1,
            'ingeborg_auth_answers_total{source="cache"}': 2,
            "ingeborg_auth_calls_under_way": 1,
            "ingeborg_auth_seconds_count": 1,
            "ingeborg_auth_seconds_sum": metrics["ingeborg_auth_seconds_sum"],
            **{name: value for name, value in metrics.items() if "auth_seconds_bucket" in name and value},
        }
        assert metrics['ingeborg_evictions_total{cache="auth"}'] == 0
        server.release.set()
        await waits
    async with running(tmp_path / "without") as endpoint:
        assert not [name for name in await endpoint.metrics() if "auth" in name]


# -- During a call


async def test_others_are_served_while_a_client_waits_and_what_it_has_sent_waits_with_it(tmp_path: Path) -> None:
    listen_, more = (orjson.dumps({"client_id": "ann", "command": "listen", "id": number}) for number in (1, 2))
    async with asking(by_token, tmp_path) as (server, endpoint), plain(endpoint.url, **bearer("200")) as other:
        assert await other.ask({**ANN, "command": "listen"}) == SUCCESS
        assert await other.ask({**ANN, "command": "subscribe", "topic": "t"}) == SUCCESS
        async with raw(endpoint.url) as waits:
            headers = "Authorization: Bearer slow\r\n"
            upgraded = asyncio.create_task(waits.upgrade(headers=headers, behind=raw_frame(0x81, listen_)))
            await server.asked(2)
            waits.writer.write(raw_frame(0x81, more))
            for number in range(20):
                await other.send({**ANN, "command": "publish", "topic": "t", "payload": number})
                assert await other.hear() == {"key": "t", "broadcast": number}
            assert not upgraded.done()
            assert len(endpoint.server.clients.sockets) == 1
            assert not endpoint.server.clients._waiting._waiting  # it gets no needless turns
            server.release.set()
            assert b" 101 " in await upgraded
            for number in (1, 2):
                assert orjson.loads((await waits.frame())[1]) == {**SUCCESS, "id": number}
        assert not endpoint.server.clients.asking


async def test_nothing_is_taken_of_who_is_denied(tmp_path: Path) -> None:
    async with asking(by_token, tmp_path) as (server, endpoint), raw(endpoint.url) as denied:
        frames = raw_frame(0x81, b"{") * 100 + raw_frame(0x88) + b"\xff" * 100
        upgraded = asyncio.create_task(denied.upgrade(headers="Authorization: Bearer slow 403\r\n", behind=frames))
        await server.asked()
        denied.writer.write(bytes(100_000))
        server.release.set()
        assert b" 403 " in await upgraded
        assert await denied.rest() == b"You may not connect: the server denies it\n"
        metrics = await endpoint.metrics()
        assert metrics["ingeborg_connections_accepted_total"] == metrics["ingeborg_turns_failed_total"] == 0
        assert not [name for name, value in metrics.items() if name.startswith("ingeborg_errors_total") and value]


async def test_many_with_the_same_headers_share_a_call(tmp_path: Path) -> None:
    async with asking(by_token, tmp_path) as (server, endpoint), AsyncExitStack() as stack:
        coming = [
            asyncio.create_task(stack.enter_async_context(plain(endpoint.url, **bearer("slow")))) for _ in range(50)
        ]
        await asked_about(endpoint, 50)
        server.release.set()
        for client in coming:
            assert await (await client).ask({**ANN, "command": "listen"}) == SUCCESS
        assert len(server.requests) == 1
        assert callback(endpoint).answers["shared"] == 49


async def test_the_time_for_a_handshake_goes_on_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(silence, tmp_path) as (server, endpoint):
        monkeypatch.setattr(sockets, "PATIENCE_S", 0.3)
        async with raw(endpoint.url) as connection:
            upgraded = asyncio.create_task(connection.upgrade())
            await server.asked()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)) as ended:
                await upgraded
            assert getattr(ended.value, "partial", b"") == b""
        assert not endpoint.server.clients.asking
        monkeypatch.undo()
        server.release.set()  # the call continues to its end, and its answer is cached
        async with plain(endpoint.url):
            assert len(server.requests) == 1


@pytest.mark.parametrize("how", ["abort", "half-close", "close"])
async def test_a_client_that_goes_away_meanwhile_leaves_nothing_behind(tmp_path: Path, how: str) -> None:
    options: dict[str, Any] = {"proxies": [ip_network("127.0.0.0/8")], "per_address_max": 1}
    forwarded = "X-Forwarded-For: 192.0.2.1\r\n"
    async with asking(silence, tmp_path, **options) as (server, endpoint):
        clients = endpoint.server.clients
        async with raw(endpoint.url) as connection:
            upgraded = asyncio.create_task(connection.upgrade(headers=forwarded, behind=raw_frame(0x81, b"{}")))
            await server.asked()
            (socket,) = map(weakref.ref, clients.asking)
            if how == "half-close":
                connection.writer.write_eof()
            elif how == "close":
                connection.writer.close()
            else:
                connection.writer.transport.abort()
            upgraded.cancel()
            await asyncio.gather(upgraded, return_exceptions=True)
            server.release.set()
            if how == "half-close":
                await connection.rest(cut=True)
        await endpoint.until(lambda metrics: not metrics["ingeborg_connections"])
        async with asyncio.timeout(PATIENCE_S):
            while clients.asking or socket() is not None:
                gc.collect()
                await asyncio.sleep(0.01)
        async with plain(endpoint.url, additional_headers={"X-Forwarded-For": "192.0.2.1"}):
            pass  # its place is free again
        assert (await endpoint.metrics())["ingeborg_turns_failed_total"] == 0
        assert callback(endpoint).under_way == 0


async def test_a_client_that_says_all_at_once_and_ends_is_not_let_in(tmp_path: Path) -> None:
    """Its end can come in the same chunk as its request, before the endpoint has asked."""
    async with asking(silence, tmp_path) as (server, endpoint), raw(endpoint.url) as connection:
        connection.writer.write(HANDSHAKE.format(path="/").encode() + raw_frame(0x81, b"{}"))
        connection.writer.write_eof()
        await server.asked()
        server.release.set()
        await connection.rest(cut=True)
        await endpoint.until(lambda metrics: not metrics["ingeborg_connections"])
        assert not endpoint.server.clients.asking
        assert (await endpoint.metrics())["ingeborg_turns_failed_total"] == 0


async def test_whoever_is_asked_about_counts_as_a_connection_of_its_address(tmp_path: Path) -> None:
    options: dict[str, Any] = {"proxies": [ip_network("127.0.0.0/8")], "per_address_max": 1}
    async with asking(silence, tmp_path, **options) as (server, endpoint), raw(endpoint.url) as connection:
        forwarded = "X-Forwarded-For: 192.0.2.1\r\n"
        upgraded = asyncio.create_task(connection.upgrade(headers=forwarded))
        await server.asked()
        status, _, _ = await refused(endpoint.url, additional_headers={"X-Forwarded-For": "192.0.2.1"})
        assert status == 429
        server.release.set()
        assert b" 101 " in await upgraded
    assert len(server.requests) == 1


async def test_an_endpoint_that_ends_meanwhile_says_so(tmp_path: Path) -> None:
    async with asking(silence, tmp_path) as (_, endpoint), AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(raw(endpoint.url)) for _ in range(40)]
        answers = [asyncio.create_task(connection.upgrade()) for connection in connections]
        await asked_about(endpoint, len(answers))
        stopped = asyncio.create_task(endpoint.server.stop())
        for connection, answer in zip(connections, answers, strict=True):
            assert (await answer).startswith(b"HTTP/1.1 503 ")
            assert await connection.rest() == b"This endpoint is shutting down\n"
        async with asyncio.timeout(PATIENCE_S):
            await stopped
        assert not endpoint.server.clients.asking
        assert callback(endpoint).under_way == 0


# -- Expiry


async def test_a_connection_ends_with_its_lifetime_also_when_the_answer_was_kept(tmp_path: Path) -> None:
    async with asking(always(response(200, claims(2))), tmp_path) as (server, endpoint):
        begun_at = time.time()
        async with plain(endpoint.url, **bearer("a")) as first:
            await asyncio.sleep(0.5)
            async with plain(endpoint.url, **bearer("a")) as second:
                assert (await first.closed())[0] == 4004
                assert (await second.closed())[0] == 4004
        assert time.time() - begun_at > 2
        assert len(server.requests) == 1
        assert (await endpoint.metrics())["ingeborg_tokens_expired_total"] == 2
        async with plain(endpoint.url, **bearer("a")):
            assert len(server.requests) == 2


async def test_the_client_library_comes_back_after_it(tmp_path: Path) -> None:
    async with asking(always(response(200, claims(1.0))), tmp_path) as (server, endpoint):
        lost = asyncio.Event()
        async with Client(endpoint.url, "ann", token="a", backoff_base_s=0.01, on_lost=lambda _: lost.set()) as client:
            async with asyncio.timeout(PATIENCE_S):
                await lost.wait()
            await client.publish("t", 1, ack=True)
        assert len(server.requests) >= 2


# -- No needless calls


async def test_what_can_be_refused_here_is(tmp_path: Path) -> None:
    async with asking(by_token, tmp_path) as (server, endpoint):
        url = endpoint.url

        async def status_of(path: str = "/", headers: str = "") -> int:
            async with raw(url) as connection:
                return int((await connection.upgrade(path, headers=headers)).split()[1])

        assert await status_of(headers="Origin: https://evil.example\r\n") == 403
        assert await status_of("/?access_token=a&access_token=b") == 401
        assert await status_of("/?access_token=a%0d%0aX-Evil:%201") == 401
        assert await status_of("/?access_token=a%20b") == 401
        assert await status_of("/?access_token=%c3%a9") == 401
        assert await status_of("/?access_token=%00") == 401
        assert await status_of(headers="Authorization: Bearer a\r\nAuthorization: Bearer b\r\n") == 400
        assert await status_of(headers=f"Cookie: {'x' * 8_000}\r\n" * 3) == 431
        async with raw(url) as connection:
            connection.writer.write(b"GET /x HTTP/1.1\r\nHost: here\r\nCookie: s=1\r\n\r\n")
            assert (await connection.rest()).startswith(b"HTTP/1.1 426 ")
        async with raw(url) as connection:
            head = b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nCookie: \xff\r\n\r\n"
            connection.writer.write(head)
            assert b"cookie has to be UTF-8" in await connection.rest()
        assert server.requests == []
        # The endpoint forwards two headers of the greatest length.
        half = SENT_ON_BYTES_MAX // 2
        headers = f"Cookie: {'x' * (half - 100)}\r\n"
        assert await status_of(f"/?access_token={'y' * (half - 100)}", headers) == 101
        assert len(server.requests) == 1


async def test_a_page_of_the_host_that_is_asked_may_connect(tmp_path: Path) -> None:
    async with asking(by_token, tmp_path) as (server, endpoint):
        for origin, status in (("http://ops.example:9000", 101), ("http://other.example:9000", 403)):
            async with raw(endpoint.url) as connection:
                request = HANDSHAKE.format(path="/").replace("Host: 127.0.0.1", "Host: ops.example:9000")
                connection.writer.write(request.removesuffix("\r\n").encode() + f"Origin: {origin}\r\n\r\n".encode())
                async with asyncio.timeout(PATIENCE_S):
                    assert int((await connection.reader.readline()).split()[1]) == status
        assert len(server.requests) == 1


async def test_the_console_asks_beforehand_and_the_answer_is_kept(tmp_path: Path, logged: Logged) -> None:
    logged.expect(COMPLAINT)
    async with asking(by_token, tmp_path) as (server, endpoint):

        async def page(token: str, method: str = "GET") -> tuple[int, bytes]:
            async with raw(endpoint.url) as connection:
                request = f"{method} /console/access HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
                connection.writer.write(request.encode())
                head, _, body = (await connection.rest()).partition(b"\r\n\r\n")
                return int(head.split()[1]), body

        assert await page("200") == (200, b"a WebSocket would be let in\n")
        assert await page("200", "HEAD") == (200, b"")
        async with plain(f"{endpoint.url}?access_token=200"):
            pass
        assert len(server.requests) == 1
        assert (await page("401"))[0] == 401
        assert (await page("401", "HEAD"))[0] == 401
        assert (await page("403"))[0] == 403
        assert (await page("500"))[0] == 503
        assert await page("201", "HEAD") == (503, b"")
        assert (await endpoint.metrics())["ingeborg_connections_refused_total"] == 5


# -- Real processes


async def test_serve_asks_the_url_and_says_nothing_secret(tmp_path: Path, logged: Logged) -> None:
    logged.expect(COMPLAINT)
    async with asked_server(by_token) as server:
        url = f"{server.url}?key=s3cr3t"
        options = ("--auth-url", url, "--auth-headers", "Authorization", "--auth-timeout", "5", "--log-level", "debug")
        async with serving(tmp_path, *options) as (process, at):
            async with plain(at, **bearer("200-of-ann", Cookie="s=1")) as ann:
                assert await ann.ask({**ANN, "command": "subscribe", "topic": "t"}) == SUCCESS
                assert (await ann.ask({"client_id": "bob", "command": "listen"}))["error"] == "unauthorized"
            assert (await refused(f"{at}?access_token=403"))[0] == 403
            assert (await refused(at, **bearer("500")))[0] == 503
            page = await fetch(at, "/metrics")
            calls = {s.series: s.value for s in samples(page.text) if s.name == "ingeborg_auth_calls_total"}
            assert calls == {
                f'ingeborg_auth_calls_total{{outcome="{outcome}"}}': count
                for outcome, count in (("granted", 1), ("denied", 1), ("failed", 1), ("timed_out", 0))
            }
            assert await process.end() == 0
            assert "status 500" in process.said()
            for secret in ("200-of-ann", "s=1", "s3cr3t", "403", "Traceback"):
                assert secret not in process.said()
        assert [request.get("cookie") for request in server.requests] == [None] * 3
        assert set(server.lines) == {"GET /may-connect?key=s3cr3t HTTP/1.1"}


@pytest.mark.over_tcp
async def test_serve_listens_to_others_with_it(tmp_path: Path) -> None:
    store = ("--store", f"lmdb:{tmp_path / 'store'}", "--port", "0", *serving_tls())
    async with ingeborg(tmp_path, "serve", "--host", "0.0.0.0", *store, "--auth-url", "http://127.0.0.1:1/") as process:
        await process.ready_url()
    async with ingeborg(tmp_path, "serve", "--host", "0.0.0.0", *store) as process:
        assert await process.ended() == 2
        assert "--auth-url" in process.said()


#: An endpoint that ends once it has begun, and then prints whether the process has imported this library.
_ONCE = """
import os, signal, sys
from pathlib import Path
from ingeborg.broker.command import config, serve
from ingeborg.broker.shell.server import EndpointServer

class Once(EndpointServer):
    async def start(self, *arguments, **options):
        await super().start(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)

options = {"port": "0", "store": "lmdb:" + sys.argv[1], "drain_time": "0", "auth_url": sys.argv[2]}
options = config.load(options, {}, None)
assert serve.run(options, None, Once) == 0
print("aiohttp" in sys.modules)
"""


@pytest.mark.over_tcp
@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1/"])
def test_who_asks_nobody_does_without_aiohttp(tmp_path: Path, url: str) -> None:
    command = [sys.executable, "-c", _ONCE, str(tmp_path / "store"), url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [str(bool(url))]), done.stderr


# -- The documentation


def test_the_specification_has_the_figures_of_the_code() -> None:
    spec = " ".join((ROOT / "protocol" / "SPEC.md").read_text(encoding="utf-8").split())
    options = ServeOptions()
    for text in (
        f"at most {BODY_BYTES_MAX >> 10} KiB: `sub` and `ingeborg` as in a token, and `lifetime_s`",
        f"at most {LIFETIME_MAX_S:.0f} (366 days)",
        f"`auth_timeout` ({options.auth_timeout:g} s)",
        f"(`{'` and `'.join(options.headers_sent_on)}` by default; {SENT_ON_BYTES_MAX >> 10} KiB at most, else 431)",
        f"same headers: {GRANTED_S:.0f} s and at most `lifetime_s`",
        f"keeps 401 and 403 for {DENIED_S:.0f} s.",
        f"After {FAILURES_MAX} calls in a row",
        f"does not ask the server for {OPEN_S:.0f} s",
        f"has at most {CALLS_MAX} calls under way, and at most {WAITING_MAX:,} more that wait",
    ):
        assert text in spec


async def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n# (may_connect\.py)\n(.*?)```\n```sh\n(.*?)```", page, re.DOTALL)
    assert found is not None
    name, program, commands = found.groups()
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    sock.close()
    (tmp_path / name).write_text(program.replace("8000", f"{port}"), encoding="utf-8")
    (option,) = re.findall(r"^ingeborg serve (--auth-url \S+) &$", commands, re.MULTILINE)
    (token,) = re.findall(r"^export (INGEBORG_TOKEN)=(\S+)$", commands, re.MULTILINE)
    published = [shlex.split(line, comments=True)[2:] for line in commands.splitlines() if " pub " in line]
    async with started_by([sys.executable, tmp_path / name], tmp_path):
        async with asyncio.timeout(PATIENCE_S):
            while not is_listened_at(port):  # noqa: ASYNC110 - the example says nothing
                await asyncio.sleep(0.05)
        async with serving(tmp_path, *option.replace("8000", f"{port}").split()) as (_, url):
            ended = []
            for arguments in published:
                command = ("pub", "--url", url, *arguments)
                async with ingeborg(tmp_path, *command, variables=dict([token])) as process:
                    ended.append(await process.ended())
            assert ended == [0, 1]
            assert (await refused(url, **bearer("12345")))[0] == 401


def is_listened_at(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
