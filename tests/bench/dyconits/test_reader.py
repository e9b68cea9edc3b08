"""A reader: the order in which it works, its samples, and credit at a real endpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from ingeborg.bench.dyconits import feeds, reader, rows
from ingeborg.bench.dyconits.feeds import EndpointFeed, Message
from ingeborg.bench.dyconits.layer.consumer import Consumer
from ingeborg.bench.dyconits.layer.settings import HIGH, LOW, MEDIUM, PROGRAMS, TOPICS, ConsumerSettings
from ingeborg.bench.errors import BenchError


class Given:
    """A feed with messages that are all there. ``left`` has the number of messages of each topic."""

    def __init__(self, left: dict[str, int]) -> None:
        self.received: dict[str, int] = {}
        self._left = dict(left)
        self._given = dict.fromkeys(TOPICS, 0)
        self.done_count = 0

    async def start(self) -> None: ...

    async def read(self) -> None: ...

    async def next(self, topic: str) -> Message:
        if self._given[topic] == self._left[topic]:
            await asyncio.Event().wait()
        self._given[topic] += 1
        return Message(self._given[topic], 0.0, 1)

    async def done(self) -> None:
        self.done_count += 1

    async def stop(self) -> None: ...


GIVEN: dict[str, Any] = {"name": "c1", "unit_ms": 0.001, "cpu_ms": 0.0, "units": {HIGH: 4, MEDIUM: 1, LOW: 1}}


async def read(one: reader.Reader, feed: Given, count: int) -> None:
    """Let the reader work until it has taken this number of messages."""
    tasks = [asyncio.create_task(one.read(topic)) for topic in TOPICS]
    async with asyncio.timeout(30):
        while feed.done_count < count:  # noqa: ASYNC110 - the reader has no event
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_reader_works_off_units_in_turn() -> None:
    feed = Given({HIGH: 100, MEDIUM: 100, LOW: 100})
    one = reader.Reader(GIVEN, feed)
    await read(one, feed, 27)
    assert one._taken[MEDIUM] == pytest.approx(one._taken[LOW], abs=1)
    assert one._taken[MEDIUM] == pytest.approx(4 * one._taken[HIGH], abs=4)
    assert one._skipped == one._taken == one._last, "each message said that it replaces another one"


async def test_a_reader_keeps_to_the_delay_of_a_topic() -> None:
    feed = Given({HIGH: 100, MEDIUM: 100, LOW: 100})
    control = Consumer("c1", TOPICS, ConsumerSettings(delay_ms=0.0), PROGRAMS)
    control._topics[LOW].delay_ms = 60_000.0
    one = reader.Reader(GIVEN, feed, control)
    await read(one, feed, 60)
    assert one._taken[LOW] == 1
    assert one._taken[MEDIUM] > 30
    assert control.report(1.0, 0.0).consumed == one._taken


async def test_a_reader_samples_each_topic() -> None:
    one = reader.Reader(GIVEN, Given(dict.fromkeys(TOPICS, 0)))
    sampling = asyncio.create_task(one.sample())
    await asyncio.sleep(0)
    sampling.cancel()
    assert [sample.topic for sample in one.samples] == list(TOPICS)
    assert one.samples[0]._replace(at_ms=0.0) == rows.Sample("c1", HIGH, 0.0, 0, 0, 0, 0)
    assert len(one.used) == 1


def test_a_unit_occupies_the_reader_for_its_time() -> None:
    units = reader.Units(0.002, 0.0)
    begun_ms = reader.now_ms()
    for _ in range(50):
        units.work()
    assert reader.now_ms() - begun_ms >= 48 * 2, "each unit but the first takes its time"


def test_a_payload_has_its_size_and_comes_back() -> None:
    payload = feeds.encoded(12, 345.67, 64)
    assert len(payload) == 64
    assert feeds.decoded(payload) == (12, 345.7)


async def test_credit_opens_the_window_of_a_real_endpoint(tmp_path: Path) -> None:
    from ingeborg.bench.compare.matrix import System
    from ingeborg.bench.compare.servers import running

    rules = [{"topic": HIGH, "staleness_ms": 10_000, "deliver": "latest"}]
    with running(System("ingeborg", "ingeborg"), tmp_path, layer=False) as broker:
        feed = EndpointFeed(broker.urls[0], "run", "c1", rules, 2)
        await feed.start()
        reading = asyncio.create_task(feed.read())
        async with connect(broker.urls[0]) as socket:
            send = feeds.endpoint_sender(socket, "run")
            for number in range(1, 6):
                await send(HIGH, feeds.encoded(number, 0.0, 64))
            await feeds.ask(socket, command="subscriptions", client_id="run-c1")  # everything before is done
            async with asyncio.timeout(30):
                got = [await feed.next(HIGH) for _ in range(2)]
                await feed.done()
                got.append(await feed.next(HIGH))
        assert [message.number for message in got] == [1, 2, 5]
        assert got[2].skipped == 2, "the endpoint has kept only the newest while the window was closed"
        await feed.stop()
        with pytest.raises(BenchError, match="the endpoint closed the connection"):
            await reading
        wrong = EndpointFeed(broker.urls[0], "run", "c1", [{"prefix": "", "staleness_ms": 1}], 2)
        with pytest.raises(BenchError, match=r"^listen: .*staleness_ms"):
            await wrong.start()
