"""Commands over HTTP at a real endpoint's port. SPEC 1.7."""

from __future__ import annotations

import asyncio
import socket
import time
import tracemalloc
from contextlib import AsyncExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ingeborg.broker.access.admission import Access
from ingeborg.broker.access.tokens import LEEWAY_S, Keys, make_token, new_keys
from ingeborg.broker.core.limits import Limits, Sizes
from ingeborg.broker.http.commands import LIST_BYTES_MAX
from ingeborg.broker.shell import fairness, http_connection
from ingeborg.broker.store.embedded.store import EmbeddedStore

from ..running import PATIENCE_S, Gated, Running, plain, raw, running
from .talking import Talk, head, post, talk

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("transport", "logged"),
    pytest.mark.above_sockets,
]

PUBLISH = "/publish"


def message(topic: str, payload: Any, **more: Any) -> dict[str, Any]:
    return {"client_id": "backend", "topic": topic, "payload": payload, **more}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("access") / "keys"
    new_keys(path)
    return path


# -- Commands


async def test_a_message_reaches_a_subscriber_under_the_mid_of_its_result(keeping: Running, name: str) -> None:
    async with plain(keeping.url) as ann, talk(keeping.url) as backend:
        said = await ann.ask({"command": "listen", "client_id": name, "recover": True})
        while "position" not in said:
            said = await ann.hear()
        answer = await backend.post("/subscribe", {"client_id": name, "topic": [name, "b"]})
        assert (answer.status, answer.json) == (200, {"result": "success"})
        answer = await backend.post(PUBLISH, message(name, {"b": 1, "a": 2}, keep_s=60))
        result = answer.json
        assert answer.status == 200
        assert result == {"result": "success", "duplicate": False, "mid": result["mid"], "kept": True}
        heard = await ann.hear()
        while "broadcast" not in heard:  # positions may come between
            heard = await ann.hear()
        assert heard == {"key": name, "broadcast": {"a": 2, "b": 1}, "mid": result["mid"]}
        answer = await backend.get(f"/history?client_id=x&topic={name}")
        assert answer.json["publications"] == [{"broadcast": {"a": 2, "b": 1}, "mid": result["mid"]}]
        answer = await backend.get(f"/subscriptions?client_id={name}")
        assert sorted(answer.json["topic"]) == sorted([name, "b"])
        answer = await backend.get(f"/subscribers?client_id=x&topic={name}&limit=1")
        assert answer.json["subscribers"][0]["client_id"] == name
        answer = await backend.post("/unsubscribe", {"client_id": name, "topic": [name, "b"]})
        assert answer.json == {"result": "success"}
        answer = await backend.get(f"/subscriptions?client_id={name}")
        assert answer.json["topic"] == []


async def test_a_list_is_carried_out_in_order(shared: Running, name: str) -> None:
    async with plain(shared.url) as ann, talk(shared.url) as backend:
        await ann.ask({"command": "listen", "client_id": name})
        items = [{"client_id": name, "topic": name}, {"client_id": name, "topic": ""}, 5]
        answer = await backend.post("/subscribe", items)
        assert answer.status == 207
        assert [result.get("error") for result in answer.json] == [None, "bad_topic", "bad_json"]
        count = LIST_BYTES_MAX // 128
        answer = await backend.post(PUBLISH, [message(name, number) for number in range(count)])
        assert answer.status == 200
        assert len({result["mid"] for result in answer.json}) == count
        assert [(await ann.hear())["broadcast"] for _ in range(count)] == list(range(count))
        answer = await backend.post(PUBLISH, [message(name, 0), message(name, "new")])
        assert [result["duplicate"] for result in answer.json] == [True, False]
        assert "mid" not in answer.json[0]


async def test_a_broadcast_reaches_everybody(shared: Running, name: str) -> None:
    async with plain(shared.url) as ann, talk(shared.url) as backend:
        await ann.ask({"command": "listen", "client_id": name})
        answer = await backend.post("/broadcast", {"client_id": "backend", "payload": name})
        assert (answer.status, answer.json["duplicate"]) == (200, False)
        assert await ann.hear() == {"key": None, "broadcast": name}


