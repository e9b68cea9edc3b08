"""Questions that many tests of the stores ask, reduced to the part of the answer that they need.

Owns: the subscriber sets without the pages of filters, and the locations of a ``listen`` without the ended
subscriptions. Must never: ask a question that the contract does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingeborg.broker.store.base import Location, Store, Subscribers


async def subscribers(store: Store, topics: Sequence[str]) -> list[set[str]]:
    """Return the subscriber set of each topic."""
    sets, _ = await store.subscribers(topics)
    return [set(found) for found in sets]


def subscribers_now(store: Store, topics: Sequence[str]) -> list[Subscribers] | None:
    """Return the same if the store answers at once."""
    found = store.subscribers_now(topics)
    return None if found is None else found[0]


async def listen(store: Store, clients: Sequence[str], incarnation: str) -> list[Location]:
    """Return the new location of each client."""
    return [location for location, _ in await store.listen(clients, incarnation)]
