"""The deduplication layer: the check for new messages, on a real Redis; its limits; and a real RabbitMQ behind it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from ingeborg.loadgen.backends import open_backend
from ingeborg.loadgen.backends.base import Backend, BackendError, Connection, Counters, OnError, OnMessage
from ingeborg.loadgen.layer import publishing as layer
from ingeborg.loadgen.layer.deduplicator import BATCH, Deduplicator, counts_key, entry, open_redis
from ingeborg.loadgen.layer.publishing import Deduplicated, Layer
from tests.cluster.processes import free_port

from ..backends.conftest import PATIENCE_S, Servers, start
from ..backends.contract import Member

QUEUE = "layer-test"
Messages = Sequence[tuple[str, str]]


class Sink:
    """A backend and its only connection: it keeps the published messages. ``fails``: an error to raise instead.
    ``gate``: it waits for this first."""

    deduplicates = False

    def __init__(self) -> None:
        self.published: list[tuple[str, str]] = []
        self.fails: BackendError | None = None
        self.gate: asyncio.Event | None = None
        self.called = asyncio.Event()

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        return self

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Do nothing: there are no subscribers."""

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        """Do nothing: there are no subscribers."""

    async def publish(self, messages: Messages) -> None:
        self.called.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        self.published.extend(messages)

    async def counters(self) -> list[Counters]:
        return [Counters(0, "sink", {"published": float(len(self.published))})]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Clock:
    """A clock in milliseconds, set by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory.mktemp)


@pytest.fixture
def redis_url(servers: Servers) -> str:
    return servers("redis").url


@pytest.fixture
def rabbitmq_url(servers: Servers) -> str:
    return servers("rabbitmq").url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """Return an empty Redis."""
    async with open_redis(redis_url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def front(redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Deduplicated]:
    """Return the publishers' side, with no deduplicators behind it."""
    monkeypatch.setattr(layer, "_COUNTERS_TIMEOUT_S", PATIENCE_S)
    backend = Deduplicated(Sink(), redis_url, QUEUE)
    yield backend
    async with asyncio.timeout(PATIENCE_S):
        await backend.close()


async def publisher(backend: Backend) -> Connection:
    return await backend.connect(0, Member().on_message, Member().on_error)


async def counted(backend: Backend) -> dict[str, float]:
    return next(counters.values for counters in await backend.counters() if counters.source == "layer")


async def drain(deduplicator: Deduplicator) -> None:
    """Wait until the queue is empty."""
    async with asyncio.timeout(PATIENCE_S):
        while await deduplicator.step(wait_s=0.01):
            pass
        await deduplicator.settle()


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Poll for a state in Redis, or in another process, that sends no event."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def until_pushed(front: Deduplicated, count: int) -> None:
    async def pushed() -> bool:
        return (await counted(front))["pushed_total"] >= count

    await until(pushed)


async def until_empty(front: Deduplicated) -> None:
    async def empty() -> bool:
        counts = await counted(front)
        return counts["queued"] == counts["in_hand"] == 0

    await until(empty)


async def until_failed(front: Front) -> str:
    async def failed() -> bool:
        return bool(front.layer.failures())

    await until(failed)
    return front.layer.failures()[0]


# --- new or not


async def test_a_thousand_identical_publishes_become_one(redis: Redis, front: Deduplicated) -> None:
    sink, connection = Sink(), await publisher(front)
    for _ in range(10):
        await connection.publish([("song", "now on P3")] * 100)
    await connection.publish([("song", "now on P1"), ("other song", "now on P3")])
    await front.close()  # everything is in the queue then
    await drain(Deduplicator(redis, QUEUE, sink, 10, Clock()))
    assert sink.published == [("song", "now on P3"), ("song", "now on P1"), ("other song", "now on P3")]


async def test_everything_that_differs_comes_through_in_order(redis: Redis, front: Deduplicated) -> None:
    messages = [(f"topic {n % 7}", f"\0 {n} \n é") for n in range(3 * BATCH)]
    sink, connection = Sink(), await publisher(front)
    await connection.publish(messages)
    await front.close()
    await drain(Deduplicator(redis, QUEUE, sink, 10, Clock()))
    assert sink.published == messages


