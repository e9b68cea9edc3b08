"""Kafka in front of the broker: publishers write to a topic of one partition, and the broker reads it.

Owns: the calls to aiokafka, each with a time limit. Must never: start a Kafka (``bench.rivals`` does), or leave a
removable topic behind.

There is only one partition, because all records together have one order. The producer waits for the acknowledgement of
the partition's node.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from ingeborg.autoscaler.kafka.connecting import KafkaProblem, asking, ensure_topic, running
from ingeborg.bench.caching.live.broker import Broker
from ingeborg.bench.errors import BenchError

TIMEOUT_S: Final = 20.0
"""Time limit of a call, in seconds. A running Kafka answers in milliseconds. Creating a topic takes a second on a busy
machine."""

TAKEN_MAX: Final = 500
"""Maximum number of records that the broker fetches at a time. This number is Kafka's own default
(``max.poll.records``)."""

FETCH_WAIT_MS: Final = 100
"""The longest time that a fetch waits at Kafka for a record. A new record ends the wait immediately."""

CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Retention settings that keep every record until the broker has read it."""


def _options(servers: str, part: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers.split(","),
        "client_id": f"bench-caching-{part}",
        "request_timeout_ms": int(TIMEOUT_S * 1e3),
    }


@asynccontextmanager
async def topic(servers: str) -> AsyncIterator[str]:
    """Create a topic for the duration of the block. Raises ``BenchError``."""
    name = f"bench-caching-{secrets.token_hex(8)}"
    options = _options(servers, "admin")
    try:
        async with running(AIOKafkaAdminClient(**options), options) as admin:
            await ensure_topic(admin, name, 1, 1, CONFIG, servers=servers, timeout_s=TIMEOUT_S)
            try:
                yield name
            except BaseException:
                # Report the first error. If Kafka is gone, removing the topic also fails, and that error is not
                # reported.
                with suppress(KafkaProblem):
                    await _remove(admin, name, servers)
                raise
            await _remove(admin, name, servers)
    except KafkaProblem as error:
        raise BenchError(str(error)) from error


async def _remove(admin: AIOKafkaAdminClient, name: str, servers: str) -> None:
    async with asking(f"topic {name} cannot be removed", servers, TIMEOUT_S):
        await admin.delete_topics([name])


@asynccontextmanager
async def consuming(servers: str, name: str) -> AsyncIterator[AIOKafkaConsumer]:
    """Create a consumer of the whole topic. Raises ``BenchError``."""
    options = _options(servers, "broker")
    consumer = AIOKafkaConsumer(
        **options, enable_auto_commit=False, auto_offset_reset="earliest", fetch_max_wait_ms=FETCH_WAIT_MS
    )
    try:
        async with running(consumer, options):
            partition = TopicPartition(name, 0)
            consumer.assign([partition])
            async with asking(f"topic {name} cannot be read", servers, TIMEOUT_S):
                await consumer.seek_to_beginning(partition)
            yield consumer
    except KafkaProblem as error:
        raise BenchError(str(error)) from error


async def consume(consumer: AIOKafkaConsumer, broker: Broker) -> None:
    """Publish incoming records, until cancelled. Raises ``BenchError``."""
    while True:
        await broker.room.wait()
        try:
            async with asking("the broker cannot read records", "Kafka", TIMEOUT_S):
                found = await consumer.getmany(timeout_ms=1_000, max_records=TAKEN_MAX)
        except KafkaProblem as error:
            raise BenchError(str(error)) from error
        for records in found.values():
            broker.publish([record.value for record in records])


class Producer:
    """The publishers' side. ``failed`` gets an exception if Kafka does not acknowledge a record. It never gets a
    result."""

    def __init__(self, producer: AIOKafkaProducer, name: str) -> None:
        self._producer = producer
        self._name = name
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, payloads: Sequence[bytes]) -> None:
        """Send the records in this order. Raises ``BenchError``."""
        try:
            async with asking("the publishers cannot write records", "Kafka", TIMEOUT_S):
                for payload in payloads:
                    sent = await self._producer.send(self._name, payload, partition=0)
                    sent.add_done_callback(self._acknowledged)
        except KafkaProblem as error:
            raise BenchError(str(error)) from error

    def _acknowledged(self, sent: asyncio.Future[Any]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(BenchError(f"Kafka has not taken a record: {error}"))


@asynccontextmanager
async def producing(servers: str, name: str) -> AsyncIterator[Producer]:
    """Create a producer. Raises ``BenchError``."""
    options = _options(servers, "publishers")
    producer = AIOKafkaProducer(**options, acks="all")
    try:
        async with running(producer, options):
            yield Producer(producer, name)
    except KafkaProblem as error:
        raise BenchError(str(error)) from error
