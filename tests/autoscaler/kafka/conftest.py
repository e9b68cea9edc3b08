"""A real Kafka for the autoscaler's tests, and their operations on it.

Owns: the session's server with authentication, and each test's own topic names. Must never: leave a client open. The
session's other server belongs to the folder above, whose tests also use it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient

from ingeborg.autoscaler.kafka.connecting import close, ensure_topic, start
from ingeborg.autoscaler.kafka.logs import Logs
from ingeborg.autoscaler.model import Queue
from ingeborg.autoscaler.settings import (
    GroupSettings,
    KafkaSettings,
    MemberSettings,
    MonitorSettings,
    ScalerSettings,
    Settings,
    SinkSettings,
    WebSettings,
)
from tests.loadgen.backends.conftest import PATIENCE_S

from .secured import Secured, secured

#: Seconds between two checks whether the cluster has carried out a request.
POLL_S = 0.02


def settings_of(
    folder: Path,
    servers: list[str],
    group: str = "group",
    topics: tuple[str, ...] = ("orders",),
    monitor: dict[str, Any] | None = None,
    **kafka: Any,
) -> Settings:
    """Return the settings of a group that reads these topics. ``monitor``, ``kafka``: rows of these tables."""
    return Settings(
        folder / "autoscale.toml",
        GroupSettings(name=group, topics=topics, members_max=4, capacity_bytes_per_s=1e6),
        KafkaSettings(servers=tuple(servers), **kafka),
        MonitorSettings(**(monitor or {})),
        MemberSettings(),
        SinkSettings(kind="files", folder="sink"),
        ScalerSettings(kind="none"),
        WebSettings(),
    )


def address_of(url: str) -> str:
    """Return ``HOST:PORT`` of a server of `bench rivals`."""
    return urlsplit(url).netloc


class Cluster:
    """The server for tests: its address, its topics, and a test's own names."""

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.name = name
        self.options = {"bootstrap_servers": [address], "request_timeout_ms": int(PATIENCE_S * 1e3)}
        self.admin: AIOKafkaAdminClient
        self.client: AIOKafkaClient
        self.producer: AIOKafkaProducer

    async def open(self) -> None:
        """Connect."""
        self.admin = AIOKafkaAdminClient(**self.options)
        self.client = AIOKafkaClient(**self.options)
        self.producer = AIOKafkaProducer(**self.options, acks="all")
        for each in (self.admin, self.client, self.producer):
            await start(each, self.options)

    async def close(self) -> None:
        """Close the client, even if the server is paused or gone."""
        for each in (self.producer, self.client, self.admin):
            await close(each)

    def topic(self, name: str = "") -> str:
        """Return a name that no other test has."""
        return f"{self.name}.{name}" if name else self.name

    def logs(self, timeout_s: float = PATIENCE_S) -> Logs:
        """Return the monitor's view of the cluster."""
        return Logs(self.client, self.address, timeout_s)

    async def make(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """Create a topic without retention, whose offsets are readable."""
        settings = {"retention.ms": "-1", **(config or {})}
        await ensure_topic(self.admin, topic, partitions, 1, settings, servers=self.address, timeout_s=PATIENCE_S)
        # A server announces the leader some milliseconds before it leads.
        logs = self.logs()
        queues = [Queue(topic, number) for number in range(partitions)]
        async with asyncio.timeout(PATIENCE_S):
            await logs.partitions([topic])
            while len(await logs.end_offsets(queues)) < partitions:
                await asyncio.sleep(POLL_S)
                await logs.partitions([topic])

    async def delete(self, topic: str) -> None:
        """Delete the topic, and wait until the cluster has forgotten it."""
        logs = self.logs()
        count = (await logs.partitions([topic]))[topic]
        assert count is not None
        queues = [Queue(topic, number) for number in range(count)]
        await self.admin.delete_topics([topic])
        async with asyncio.timeout(PATIENCE_S):
            # A server forgets the topic some milliseconds before its partitions.
            while await logs.end_offsets(queues) or await logs.log_sizes(queues):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            while (await logs.partitions([topic]))[topic] is not None:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    async def widen(self, topic: str, partitions: int) -> None:
        """Add partitions."""
        await self.admin.create_partitions({topic: NewPartitions(partitions)})
        await self.make(topic, partitions)

    async def produce(self, queue: Queue, records: int, size: int = 1_000) -> None:
        """Write this number of records with values of this size in bytes, all acknowledged."""
        topic, partition = queue
        waiting = [await self.producer.send(topic, bytes(size), partition=partition) for _ in range(records)]
        await asyncio.gather(*waiting)

    async def delete_records(self, queue: Queue, before: int) -> None:
        """Delete the records below this offset. Their bytes stay in the log."""
        await self.admin.delete_records({TopicPartition(*queue): RecordsToDelete(before)})

    async def commit(self, group: str, places: dict[Queue, int]) -> None:
        """Commit an offset as the group's members would."""
        consumer = AIOKafkaConsumer(**self.options, group_id=group, enable_auto_commit=False)
        await start(consumer, self.options)
        try:
            consumer.assign([TopicPartition(*queue) for queue in places])
            await consumer.commit({TopicPartition(*queue): place for queue, place in places.items()})
        finally:
            await close(consumer)

    async def config(self, topic: str, *rows: str) -> dict[str, str]:
        """Return the topic's configuration in the cluster."""
        [answer] = await self.admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(rows, ""))]
        )
        [(_, _, _, _, found)] = answer.resources
        return {name: value for name, value, *_ in found}


def unique(request: pytest.FixtureRequest) -> str:
    """Return a name that no object in a server has or begins with."""
    name = str(request.node.name)[:60].replace("[", ".").replace("]", "")
    return f"{name}-{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The session's server with authentication. No test may pause or kill it."""
    with secured(tmp_path_factory.mktemp("guarded")) as server:
        yield server


@pytest_asyncio.fixture
async def inside(guarded: Secured, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A connection with all permissions to it, for one test."""
    found = Cluster(guarded.inside, unique(request))
    await found.open()
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture
def settings(tmp_path: Path, address: str) -> Settings:
    """The settings of a group at the session's server."""
    return settings_of(tmp_path, [address])
