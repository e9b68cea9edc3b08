"""The endpoint that the tests of HTTP share. It retains messages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ingeborg.broker.core.model import Settings

from ..running import Running, running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keeping(
    tmp_path_factory: pytest.TempPathFactory, transport: str, module_log: object
) -> AsyncIterator[Running]:
    """An endpoint that retains messages."""
    async with running(tmp_path_factory.mktemp("store"), settings=Settings(False, "memory")) as endpoint:
        yield endpoint
