"""Kafka in front of the broker: a topic of one partition that publishers write and the broker reads.

Owns: the calls to aiokafka, each of which ends in time. Must never: start a Kafka (``bench.rivals`` does), or leave a
topic behind that could be removed.

One partition, as records have one order. The producer waits for the acknowledgement of the node that has it.
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
"""Of a call. Kafka answers in milliseconds once it is up; a topic takes it a second where the machine is busy."""

TAKEN_MAX: Final = 500
"""Records at a time: Kafka's own default (``max.poll.records``)."""

FETCH_WAIT_MS: Final = 100
"""How long a fetch waits at Kafka for something to come; something that comes ends it at once."""

CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Nothing goes before it is read."""


def _options(servers: str, part: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers.split(","),
        "client_id": f"bench-caching-{part}",
        "request_timeout_ms": int(TIMEOUT_S * 1e3),
    }


@asynccontextmanager
async def topic(servers: str) -> AsyncIterator[str]:
    """A new topic for as long as the block takes. ``BenchError``."""
    name = f"bench-caching-{secrets.token_hex(8)}"
    options = _options(servers, "admin")
    try:
        async with running(AIOKafkaAdminClient(**options), options) as admin:
            await ensure_topic(admin, name, 1, 1, CONFIG, servers=servers, timeout_s=TIMEOUT_S)
            try:
                yield name
            except BaseException:
                # Whatever it was is the reason, and not that a Kafka which is gone removes nothing.
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
    """A consumer of all that is in the topic. ``BenchError``."""
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
    """Publish what comes, until cancelled. ``BenchError``."""
    while True:
        await broker.room.wait()
        try:
            async with asking("records cannot be read", "Kafka", TIMEOUT_S):
                found = await consumer.getmany(timeout_ms=1_000, max_records=TAKEN_MAX)
        except KafkaProblem as error:
            raise BenchError(str(error)) from error
        for records in found.values():
            broker.publish([record.value for record in records])


class Producer:
    """The publishers' side. ``failed``: its exception is why a record was not acknowledged; it has no result."""

    def __init__(self, producer: AIOKafkaProducer, name: str) -> None:
        self._producer = producer
        self._name = name
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, payloads: Sequence[bytes]) -> None:
        """In this order. ``BenchError``."""
        try:
            async with asking("records cannot be written", "Kafka", TIMEOUT_S):
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
    """``BenchError``."""
    options = _options(servers, "publishers")
    producer = AIOKafkaProducer(**options, acks="all")
    try:
        async with running(producer, options):
            yield Producer(producer, name)
    except KafkaProblem as error:
        raise BenchError(str(error)) from error
