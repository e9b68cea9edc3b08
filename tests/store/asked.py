"""What tests of the stores ask again and again, and the part of the answer that they want.

Owns: the subscriber sets without the pages of filters, and the locations of a ``listen`` without what has ended.
Must never: ask another question than the contract has.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingeborg.broker.store.base import Location, Store, Subscribers


async def subscribers(store: Store, topics: Sequence[str]) -> list[set[str]]:
    """The subscriber set of each topic."""
    sets, _ = await store.subscribers(topics)
    return [set(found) for found in sets]


def subscribers_now(store: Store, topics: Sequence[str]) -> list[Subscribers] | None:
    """The same, where the store says it at once."""
    found = store.subscribers_now(topics)
    return None if found is None else found[0]


async def listen(store: Store, clients: Sequence[str], incarnation: str) -> list[Location]:
    """The new location of each client."""
    return [location for location, _ in await store.listen(clients, incarnation)]
