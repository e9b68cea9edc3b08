"""The group's committed offsets in a real Kafka."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, errors

from ingeborg.autoscaler.kafka.connecting import KafkaProblem, running
from ingeborg.autoscaler.kafka.progress import Progress
from ingeborg.autoscaler.model import Queue
from tests.loadgen.backends.conftest import PATIENCE_S, Server

from .conftest import Cluster


def progress_of(cluster: Cluster, timeout_s: float = PATIENCE_S) -> Progress:
    """Return the progress of the test's own group."""
    return Progress(cluster.client, cluster.name, cluster.address, timeout_s)


async def test_what_was_committed_the_next_one_of_the_group_knows(cluster: Cluster) -> None:
    one, two = Queue(cluster.topic("one"), 0), Queue(cluster.topic("two"), 1)
    await cluster.make(one.topic)
    await cluster.make(two.topic, 2)
    progress = progress_of(cluster)
    assert await progress.committed(one) is None
    await progress.commit({one: 3, two: 5})
    await progress.commit({one: 4})
    again = progress_of(cluster)
    assert (await again.committed(one), await again.committed(two)) == (4, 5)
    assert await again.committed(Queue(two.topic, 0)) is None


async def test_nothing_is_nothing(cluster: Cluster) -> None:
    await progress_of(cluster).commit({})


async def test_the_coordinator_is_looked_for_again_where_it_is_another_now(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    progress = progress_of(cluster)
    await progress.commit({queue: 1})
    said = [errors.NotCoordinatorForGroupError(), errors.NodeNotReadyError()]
    send = cluster.client.send

    async def moved(*arguments: object) -> object:
        if said:
            raise said.pop()
        return await send(*arguments)

    monkeypatch.setattr(cluster.client, "send", moved)
    await progress.commit({queue: 2})
    assert said == []
    assert await progress.committed(queue) == 2


async def test_a_topic_that_is_not_there_is_a_problem(cluster: Cluster) -> None:
    queue = Queue(cluster.topic(), 0)
    with pytest.raises(KafkaProblem, match=f"Kafka at {cluster.address}: cannot commit the offsets of group"):
        await progress_of(cluster).commit({queue: 1})


async def test_a_consumer_that_shares_out_the_same_group_is_said(cluster: Cluster) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    consumer = AIOKafkaConsumer(queue.topic, **cluster.options, group_id=cluster.name)
    async with running(consumer, cluster.options):
        with pytest.raises(KafkaProblem, match="a consumer has subscribed with this group"):
            await progress_of(cluster).commit({queue: 1})
    async with asyncio.timeout(PATIENCE_S):
        await progress_of(cluster).commit({queue: 1})


async def test_where_no_answer_comes_it_ends_with_a_problem(cluster: Cluster, kafka: Server) -> None:
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    await progress_of(cluster).commit({queue: 1})
    progress = progress_of(cluster, 1.0)
    kafka.pause()
    try:
        with pytest.raises(KafkaProblem, match="cannot commit the offsets"):
            await progress.commit({queue: 2})
        with pytest.raises(KafkaProblem, match="cannot read the offsets"):
            await progress.committed(queue)
    finally:
        kafka.resume()
