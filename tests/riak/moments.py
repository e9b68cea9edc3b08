"""Run something between two requests of a store, or instead of one.

Owns: the acts before each request, and a double whose requests come one after the other. Must never: know an operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ingeborg.broker.store.base import StoreUnavailable
from ingeborg.broker.store.riak import RiakStore, layout, partitions, sets
from ingeborg.protocol.hashes import slot_of

Act = Callable[[int], Awaitable[None]]

ONE_BY_ONE: dict[str, Any] = {"node_confirms": 1, "connections_per_node": 1}


def before_each_request(store: RiakStore) -> list[Act]:
    """Return a list of acts. Before each request of the store, each act is awaited with the request's number. The
    numbers start again when the list changes."""
    acts: list[Act] = []
    request, number, seen = store._pool.request, 0, list(acts)

    async def disturbed(*arguments: Any, **options: Any) -> Any:
        nonlocal number, seen
        if acts != seen:
            number, seen = 0, list(acts)
        number += 1
        for act in seen:
            await act(number - 1)
        return await request(*arguments, **options)

    store._pool.request = disturbed  # type: ignore[method-assign]
    return acts


def at(moment: int, work: Callable[[], Awaitable[object]]) -> Act:
    """Return an act that does the work before that request."""

    async def act(number: int) -> None:
        if number == moment:
            await work()

    return act


def dead_from(moment: int) -> Act:
    """Return an act that fails that request and all after it."""

    async def act(number: int) -> None:
        if number >= moment:
            raise StoreUnavailable("the process has died")

    return act


async def survives(acts: list[Act], crash: int, work: Awaitable[object]) -> bool:
    """Do the work in a process that dies at that request; return whether the work was complete before."""
    acts[:] = [dead_from(crash)]
    try:
        await work
    except StoreUnavailable:
        return False
    finally:
        acts.clear()
    return True


def noted_in(numbers: list[int]) -> Act:
    """Return an act that notes the numbers of the requests."""

    async def act(number: int) -> None:
        numbers.append(number)

    return act


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the objects small enough that everything spreads over all levels."""
    for module in (layout, sets, partitions):
        monkeypatch.setattr(module, "OBJECT_BYTES_MAX", 400)
    monkeypatch.setattr(partitions, "TOPIC_BYTES_MAX", 150)
    monkeypatch.setattr(partitions, "TOPIC_CLIENTS_MAX", 3)


def of_one_slot(count: int) -> list[str]:
    """Return ``count`` topics, all from the slot of the first."""
    topics = (f"song {number}" for number in itertools.count())
    first = next(topics)
    return [first, *itertools.islice((topic for topic in topics if slot_of(topic) == slot_of(first)), count - 1)]
