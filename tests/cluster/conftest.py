"""A cluster of three endpoint processes, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .processes import Cluster, cluster_of, options_of


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """``a``, ``b`` and ``c`` on one LMDB directory; the module's ``SERVE_OPTIONS`` are added to their command lines."""
    async with cluster_of("abc", tmp_path_factory.mktemp("cluster"), *options_of(request.module)) as cluster:
        yield cluster
