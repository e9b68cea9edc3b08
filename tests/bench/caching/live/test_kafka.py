"""With a real Kafka in front: all records come once, in order, and its topic is gone afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingeborg.bench import peers
from ingeborg.bench.caching.live.cases import KAFKA, LATENCY, THROUGHPUT, Unit
from ingeborg.bench.caching.live.run import Places, measure
from ingeborg.bench.caching.live.subscribing import Crowd
from ingeborg.bench.errors import BenchError
from ingeborg.bench.peers import processes
from ingeborg.bench.starting import Child
from tests import wants


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.Server]:
    """One for all tests here; skips where there is none to start."""
    wants.server("kafka")
    wants.module("aiokafka", "peers")
    with peers.running("kafka", state=tmp_path_factory.mktemp("kafka")) as started:
        yield started


async def topics(servers: str) -> list[str]:
    from aiokafka.admin import AIOKafkaAdminClient

    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        return list(await admin.list_topics())
    finally:
        await admin.close()


@pytest.mark.parametrize("kind", [LATENCY, THROUGHPUT])
async def test_all_records_come_by_way_of_kafka(kind: str, server: peers.Server, tmp_path: Path) -> None:
    servers = server.url.partition("://")[2]
    unit = Unit(kind, 300, "buffer", via=KAFKA, subscribers=30)
    direct = Unit(kind, 300, "buffer", subscribers=30)
    found, other = [
        await measure(one, tmp_path / one.via / "log", tmp_path / one.via / "scratch", Places(kafka=servers))
        for one in (unit, direct)
    ]
    for name in ("reads", "hits", "admitted", "admitted_utility"):
        assert found.row[name] == other.row[name]
    assert await topics(servers) == []


async def test_a_kafka_that_dies(server: peers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last test of this module: it has no Kafka afterwards."""
    monkeypatch.setattr("ingeborg.bench.caching.live.run.STALL_S", 2.0)
    monkeypatch.setattr("ingeborg.bench.caching.live.kafka.TIMEOUT_S", 3.0)

    def kill(_: Crowd, __: Child) -> None:
        process = processes.find(server.processes[0])
        assert process is not None
        asyncio.get_running_loop().call_later(0.1, process.kill)

    unit = Unit(LATENCY, 2_000, "all", via=KAFKA, subscribers=30)
    places = Places(kafka=server.url.partition("://")[2])
    with pytest.raises(BenchError, match="had come"):
        await measure(unit, tmp_path / "log", tmp_path / "scratch", places, kill)
