"""Event streams at a real endpoint's port. SPEC 1.8."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from ingeborg.broker.access.admission import Access
from ingeborg.broker.access.tokens import Keys, make_token, new_keys
from ingeborg.broker.core.model import Settings
from ingeborg.broker.http.events import CLOSED
from ingeborg.broker.http.query import VALUES_MAX
from ingeborg.broker.store.embedded.store import EmbeddedStore

from ..running import PATIENCE_S, Gated, Running, plain, raw, running
from .talking import Answer, Event, EventSource, Talk, head, talk

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("transport", "logged"),
    pytest.mark.above_sockets,
]


class Page:
    """A page with its EventSource."""

    def __init__(self, connection: Talk, answer: Answer, last: str) -> None:
        self.connection = connection
        self.answer = answer
        self._source = EventSource(connection.raw.reader, last)

    @property
    def last(self) -> str:
        """The id of the last event."""
        return self._source.last

    async def event(self) -> Event:
        """The next event with data."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._source.event()

    async def message(self) -> Any:
        """The payload of the next event, which has to be a message."""
        event = await self.event()
        assert event.kind == "message"
        return event.data["broadcast"]


def target(*topics: str, **fields: str) -> str:
    return "/events?" + urlencode([*(("topic", topic) for topic in topics), *fields.items()])


@asynccontextmanager
async def opened(url: str, path: str, *headers: str, last: str = "") -> AsyncIterator[Page]:
    """Open a stream. ``last``: the id of the last event that the page has had."""
    again = (f"Last-Event-ID: {last}",) if last else ()
    async with raw(url) as connection:
        client = Talk(connection)
        client.say(head("GET", path, *headers, *again))
        answer = await client.hear(has_body=False)
        yield Page(client, answer, last)


async def publish(endpoint: Running, topic: str, *payloads: Any, **fields: Any) -> None:
    async with talk(endpoint.url) as backend:
        items = [{"client_id": "backend", "topic": topic, "payload": payload, **fields} for payload in payloads]
        assert (await backend.post("/publish", items)).status == 200


async def test_a_page_gets_the_messages_of_its_topics(keeping: Running, name: str) -> None:
    async with opened(keeping.url, target(name, f"{name} 2")) as page:
        assert page.answer.status == 200
        assert page.answer.headers["content-type"] == "text/event-stream"
        assert page.answer.headers["x-accel-buffering"] == "no"
        assert page.answer.headers["connection"] == "close"
        await publish(keeping, name, "one", {"two": 2}, keep_s=60)
        event = await page.event()
        assert (event.kind, event.data["key"], event.data["broadcast"]) == ("message", name, "one")
        assert "mid" in event.data
        assert event.id.startswith("events-")
        assert await page.message() == {"two": 2}
        await publish(keeping, f"{name} 2", "three")
        assert await page.message() == "three"


async def test_a_page_that_comes_back_misses_nothing(keeping: Running, name: str) -> None:
    async with opened(keeping.url, target(name)) as page:
        await publish(keeping, name, 1, keep_s=60)
        assert await page.message() == 1
        client = page.last.partition("/")[0]
    await publish(keeping, name, 2, 3, keep_s=60)
    async with opened(keeping.url, target(name), last=page.last) as page:
        assert page.last.partition("/")[0] == client
        heard = [await page.message() for _ in range(2)]
        if heard[0] == 1:  # it may come again
            heard = [*heard[1:], await page.message()]
        assert heard == [2, 3]
        await publish(keeping, name, 4, keep_s=60)
        assert await page.message() == 4
        assert page.last.partition("/")[0] == client


async def test_a_subscription_that_has_ended_is_repaired(tmp_path: Path) -> None:
    async with running(tmp_path, settings=Settings(False, "memory"), grace_s=0.3) as endpoint:
        async with opened(endpoint.url, target("a")) as page:
            await publish(endpoint, "a", 1, keep_s=60)
            assert await page.message() == 1
        await endpoint.until(lambda metrics: metrics["ingeborg_subscriptions_ended_total"] == 1)
        await publish(endpoint, "a", 2, 3, keep_s=60)
        async with opened(endpoint.url, target("a"), last=page.last) as page:
            heard = [await page.message() for _ in range(2)]
            if heard[0] == 1:
                heard = [*heard[1:], await page.message()]
            assert heard == [2, 3]
            await publish(endpoint, "a", 4, keep_s=60)
            assert await page.message() == 4
        await endpoint.until(lambda metrics: metrics["ingeborg_subscriptions_ended_total"] == 2)


