"""A member with a real Kafka: its reads, its reports, and its behaviour when the sink rejects a batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer

from ingeborg.autoscaler.kafka.channel import Incoming, Outgoing, ensure_topics, incoming, outgoing
from ingeborg.autoscaler.kafka.connecting import running
from ingeborg.autoscaler.kafka.member import Member, Trouble
from ingeborg.autoscaler.kafka.progress import Progress
from ingeborg.autoscaler.kafka.reading import Reader
from ingeborg.autoscaler.membership import Membership
from ingeborg.autoscaler.model import (
    Beat,
    Bye,
    Hello,
    Message,
    Queue,
    Refused,
    Reign,
    Start,
    Started,
    Stop,
    Stopped,
    Welcome,
)
from ingeborg.autoscaler.settings import Settings
from ingeborg.autoscaler.sinks.base import Place, Record, RefusedError, SinkError
from tests.loadgen.backends.conftest import PATIENCE_S

from .conftest import Cluster

#: Seconds of one read from a topic.
LOOK_S = 0.1
NUMBER = 2

M = TypeVar("M", bound=Message)


class FakeSink:
    """A sink in memory. ``next``: the result of ``open``; ``fails``, ``newer``: queues that it rejects. A test can
    ``hold`` it."""

    def __init__(self) -> None:
        self.kept: dict[Queue, list[Record]] = {}
        self.next: dict[Queue, int | None] = {}
        self.epochs: dict[Queue, int] = {}
        self.fails: dict[Queue, str] = {}
        self.newer: dict[Queue, int] = {}
        self.places: list[Place] = []
        self.asked = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._changed = asyncio.Event()

    async def open(self, place: Place) -> int | None:
        """See ``base.Sink``."""
        queue = self._check(place)
        self.epochs[queue] = place.epoch
        self.places.append(place)
        return self.next.get(queue)

    async def append(self, place: Place, records: Sequence[Record]) -> None:
        """See ``base.Sink``."""
        self.asked.set()
        await self.goes_on.wait()
        queue = self._check(place)
        assert place.epoch == self.epochs[queue]
        self.kept.setdefault(queue, []).extend(records)
        self._changed.set()

    async def close(self) -> None:
        """See ``base.Sink``."""

    def _check(self, place: Place) -> Queue:
        queue = Queue(place.topic, place.partition)
        if queue in self.newer:
            raise RefusedError(*queue, self.newer[queue])
        if queue in self.fails:
            raise SinkError(self.fails[queue])
        return queue

    def hold(self) -> None:
        """Block all later appends."""
        self.asked.clear()
        self.goes_on.clear()

    async def has(self, queue: Queue, count: int) -> list[int]:
        """Wait for this number of the queue's records, and return their offsets."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.kept.get(queue, ())) < count:
                self._changed.clear()
                await self._changed.wait()
        return [record.offset for record in self.kept[queue]]