@pytest.mark.parametrize(
    ("value", "status", "error"),
    [
        ({"topic": "a", "payload": 1}, 400, "bad_state"),
        (message("", 1), 400, "bad_topic"),
        (message("a", 1, keep_s=0), 400, "bad_state"),
        (message("a", "x" * (1 << 20)), 413, "too_large"),
    ],
)
async def test_an_error_of_a_command_has_its_status(shared: Running, value: Any, status: int, error: str) -> None:
    async with talk(shared.url) as backend:
        for _ in range(2):  # the connection stays
            answer = await backend.post(PUBLISH, value)
            assert (answer.status, answer.json["error"]) == (status, error)
        assert "connection" not in answer.headers


async def test_a_large_message_is_read_elsewhere(shared: Running, name: str) -> None:
    async with talk(shared.url) as backend:
        payload = "x" * (LIST_BYTES_MAX * 4)
        assert (await backend.post(PUBLISH, message(name, payload))).json["duplicate"] is False
        assert (await backend.post(PUBLISH, message(name, payload))).json["duplicate"] is True
        answer = await backend.post(PUBLISH, message(name, payload, ack=True))
        assert (answer.status, answer.json["error"]) == (400, "bad_json")
        assert (await backend.post(PUBLISH, [message(name, payload)])).status == 413
        assert (await backend.post(PUBLISH, message(name, "short"))).status == 200


async def test_the_store_is_out_of_reach(tmp_path: Path, logged: Any) -> None:
    logged.expect("the store failed", "not ready")
    store = Gated(EmbeddedStore(tmp_path, timeout_s=0.5))
    async with running(tmp_path, store=store) as endpoint, talk(endpoint.url) as backend:
        store.shut()
        answer = await backend.post("/subscribe", {"client_id": "ann", "topic": "a"})
        assert (answer.status, answer.json["error"]) == (503, "store_unavailable")
        assert answer.headers["retry-after"] == "1"
        store.reopen()


# -- The connection


async def test_requests_may_be_pipelined(shared: Running, name: str) -> None:
    async with talk(shared.url) as backend:
        backend.say(b"".join(post(PUBLISH, message(name, number % 3)) for number in range(6)) + head("GET", "/healthz"))
        assert [(await backend.hear()).json["duplicate"] for _ in range(6)] == [False] * 3 + [True] * 3
        page = await backend.hear()
        assert (page.status, page.body, page.headers["connection"]) == (200, b"alive\n", "close")
        assert await backend.ends() == b""


async def test_a_request_may_come_in_pieces(shared: Running, name: str) -> None:
    async with talk(shared.url) as backend:
        request = post(PUBLISH, message(name, "piece by piece"))
        for start in range(0, len(request), 7):
            backend.say(request[start : start + 7])
            await asyncio.sleep(0)
        assert (await backend.hear()).status == 200
        body = b'{"client_id": "backend", "topic": "%b", "payload": "chunks"}' % name.encode()
        backend.say(head("POST", PUBLISH, "Content-Type: application/json", "Transfer-Encoding: chunked"))
        for start in range(0, len(body), 16):
            part = body[start : start + 16]
            backend.say(b"%x\r\n%b\r\n" % (len(part), part))
        backend.say(b"0\r\n\r\n")
        assert (await backend.hear()).status == 200


async def test_a_client_that_waits_to_send_its_body_is_told_to(shared: Running, name: str) -> None:
    body = post(PUBLISH, message(name, "expected")).partition(b"\r\n\r\n")[2]
    headers = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Expect: 100-continue")
    async with talk(shared.url) as backend:
        answer = await backend.ask(head("POST", PUBLISH, *headers))
        assert answer.status == 100
        assert (await backend.ask(body)).status == 200
        answer = await backend.ask(head("POST", PUBLISH, "Content-Type: text/plain", *headers[1:]))
        assert answer.status == 415  # before the body
        assert await backend.ends() == b""
    async with talk(shared.url) as backend:
        assert (await backend.ask(head("POST", PUBLISH, *headers, "Expect: 100-continue"))).status == 100
        assert (await backend.ask(body)).status == 200


