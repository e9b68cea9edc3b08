"""A fresh double of three nodes, and stores on it that close after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ingeborg.broker.store.riak import RiakStore

from .double import RiakDouble

StoreOn = Callable[..., Awaitable[RiakStore]]

SHORT_ATTEMPTS: dict[str, Any] = {"timeout_s": 30.0, "attempt_timeout_s": 0.2}
"""Time-outs for tests in which one node never answers and others do: generous enough for a busy machine."""


def give_up_after(store: RiakStore, timeout_s: float, attempt_timeout_s: float) -> None:
    """Set the time-outs from here on, in seconds: short if nothing will answer, long if everything does."""
    store._pool._timeout_s = timeout_s
    store._pool._attempt_timeout_s = attempt_timeout_s


@pytest.fixture
async def riak() -> AsyncIterator[RiakDouble]:
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        yield riak


@pytest.fixture
async def single() -> AsyncIterator[RiakDouble]:
    """Yield one node, whose requests come one after the other."""
    async with RiakDouble(nodes=1) as riak:
        riak.create_broker_types()
        yield riak


@pytest.fixture
async def store_on() -> AsyncIterator[StoreOn]:
    """``await store_on(double, **options)`` returns an open store; ``nodes=[0, 1]`` gives it only these nodes."""
    async with AsyncExitStack() as handles:

        async def open_store(riak: RiakDouble, *, nodes: list[int] | None = None, **options: Any) -> RiakStore:
            addresses = riak.addresses if nodes is None else [riak.addresses[number] for number in nodes]
            store = RiakStore(addresses, **options)
            handles.push_async_callback(store.close)
            pool = store._pool
            given = pool._timeout_s, pool._attempt_timeout_s
            give_up_after(store, 60.0, 10.0)  # the double is in this process, which a busy machine can delay
            await store.open()
            give_up_after(store, *given)
            return store

        yield open_store