class Led:
    """A running member; the test plays its controller."""

    def __init__(self, member: Member, sink: FakeSink, inbox: Incoming, orders: Outgoing) -> None:
        self.member = member
        self.sink = sink
        self._inbox = inbox
        self._orders = orders
        self._heard: list[Message] = []
        self.task = asyncio.create_task(member.run())

    async def hear(self, kind: type[M], **fields: Any) -> M:
        """Return the next message of this kind with these fields, and skip earlier ones."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self._heard:
                    message = self._heard.pop(0)
                    if isinstance(message, kind) and all(getattr(message, k) == v for k, v in fields.items()):
                        return message
                self._heard += [each.message for each in await self._inbox.take(LOOK_S)]
                if not self._heard and self.task.done():
                    self.task.result()

    async def tell(self, message: Message, number: int = NUMBER) -> None:
        await self._orders.send(number, message)

    async def join(self, number: int = NUMBER) -> None:
        hello = await self.hear(Hello)
        await self.tell(Welcome(hello.name, hello.nonce, number, 1), 0)
        await self.hear(Beat, number=number)

    async def start(self, *queues: Queue, epoch: int = 1) -> None:
        """Repeat the order until the member answers, as a controller does."""
        await self._ordered(Start("m", 1, epoch, queues), Started, queues)

    async def stop(self, *queues: Queue) -> None:
        await self._ordered(Stop("m", 1, queues), Stopped, queues)

    async def _ordered(self, order: Message, answer: type[Started] | type[Stopped], queues: Sequence[Queue]) -> None:
        left = set(queues)
        async with asyncio.timeout(PATIENCE_S):
            while left:
                await self.tell(order)
                try:
                    async with asyncio.timeout(1.0):
                        while left:
                            left -= {*(await self.hear(answer)).queues}
                except TimeoutError:
                    pass

    async def problem(self, queue: Queue, words: str) -> None:
        """Wait until the member reports this problem of the queue; ``""``: no problem."""
        while True:
            for held in (await self.hear(Beat)).held:
                if held.queue == queue and (words in held.problem if words else not held.problem):
                    return

    async def end(self) -> None:
        self.member.end()
        async with asyncio.timeout(PATIENCE_S):
            await self.task


@asynccontextmanager
async def led(cluster: Cluster, settings: Settings, **rows: Any) -> AsyncIterator[Led]:
    """Run a member m of the test's own group. ``rows``: those of ``[member]``."""
    settings = replace(
        settings,
        group=replace(settings.group, name=cluster.name),
        member=replace(settings.member, **{"wait_s": 0.05, "beat_s": 0.05, **rows}),
    )
    await ensure_topics(settings)
    options, topic, sink = cluster.options, settings.metadata_topic, FakeSink()
    consumer = AIOKafkaConsumer(**options, enable_auto_commit=False, auto_offset_reset="none", fetch_max_wait_ms=100)
    async with (
        running(consumer, options),
        incoming(options, topic) as orders,
        outgoing(options, topic) as answers,
        incoming(options, topic) as inbox,
        outgoing(options, topic) as told,
    ):
        await inbox.read_from({0: 0})
        reader = Reader(consumer, settings.member.start_from == "latest", cluster.address, PATIENCE_S)
        progress = Progress(cluster.client, cluster.name, cluster.address, PATIENCE_S)
        found = Led(
            Member(settings, Membership("m", "nonce"), sink, reader, progress, orders, answers), sink, inbox, told
        )
        try:
            yield found
        finally:
            found.task.cancel()
            await asyncio.wait([found.task], timeout=PATIENCE_S)
            assert found.task.cancelled() or found.task.exception() is None


async def test_what_it_is_given_it_reads_into_the_sink_and_says_how_far(cluster: Cluster, settings: Settings) -> None:
    topic = cluster.topic()
    new, known, committed = (Queue(topic, number) for number in range(3))
    await cluster.make(topic, 3)
    for queue in (new, known, committed):
        await cluster.produce(queue, 6)
    await cluster.commit(cluster.name, {known: 1, committed: 4})
    async with led(cluster, settings) as one:
        one.sink.next[known] = 2
        await one.join()
        await one.start(new, known, committed)
        assert await one.sink.has(new, 6) == [*range(6)]
        assert await one.sink.has(known, 4) == [2, 3, 4, 5]
        assert await one.sink.has(committed, 2) == [4, 5]
        assert {(place.table, place.epoch, place.member) for place in one.sink.places} == {(topic, 1, "m")}
        while {held.next for held in (await one.hear(Beat)).held} != {6}:
            pass
        await cluster.produce(new, 2)
        assert await one.sink.has(new, 8) == [*range(8)]
        await one.end()
    logs = cluster.logs()
    assert await logs.committed(cluster.name, [new, known, committed]) == {new: 8, known: 6, committed: 6}


async def test_what_nobody_has_read_may_begin_at_its_end(cluster: Cluster, settings: Settings) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 5)
    async with led(cluster, settings, start_from="latest") as one:
        await one.join()
        await one.start(queue)
        await cluster.produce(queue, 2)
        assert await one.sink.has(queue, 2) == [5, 6]


async def test_that_end_is_where_the_next_owner_begins_as_well(cluster: Cluster, settings: Settings) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 5)
    async with led(cluster, settings, start_from="latest") as one:
        await one.join()
        await one.start(queue)
        assert await cluster.logs().committed(cluster.name, [queue]) == {queue: 5}
        await one.stop(queue)
        await cluster.produce(queue, 2)  # it has no owner
        await one.start(queue, epoch=2)
        assert await one.sink.has(queue, 2) == [5, 6]


