"""Records from a real Kafka: a member's reads and their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from ingeborg.autoscaler.kafka import connecting
from ingeborg.autoscaler.kafka.connecting import KafkaProblem, running
from ingeborg.autoscaler.kafka.reading import Extent, Reader, consumer_of
from ingeborg.autoscaler.model import Queue
from ingeborg.autoscaler.settings import MemberSettings
from ingeborg.autoscaler.sinks.base import Record
from tests.loadgen.backends.conftest import PATIENCE_S, Server

from .conftest import Cluster

#: Seconds of one read from a topic.
LOOK_S = 0.2


@asynccontextmanager
async def reading(
    cluster: Cluster, latest: bool = False, timeout_s: float = PATIENCE_S, **member: Any
) -> AsyncIterator[Reader]:
    """Connect a reader. ``member``: rows of its table."""
    options = {**cluster.options, "request_timeout_ms": int(timeout_s * 1e3)}
    consumer = consumer_of(options, MemberSettings(**member))
    async with running(consumer, options):
        yield Reader(consumer, latest, cluster.address, timeout_s)


async def read(reader: Reader, count: int) -> dict[Queue, list[Record]]:
    """Return this number of next records."""
    found: dict[Queue, list[Record]] = {}
    async with asyncio.timeout(PATIENCE_S):
        while sum(map(len, found.values())) < count:
            for queue, records in (await reader.take(LOOK_S)).items():
                found.setdefault(queue, []).extend(records)
    return found


def offsets(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


async def test_a_record_is_what_was_produced(cluster: Cluster) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    produced = [(b"key", b"value"), (None, b""), (b"gone", None)]
    for at, (key, value) in enumerate(produced):
        await cluster.producer.send_and_wait(queue.topic, value, key=key, partition=0, timestamp_ms=1_000 + at)
    async with reading(cluster) as reader:
        reader.read({queue: 0})
        assert await read(reader, 3) == {
            queue: [Record(at, 1_000 + at, key, value) for at, (key, value) in enumerate(produced)]
        }


async def test_each_partition_is_read_from_its_place_and_goes_on_when_others_come_and_go(cluster: Cluster) -> None:
    topic = cluster.topic()
    one, two = Queue(topic, 0), Queue(topic, 1)
    await cluster.make(topic, 2)
    for queue in (one, two):
        await cluster.produce(queue, 10)
    async with reading(cluster) as reader:
        reader.read({one: 4})
        assert offsets((await read(reader, 6))[one]) == [*range(4, 10)]
        reader.read({one: 10, two: 7})
        assert offsets((await read(reader, 3))[two]) == [7, 8, 9]
        await cluster.produce(one, 2)
        await cluster.produce(two, 2)
        reader.read({two: 10})
        found = await read(reader, 2)
        assert (set(found), offsets(found[two])) == ({two}, [10, 11])
        assert await reader.take(0.0) == {}


async def test_of_transactions_only_what_was_committed_is_read(cluster: Cluster) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    async with running(AIOKafkaProducer(**cluster.options, transactional_id=queue.topic), cluster.options) as producer:
        for value, is_kept in ((b"kept", True), (b"taken back", False), (b"kept, too", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(queue.topic, value, partition=0)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
    async with reading(cluster) as reader:
        reader.read({queue: 0})
        assert [record.value for record in (await read(reader, 2))[queue]] == [b"kept", b"kept, too"]
    async with reading(cluster, isolation="read_uncommitted") as reader:
        reader.read({queue: 0})
        assert len((await read(reader, 3))[queue]) == 3


async def test_a_member_that_is_held_to_a_speed_reads_one_batch_of_a_partition_at_a_time(cluster: Cluster) -> None:
    topic = cluster.topic()
    await cluster.make(topic, 2)
    queues = [Queue(topic, 0), Queue(topic, 1)]
    for queue in queues:
        for _ in range(4):
            await cluster.produce(queue, 25)
    found: dict[Queue, int] = dict.fromkeys(queues, 0)
    async with reading(cluster, throttle_bytes_per_s=10.0) as reader, asyncio.timeout(PATIENCE_S):
        reader.read(dict.fromkeys(queues, 0))
        while sum(found.values()) < 200:
            for queue, records in (await reader.take(LOOK_S)).items():
                assert len(records) <= 25  # so that no partition waits for all records of another
                found[queue] += len(records)
    assert found == dict.fromkeys(queues, 100)


async def test_a_place_that_is_not_there_any_more_is_told_and_the_others_are_read(cluster: Cluster) -> None:
    topic = cluster.topic()
    await cluster.make(topic, 2)
    gone, good = Queue(topic, 0), Queue(topic, 1)
    for queue in (gone, good):
        await cluster.produce(queue, 8)
    await cluster.delete_records(gone, 5)
    async with reading(cluster) as reader:
        reader.read({gone: 2, good: 0})
        assert offsets((await read(reader, 8))[good]) == [*range(8)]
        async with asyncio.timeout(PATIENCE_S):
            while not reader.out_of_range:
                assert await reader.take(LOOK_S) == {}
        assert reader.out_of_range == {gone}
        reader.read({gone: 5, good: 8})
        assert offsets((await read(reader, 3))[gone]) == [5, 6, 7]


async def test_a_place_that_has_changed_is_gone_to_and_another_is_not(cluster: Cluster) -> None:
    """If the sink knows another offset than the member expected, the member continues from there."""
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 5)
    async with reading(cluster) as reader:
        reader.read({queue: 0})
        await read(reader, 5)
        reader.read({queue: 2})
        assert offsets((await read(reader, 3))[queue]) == [2, 3, 4]
        reader.read({queue: 5})
        assert await reader.take(0.0) == {}


async def test_where_nothing_is_to_be_read_it_waits(cluster: Cluster) -> None:
    async with reading(cluster) as reader:
        assert await reader.take(0.01) == {}


async def test_what_is_there_and_where_to_begin(cluster: Cluster) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 5)
    await cluster.delete_records(queue, 2)
    async with reading(cluster) as earliest, reading(cluster, latest=True) as latest:
        extent = await earliest.extent(queue)
        assert extent == Extent(2, 5)
        assert (earliest.start_of(extent), latest.start_of(extent)) == (2, 5)


async def test_where_no_answer_comes_asking_ends_with_a_problem(
    cluster: Cluster, kafka: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_CLOSE_S", 0.5)
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    async with reading(cluster, timeout_s=1.0) as reader:
        reader.read({queue: 0})
        kafka.pause()
        try:
            with pytest.raises(KafkaProblem, match=f"cannot read the offsets of {queue}"):
                await reader.extent(queue)
            assert await reader.take(0.01) == {}
        finally:
            kafka.resume()
