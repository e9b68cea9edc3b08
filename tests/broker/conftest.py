"""What the tests of the broker's shell share: the event loop it runs on, and endpoints to talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
import uvloop

from .running import Running, running


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], uvloop.Loop]]:
    """The tests run on the loop that `ingeborg serve` runs on: its transports differ from asyncio's."""
    return {"uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, transport: str, module_log: object
) -> AsyncIterator[Running]:
    """One endpoint for a module's tests, which use clients and topics of their own."""
    async with running(tmp_path_factory.mktemp("store")) as endpoint:
        yield endpoint


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A client id, or a topic, that is this test's alone."""
    return str(request.node.name)[:100]