@pytest.mark.over_tcp
async def test_a_client_that_ends_its_side_gets_the_response(shared: Running, name: str) -> None:
    async with talk(shared.url) as backend:
        backend.say(post(PUBLISH, message(name, "last words")))
        backend.raw.writer.write_eof()
        assert (await backend.hear()).status == 200
        assert await backend.ends() == b""
    async with talk(shared.url) as backend:
        backend.say(post(PUBLISH, message(name, "cut"))[:-1])
        backend.raw.writer.write_eof()
        assert await backend.ends() == b""


async def test_a_client_that_leaves_requests_behind_stops_nobody(shared: Running, name: str) -> None:
    for _ in range(3):
        async with talk(shared.url) as client:
            client.say(head("GET", "/subscriptions?client_id=x&limit=0") * 20_000 + b"nonsense\r\n\r\n")
            client.raw.writer.close()
    async with talk(shared.url) as backend:
        assert (await backend.post(PUBLISH, message(name, 1))).status == 200


async def test_old_clients_decide_whether_a_connection_stays(shared: Running) -> None:
    async with talk(shared.url) as backend:
        old = head("GET", "/subscriptions?client_id=old", "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")
        answer = await backend.ask(old)
        assert (answer.status, answer.headers["connection"]) == (200, "keep-alive")
        answer = await backend.ask(old.replace(b"Connection: keep-alive\r\n", b""))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await backend.ends() == b""


async def test_a_websocket_may_follow_on_the_same_connection(shared: Running, name: str) -> None:
    """As behind a proxy, which keeps its connections."""
    async with talk(shared.url) as backend:
        assert (await backend.post(PUBLISH, message(name, 1))).status == 200
        before = (await shared.metrics())["ingeborg_connections"]
        assert (await backend.raw.upgrade("/")).startswith(b"HTTP/1.1 101 ")
        assert (await shared.metrics())["ingeborg_connections"] == before
    await shared.until(lambda metrics: metrics["ingeborg_connections"] == before - 1)


async def test_the_head_of_a_page_and_of_an_answer(shared: Running) -> None:
    async with talk(shared.url) as backend:
        backend.say(head("HEAD", "/subscriptions?client_id=x"))
        answer = await backend.hear(has_body=False)
        assert (answer.status, int(answer.headers["content-length"]) > 0) == (200, True)
        assert (await backend.get("/subscriptions?client_id=x")).status == 200
        answer = await backend.ask(head("PUT", PUBLISH, "Content-Length: 0"))
        assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS")
        answer = await backend.get(PUBLISH, "Connection: Upgrade", "Upgrade: websocket")
        assert answer.status == 405
        assert answer.json["error"] == "refused"


async def test_a_request_before_a_bad_one_is_answered(shared: Running, name: str) -> None:
    async with talk(shared.url) as backend:
        backend.say(post(PUBLISH, message(name, 1)) + b"nonsense\r\n\r\n")
        assert (await backend.hear()).status == 200
        answer = await backend.hear()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert answer.headers["content-type"].startswith("text/plain")
        assert await backend.ends() == b""


async def test_an_idle_connection_ends_and_a_slow_request_too(tmp_path: Path) -> None:
    async with running(tmp_path, ping_s=0.6) as endpoint, talk(endpoint.url) as idle, talk(endpoint.url) as slow:
        assert (await idle.get("/subscriptions?client_id=x")).status == 200
        slow.say(post(PUBLISH, message("a", 1))[:-1])
        assert await idle.ends() == b""
        answer = await slow.hear()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        async with talk(endpoint.url) as busy:
            for _ in range(25):  # longer than an idle connection stays
                assert (await busy.get("/subscriptions?client_id=x")).status == 200
                await asyncio.sleep(0.1)
        assert (await endpoint.metrics())["ingeborg_pings_unanswered_total"] == 0


async def test_a_shutdown_ends_connections_after_their_responses(tmp_path: Path, logged: Any) -> None:
    logged.expect("could not transfer all slots", "could not finish everything")
    store = Gated(EmbeddedStore(tmp_path, timeout_s=PATIENCE_S))
    async with (
        running(tmp_path, store=store, drain_s=0.2) as endpoint,
        talk(endpoint.url) as idle,
        talk(endpoint.url) as busy,
    ):
        assert (await idle.get("/subscriptions?client_id=x")).status == 200
        store.shut()
        busy.say(post("/subscribe", {"client_id": "ann", "topic": "a"}))
        await endpoint.until(lambda metrics: metrics["ingeborg_connections"] == 2)
        stopping = asyncio.create_task(endpoint.server.stop())
        assert await idle.ends() == b""
        store.reopen()
        assert (await busy.hear()).status in (200, 503)
        assert await busy.ends() == b""
        await stopping


