"""The stores the contract suites run on.

Owns: the `open_store` fixture and the tables of stores. A new store adds one entry to ``STORES``: its id and an async
context manager. That makes one empty underlying storage and yields a function. Each call of the function opens another
handle on the storage, as another endpoint process would. Must never: know what the suites test.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ingeborg.broker.store.base import Store
from ingeborg.broker.store.embedded.store import EmbeddedStore
from tests import wants
from tests.contract.virtual import virtual
from tests.riak.storages import riak_double, riak_double_tls, riak_real
from tests.store.forked import forked

OpenStore = Callable[[], Awaitable[Store]]
Storage = Callable[[Path], AbstractAsyncContextManager[OpenStore]]


@asynccontextmanager
async def embedded(directory: Path) -> AsyncIterator[OpenStore]:
    """Open LMDB in the directory; every handle has its own writer processes, as every endpoint does."""
    async with AsyncExitStack() as handles:

        async def open_store() -> Store:
            store = forked(EmbeddedStore(directory / "store", timeout_s=60.0))  # other processes use the disk
            await store.open()
            handles.push_async_callback(store.close)
            return store

        yield open_store


STORES: dict[str, Storage] = {
    "embedded": embedded,
    "riak-double": riak_double,
    "riak-double-tls": riak_double_tls,
    "riak-real": riak_real,
}

ALL: dict[str, Storage] = {**STORES, "simulator": virtual}
"""All stores, and the one that the simulator's endpoints have, which passes the contract suites as well."""

HERE = Path(__file__).parent

MODEL = "test_any_sequence_of_operations_gives_what_the_model_gives"

LARGE = {
    "test_thousands_of_subscribers_of_one_topic",
    "test_thousands_of_topics_in_one_batch",
    "test_many_and_odd_clients_listen",
    "test_many_hashes_at_once",
    "test_all_of_them_come_once_whole_pages_too",
    "test_what_stays_comes_once_among_all_while_others_come_and_go",
    MODEL,
}
"""Tests with many thousand requests: they show no more about TLS than a few requests do, and take two minutes over
it."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only `make prove` runs the double over TLS, because it is the same double (``tests/riak/test_security.py`` has
    its connections). The same holds for large tests on the double, which every run does on the embedded store."""
    for item in items:
        if HERE not in item.path.parents or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        kind = item.callspec.params.get("open_store", item.callspec.params.get("kind"))
        if kind == "riak-double-tls" or (kind == "riak-double" and item.originalname in LARGE - {MODEL}):
            item.add_marker(pytest.mark.prove)


@pytest.fixture(params=sorted(ALL))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Open handles on one new, empty storage, and close them after the test. A suite can parametrize it for fewer
    stores."""
    if request.param == "riak-double-tls" and request.node.originalname in LARGE and "CONTRACT_LARGE" not in os.environ:
        wants.skip("two minutes more", "CONTRACT_LARGE=1 runs what is large over TLS too")
    async with ALL[request.param](tmp_path) as opener:
        yield opener


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    """Return one handle."""
    return await open_store()


@pytest.fixture
async def other(open_store: OpenStore, store: Store) -> Store:
    """Return a second handle on the storage of ``store``."""
    return await open_store()