async def test_the_counters_say_what_became_of_each_message(redis: Redis, front: Deduplicated) -> None:
    connection = await publisher(front)
    await connection.publish([("song", "1"), ("song", "2"), ("song", "1")])
    await until_pushed(front, 3)
    await drain(Deduplicator(redis, QUEUE, Sink(), 10, Clock()))
    assert await counted(front) == {
        "pushed_total": 3.0,
        "published_total": 2.0,
        "duplicates_dropped_total": 1.0,
        "failed_total": 0.0,
        "publish_waits_total": 0.0,
        "queued": 0.0,
        "in_hand": 0.0,
    }
    assert [counters.source for counters in await front.counters()] == ["sink", "layer"]


async def test_what_was_seen_is_news_again_after_its_time(redis: Redis) -> None:
    sink = Sink()
    clock = Clock()
    deduplicator = Deduplicator(redis, QUEUE, sink, 0.05, clock)
    await redis.rpush(QUEUE, entry("song", "again"), entry("song", "again"))
    await drain(deduplicator)
    assert len(sink.published) == 1

    async def forgotten() -> bool:
        return not await redis.keys(f"{QUEUE}:seen:*")

    await until(forgotten)  # by Redis's own clock
    clock.now_ms += 50
    await redis.rpush(QUEUE, entry("song", "again"))
    await drain(deduplicator)
    assert sink.published == [("song", "again")] * 2


async def test_deduplicators_share_what_they_know_and_remember_it(redis: Redis) -> None:
    clock, first, second = Clock(), Sink(), Sink()
    one, two = Deduplicator(redis, QUEUE, first, 10, clock), Deduplicator(redis, QUEUE, second, 10, clock)
    await redis.rpush(QUEUE, entry("song", "x"))
    await drain(one)
    clock.now_ms += 4_000
    await redis.rpush(QUEUE, entry("song", "x"))
    await drain(two)
    assert (first.published, second.published) == ([("song", "x")], [])

    # The time runs from the first sighting; until it is over, the second deduplicator need not ask again.
    (key,) = await redis.keys(f"{QUEUE}:seen:*")
    assert await redis.getdel(key) == b"1010000"
    clock.now_ms += 5_999
    await redis.rpush(QUEUE, entry("song", "x"))
    await drain(two)
    assert second.published == []
    clock.now_ms += 1
    await redis.rpush(QUEUE, entry("song", "x"))
    await drain(two)
    assert second.published == [("song", "x")]


async def test_a_deduplicator_that_dies_loses_the_batch_in_its_hand(redis: Redis, front: Deduplicated) -> None:
    connection, sink = await publisher(front), Sink()
    sink.gate = asyncio.Event()
    await connection.publish([("song", str(n)) for n in range(BATCH + 3)])
    await until_pushed(front, BATCH + 3)
    dying = asyncio.ensure_future(Deduplicator(redis, QUEUE, sink, 10, Clock()).step())
    await sink.called.wait()
    dying.cancel()
    await asyncio.wait([dying])
    heir = Sink()
    await drain(Deduplicator(redis, QUEUE, heir, 10, Clock()))
    assert heir.published == [("song", str(n)) for n in range(BATCH, BATCH + 3)]
    assert (await counted(front))["in_hand"] == BATCH


async def test_what_the_system_refused_is_counted_and_may_come_again(redis: Redis, front: Deduplicated) -> None:
    connection, sink = await publisher(front), Sink()
    sink.fails = BackendError("connection_lost", "gone")
    deduplicator = Deduplicator(redis, QUEUE, sink, 10, Clock())
    await connection.publish([("song", "x")] * 3)
    await until_pushed(front, 3)
    with pytest.raises(BackendError, match="gone"):
        await deduplicator.step()
    await deduplicator.settle()
    counts = await counted(front)
    assert (counts["failed_total"], counts["duplicates_dropped_total"], counts["in_hand"]) == (1, 2, 0)

    heir = Sink()
    await connection.publish([("song", "x")])
    await until_pushed(front, 4)
    await drain(Deduplicator(redis, QUEUE, heir, 10, Clock()))
    assert heir.published == [("song", "x")]


# --- limits