async def test_a_shutdown_ends_a_stream_that_begins_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path, drain_s=1.0, sizes=Sizes(told_at_once=1)) as endpoint, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(talk(endpoint.url)) for _ in range(10)]
        for one in clients:
            assert (await one.get("/subscriptions?client_id=x")).status == 200
        first, *_, last = clients
        stopping = asyncio.create_task(endpoint.server.stop())
        assert await first.ends() == b""
        last.say(head("GET", "/events?topic=a"))
        assert b"text/event-stream" in await last.ends()
        await stopping


async def test_a_request_that_cannot_be_handled_ends_only_its_connection(
    shared: Running, logged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged.expect("handling a request failed; the connection is cut")
    message = {"client_id": "x", "topic": "t", "payload": "a" * 10_000}

    def fail(*_: Any) -> None:
        raise MemoryError

    async with talk(shared.url) as unlucky, talk(shared.url) as other:
        with monkeypatch.context() as patch:
            patch.setattr(http_connection, "batch_of", fail)
            unlucky.say(post("/publish", message))
            assert await unlucky.ends() == b""
        assert (await other.post("/publish", message)).status == 200


async def test_idle_connections_keep_no_bodies(shared: Running) -> None:
    message = {"client_id": "x", "topic": "t", "payload": "a" * 900_000}
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(talk(shared.url)) for _ in range(8)]
        tracemalloc.start()
        try:
            for client in clients:
                assert (await client.post("/publish", message)).status == 200
            assert tracemalloc.get_traced_memory()[0] < 3_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.over_tcp
async def test_a_client_that_reads_no_responses_is_read_no_further(shared: Running) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", shared.port))
        sock.setblocking(False)
        async with raw(shared.url, sock=sock) as connection:
            client = Talk(connection)
            request, count = head("GET", "/subscriptions?client_id=x&limit=0"), 20_000
            client.say(request * count)
            sockets = shared.server.clients.sockets

            def unread() -> list[int]:
                return [each.transport.get_write_buffer_size() for each in sockets.values() if not each.is_writable]

            async with asyncio.timeout(PATIENCE_S):
                while not unread():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert max(unread()) < 1 << 20
            for _ in range(count):
                assert (await client.hear()).status == 400


async def test_what_a_connection_sends_is_limited(tmp_path: Path) -> None:
    limits = Limits(commands_per_s=50)
    access = Access(proxies=[ip_network("127.0.0.0/8")], per_address_max=1)
    async with running(tmp_path, limits=limits, access=access) as endpoint, talk(endpoint.url) as backend:
        forwarded = "X-Forwarded-For: 192.0.2.1"
        begun = time.monotonic()
        for start in (0, 75):
            answer = await backend.post(PUBLISH, [message("a", start + number) for number in range(75)], forwarded)
            assert answer.status == 200
        assert time.monotonic() - begun > 1.5  # 100 of 150 commands had to wait
        async with talk(endpoint.url) as another:
            assert (await another.post(PUBLISH, message("a", 1), forwarded)).status == 429
        async with talk(endpoint.url) as another:
            assert (await another.post(PUBLISH, message("a", 1), "X-Forwarded-For: 192.0.2.2")).status == 200
            assert (await another.get("/history", "X-Forwarded-For: 192.0.2.2")).status == 400
            # The same head as the first, after another path
            assert (await another.post(PUBLISH, message("a", 2), "X-Forwarded-For: 192.0.2.2")).status == 200
            assert (await another.post(PUBLISH, message("a", 1), forwarded)).status == 429


async def test_requests_are_counted(shared: Running, name: str) -> None:
    before = await shared.metrics()
    async with talk(shared.url) as backend:
        await backend.post(PUBLISH, message(name, 1))
        await backend.post(PUBLISH, message("", 1))
        await backend.get("/history")
    after = await shared.metrics()
    for path, status, more in ((PUBLISH, 200, 1), (PUBLISH, 400, 1), ("/history", 400, 1)):
        series = f'ingeborg_http_requests_total{{path="{path}",status="{status}"}}'
        assert after[series] == before[series] + more
    assert (
        after['ingeborg_connections_closed_total{code="1006"}']
        == before['ingeborg_connections_closed_total{code="1006"}']
    )


