"""Messages in the group's own topics: to and from members, and the monitor's measurements.

Owns: writing messages to Kafka and reading them, in order and within a time limit. Must never: know a message's
meaning.

In the topic for members, each reader has its own partition (arXiv 2402.06085, section V-C). The controller reads
partition 0, and member N reads partition N. So a reader gets few messages that are meant for other readers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from ..model import Message, MessageError, decode, encode
from ..settings import Settings
from .connecting import asking, client_options, ensure_topic, running, servers_of, timeout_of

_log = logging.getLogger("ingeborg.autoscale")

#: Maximum number of messages in one read.
_TAKE_MAX: Final = 500
#: Milliseconds that the producer waits for more messages, so that it sends the answers of one cycle together.
_LINGER_MS: Final = 2
#: Milliseconds that a server holds a fetch request while there are no messages. If a member changes the partitions that
#: it reads, the change waits until this request ends.
_FETCH_WAIT_MS: Final = 100

#: Settings for topics that this program creates. Programs read only the messages of the last few seconds. Kafka keeps
#: the messages for an hour so that people can inspect them. The timestamps come from the broker, because Kafka 4 would
#: otherwise reject all messages from a client whose clock is more than an hour ahead.
METADATA_TOPIC: Final = {"retention.ms": "3600000", "segment.ms": "600000", "message.timestamp.type": "LogAppendTime"}
SPEEDS_TOPIC: Final = METADATA_TOPIC


class Received(NamedTuple):
    """A message from a topic. ``offset``: its offset in the partition."""

    partition: int
    offset: int
    message: Message


class Outgoing:
    """Sends messages to one topic. All replicas acknowledge each message. Messages to the same partition stay in
    order."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, servers: str, timeout_s: float) -> None:
        self._producer = producer
        self._topic = topic
        self._servers = servers
        self._timeout_s = timeout_s

    async def send(self, partition: int, message: Message) -> int:
        """Send a message, and return its offset once Kafka has it. Raises ``KafkaProblem``."""
        async with asking(f"cannot write to topic {self._topic}", self._servers, self._timeout_s):
            sent = await self._producer.send_and_wait(self._topic, encode(message), partition=partition)
        return int(sent.offset)

    async def put(self, messages: Sequence[tuple[int, Message]]) -> None:
        """Send all (partition, message) pairs concurrently. Raises ``KafkaProblem``. After this error, some messages
        may nevertheless have arrived."""
        async with asking(f"cannot write to topic {self._topic}", self._servers, self._timeout_s):
            waiting = [
                await self._producer.send(self._topic, encode(message), partition=partition)
                for partition, message in messages
            ]
            await asyncio.gather(*waiting)


class Incoming:
    """Receives messages from one topic. It counts and skips invalid messages."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str, servers: str, timeout_s: float) -> None:
        self._consumer = consumer
        self._topic = topic
        self._servers = servers
        self._timeout_s = timeout_s
        self.unreadable = 0

    async def read_from(self, places: Mapping[int, int | None]) -> None:
        """Read these partitions and no others, each from its offset in ``places``, or from its end if the offset is
        ``None``. Raises ``KafkaProblem``."""
        consumer = self._consumer
        partitions = {number: TopicPartition(self._topic, number) for number in places}
        async with asking(f"{self._topic} cannot be read", self._servers, self._timeout_s):
            open_ends = [partitions[number] for number, place in places.items() if place is None]
            ends = await consumer.end_offsets(open_ends) if open_ends else {}
            consumer.assign(list(partitions.values()))
            for number, place in places.items():
                partition = partitions[number]
                consumer.seek(partition, ends[partition] if place is None else place)

    async def take(self, wait_s: float) -> list[Received]:
        """Return new messages, or an empty list if none arrives within ``wait_s``. Raises ``KafkaProblem``."""
        async with asking(f"{self._topic} cannot be read", self._servers, wait_s + self._timeout_s):
            batches = await self._consumer.getmany(timeout_ms=int(wait_s * 1e3), max_records=_TAKE_MAX)
        found = []
        for partition, records in batches.items():
            for record in records:
                try:
                    found.append(Received(partition.partition, record.offset, decode(record.value)))
                except MessageError as error:
                    self.unreadable += 1
                    _log.warning("%s/%d at %d: %s", self._topic, partition.partition, record.offset, error)
        return found


@asynccontextmanager
async def outgoing(options: Mapping[str, Any], topic: str) -> AsyncIterator[Outgoing]:
    """Yield a connected sender, and close it at the end of the block. ``options``: from ``client_options``. Raises
    ``KafkaProblem``."""
    # The producer is not idempotent, because a duplicate message does no harm, and aiokafka keeps the order of a
    # partition anyway.
    producer = AIOKafkaProducer(**options, acks="all", linger_ms=_LINGER_MS)
    async with running(producer, options):
        yield Outgoing(producer, topic, servers_of(options), timeout_of(options))


@asynccontextmanager
async def incoming(options: Mapping[str, Any], topic: str) -> AsyncIterator[Incoming]:
    """Yield a connected receiver, and close it at the end of the block. ``options``: from ``client_options``. Raises
    ``KafkaProblem``."""
    consumer = AIOKafkaConsumer(
        **options, enable_auto_commit=False, auto_offset_reset="latest", fetch_max_wait_ms=_FETCH_WAIT_MS
    )
    async with running(consumer, options):
        yield Incoming(consumer, topic, servers_of(options), timeout_of(options))


async def ensure_topics(settings: Settings) -> None:
    """Ensure that the group's own topics exist. Raises ``KafkaProblem``."""
    options = client_options(settings, "topics")
    async with running(AIOKafkaAdminClient(**options), options) as admin:
        for topic, partitions, config in (
            (settings.metadata_topic, settings.numbers_max + 1, METADATA_TOPIC),
            (settings.speeds_topic, 1, SPEEDS_TOPIC),
        ):
            await ensure_topic(
                *(admin, topic, partitions, settings.kafka.replication, config),
                servers=servers_of(options),
                timeout_s=timeout_of(options),
            )
