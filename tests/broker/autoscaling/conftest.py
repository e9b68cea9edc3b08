"""The session's Kafka, which all tests of the autoscaler share.

Owns: that server, and a connection to it. Must never: start a second one in a process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.loadgen.backends.conftest import Server
from tests.loadgen.backends.conftest import start as started

from .kafka.conftest import Cluster, address_of, unique


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The session's server. A test may pause it, if it lets it go on; nobody may kill it."""
    with started("kafka", tmp_path_factory.mktemp("kafka")) as server:
        yield server


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
