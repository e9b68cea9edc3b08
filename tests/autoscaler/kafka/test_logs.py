"""The monitor's queries: to a real cluster, and with answers that a small one does not give."""

from __future__ import annotations

import asyncio
import io

import pytest

from ingeborg.autoscaler.kafka.connecting import KafkaProblem
from ingeborg.autoscaler.kafka.logs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequest_v1,
    DescribeLogDirsResponse_v1,
    Logs,
    sizes_in,
)
from ingeborg.autoscaler.model import Queue
from tests.loadgen.backends.conftest import Server

from .conftest import Cluster

A, B = Queue("orders", 0), Queue("orders", 1)

#: Most bytes of a record's fields other than its value, including its part of a batch's header.
RECORD_BYTES = 80


async def test_partitions_of_topics_and_those_that_are_not_there(cluster: Cluster) -> None:
    one, three, none = cluster.topic("one"), cluster.topic("three"), cluster.topic("none")
    await cluster.make(one)
    await cluster.make(three, 3)
    logs = cluster.logs()
    for _ in range(2):  # a request does not create it
        assert await logs.partitions([one, three, none, "no/topic"]) == {one: 1, three: 3, none: None, "no/topic": None}


async def test_partitions_that_are_added_appear(cluster: Cluster) -> None:
    topic, logs = cluster.topic(), cluster.logs()
    await cluster.make(topic, 2)
    assert await logs.partitions([topic]) == {topic: 2}
    await cluster.widen(topic, 5)
    assert await logs.partitions([topic]) == {topic: 5}
    added = Queue(topic, 4)
    assert await logs.end_offsets([added]) == {added: 0}


async def test_offsets_and_sizes_are_those_of_what_was_produced(cluster: Cluster) -> None:
    topic, logs = cluster.topic(), cluster.logs()
    few, many, empty = (Queue(topic, number) for number in range(3))
    await cluster.make(topic, 3)
    await cluster.produce(few, 10, 1_000)
    await cluster.produce(many, 50, 2_000)
    await logs.partitions([topic])
    queues = [few, many, empty]
    assert await logs.begin_offsets(queues) == {few: 0, many: 0, empty: 0}
    assert await logs.end_offsets(queues) == {few: 10, many: 50, empty: 0}
    sizes = await logs.log_sizes(queues)
    assert sizes[empty] == 0
    assert 10 * 1_000 < sizes[few] < 10 * (1_000 + RECORD_BYTES)
    assert 50 * 2_000 < sizes[many] < 50 * (2_000 + RECORD_BYTES)


async def test_deleted_records_move_the_beginning_and_leave_the_size(cluster: Cluster) -> None:
    queue, logs = Queue(cluster.topic(), 0), cluster.logs()
    await cluster.make(queue.topic)
    await cluster.produce(queue, 10)
    await logs.partitions([queue.topic])
    sizes = await logs.log_sizes([queue])
    await cluster.delete_records(queue, 7)
    assert await logs.begin_offsets([queue]) == {queue: 7}
    assert await logs.end_offsets([queue]) == {queue: 10}
    assert await logs.log_sizes([queue]) == sizes


async def test_where_a_group_is(cluster: Cluster) -> None:
    topic, logs = cluster.topic(), cluster.logs()
    await cluster.make(topic, 2)
    read, unread = Queue(topic, 0), Queue(topic, 1)
    await cluster.produce(read, 10)
    assert await logs.committed(cluster.name, [read, unread]) == {}
    await cluster.commit(cluster.name, {read: 7})
    assert await logs.committed(cluster.name, [read, unread]) == {read: 7}
    assert await logs.committed(f"{cluster.name}-other", [read, unread]) == {}
    assert await logs.committed(cluster.name, []) == {}


async def test_nothing_is_known_of_partitions_without_a_leader_or_deleted_since(cluster: Cluster) -> None:
    topic, logs = cluster.topic(), cluster.logs()
    await cluster.make(topic)
    there, beyond = Queue(topic, 0), Queue(topic, 1)
    assert await logs.end_offsets([there]) == {}  # its leader is not known yet
    await logs.partitions([topic])
    assert await logs.end_offsets([there, beyond]) == {there: 0}
    assert set(await logs.log_sizes([there, beyond])) == {there}
    await cluster.delete(topic)
    assert await logs.end_offsets([there]) == {}
    assert await logs.begin_offsets([there]) == {}
    assert await logs.log_sizes([there]) == {}
    assert await logs.partitions([topic]) == {topic: None}


