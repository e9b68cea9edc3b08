"""The stores the contract suite runs on.

Owns: the `open_store` fixture and the table of stores. A new store adds one entry to ``STORES``: its id and an async
context manager that makes one empty underlying storage and yields a function; each call of that function opens another
handle on the storage, as another endpoint process would have it. Must never: know what the suite tests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from broker.store.base import Store
from broker.store.embedded import EmbeddedStore
from tests.riak.storages import riak_double, riak_real

OpenStore = Callable[[], Awaitable[Store]]
Storage = Callable[[Path], AbstractAsyncContextManager[OpenStore]]


@asynccontextmanager
async def embedded(directory: Path) -> AsyncIterator[OpenStore]:
    """LMDB in the directory; every handle has writer processes of its own, as every endpoint has."""
    async with AsyncExitStack() as handles:

        async def open_store() -> Store:
            store = EmbeddedStore(directory / "store")
            await store.open()
            handles.push_async_callback(store.close)
            return store

        yield open_store


STORES: dict[str, Storage] = {
    "embedded": embedded,
    "riak-double": riak_double,
    "riak-real": riak_real,
}


@pytest.fixture(params=sorted(STORES))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens handles on one new, empty storage; closes them after the test."""
    async with STORES[request.param](tmp_path) as opener:
        yield opener


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    """One handle."""
    return await open_store()


@pytest.fixture
async def other(open_store: OpenStore, store: Store) -> Store:
    """A second handle on the storage of ``store``."""
    return await open_store()
