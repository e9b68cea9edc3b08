"""The simulator's store, as an endpoint would open it: each of its operations takes effect when it is awaited.

Owns: the way from an awaited operation to the one of the same name. Must never: decide anything about what it stores.
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
    """A handle on a store of the simulator's."""

    shape = Shape(journal=True)

    def __init__(self, store: simulator.Store) -> None:
        self._store = store
        self._is_closed = False

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """Nothing is answered any more."""
        self._is_closed = True

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        """It begins and takes effect in one instant."""
        return self._now().listen(self._store.draw(list(clients), incarnation), incarnation)

    async def end(self, batch: Sequence[simulator.End]) -> list[list[Subscription]]:
        """In two instants, as it may be in a simulation."""
        self._now().begin_end(batch)
        await asyncio.sleep(0)
        return self._now().finish_end(batch)

    async def subscribe(self, batch: Sequence[Subscribe]) -> None:
        """As that."""
        replaced = self._now().begin_subscribe(batch)
        await asyncio.sleep(0)
        self._store.finish_subscribe(replaced)

    async def all_subscriptions(self) -> AsyncIterator[list[TopicPage]]:
        """In pages of one topic."""
        for topic, found in groupby(self._now().all_of_them(), key=lambda each: each.topic):
            rows = list(found)
            for start in range(0, len(rows), PAGE_SUBSCRIPTIONS):
                page = rows[start : start + PAGE_SUBSCRIPTIONS]
                plain = [each.client for each in page if each.filter is None and each.term is None]
                yield [(topic, plain, [each for each in page if each.filter is not None or each.term is not None])]
                await asyncio.sleep(0)

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        if operation.endswith("_now"):
            return lambda *arguments: None  # without waiting it says nothing

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
    """One storage."""
    store = simulator.Store()

    async def open_store() -> Store:
        return cast(Store, Virtual(store))

    yield open_store