async def test_without_history_a_stream_begins_with_a_gap(shared: Running, name: str) -> None:
    async with opened(shared.url, target(name)) as page:
        event = await page.event()
        assert (event.kind, event.data) == ("gap", None)
        await publish(shared, name, 1)
        assert await page.message() == 1
        last = page.last
    async with opened(shared.url, target(name), last=last) as page:
        assert (await page.event()).kind == "gap"
        assert page.last == last


@pytest.mark.parametrize("last", ["nonsense", "ann/nonsense", "%ff/1", "/", "x" * 3_000])
async def test_an_id_that_tells_nothing_begins_with_a_gap(keeping: Running, name: str, last: str) -> None:
    async with opened(keeping.url, target(name), last=last) as page:
        event = await page.event()
        assert (event.kind, event.data) == ("gap", None)
        await publish(keeping, name, 1)
        assert await page.message() == 1
        assert page.last != last


async def test_an_id_given_twice_is_read_once(keeping: Running, name: str) -> None:
    async with opened(keeping.url, target(name), "Last-Event-ID: nonsense", "Last-Event-ID: more") as page:
        assert (await page.event()).kind == "gap"


async def test_a_filter_and_bounds_apply(keeping: Running, name: str) -> None:
    path = target(name, filter='{"n": [{"numeric": [">", 1]}]}', bounds='[{"prefix": "", "interval_ms": 100}]')
    async with opened(keeping.url, path) as page, opened(keeping.url, target(name, bounds="live")) as other:
        await publish(keeping, name, {"n": 1}, {"n": 2})
        assert await page.message() == {"n": 2}
        assert await other.message() == {"n": 1}


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/events", 400, "has to name a topic"),
        ("/events?topic=", 400, "empty"),
        ("/events?topic=a&filter={", 400, "'filter'"),
        ("/events?topic=a&filter=5", 400, "filter"),
        ("/events?topic=a&bounds=nothing", 400, "bounds"),
        ("/events?topic=a&limit=5", 400, "'limit'"),
        ("/events?topic=a&client_id=a&client_id=b", 400, "too often"),
        ("/events?topic=a&filter=" + '{"a":' + "[" * 254 + "]" * 254 + "}", 400, "deeply"),
        ("/events?" + "topic=a&" * (VALUES_MAX + 10), 400, f"at most {VALUES_MAX}"),
    ],
    ids=["none", "empty", "no-json", "no-filter", "bounds", "unknown", "twice", "deep", "many"],
)
async def test_a_bad_request_is_refused(shared: Running, path: str, status: int, said: str) -> None:
    async with talk(shared.url) as client:
        answer = await client.get(path)
        assert answer.status == status
        assert said in answer.json["info"]


async def test_a_second_page_of_a_client_ends_the_first_for_good(keeping: Running, name: str) -> None:
    path = target(name, client_id=name)
    async with opened(keeping.url, path) as first, opened(keeping.url, path) as second:
        event = await first.event()
        assert (event.kind, event.data["code"], event.id) == ("closed", 4001, CLOSED)
        assert await first.connection.ends() == b""
        async with opened(keeping.url, path, last=CLOSED) as again:
            assert again.answer.status == 204
        await publish(keeping, name, 1)
        assert await second.message() == 1


