"""Messages through a real Kafka: in order, from the requested offset, and bounded in time."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from ingeborg.autoscaler.kafka import connecting
from ingeborg.autoscaler.kafka.channel import (
    METADATA_TOPIC,
    SPEEDS_TOPIC,
    Incoming,
    Received,
    ensure_topics,
    incoming,
    outgoing,
)
from ingeborg.autoscaler.kafka.connecting import KafkaProblem
from ingeborg.autoscaler.model import Reign
from ingeborg.autoscaler.settings import Settings
from tests.loadgen.backends.conftest import PATIENCE_S, Server

from .conftest import Cluster

#: Seconds of one read from a topic.
LOOK_S = 0.2


async def taken(channel: Incoming, count: int) -> list[Received]:
    """Return this number of next messages."""
    found: list[Received] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += await channel.take(LOOK_S)
    return found


async def test_a_message_has_its_place_and_comes_in_the_order_of_its_partition(cluster: Cluster) -> None:
    topic = cluster.topic()
    await cluster.make(topic, 2)
    async with outgoing(cluster.options, topic) as out, incoming(cluster.options, topic) as come:
        assert await out.send(0, Reign("c", 0)) == 0
        await out.put([(number % 2, Reign("c", number)) for number in range(1, 1_201)])
        assert await out.send(0, Reign("c", 1_201)) == 601
        await come.read_from({0: 0, 1: 0})
        found = await taken(come, 1_202)
        assert await come.take(0.0) == []
    for partition, terms in ((0, [0, *range(2, 1_201, 2), 1_201]), (1, [*range(1, 1_201, 2)])):
        assert [each for each in found if each.partition == partition] == [
            Received(partition, offset, Reign("c", term)) for offset, term in enumerate(terms)
        ]


async def test_what_is_read_are_these_partitions_from_these_places(cluster: Cluster) -> None:
    topic = cluster.topic()
    await cluster.make(topic, 3)
    async with outgoing(cluster.options, topic) as out, incoming(cluster.options, topic) as come:
        await out.put([(partition, Reign("old", term)) for partition in range(3) for term in range(4)])
        await come.read_from({0: 3, 1: None})
        await out.put([(partition, Reign("new", 9)) for partition in range(3)])
        found = await taken(come, 3)
        assert {(each.partition, each.offset) for each in found} == {(0, 3), (0, 4), (1, 4)}
        await come.read_from({2: None})
        await out.put([(partition, Reign("newer", 10)) for partition in range(3)])
        assert await taken(come, 1) == [Received(2, 5, Reign("newer", 10))]
        assert await come.take(0.0) == []


async def test_what_is_no_message_is_counted_and_passed_over(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.topic()
    await cluster.make(topic)
    async with outgoing(cluster.options, topic) as out, incoming(cluster.options, topic) as come:
        for value in (b"no JSON", b'{"kind":"later"}', None):
            await cluster.producer.send_and_wait(topic, value, key=b"key", partition=0)
        await out.send(0, Reign("c", 1))
        await come.read_from({0: 0})
        assert await taken(come, 1) == [Received(0, 3, Reign("c", 1))]
        assert come.unreadable == 3
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 3
    assert said[0].startswith(f"{topic}/0 at 0: not JSON")


async def test_the_groups_own_topics_are_made_once(cluster: Cluster, settings: Settings) -> None:
    settings = replace(settings, group=replace(settings.group, name=cluster.name))
    for _ in range(2):
        await ensure_topics(settings)
    counts = await cluster.logs().partitions([settings.metadata_topic, settings.speeds_topic])
    assert counts == {settings.metadata_topic: 2 * settings.group.members_max + 1, settings.speeds_topic: 1}
    assert await cluster.config(settings.metadata_topic, *METADATA_TOPIC) == METADATA_TOPIC
    assert await cluster.config(settings.speeds_topic, *SPEEDS_TOPIC) == SPEEDS_TOPIC


@pytest.mark.parametrize("days", [-30, 30])
async def test_a_program_whose_clock_is_wrong_is_heard(
    cluster: Cluster, settings: Settings, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """A topic's records carry the broker's time. By default Kafka refuses records with a time more than an hour
    ahead."""
    send = AIOKafkaProducer.send

    async def send_then(producer: AIOKafkaProducer, topic: str, *given: Any, **named: Any) -> Any:
        value, key, partition, *_ = (*given, *(None,) * 3)
        time_ms = int((time.time() + days * 86_400.0) * 1e3)
        return await send(producer, topic, value, key, named.get("partition", partition), time_ms)

    monkeypatch.setattr(AIOKafkaProducer, "send", send_then)
    settings = replace(settings, group=replace(settings.group, name=cluster.name))
    await ensure_topics(settings)
    for topic in (settings.metadata_topic, settings.speeds_topic):
        async with outgoing(cluster.options, topic) as out, incoming(cluster.options, topic) as come:
            await come.read_from({0: None})
            assert await out.send(0, Reign("c", 1)) == 0
            await out.put([(0, Reign("c", 2))])
            assert [each.message for each in await taken(come, 2)] == [Reign("c", 1), Reign("c", 2)]


async def test_where_no_answer_comes_sending_ends_with_a_problem(
    cluster: Cluster, kafka: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_CLOSE_S", 0.5)
    topic = cluster.topic()
    await cluster.make(topic)
    options = {**cluster.options, "request_timeout_ms": 1_000}
    async with outgoing(options, topic) as out, incoming(options, topic) as come:
        await come.read_from({0: None})
        kafka.pause()
        try:
            with pytest.raises(
                KafkaProblem, match=f"Kafka at {cluster.address}: cannot write to topic .*no answer arrived in time"
            ):
                await out.send(0, Reign("c", 0))
            with pytest.raises(KafkaProblem, match="cannot write to topic"):
                await out.put([(0, Reign("c", 0))])
            with pytest.raises(KafkaProblem, match="cannot be read"):
                await come.read_from({0: None})
            assert await come.take(0.01) == []
        finally:
            kafka.resume()
