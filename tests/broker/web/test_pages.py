"""Plain HTTP on the endpoint's port: health, readiness, metrics, and requests for anything else. SPEC section 1."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ingeborg.broker.core.model import StoreUnavailable
from ingeborg.broker.core.stores import FAILED
from ingeborg.broker.http.parsing import HEAD_BYTES_MAX, LINE_BYTES_MAX
from ingeborg.broker.shell.server import EndpointServer
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.pages import fetch, samples
from tests.conftest import Logged

from ..running import PATIENCE_S, SECRET, Gated, Running, plain, raw, raw_frame, round_trip, running

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("transport", "logged"),
    pytest.mark.above_sockets,
]

SUCCESS = {"result": "success"}

#: A command whose reply waits for the store, by the store operation in it.
REFUSED: dict[str, dict[str, Any]] = {
    "subscribe": {"command": "subscribe"},
    "unsubscribe": {"command": "unsubscribe"},
    "topics": {"command": "subscriptions"},
    "listen": {"command": "listen"},
}
UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\n"


async def request(endpoint: Running, text: str) -> tuple[str, str, str]:
    """Send it unchanged; return the status line, the head, and the body until the endpoint ends the stream."""
    async with raw(endpoint.url) as connection:
        connection.writer.write(text.encode("latin-1"))
        answer = (await connection.rest()).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return head.partition("\r\n")[0], head, body


def get(path: str, headers: str = "") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: here\r\n{headers}\r\n"


# -- The reserved paths


async def test_it_says_that_it_lives_and_is_ready(shared: Running) -> None:
    for path, said in (("/healthz", "alive\n"), ("/readyz", "ready\n"), ("/healthz?since=yesterday", "alive\n")):
        status, head, body = await request(shared, get(path))
        assert (status, body) == ("HTTP/1.1 200 OK", said)
        assert "Content-Type: text/plain; charset=utf-8" in head


@pytest.mark.parametrize("host", ["http://here", "HTTP://127.0.0.1:9000", "https://[::1]"])
async def test_a_whole_url_is_as_good_as_its_path(shared: Running, host: str) -> None:
    """Proxies send one (RFC 9112 section 3.2.2)."""
    for path, status, said in (
        ("/healthz", 200, "alive"),
        ("/readyz?x", 200, "ready"),
        ("", 302, "This is an endpoint"),
        ("/x?x", 426, ""),
    ):
        line, _, body = await request(shared, get(host + path))
        assert line.startswith(f"HTTP/1.1 {status} "), path
        assert body.startswith(said)
    async with raw(shared.url) as connection:
        assert (await connection.upgrade(f"{host}/chat?x")).startswith(b"HTTP/1.1 101 ")


async def test_an_upgrade_of_a_reserved_path_gets_the_page(shared: Running) -> None:
    async with raw(shared.url) as connection:
        head = await connection.upgrade("/healthz")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert await connection.rest() == b"alive\n"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/console", "/"])
async def test_a_page_is_to_be_got_or_its_head(shared: Running, path: str) -> None:
    page = (await request(shared, get(path)))[2]
    status, head, body = await request(shared, get(path).replace("GET", "HEAD", 1))
    assert body == ""
    assert status == ("HTTP/1.1 302 Found" if path == "/" else "HTTP/1.1 200 OK")
    assert "Content-Length: " in head
    assert path in ("/metrics", "/readyz") or f"Content-Length: {len(page.encode())}" in head
    for method in ("POST", "PUT", "OPTIONS"):
        status, head, _ = await request(shared, get(path).replace("GET", method, 1))
        assert status == "HTTP/1.1 405 Method Not Allowed"
        assert "Allow: GET, HEAD" in head
        assert "Connection: close" in head


async def test_a_plain_get_of_another_path_is_told_to_upgrade(shared: Running) -> None:
    for path in ("/anything", "/_peer", "/healthz/x", "/publish/", "//publish", "/%70ublish", "/PUBLISH"):
        status, head, _ = await request(shared, get(path))
        assert status == "HTTP/1.1 426 Upgrade Required"
        assert "Upgrade: websocket" in head


async def test_a_browser_that_asks_for_the_endpoint_is_led_to_the_console(shared: Running) -> None:
    status, head, _ = await request(shared, get("/"))
    assert status == "HTTP/1.1 302 Found"
    assert head.endswith("Location: /console")


#: Headers that announce a body, and the body.
BODIES = {
    "empty": ("Content-Length: 0\r\n", ""),
    "short": ("Content-Length: 5\r\n", "12345"),
    "never-comes": ("content-length: 100000\r\n", ""),
    "large": ("Content-Length: 4000000\r\n", "x" * 4_000_000),
    "longer-than-it-says": ("Content-Length: 5\r\n", "x" * 1_000_000),
    "chunked": ("Transfer-Encoding: Chunked\r\n", "5\r\n12345\r\n0\r\n\r\n"),
    "waits": ("Expect: 100-continue\r\nContent-Length: 5\r\n", ""),
}


@pytest.mark.parametrize("announced", BODIES)
async def test_a_request_with_a_body_is_answered_as_one_without(shared: Running, announced: str) -> None:
    headers, sent = BODIES[announced]
    for method, status in (("GET", 200), ("HEAD", 200), ("POST", 405), ("PUT", 405), ("DELETE", 405)):
        text = f"{method} /healthz HTTP/1.1\r\nHost: here\r\n{headers}\r\n{sent}"
        line, head, body = await request(shared, text)
        assert line.startswith(f"HTTP/1.1 {status} "), (method, line)
        assert "Connection: close" in head
        assert ("Allow: GET, HEAD" in head) is (status == 405)
        assert body == {"GET": "alive\n", "HEAD": ""}.get(method, "GET, please\n")


async def test_the_answer_arrives_while_the_body_is_still_sent(shared: Running) -> None:
    async with raw(shared.url) as connection:
        connection.writer.write(b"POST /healthz HTTP/1.1\r\nHost: here\r\nContent-Length: 8000000\r\n\r\n")
        for _ in range(80):  # the answer came long ago, and nothing resets the connection
            connection.writer.write(bytes(100_000))
            await connection.writer.drain()
        assert (await connection.rest()).startswith(b"HTTP/1.1 405 ")


async def test_a_handshake_with_a_body_is_refused_and_no_frame_is_taken_from_the_body(shared: Running) -> None:
    before = await shared.metrics()
    for headers in ("Content-Length: 40\r\n", "Transfer-Encoding: chunked\r\n"):
        for path in ("/", "/_peer"):
            async with raw(shared.url) as connection:
                frame = raw_frame(0x81, b'{"command": "what", "client_id": "c"}')
                head = await connection.upgrade(path, frame, headers)
                assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
                assert await connection.rest() == b"A request with a body cannot open a WebSocket\n"
    after = await shared.metrics()
    for name, more in (("connections_accepted_total", 0), ("connections_refused_total", 4)):
        assert after[f"ingeborg_{name}"] == before[f"ingeborg_{name}"] + more
    assert after['ingeborg_errors_total{code="bad_command"}'] == before['ingeborg_errors_total{code="bad_command"}']
    async with raw(shared.url) as connection:  # an empty announcement is not a body
        assert (await connection.upgrade(headers="Content-Length: 0\r\n")).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS at a plain port
        ("HELO here\r\n\r\n", 400),
        ("GET / HTTP/0.9\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nno colon here\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nspace : x\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: here\n\n", 400),
        ("\n" * (HEAD_BYTES_MAX + 1), 400),
        ("\0" * 100 + "\r\n\r\n", 400),
        (get("/healthz", "Content-Length: x\r\n"), 400),
        (get("/healthz", "Content-Length: -1\r\n"), 400),
        (get("/healthz", "Content-Length: +1\r\n"), 400),
        (get("/healthz", "Content-Length:\r\n"), 400),
        (get("/healthz", "Content-Length: 5, 5\r\n"), 400),
        (get("/healthz", f"Content-Length: {10**18}\r\n"), 413),
        (get("/healthz", "Content-Length: 5\r\nContent-Length: 6\r\n"), 400),
        (get("/healthz", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400),
        (get("/healthz", "Transfer-Encoding: gzip\r\n"), 501),
        ("GET /healthz HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
    ],
    ids=[
        *("tls", "not-http", "http-0.9", "no-version", "no-colon", "bad-name", "bare-feeds", "feeds", "zeros"),
        *("no-number", "negative", "signed", "no-length", "list", "huge", "two-lengths", "both", "coding", "http-1.0"),
    ],
)
async def test_what_is_no_request_is_told_so_in_a_line(shared: Running, text: str, status: int) -> None:
    before = await shared.metrics()
    line, head, body = await request(shared, text)
    assert line.startswith(f"HTTP/1.1 {status} ")
    assert "Connection: close" in head
    assert body.count("\n") == 1
    assert len(body) < 100  # it repeats nothing of the request, which may hold a token
    after = await shared.metrics()
    for name, more in (("connections_accepted_total", 0), ("connections_refused_total", 1), ("turns_failed_total", 0)):
        assert after[f"ingeborg_{name}"] == before[f"ingeborg_{name}"] + more


async def test_who_ends_in_the_middle_of_a_request_gets_no_answer(shared: Running) -> None:
    for text in (b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: here\r\n"):
        async with raw(shared.url) as connection:
            connection.writer.write(text)
            connection.writer.write_eof()
            assert await connection.rest() == b""


def of_length(size: int) -> str:
    """Return a header's line of this many bytes."""
    return f"X: {'x' * (size - 5)}\r\n"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/?access_token=" + "x" * (LINE_BYTES_MAX - 30), ""),
        ("/", of_length(LINE_BYTES_MAX)),
        ("/", of_length(8 << 10) * 7),
        ("/", of_length(100) * 122),
    ],
    ids=["long-query", "long-header", "many-long-headers", "many-headers"],
)
async def test_what_is_just_not_too_large_opens_a_websocket(shared: Running, path: str, headers: str) -> None:
    async with raw(shared.url) as connection:
        assert (await connection.upgrade(path, headers=headers)).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (get("/" + "x" * LINE_BYTES_MAX), "414 "),
        (get("/", of_length(LINE_BYTES_MAX + 1)), "431 "),
        (get("/", of_length(HEAD_BYTES_MAX // 4) * 4), "431 "),
        (get("/", "".join(f"X-{number}: x\r\n" for number in range(200))), "431 "),
        (get("/", UPGRADE), "400 "),
        (
            get(
                "/",
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n",
            ),
            "400 ",
        ),
    ],
    ids=["long-path", "long-header", "long-headers", "many-headers", "no-key", "bad-key"],
)
async def test_what_is_too_large_or_half_a_handshake_is_refused(shared: Running, text: str, status: str) -> None:
    assert (await request(shared, text))[0].startswith(f"HTTP/1.1 {status}")


# -- Metrics


async def test_metrics_are_in_prometheus_text_format(shared: Running) -> None:
    page = await fetch(shared.url, "/metrics")
    _, head, _ = await request(shared, get("/metrics"))
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert page.text.endswith("\n")
    seen = list(samples(page.text))
    assert len({sample.series for sample in seen}) == len(seen)
    families = list(text_string_to_metric_families(page.text))  # Prometheus' own reader
    assert len({family.name for family in families}) == len(families)
    assert all(family.documentation and family.type in ("counter", "gauge", "histogram") for family in families)
    assert sum(len(family.samples) for family in families) == len(seen)
    assert all(sample.value >= 0 for family in families for sample in family.samples)


async def test_operators_are_shown_what_prometheus_is(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint, plain(endpoint.url) as anna:
        await anna.ask({"command": "listen", "client_id": "anna", "bounds": "screen"})
        await anna.ask({"command": "subscribe", "client_id": "anna", "topic": "t"})
        await anna.send(*({"command": "publish", "client_id": "anna", "topic": "t", "payload": n} for n in range(3)))
        for _ in range(3):
            await anna.hear()
        reply = await anna.ask({"command": "endpoints", "client_id": "anna"})
        metrics = await endpoint.metrics()
    (row,) = reply["endpoints"]
    assert (row["name"], row["me"], row["up"], row["ready"], row["reasons"]) == (
        *(endpoint.server.router.me.name, True, True, True),
        [],
    )
    figures = row["figures"]
    assert (figures["publishes_received"], figures["messages_delivered"], figures["clients"]) == (3, 3, 1)
    for name in ("connections", "clients", "publishes_in_flight"):
        assert figures[name] == metrics[f"ingeborg_{name}"]
    assert (figures["bounds_clients"], figures["bounds_level"], figures["bounds_held"]) == (1, 0, 0)
    assert figures["bounds_exceeded"] == 0
    for band in ("low", "medium", "high"):
        assert figures[f"bounds_conflated_{band}"] == metrics[f'ingeborg_bounds_conflated_total{{band="{band}"}}'] == 0
    assert figures["delivery_buckets"][-1] == [None, 3]
    assert len(figures["delivery_buckets"]) == len([s for s in metrics if s.startswith("ingeborg_delivery_seconds_b")])
    assert figures["rss_bytes"] > 1e6
    assert figures["cpu_s"] > 0
    assert 0 < row["uptime_s"] < 10 * PATIENCE_S


async def test_labels_with_odd_characters_survive(tmp_path: Path) -> None:
    async with running(tmp_path, store_name='a"b\\c\nd') as endpoint:
        page = await fetch(endpoint.url, "/metrics")
    info = next(sample for sample in samples(page.text) if sample.name == "ingeborg_info")
    assert info.labels["store"] == 'a"b\\c\nd'
    assert (info.labels["name"], info.labels["routing"]) == (endpoint.server.router.me.name, "home")


@pytest.mark.over_tcp
async def test_known_traffic_is_counted_right(tmp_path: Path) -> None:
    publish = {"command": "publish", "client_id": "p", "topic": "t", "ack": True}
    async with running(tmp_path) as endpoint:
        async with plain(endpoint.url) as one, plain(endpoint.url) as two, plain(endpoint.url) as publisher:
            for name, connection in (("1", one), ("2", two)):
                await connection.ask({"command": "listen", "client_id": name})
                await connection.ask({"command": "subscribe", "client_id": name, "topic": ["t", f"t{name}"]})
            await one.ask({"command": "unsubscribe", "client_id": "1", "topic": "t1"})
            for payload in (1, 2, 2, 2, 3):
                await publisher.ask({**publish, "payload": payload})
            await publisher.ask({"command": "broadcast", "client_id": "p", "payload": 4, "ack": True})
            await publisher.ask("not json")
            await publisher.ask({**publish, "topic": ""})
            await publisher.ask({"command": "what", "client_id": "p"})
            for connection in (one, two):
                assert [(await connection.hear())["broadcast"] for _ in range(4)] == [1, 2, 3, 4]
            metrics = await endpoint.metrics()
        after = await endpoint.metrics()
    expected = {
        "ingeborg_connections": 3,
        "ingeborg_connections_accepted_total": 3,
        "ingeborg_clients": 2,
        "ingeborg_joined": 1,
        "ingeborg_publishes_received_total": 6,
        "ingeborg_messages_delivered_total": 8,
        "ingeborg_duplicates_dropped_total": 2,
        "ingeborg_duplicate_keys": 4,
        "ingeborg_subscriptions_changed_total": 5,
        "ingeborg_routes": 1,
        "ingeborg_publishes_in_flight": 0,
        "ingeborg_publishes_in_flight_bytes": 0,
        'ingeborg_errors_total{code="bad_json"}': 1,
        'ingeborg_errors_total{code="bad_topic"}': 1,
        'ingeborg_errors_total{code="bad_command"}': 1,
        "ingeborg_turns_failed_total": 0,
        "ingeborg_store_errors_total": 0,
        "ingeborg_ready": 1,
        'ingeborg_commands_total{command="publish",result="success"}': 5,
        'ingeborg_commands_total{command="publish",result="bad_topic"}': 1,
        'ingeborg_commands_total{command="broadcast",result="success"}': 1,
        'ingeborg_commands_total{command="unknown",result="bad_json"}': 1,
        'ingeborg_commands_total{command="unknown",result="bad_command"}': 1,
        'ingeborg_commands_total{command="subscribe",result="success"}': 2,
        'ingeborg_commands_total{command="unsubscribe",result="success"}': 1,
        'ingeborg_commands_total{command="listen",result="success"}': 2,
        'ingeborg_delivery_seconds_bucket{le="+Inf"}': 8,
        "ingeborg_delivery_seconds_count": 8,
        "ingeborg_publish_seconds_count": 6,
        'ingeborg_cache_requests_total{cache="routes",result="miss"}': 1,
        'ingeborg_cache_requests_total{cache="routes",result="hit"}': 2,
        'ingeborg_store_operations_total{operation="subscribers",result="success"}': 1,
        'ingeborg_store_seconds_count{operation="subscribers"}': 1,
    }
    assert {series: metrics[series] for series in expected} == expected
    assert not [series for series in metrics if series.startswith("ingeborg_drops_total")]
    assert metrics['ingeborg_store_total{what="writes"}'] > 0
    assert metrics["process_resident_memory_bytes"] > 1e6
    assert 0 < metrics["ingeborg_delivery_seconds_sum"] < PATIENCE_S
    assert metrics["ingeborg_loop_lag_seconds_count"] > 0
    assert after['ingeborg_connections_closed_total{code="1000"}'] == 3
    assert after["process_cpu_seconds_total"] >= metrics["process_cpu_seconds_total"] > 0


# -- Readiness


@pytest.mark.over_tcp
async def test_it_is_not_ready_before_it_has_joined_nor_while_it_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        server = endpoint.server
        assert server.status.not_ready() == []
        newborn = EndpointServer(server.router.me, server.store, secret=SECRET, store_name="lmdb")
        assert newborn.status.not_ready() == [
            "not all other endpoints have let this one in yet",
            "the store does not answer",
        ]
    assert "shutting down" in server.status.not_ready()


async def until_ready(endpoint: Running, status: int) -> None:
    """Wait until ``/readyz`` has the status."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            page = await fetch(endpoint.url, "/readyz")
            if page.status == status:
                break
            await asyncio.sleep(0.05)
    if status == 503:
        assert page.text == "the store does not answer\n"


async def outage_and_recovery(endpoint: Running, stop: Callable[[], object], go_on: Callable[[], object]) -> None:
    """The store stops answering, and answers again: what an endpoint reports and does meanwhile, and afterwards."""
    async with plain(endpoint.url) as subscriber, plain(endpoint.url) as publisher:
        await subscriber.ask({"command": "listen", "client_id": "c"})
        await subscriber.ask({"command": "subscribe", "client_id": "c", "topic": "cached"})
        publish = {"command": "publish", "client_id": "p", "topic": "cached"}
        await publisher.send({**publish, "payload": 0})
        assert await subscriber.hear() == {"key": "cached", "broadcast": 0}

        stop()
        # In turns of the endpoint's tick, ten a second, since a stall counts as one.
        asked_at = endpoint.ticks
        async with plain(endpoint.url) as other:
            await other.send({"command": "subscribe", "client_id": "d", "topic": "new", "id": 1})
            await until_ready(endpoint, 503)
            assert endpoint.ticks - asked_at < 55
            # The routing cache works without the store.
            await publisher.send({**publish, "payload": 1})
            assert await subscriber.hear() == {"key": "cached", "broadcast": 1}
            refusal = await other.hear()
            assert endpoint.ticks - asked_at < 70
            assert (refusal["error"], refusal["id"]) == ("store_unavailable", 1)
            go_on()
            await until_ready(endpoint, 200)
            assert await other.ask({"command": "subscribe", "client_id": "d", "topic": "new"}) == SUCCESS
        assert (await fetch(endpoint.url, "/healthz")).status == 200
        await publisher.send({**publish, "payload": 2})
        assert await subscriber.hear() == {"key": "cached", "broadcast": 2}
    await round_trip(endpoint.url)
    metrics = await endpoint.metrics()
    assert metrics["ingeborg_store_errors_total"] > 0
    assert metrics["ingeborg_turns_failed_total"] == 0


@pytest.mark.over_tcp
async def test_a_silent_store_makes_it_unready_and_it_recovers_by_itself(tmp_path: Path) -> None:
    store = Gated(EmbeddedStore(tmp_path))
    async with running(tmp_path, store=store) as endpoint:
        await outage_and_recovery(endpoint, store.shut, store.reopen)


@pytest.mark.over_tcp
async def test_stopped_writer_processes_make_it_unready_and_it_recovers_by_itself(
    tmp_path: Path, logged: Logged
) -> None:
    logged.expect("confirmed nothing in", "works again")
    store = EmbeddedStore(tmp_path)
    async with running(tmp_path, store=store) as endpoint:
        # Nobody continues them: the endpoint notices their silence, and replaces them.
        writers = [pid for pid in store.writer_pids.values() if pid is not None]
        assert len(writers) == 2

        def stop() -> None:
            for pid in writers:
                os.kill(pid, signal.SIGSTOP)

        await outage_and_recovery(endpoint, stop, lambda: None)
        assert not set(writers) & set(store.writer_pids.values())


@pytest.mark.over_tcp
async def test_why_the_store_refuses_is_for_the_log_and_not_for_clients(
    tmp_path: Path, logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(EmbeddedStore):
        """Every operation for a client fails, with a text that contains the operator's secrets."""

        def __getattribute__(self, name: str) -> Any:
            if name not in REFUSED:
                return super().__getattribute__(name)

            async def refuse(*_: object) -> None:
                raise StoreUnavailable(f"the disk is full at {tmp_path}, says 10.0.0.7 of {name}")

            return refuse

    logged.expect("the store failed in ")
    async with running(tmp_path, store=Refusing(tmp_path)) as endpoint, plain(endpoint.url) as connection:
        refusals = []
        for number, command in enumerate((*REFUSED.values(), *REFUSED.values())):
            refusals.append(await connection.ask({"client_id": "c", "topic": "t", **command, "id": number}))
            assert (refusals[-1]["error"], refusals[-1]["id"]) == ("store_unavailable", number)
        assert {refusal["info"] for refusal in refusals} == {FAILED}
        assert (await endpoint.metrics())["ingeborg_store_errors_total"] >= 2 * len(REFUSED)
    for operation in REFUSED:
        [line] = [line for line in caplog.messages if line.endswith(f"says 10.0.0.7 of {operation}")]  # only one
        assert str(tmp_path) in line