# -- Repetitions


async def test_a_repetition_with_its_key_is_a_duplicate(shared: Running, name: str) -> None:
    key = "Idempotency-Key: k-1"
    async with talk(shared.url) as backend, talk(shared.url) as again:
        answer = await backend.post(PUBLISH, message(name, "paid"), key)
        assert answer.json["duplicate"] is False
        assert answer.headers["idempotency-key-lifetime"] == "60"
        assert (await again.post(PUBLISH, message(name, "paid"), key)).json["duplicate"] is True
        assert (await again.post(PUBLISH, message(name, "not paid"), key)).status == 409
        assert (await again.post(PUBLISH, message(name, "paid"), "Idempotency-Key: k-2")).json["duplicate"] is False
        items = [message(name, "paid"), message(name, "paid")]
        for duplicate in (False, True):
            answer = await again.post(PUBLISH, items, key)
            assert [result["duplicate"] for result in answer.json] == [duplicate, duplicate]


async def test_an_endpoint_that_remembers_no_keys_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, dedup_ttl_s=0.0) as endpoint, talk(endpoint.url) as backend:
        answer = await backend.post(PUBLISH, message("a", 1), "Idempotency-Key: k")
        assert answer.status == 400
        assert "dedup-ttl is 0" in answer.json["info"]
        assert (await backend.post(PUBLISH, message("a", 1))).status == 200


# -- Permissions


async def test_each_request_has_the_rights_of_its_token(tmp_path: Path, keys: Path) -> None:
    def bearer(client: str, lifetime_s: float = 600, **permissions: Any) -> str:
        return f"Authorization: Bearer {make_token(keys, client, lifetime_s=lifetime_s, **permissions)}"

    ann, bob = bearer("ann", publish=["a/"]), bearer("bob", publish=["b/"])
    gateway, late = bearer("gw*", publish=[""], subscribe=[""]), bearer("ann", -LEEWAY_S - 1)
    async with running(tmp_path, access=Access(Keys(keys))) as endpoint, talk(endpoint.url) as proxy:
        for _ in range(2):  # a proxy sends the requests of many clients over one connection
            assert (await proxy.post(PUBLISH, {"topic": "a/1", "payload": 1}, ann)).status == 200
            assert (await proxy.post(PUBLISH, {"topic": "a/1", "payload": 1}, bob)).status == 403
            assert (await proxy.post(PUBLISH, {"topic": "b/1", "payload": 1}, bob)).status == 200
            answer = await proxy.post(PUBLISH, {"topic": "a/1", "payload": 1, "client_id": "bob"}, ann)
            assert (answer.status, answer.json["error"]) == (403, "unauthorized")
            assert (await proxy.post(PUBLISH, {"topic": "x", "payload": 1}, gateway)).status == 400
            assert (await proxy.post(PUBLISH, {"topic": "x", "payload": 1, "client_id": "gw1"}, gateway)).status == 200
        token = ann.rpartition(" ")[2]
        assert (await proxy.get(f"/subscriptions?access_token={token}")).status == 200
        answer = await proxy.post("/subscribe", {"topic": "a/1"}, bob)  # not admitted as the one before
        assert (answer.status, answer.json["error"]) == (403, "forbidden")
        for headers in ((late,), ()):
            async with talk(endpoint.url) as client:
                assert (await client.post(PUBLISH, {"topic": "a/1", "payload": 2}, ann)).status == 200
                answer = await client.post(PUBLISH, {"topic": "a/1", "payload": 1}, *headers)
                assert (answer.status, answer.json["error"]) == (401, "refused")
                assert "Bearer" in answer.headers["www-authenticate"]
                assert await client.ends() == b""