async def test_publishers_wait_while_the_queue_is_long(
    redis: Redis, front: Deduplicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer, "QUEUE_MAX", 10)
    monkeypatch.setattr(layer, "_HELD_MAX", 20)
    connection, sink = await publisher(front), Sink()
    done: list[int] = []

    async def publish() -> None:
        for number in range(10):
            await connection.publish([("song", f"{number} {n}") for n in range(20)])
            done.append(number)

    async def stuck() -> bool:
        return len(done) == 2 and await redis.llen(QUEUE) == 20

    publishing = asyncio.ensure_future(publish())
    await until(stuck)  # the first is in the queue, the second is held, the third waits
    deduplicator = Deduplicator(redis, QUEUE, sink, 10, Clock())
    async with asyncio.timeout(PATIENCE_S):
        while len(sink.published) < 200:
            await deduplicator.step(wait_s=0.01)
    await publishing
    assert sink.published == [("song", f"{number} {n}") for number in range(10) for n in range(20)]
    assert (await counted(front))["publish_waits_total"] > 0


async def test_closing_ends_although_redis_py_swallows_a_cancellation(
    redis: Redis, front: Deduplicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to Python 3.11 `asyncio.wait_for`, with which redis-py sends commands, swallows a cancellation if the command
    has been sent at that instant."""
    asked = asyncio.Event()

    async def llen(_: str) -> int:
        asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return 11

    monkeypatch.setattr(layer, "QUEUE_MAX", 10)
    monkeypatch.setattr(front._feeder._redis, "llen", llen)
    connection = await publisher(front)
    await connection.publish([("song", str(number)) for number in range(20)])
    async with asyncio.timeout(PATIENCE_S):
        await asked.wait()
        await front.close()


async def test_a_layer_that_has_stopped_is_said_to_have(
    redis: Redis, front: Deduplicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer, "QUEUE_MAX", 10)
    monkeypatch.setattr(layer, "_HELD_MAX", 20)
    monkeypatch.setattr(layer, "_PROGRESS_TIMEOUT_S", 0.2)
    monkeypatch.setattr(layer, "_CLOSE_TIMEOUT_S", 0.1)
    connection = await publisher(front)

    async def flood() -> None:
        for number in range(5):
            await connection.publish([("song", f"{number} {n}") for n in range(20)])

    with pytest.raises(BackendError, match="are its deduplicators alive") as caught:
        await flood()
    assert caught.value.code == "timeout"


async def test_a_redis_that_dies(tmp_path: Path) -> None:
    member = Member()
    with start("redis", tmp_path) as server:
        backend = Deduplicated(Sink(), server.url, QUEUE)
        connection = await backend.connect(0, member.on_message, member.on_error)
        await connection.publish([("song", "1")])
        await until_pushed(backend, 1)
        async with asyncio.timeout(PATIENCE_S), backend._feeder._room:  # and until the publisher knows it
            await backend._feeder._room.wait_for(lambda: not backend._feeder._held)
        server.kill()
        await connection.publish([("song", "2"), ("song", "3")])
        await member.until(lambda: len(member.errors) == 2)
        assert member.errors == ["layer_lost", "layer_lost"]
        with pytest.raises(BackendError) as caught:
            await connection.publish([("song", "4")])
        assert caught.value.code == "layer_lost"
        async with asyncio.timeout(PATIENCE_S):
            assert [counters.source for counters in await backend.counters()] == ["sink"]
            await backend.close()
            await backend.close()


async def test_after_closing(front: Deduplicated) -> None:
    connection = await publisher(front)
    await connection.close()
    await connection.close()
    with pytest.raises(BackendError) as caught:
        await connection.publish([("song", "")])
    assert caught.value.code == "closed"


# --- the processes


class Front:
    """A layer's processes, and the generator's side of the layer, before a RabbitMQ."""

    def __init__(self, redis_url: str, rabbitmq_url: str, processes: int) -> None:
        self.run = f"layer-{free_port()}"
        self.layer = Layer(
            redis_url,
            f"{self.run}:queue",
            system="rabbitmq",
            urls=[rabbitmq_url],
            run=self.run,
            ttl_s=60,
            processes=processes,
        )
        self.backend = Deduplicated(open_backend("rabbitmq", [rabbitmq_url], self.run), redis_url, f"{self.run}:queue")
        self.members: list[Member] = []

    async def join(self) -> Member:
        member = Member()
        member.connection = await self.backend.connect(len(self.members), member.on_message, member.on_error)
        self.members.append(member)
        return member

    async def __aenter__(self) -> Front:
        await self.layer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(PATIENCE_S):
            for member in self.members:
                await member.connection.close()
            await self.backend.close()
            await self.layer.stop()


async def test_in_front_of_rabbitmq(redis: Redis, redis_url: str, rabbitmq_url: str) -> None:
    async with Front(redis_url, rabbitmq_url, processes=2) as front:
        listeners = [await front.join() for _ in range(3)]
        for listener in listeners:
            await listener.connection.subscribe(["song", "a.b *# %"])
        for listener in listeners:
            for _ in range(4):
                await listener.connection.publish([("song", "now on P3")] * 100 + [("a.b *# %", "é")])
        await until_pushed(front.backend, 3 * 4 * 101)
        for listener in listeners:
            await listener.has(2)
        await until_empty(front.backend)
        for listener in listeners:
            await listener.connection.unsubscribe(["song"])
            assert sorted(listener.received) == [("a.b *# %", "é"), ("song", "now on P3")]
            assert listener.errors == []
        counts = await counted(front.backend)
        assert counts["published_total"] == 2
        assert counts["duplicates_dropped_total"] == 3 * 4 * 101 - 2
        assert list(front.layer.processes) == ["deduplicator-0", "deduplicator-1", "layer-redis"]
        assert front.layer.failures() == []
    assert front.layer.processes == {"layer-redis": (await redis.info("server"))["process_id"]}
    assert await redis.keys("*") == []


async def test_one_deduplicator_keeps_the_order_of_a_topic(redis_url: str, rabbitmq_url: str) -> None:
    async with Front(redis_url, rabbitmq_url, processes=1) as front:
        member = await front.join()
        await member.connection.subscribe(["song"])
        for start in range(0, 4000, 50):
            await member.connection.publish([("song", str(n)) for n in range(start, start + 50)])
        await member.has(4000)
        assert member.received == [("song", str(n)) for n in range(4000)]


async def test_the_others_go_on_when_one_is_killed(redis_url: str, rabbitmq_url: str) -> None:
    async with Front(redis_url, rabbitmq_url, processes=2) as front:
        member = await front.join()
        await member.connection.subscribe(["song"])
        os.kill(front.layer.processes["deduplicator-0"], signal.SIGKILL)
        assert "status -9" in await until_failed(front)
        await member.connection.publish([("song", str(n)) for n in range(10)])
        await member.has(10)
        assert list(front.layer.processes) == ["deduplicator-1", "layer-redis"]


async def test_a_system_that_is_not_there(redis: Redis, redis_url: str) -> None:
    front = Front(redis_url, f"amqp://127.0.0.1:{free_port()}", processes=2)
    with pytest.raises(BackendError, match="no RabbitMQ") as caught:
        await front.layer.start()
    assert caught.value.code == "layer"
    await front.backend.close()
    assert await redis.keys("*") == []


async def test_a_redis_that_is_not_there(rabbitmq_url: str) -> None:
    url = f"redis://user:secret@127.0.0.1:{free_port()}"
    front = Front(url, rabbitmq_url, processes=1)
    with pytest.raises(BackendError, match="start one there") as caught:
        await front.layer.start()
    assert "secret" not in str(caught.value)
    await front.backend.close()


async def test_a_deduplicator_ends_with_its_parent(redis: Redis, redis_url: str, rabbitmq_url: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ingeborg.loadgen.layer.deduplicator", "--redis", redis_url, "--queue", QUEUE),
        *("--system", "rabbitmq", "--url", rabbitmq_url, "--run", "orphan"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    async def published() -> bool:
        return bool(await redis.hget(counts_key(QUEUE), "published") == b"1")

    async with asyncio.timeout(PATIENCE_S):
        assert b"ready" in await process.stdout.readline()
        await redis.rpush(QUEUE, entry("song", "x"))
        await until(published)
        process.stdin.close()
        assert await process.wait() == 0


async def test_a_system_that_is_lost_ends_its_deduplicators(redis_url: str, servers: Servers) -> None:
    """This is the last test with this RabbitMQ."""
    server = servers.mortal("rabbitmq")
    async with Front(redis_url, server.url, processes=1) as front:
        server.kill()
        assert "connection was lost" in await until_failed(front)


def test_how_many_deduplicators_there_may_be() -> None:
    with pytest.raises(ValueError, match="1 to 64"):
        Layer("redis://127.0.0.1", QUEUE, system="rabbitmq", urls=[], run="x", ttl_s=1, processes=0)