async def test_a_partition_whose_place_is_gone_is_opened_again_and_the_others_go_on(
    cluster: Cluster, settings: Settings
) -> None:
    topic = cluster.topic()
    gone, good = Queue(topic, 0), Queue(topic, 1)
    await cluster.make(topic, 2)
    for queue in (gone, good):
        await cluster.produce(queue, 3)
    async with led(cluster, settings) as one:
        await one.join()
        await one.start(gone, good)
        for queue in (gone, good):
            assert await one.sink.has(queue, 3) == [0, 1, 2]
        opened = len(one.sink.places)
        one.sink.next[gone] = 3
        one.member._reader.out_of_range.add(gone)
        await one.hear(Started, queues=(gone,))
        assert len(one.sink.places) == opened + 1
        for queue in (gone, good):
            await cluster.produce(queue, 2)
        for queue in (gone, good):
            assert await one.sink.has(queue, 5) == [*range(5)]


async def test_a_topic_that_may_not_be_read_is_told_and_the_others_are_read(
    cluster: Cluster, settings: Settings
) -> None:
    denied, good = Queue(cluster.topic("denied"), 0), Queue(cluster.topic("good"), 0)
    for queue in (denied, good):
        await cluster.make(queue.topic)
    async with led(cluster, settings) as one:
        await one.join()
        await one.start(denied, good)
        one.member._reader.denied.add(denied.topic)
        await one.problem(denied, "grant READ")
        await cluster.produce(good, 3)
        assert await one.sink.has(good, 3) == [0, 1, 2]
        one.member._denied.clear()  # the member retries after a while
        await one.problem(denied, "")
        await cluster.produce(denied, 2)
        assert await one.sink.has(denied, 2) == [0, 1]


async def test_it_has_let_go_only_when_the_sink_has_all_that_was_read(cluster: Cluster, settings: Settings) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    async with led(cluster, settings) as one:
        await one.join()
        await one.start(queue)
        one.sink.hold()
        await cluster.produce(queue, 5)
        async with asyncio.timeout(PATIENCE_S):
            await one.sink.asked.wait()
        await one.tell(Stop("m", 1, (queue,)))
        for _ in range(3):  # the member is alive, and owns the queue
            assert [held.queue for held in (await one.hear(Beat)).held] == [queue]
        assert one.sink.kept == {}
        one.sink.goes_on.set()
        await one.hear(Stopped, queues=(queue,))
        kept = len(one.sink.kept[queue])
        assert kept > 0
        assert (await cluster.logs().committed(cluster.name, [queue]))[queue] == kept
        await cluster.produce(queue, 5)
        while (await one.hear(Beat)).held:
            pass
        assert len(one.sink.kept[queue]) == kept


async def test_orders_and_the_end_do_not_wait_for_a_batch(cluster: Cluster, settings: Settings) -> None:
    """A cycle can take minutes, but the member must release a queue within ``stop_s``."""
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    async with led(cluster, settings, wait_s=600.0) as one:
        await one.join()
        await one.start(queue)
        await cluster.produce(queue, 3)
        async with asyncio.timeout(PATIENCE_S):
            while not (await one.hear(Beat)).held[0].bytes_per_s:
                pass
        await one.stop(queue)
        await one.start(queue, epoch=2)
        await one.end()
        await one.hear(Bye)


async def test_what_a_sink_does_not_take_is_tried_again_and_the_others_go_on(
    cluster: Cluster, settings: Settings
) -> None:
    topic = cluster.topic()
    bad, good = Queue(topic, 0), Queue(topic, 1)
    await cluster.make(topic, 2)
    async with led(cluster, settings) as one:
        await one.join()
        await one.start(bad, good)
        one.sink.fails[bad] = "no room"
        for queue in (bad, good):
            await cluster.produce(queue, 4)
        await one.problem(bad, "sink: no room")
        assert await one.sink.has(good, 4) == [*range(4)]
        await cluster.produce(good, 2)
        assert await one.sink.has(good, 6) == [*range(6)]
        assert bad not in one.sink.kept
        await cluster.produce(bad, 1)
        del one.sink.fails[bad]
        assert await one.sink.has(bad, 5) == [*range(5)]
        await one.problem(bad, "")
        await one.end()
    assert await cluster.logs().committed(cluster.name, [bad, good]) == {bad: 5, good: 6}


