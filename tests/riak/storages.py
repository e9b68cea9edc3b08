"""Riak as the contract suite takes its stores: the double, and a real cluster where one is given.

``INGEBORG_TEST_RIAK=host:port[,host:port…]`` names the nodes of a real cluster with the bucket types of
``docs/riak.md``. Every storage is a namespace of its own in it: nothing there is read or changed but what the test
wrote, and nothing is deleted afterwards. ``INGEBORG_TEST_RIAK_NODE_CONFIRMS=1`` is for a cluster of one node.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.store.riak import RiakStore

from .double import RiakDouble

OpenRiakStore = Callable[[], Awaitable[RiakStore]]


def real_nodes() -> list[tuple[str, int]]:
    """The nodes of the real cluster; skips the test where none is given."""
    given = os.environ.get("INGEBORG_TEST_RIAK", "")
    if not given:
        pytest.skip("INGEBORG_TEST_RIAK=host:port[,host:port...] names no real Riak cluster")
    return [(host, int(port)) for host, _, port in (node.rpartition(":") for node in given.split(","))]


def real_options() -> dict[str, Any]:
    """What a store on the real cluster is made with."""
    node_confirms = int(os.environ.get("INGEBORG_TEST_RIAK_NODE_CONFIRMS", "2"))
    return {"namespace": f"test-{secrets.token_hex(8)}", "node_confirms": node_confirms}


@asynccontextmanager
async def stores_on(nodes: Sequence[tuple[str, int]], **options: Any) -> AsyncIterator[OpenRiakStore]:
    """Opens stores on these nodes; closes them at the end."""
    async with AsyncExitStack() as handles:

        async def open_store() -> RiakStore:
            store = RiakStore(nodes, **options)
            handles.push_async_callback(store.close)
            await store.open()
            return store

        yield open_store


@asynccontextmanager
async def riak_double(_directory: Path) -> AsyncIterator[OpenRiakStore]:
    """A fresh double of three nodes."""
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        async with stores_on(riak.addresses) as opener:
            yield opener


@asynccontextmanager
async def riak_real(_directory: Path) -> AsyncIterator[OpenRiakStore]:
    """An empty namespace of the real cluster."""
    async with stores_on(real_nodes(), **real_options()) as opener:
        yield opener
