"""The simulator's store in the form that an endpoint opens: each operation takes effect when it is awaited.

Owns: the mapping from an awaited operation to the simulator's operation of the same name. Must never: decide anything
about what it stores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from ingeborg.broker.store.base import (
    PAGE_SUBSCRIPTIONS,
    Ended,
    Location,
    Shape,
    Store,
    StoreUnavailable,
    Subscribe,
    Subscription,
    TopicPage,
)
from tests.simulator import store as simulator


class Virtual:
    """A handle on a store of the simulator."""

    shape = Shape(journal=True)

    def __init__(self, store: simulator.Store) -> None:
        self._store = store
        self._is_closed = False

    async def open(self) -> None:
        """Do nothing: there is nothing to open."""

    async def close(self) -> None:
        """Stop answering."""
        self._is_closed = True

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        """Begin and take effect in one instant."""
        return self._now().listen(self._store.draw(list(clients), incarnation), incarnation)

    async def end(self, batch: Sequence[simulator.End]) -> list[list[Subscription]]:
        """Take effect in two instants, as can happen in a simulation."""
        self._now().begin_end(batch)
        await asyncio.sleep(0)
        return self._now().finish_end(batch)

    async def subscribe(self, batch: Sequence[Subscribe]) -> None:
        """Take effect in two instants, as ``end`` does."""
        replaced = self._now().begin_subscribe(batch)
        await asyncio.sleep(0)
        self._store.finish_subscribe(replaced)

    async def all_subscriptions(self) -> AsyncIterator[list[TopicPage]]:
        """Return pages of one topic each."""
        for topic, found in groupby(self._now().all_of_them(), key=lambda each: each.topic):
            rows = list(found)
            for start in range(0, len(rows), PAGE_SUBSCRIPTIONS):
                page = rows[start : start + PAGE_SUBSCRIPTIONS]
                plain = [each.client for each in page if each.filter is None and each.term is None]
                yield [(topic, plain, [each for each in page if each.filter is not None or each.term is not None])]
                await asyncio.sleep(0)

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        if operation.endswith("_now"):
            return lambda *arguments: None  # it never answers without waiting

        async def ask(*arguments: Any) -> Any:
            return getattr(self._now(), operation)(*arguments)

        return ask

    def _now(self) -> simulator.Store:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        self._store.now = time.time()
        return self._store


@asynccontextmanager
async def virtual(_directory: Path) -> AsyncIterator[Callable[[], Awaitable[Store]]]:
    """Make one storage."""
    store = simulator.Store()

    async def open_store() -> Store:
        return cast(Store, Virtual(store))

    yield open_store
