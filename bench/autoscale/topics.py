"""The topics of a run and their records, and the settings of a group.

Owns: the calls to Kafka's administration, and the filling of topics. Must never: leave a removable topic behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ingeborg.bench.errors import BenchError

_TIMEOUT_S: Final = 30.0
#: Time limit for Kafka to take the records that a producer still has, in seconds.
_FLUSH_S: Final = 120.0


def make_topic(admin: AdminClient, topic: str, partitions: int) -> None:
    """Make a topic from which Kafka deletes no record, so that members can read it very late."""
    settings = {"retention.ms": "-1", "retention.bytes": "-1"}
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
        future.result(_TIMEOUT_S)


def delete_topic(admin: AdminClient, topic: str) -> None:
    """Delete the topic if possible."""
    for future in admin.delete_topics([topic]).values():
        with contextlib.suppress(KafkaException):
            future.result(_TIMEOUT_S)


def fill(producer: Producer, places: Sequence[tuple[str, int]], records: int, record_bytes: int) -> None:
    """Write this number of records into the places in turn. A place is a topic and a partition. Raises ``BenchError``
    if Kafka does not take them in time."""
    value = b"x" * record_bytes
    for number in range(records):
        topic, partition = places[number % len(places)]
        while True:
            try:
                producer.produce(topic, value, partition=partition)
            except BufferError:
                producer.poll(0.05)
            else:
                break
        if number % 10_000 == 0:
            producer.poll(0)
    flush(producer)


def flush(producer: Producer) -> None:
    """Wait until Kafka has all records. Raises ``BenchError`` if it does not take them in time."""
    if producer.flush(_FLUSH_S):
        raise BenchError("Kafka has not taken all records in time")


def hurry(admin: AdminClient, group: str, heartbeat_s: float) -> None:
    """Shorten the interval of the group's heartbeats, which is 5 s by default. With Kafka's new protocol, members learn
    of a change only with a heartbeat."""
    entry = ConfigEntry(
        "consumer.heartbeat.interval.ms", str(int(heartbeat_s * 1e3)), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_TIMEOUT_S)