async def test_a_token_says_which_client_it_is(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    new_keys(keys)

    def token(client: str) -> str:
        return make_token(keys, client, jti=client, publish=["a"], subscribe_topics=["a"], revoke=True)

    settings = Settings(False, "memory")
    async with running(tmp_path / "store", access=Access(Keys(keys)), settings=settings) as endpoint:
        ann = token("ann")
        async with opened(endpoint.url, target("a", access_token=ann)) as page:
            assert page.answer.status == 200
            headers = {"additional_headers": {"Authorization": f"Bearer {token('ops')}"}}
            async with plain(endpoint.url, **headers) as operator:
                await operator.ask({"command": "revoke", "client_id": "ops", "jti": "ann"})
            event = await page.event()
            assert (event.kind, event.data["code"], event.id) == ("closed", 4006, CLOSED)
        async with opened(endpoint.url, target("a", access_token=ann)) as page:
            assert page.answer.status == 401
        async with opened(endpoint.url, target("a", access_token=token("gw*"))) as page:
            await publish_as(endpoint, token("gw*"))
            assert (await page.event()).id.startswith("gwevents-")
        async with opened(endpoint.url, target("b", access_token=token("bob"))) as page:
            assert page.answer.status == 403
        async with opened(endpoint.url, target("a", access_token=token("bob"), client_id="eve")) as page:
            assert page.answer.status == 403
        async with opened(endpoint.url, target("a", access_token=token("bob")), last="eve/") as page:
            assert (await page.event()).kind == "gap"  # another client's id
            assert page.last.startswith("bob/")


async def publish_as(endpoint: Running, token: str) -> None:
    async with plain(endpoint.url, additional_headers={"Authorization": f"Bearer {token}"}) as client:
        said = await client.ask({"command": "publish", "client_id": "gw1", "topic": "a", "payload": 1, "ack": True})
        assert said["result"] == "success"


async def test_an_endpoint_that_ends_lets_its_streams_come_back(tmp_path: Path) -> None:
    settings = Settings(False, "memory")
    async with (
        running(tmp_path, settings=settings, drain_s=0.2) as endpoint,
        opened(endpoint.url, target("a")) as page,
    ):
        await endpoint.server.stop()
        rest = await page.connection.ends()
        assert b"event: closed" not in rest


async def test_a_page_that_cannot_be_served_now_tries_again(tmp_path: Path, logged: Any) -> None:
    """A browser connects again after a success, and not after an error."""
    logged.expect("the store failed", "not ready")
    store = Gated(EmbeddedStore(tmp_path, timeout_s=0.5))
    async with running(tmp_path, store=store) as endpoint:
        store.shut()
        async with opened(endpoint.url, target("a")) as page:
            assert page.answer.status == 200
            body = await page.connection.ends()
            assert body.startswith(b"retry: ")
            assert b"data" not in body
        store.reopen()


class Slow(Gated):
    """A store whose subscribes wait at the gate."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.asked = asyncio.Event()

    async def subscribe(self, *given: Any) -> Any:
        self.asked.set()
        await self._gate.wait()
        return await self._store.subscribe(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_a_page_learns_of_a_gap_when_it_is_subscribed(tmp_path: Path) -> None:
    """Otherwise a page that then reads what it has missed could miss a message after that."""
    store = Slow(EmbeddedStore(tmp_path))
    settings = Settings(False, "memory")
    async with (
        running(tmp_path, store=store, settings=settings) as endpoint,
        raw(endpoint.url) as connection,
        talk(endpoint.url) as backend,
    ):
        store.shut()
        page = Page(Talk(connection), Answer(0, {}, b""), last := "ann/nonsense")
        page.connection.say(head("GET", target("a"), f"Last-Event-ID: {last}"))
        event = asyncio.create_task(page.event())
        await store.asked.wait()
        await backend.get("/history?client_id=b&topic=a")  # by now the page would have the event
        assert not event.done()
        assert page.last == last
        store.reopen()
        assert (await event).kind == "gap"
        await publish(endpoint, "a", 1)
        assert await page.message() == 1


async def test_comments_keep_a_stream_awake(tmp_path: Path) -> None:
    settings = Settings(False, "memory")
    async with running(tmp_path, ping_s=0.1, settings=settings) as endpoint, opened(endpoint.url, target("a")) as page:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(3):
                await page.connection.raw.reader.readuntil(b"\n:\n")
        await publish(endpoint, "a", 1)
        assert await page.message() == 1


async def test_pages_of_allowed_origins_may_read_a_stream(tmp_path: Path) -> None:
    access = Access(origins=["https://radio.example"])
    async with running(tmp_path, access=access) as endpoint:
        async with opened(endpoint.url, target("a"), "Origin: https://radio.example") as page:
            assert page.answer.headers["access-control-allow-origin"] == "https://radio.example"
        async with opened(endpoint.url, target("a"), "Origin: https://evil.example") as page:
            assert page.answer.status == 403


async def test_a_client_that_leaves_is_forgotten(keeping: Running, name: str) -> None:
    metrics = await keeping.metrics()
    before, accepted = metrics["ingeborg_clients"], metrics["ingeborg_connections_accepted_total"]
    async with opened(keeping.url, target(name)) as page:
        assert page.answer.status == 200
        metrics = await keeping.until(lambda metrics: metrics["ingeborg_clients"] == before + 1)
        assert metrics["ingeborg_connections_accepted_total"] == accepted + 1
    await keeping.until(lambda metrics: metrics["ingeborg_clients"] == before)