async def test_a_revoked_token_ends_its_connection(tmp_path: Path, keys: Path) -> None:
    def bearer(client: str, **permissions: Any) -> str:
        return f"Authorization: Bearer {make_token(keys, client, jti=f't-{client}', **permissions)}"

    ann, ops = bearer("ann"), {"additional_headers": {"Authorization": bearer("ops", revoke=True).partition(": ")[2]}}
    async with running(tmp_path, access=Access(Keys(keys))) as endpoint:
        async with talk(endpoint.url) as client, plain(endpoint.url, **ops) as operator:
            assert (await client.get("/subscriptions", ann)).status == 200
            said = await operator.ask({"command": "revoke", "client_id": "ops", "jti": "t-ann"})
            assert said["result"] == "success"
            assert await client.ends() == b""
        async with talk(endpoint.url) as client:
            answer = await client.get("/subscriptions", ann)
            assert answer.status == 401
            assert 'error_description="revoked"' in answer.headers["www-authenticate"]


async def test_pages_of_other_origins(tmp_path: Path) -> None:
    access = Access(origins=["https://radio.example"])
    async with running(tmp_path, access=access) as endpoint, talk(endpoint.url) as page:
        asks = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")
        for origin in ("https://radio.example", "http://localhost:8000"):
            answer = await page.ask(head("OPTIONS", PUBLISH, f"Origin: {origin}", *asks))
            assert answer.status == 204
            assert answer.headers["access-control-allow-origin"] == origin
            assert answer.headers["access-control-allow-methods"] == "POST"
            assert "Idempotency-Key" in answer.headers["access-control-allow-headers"]
            assert "access-control-allow-credentials" not in answer.headers
            answer = await page.post(PUBLISH, message("a", origin), f"Origin: {origin}")
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, origin)
            assert answer.headers["vary"] == "Origin"
    async with running(tmp_path / "twice", access=access) as endpoint, talk(endpoint.url) as page:
        twice = ("Origin: http://localhost", "Origin: https://evil.example")
        assert (await page.ask(head("OPTIONS", PUBLISH, *twice))).status == 400
    for method in ("OPTIONS", "POST"):
        async with running(tmp_path / method, access=access) as endpoint, talk(endpoint.url) as page:
            origin = "Origin: https://evil.example"
            answer = await page.ask(head(method, PUBLISH, origin, "Content-Type: application/json"))
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost:9000", 200), ("127.0.0.1", 200), ("[::1]:1", 200), ("radio.example", 200)),
        *(("evil.example", 403), ("127.0.0.1.evil.example", 403), ("radio.example:81", 403), ("", 403)),
    ],
)
async def test_an_open_endpoint_checks_the_host(tmp_path: Path, host: str, status: int) -> None:
    """Otherwise a page could read it by giving its own host's name the address of this machine."""
    access = Access(origins=["https://radio.example"])
    async with running(tmp_path, access=access) as endpoint, talk(endpoint.url) as client:
        request = head("GET", "/subscriptions?client_id=x").replace(b"Host: 127.0.0.1", f"Host: {host}".encode())
        assert (await client.ask(request)).status == status


async def test_a_client_does_not_wait_for_the_connections_that_open_meanwhile(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fairness, "PASS_S", 0.0)  # one of them has its turn in each pass of the loop
    clients = shared.server.clients.sockets
    async with talk(shared.url) as client, AsyncExitStack() as stack:
        assert (await client.get("/subscriptions?client_id=x")).status == 200
        opening = [await stack.enter_async_context(talk(shared.url)) for _ in range(100)]
        for one in opening:
            one.say(head("GET", "/subscriptions?client_id=x"))
        for _ in range(3):
            assert (await client.get("/subscriptions?client_id=x")).status == 200
        assert len(clients) < 1 + len(opening)
        for one in opening:
            assert (await one.hear()).status == 200
        assert len(clients) == 1 + len(opening)
        assert [one.connection.unread for one in clients.values() if one.connection is not None] == [0] * len(clients)


# -- Programs that nobody here wrote


async def test_a_client_library_keeps_its_connection(shared: Running, name: str) -> None:
    url = shared.url.replace("ws", "http", 1).rstrip("/")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1, ssl=False)) as session:
        for number in range(20):
            async with session.post(f"{url}/publish", json=message(name, number)) as response:
                assert response.status == 200
                assert (await response.json())["duplicate"] is False
        async with session.get(f"{url}/subscriptions", params={"client_id": "ann", "limit": 10}) as response:
            assert (await response.json())["topic"] == []
