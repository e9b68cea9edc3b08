"""The simulator's store, as an endpoint would open it: each of its operations takes effect when it is awaited.

Owns: the way from an awaited operation to the one of the same name. Must never: decide anything about what it stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from ingeborg.broker.store.base import Ended, Ending, Location, Shape, Store
from tests.simulator import world


class Virtual:
    """A handle on a store of the simulator's."""

    shape = Shape(journal=True)

    def __init__(self, store: world.Store) -> None:
        self._store = store

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """Nor to close."""

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        """It begins and takes effect in one instant."""
        return self._store.listen(self._store.draw(list(clients), incarnation), incarnation)

    async def end(self, batch: list[world.End]) -> list[list[Ending]]:
        """In two instants, as it may be in a simulation."""
        self._store.begin_end(batch)
        await asyncio.sleep(0)
        return self._store.finish_end(batch)

    async def subscribe_filtered(self, batch: list[world.Filtered]) -> None:
        """As that."""
        replaced = self._store.begin_filtered(batch)
        await asyncio.sleep(0)
        self._store.finish_filtered(replaced)

    def subscribers_now(self, topics: Sequence[str]) -> None:
        """Without waiting it says nothing."""

    def filtered_now(self, asked: Sequence[tuple[str, str | None]], limit: int) -> None:
        """Nor of these."""

    def subscribed_now(self, client: str, topics: Sequence[str], unfiltered: bool = False) -> None:
        """Nor of these."""

    async def filtered_subscriptions(self) -> AsyncIterator[list[tuple[str, list[tuple[str, str]]]]]:
        """In pages of one pair."""
        for (topic, client), filters in sorted(self._store.filters.items()):
            for text in sorted(filters):
                yield [(topic, [(client, text)])]

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        async def ask(*arguments: Any, **options: Any) -> Any:
            return getattr(self._store, operation)(*arguments, **options)

        return ask


def handle(store: world.Store) -> Store:
    """One, of those operations that the simulator's store has under the names of the contract."""
    return cast(Store, Virtual(store))


@asynccontextmanager
async def virtual(_directory: Path) -> AsyncIterator[Callable[[], Awaitable[Store]]]:
    """One of them, of which every handle is the same."""
    store = world.Store()

    async def open_store() -> Store:
        return handle(store)

    yield open_store
