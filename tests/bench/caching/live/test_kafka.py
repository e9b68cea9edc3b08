"""With a real Kafka in front all records come once and in order, and its topic is gone afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ingeborg.bench.caching.live.cases import KAFKA, LATENCY, THROUGHPUT, Case
from ingeborg.bench.caching.live.run import Places, measure
from ingeborg.bench.caching.live.subscribing import Crowd
from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import Child
from tests import wants
from tests.loadgen.backends.conftest import Server, Servers, session_kafka


@pytest.fixture
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Servers:
    """Return the session's Kafka; skip without a Kafka to start."""
    wants.module("aiokafka", "peers")
    return session_kafka(request.config, tmp_path_factory)


def address_of(server: Server) -> str:
    """Return ``HOST:PORT``."""
    return server.url.partition("://")[2]


async def topics(servers: str) -> set[str]:
    from aiokafka.admin import AIOKafkaAdminClient

    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        return set(await admin.list_topics())
    finally:
        await admin.close()


@pytest.mark.parametrize("kind", [LATENCY, THROUGHPUT])
async def test_all_records_come_by_way_of_kafka(kind: str, servers: Servers, tmp_path: Path) -> None:
    address = address_of(servers("kafka"))
    before = await topics(address)
    unit = Case(kind, 300, "buffer", via=KAFKA, subscribers=30)
    direct = Case(kind, 300, "buffer", subscribers=30)
    found, other = [
        await measure(one, tmp_path / one.via / "log", tmp_path / one.via / "scratch", Places(kafka=address))
        for one in (unit, direct)
    ]
    for name in ("reads", "hits", "admitted", "admitted_utility"):
        assert found[name] == other[name]
    assert await topics(address) <= before


async def test_a_kafka_that_dies(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingeborg.bench.caching.live.run.STALL_S", 2.0)
    monkeypatch.setattr("ingeborg.bench.caching.live.kafka.TIMEOUT_S", 3.0)
    server = servers.mortal("kafka")

    def kill(_: Crowd, __: Child) -> None:
        asyncio.get_running_loop().call_later(0.1, server.kill)

    unit = Case(LATENCY, 2_000, "all", via=KAFKA, subscribers=30)
    places = Places(kafka=address_of(server))
    with pytest.raises(BenchError, match="had arrived"):
        await measure(unit, tmp_path / "log", tmp_path / "scratch", places, kill)
