"""The session's Kafka, which all tests of the autoscaler share.

Owns: that server, and a connection to it. Must never: start a second one in a process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.loadgen.backends.conftest import Server, session_kafka

from .kafka.conftest import Cluster, address_of, unique


@pytest.fixture
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """The session's server. A test may pause it, if it lets it go on; nobody may kill it."""
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