async def test_what_a_sink_cannot_open_is_tried_again(cluster: Cluster, settings: Settings) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 3)
    async with led(cluster, settings) as one:
        one.sink.fails[queue] = "not there"
        await one.join()
        while not (await one.hear(Beat)).held:
            await one.tell(Start("m", 1, 1, (queue,)))
        await one.problem(queue, "sink: not there")
        one.sink.fails.clear()
        await one.hear(Started, queues=(queue,))
        assert await one.sink.has(queue, 3) == [0, 1, 2]


async def test_a_queue_that_has_a_newer_owner_is_let_go_of(cluster: Cluster, settings: Settings) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    async with led(cluster, settings) as one:
        await one.join()
        await one.start(queue, epoch=3)
        one.sink.newer[queue] = 7
        await cluster.produce(queue, 1)
        assert await one.hear(Refused) == Refused("m", NUMBER, 1, 3, 7, (queue,))
        while (await one.hear(Beat)).held:
            pass
        await one.tell(Start("m", 1, 6, (queue,)))
        assert await one.hear(Refused) == Refused("m", NUMBER, 1, 6, 7, (queue,))
        one.sink.newer.clear()
        await one.start(queue, epoch=8)
        assert await one.sink.has(queue, 1) == [0]


async def test_a_sink_that_is_farther_than_the_topic_is_a_problem(cluster: Cluster, settings: Settings) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 3)
    async with led(cluster, settings) as one:
        one.sink.next[queue] = 1_000
        await one.join()
        while not (await one.hear(Beat)).held:
            await one.tell(Start("m", 1, 1, (queue,)))
        await one.problem(queue, "If the topic was recreated")
        assert one.sink.kept == {}


async def test_what_retention_has_taken_is_counted_and_passed_over(
    cluster: Cluster, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 6)
    await cluster.delete_records(queue, 4)
    async with led(cluster, settings) as one:
        one.sink.next[queue] = 1
        await one.join()
        await one.start(queue)
        assert await one.sink.has(queue, 2) == [4, 5]
        assert one.member.skipped == 3
    assert f"{queue}: retention deleted offsets 1 to 3 before they were read" in caplog.messages


async def test_at_its_end_all_that_was_read_is_in_the_sink_before_the_last_word(
    cluster: Cluster, settings: Settings
) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    async with led(cluster, settings) as one:
        await one.join()
        await one.start(queue)
        one.sink.hold()
        await cluster.produce(queue, 5)
        async with asyncio.timeout(PATIENCE_S):
            await one.sink.asked.wait()
        one.member.end()
        await one.hear(Beat)
        assert not one.task.done()
        one.sink.goes_on.set()
        assert await one.hear(Bye) == Bye("m", "nonce", NUMBER)
        await one.end()
        assert one.member.read_records == len(one.sink.kept[queue]) > 0
        assert one.member.read_bytes == 1_000 * one.member.read_records


async def test_whose_number_is_anothers_asks_for_a_new_one_and_reads_on(cluster: Cluster, settings: Settings) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    async with led(cluster, settings) as one:
        await one.join()
        await one.start(queue)
        await one.tell(Start("other", 1, 9, ()))
        await one.join(3)
        await cluster.produce(queue, 2)
        assert await one.sink.has(queue, 2) == [0, 1]
        await one.tell(Reign("c", 5), 3)
        assert (await one.hear(Beat, term=5)).held[0].epoch == 1


async def test_it_reads_no_faster_than_it_may(cluster: Cluster, settings: Settings) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await cluster.produce(queue, 1)
    async with led(cluster, settings, throttle_bytes_per_s=1.0) as one:
        await one.join()
        await one.start(queue)
        await one.sink.has(queue, 1)
        await cluster.produce(queue, 1)  # read a thousand seconds later, because it has a thousand bytes
        for _ in range(10):
            await one.hear(Beat)
        assert len(one.sink.kept[queue]) == 1
        await one.end()


def test_a_trouble_is_said_when_it_is_new_and_tried_again_later_each_time() -> None:
    trouble = Trouble()
    assert trouble.again(100.0, "no room")
    assert trouble.at_s == 100.5
    assert not trouble.again(101.0, "no room")
    assert trouble.at_s == 102.0
    assert trouble.again(102.0, "no way")
    for _ in range(10):
        trouble.again(200.0, "no way")
    assert trouble.at_s == 230.0
