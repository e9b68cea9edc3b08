"""The topics of a run, and the settings of a group.

Owns: the calls to Kafka's administration. Must never: leave a topic behind that could be removed.
"""

from __future__ import annotations

import contextlib
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

_TIMEOUT_S: Final = 30.0


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


def hurry(admin: AdminClient, group: str, heartbeat_s: float) -> None:
    """Shorten the interval of the group's heartbeats, which is 5 s by default. With Kafka's new protocol, members learn
    of a change only with a heartbeat."""
    entry = ConfigEntry(
        "consumer.heartbeat.interval.ms", str(int(heartbeat_s * 1e3)), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_TIMEOUT_S)