async def test_a_server_that_does_not_answer_is_not_waited_for(cluster: Cluster, kafka: Server) -> None:
    topic, logs = cluster.topic(), cluster.logs(0.5)
    await cluster.make(topic)
    await logs.partitions([topic])
    queue = Queue(topic, 0)
    await logs.committed("group", [queue])
    kafka.pause()
    try:
        for asked in (
            logs.partitions([topic]),
            logs.begin_offsets([queue]),
            logs.end_offsets([queue]),
            logs.log_sizes([queue]),
            logs.committed("group", [queue]),
        ):
            async with asyncio.timeout(10):
                with pytest.raises(KafkaProblem, match=rf"at {cluster.address}: .*no answer arrived in time"):
                    await asked
    finally:
        kafka.resume()
    assert await cluster.logs().partitions([topic]) == {topic: 1}


# Answers of other clusters


Rows = list[tuple[int, int, int, bool]]


def answer(*directories: tuple[int, list[tuple[str, Rows]]]) -> DescribeLogDirsResponse_v1:
    """Return the answer in wire format."""
    made = DescribeLogDirsResponse_v1(0, [(code, "/data", topics) for code, topics in directories])
    decoded: DescribeLogDirsResponse_v1 = DescribeLogDirsResponse_v1.decode(io.BytesIO(made.encode()))
    return decoded


def test_the_request_is_as_the_protocol_has_it() -> None:
    request = DescribeLogDirsRequest([("orders", [0, 1])]).prepare({35: (1, 4)})
    assert isinstance(request, DescribeLogDirsRequest_v1)
    assert request.encode() == bytes.fromhex("00000001 0006") + b"orders" + bytes.fromhex("00000002 00000000 00000001")


def test_sizes_of_several_directories() -> None:
    found = sizes_in(answer((0, [("orders", [(0, 5_000_000_000, 0, False)])]), (0, [("orders", [(1, 7, 0, False)])])))
    assert found == {A: 5_000_000_000, B: 7}


def test_a_replica_that_moves_to_another_directory_counts_once() -> None:
    rows: list[tuple[str, Rows]] = [("orders", [(0, 900, 0, True)])]
    assert sizes_in(answer((0, [("orders", [(0, 700, 0, False)])]), (0, rows))) == {A: 700}
    assert sizes_in(answer((0, rows), (0, [("orders", [(0, 700, 0, False)])]))) == {A: 700}


def test_a_directory_that_has_failed_is_passed_over() -> None:
    assert sizes_in(answer((56, []), (0, [("orders", [(1, 7, 0, False)])]))) == {B: 7}


@pytest.mark.parametrize("refusal", [answer(), answer((31, []))])
def test_a_broker_that_does_not_tell(refusal: DescribeLogDirsResponse_v1) -> None:
    assert sizes_in(refusal) is None


def test_a_broker_without_replicas_of_these_tells_so() -> None:
    assert sizes_in(answer((0, []))) == {}


async def test_what_is_not_granted_is_told_with_the_command_that_grants_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that refuses answers without any directory; everything else is from a real one."""
    topic = cluster.topic()
    await cluster.make(topic)
    logs = Logs(cluster.client, cluster.address, 10.0, "ann")
    await logs.partitions([topic])

    async def refusing(requests: object) -> list[DescribeLogDirsResponse_v1]:
        return [answer()]

    monkeypatch.setattr(logs, "_ask", refusing)
    with pytest.raises(KafkaProblem) as raised:
        await logs.log_sizes([Queue(topic, 0)])
    assert str(raised.value) == (
        f"Kafka at {cluster.address}: cannot read the sizes of logs: this user lacks permission. Grant DESCRIBE: "
        f"kafka-acls.sh --bootstrap-server {cluster.address} --add --allow-principal User:ann "
        "--operation Describe --cluster"
    )
