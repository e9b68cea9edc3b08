"""Shared fixtures of the autoscaler's tests: its event loop, and the session's Kafka.

Owns: that server, and a connection to it. Must never: start a second one in a process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
import uvloop

from tests.loadgen.backends.conftest import Server, session_kafka

from .kafka.conftest import Cluster, address_of, unique


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], uvloop.Loop]]:
    """The tests run on the loop that `ingeborg autoscale` runs on: its transports differ from asyncio's."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """The session's server. A test may pause it, but must resume it; no test may kill it."""
    return session_kafka(request.config, tmp_path_factory)("kafka")


@pytest.fixture
def address(kafka: Server) -> str:
    """``HOST:PORT``."""
    return address_of(kafka.url)


@pytest_asyncio.fixture
async def cluster(address: str, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Connected, for one test."""
    found = Cluster(address, unique(request))
    await found.open()
    try:
        yield found
    finally:
        await found.close()
