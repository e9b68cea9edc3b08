"""What the contract says of whether a client has a subscription, on every store of ``conftest.STORES`` and on the
simulator's. Against a model it is compared in ``test_filters.py``, with all else that can be read."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from ingeborg.broker.store.base import Store, StoreUnavailable, Term
from tests.contract.conftest import OpenStore
from tests.contract.test_filters import ALL, PIZZA, SOUP
from tests.contract.test_store import ODD_CLIENTS, ODD_TOPICS

GONE = Term(True, 0.0)


@pytest.fixture(params=sorted(ALL))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens handles on one new, empty storage; closes them after the test."""
    async with ALL[request.param](tmp_path) as opener:
        yield opener


async def said(store: Store, client: str, topics: list[str], unfiltered: bool = False) -> list[bool]:
    """The same in whichever way it is asked for."""
    found = await store.subscribed(client, topics, unfiltered)
    assert store.subscribed_now(client, topics, unfiltered) in (None, found)
    return found


async def test_each_kind_counts_or_each_without_a_filter(store: Store) -> None:
    await store.subscribe([("ann", ["plain", "both"])])
    await store.subscribe_ending([("ann", ["ending"], GONE)])
    await store.subscribe_filtered([("ann", ["filter", "both"], PIZZA, False), ("ann", ["filter"], SOUP, False)])
    topics = ["plain", "ending", "filter", "both", "none"]
    assert await said(store, "ann", topics) == [True, True, True, True, False]
    assert await said(store, "ann", topics, True) == [True, True, False, True, False]


async def test_only_of_the_client_that_is_asked_about(store: Store) -> None:
    await store.subscribe([("ann", ["rock"]), ("an", ["jazz"])])
    await store.subscribe_ending([("annn", ["rock"], GONE)])
    await store.subscribe_filtered([("a", ["rock"], PIZZA, False)])
    for client, wanted in (("ann", [True, False]), ("an", [False, True]), ("bob", [False, False])):
        assert await said(store, client, ["rock", "jazz"]) == wanted
    assert await said(store, "annn", ["rock", "jazz"]) == [True, False]
    assert await said(store, "a", ["rock", "jazz"]) == [True, False]


async def test_topics_may_be_none_and_may_repeat(store: Store) -> None:
    assert await said(store, "ann", []) == []
    await store.subscribe([("ann", ["rock"])])
    assert await said(store, "ann", ["rock", "jazz", "rock"]) == [True, False, True]


async def test_what_is_taken_out_is_there_no_more(store: Store) -> None:
    topics = ["plain", "ending", "filter"]
    await store.subscribe([("ann", ["plain"])])
    await store.subscribe_ending([("ann", ["ending"], GONE)])
    await store.subscribe_filtered([("ann", ["filter"], PIZZA, False), ("ann", ["filter"], SOUP, False)])
    await store.unsubscribe_filtered([("ann", ["filter"], PIZZA)])
    assert await said(store, "ann", topics) == [True, True, True]
    await store.unsubscribe([("ann", topics)])
    assert await said(store, "ann", topics) == [False, False, False]


async def test_it_sees_every_write_that_has_returned_at_whichever_handle(store: Store, other: Store) -> None:
    for index, (writer, reader) in enumerate(itertools.islice(itertools.cycle([(store, other), (other, store)]), 12)):
        await writer.subscribe([("ann", [f"plain {index}"])])
        await writer.subscribe_ending([("ann", [f"ending {index}"], GONE)])
        await writer.subscribe_filtered([("ann", [f"filter {index}"], PIZZA, False)])
        topics = [f"{kind} {index}" for kind in ("plain", "ending", "filter")]
        assert await said(reader, "ann", topics) == [True, True, True]
        await writer.unsubscribe([("ann", topics[index % 3 :])])
        assert await said(reader, "ann", topics) == [True] * (index % 3) + [False] * (3 - index % 3)


async def test_odd_topics_and_clients_are_kept_apart(store: Store, other: Store) -> None:
    await store.subscribe([(client, ODD_TOPICS[::2]) for client in ODD_CLIENTS[::2]])
    wanted = [number % 2 == 0 for number in range(len(ODD_TOPICS))]
    for client in ODD_CLIENTS[::2]:
        assert await said(other, client, ODD_TOPICS) == wanted
    for client in ODD_CLIENTS[1::2]:
        assert await said(other, client, ODD_TOPICS) == [False] * len(ODD_TOPICS)


async def test_many_topics_of_one_client(store: Store) -> None:
    topics = [f"song {index}" for index in range(1_000)]
    await store.subscribe([("ann", topics[::2])])
    assert await said(store, "ann", topics) == [True, False] * 500


async def test_a_topic_with_many_subscribers_among_them_the_client(store: Store) -> None:
    clients = [f"client {index} ".ljust(120, "x") for index in range(1_000)]
    await store.subscribe([(client, ["hit"]) for client in clients])
    for client in (clients[0], clients[500], clients[999]):
        assert await said(store, client, ["hit"]) == [True]
    assert await said(store, "client 0", ["hit"]) == [False]


async def test_a_subscription_that_becomes_another_kind_is_never_missed(store: Store, other: Store) -> None:
    """While it becomes one, whoever asks finds it. Each time that it does, somebody asks."""
    topics = [f"song {index}" for index in range(8)]
    await store.subscribe_ending([("ann", topics, GONE)])
    for _ in range(3):
        for topic in topics:
            for change in (
                partial(store.subscribe, [("ann", [topic])]),
                partial(store.subscribe_filtered, [("ann", [topic], PIZZA, True)]),
                partial(store.subscribe_ending, [("ann", [topic], GONE)]),
                partial(store.unsubscribe_filtered, [("ann", [topic], PIZZA)]),
                partial(store.subscribe_filtered, [("ann", [topic], SOUP, True)]),
                partial(store.subscribe, [("ann", [topic])]),
                partial(store.unsubscribe_filtered, [("ann", [topic], SOUP)]),
                partial(store.subscribe_ending, [("ann", [topic], GONE)]),
            ):
                found, _ = await asyncio.gather(said(other, "ann", topics), change())
                assert found == [True] * len(topics)


async def test_a_closed_store_is_unavailable(open_store: OpenStore, store: Store) -> None:
    mine = await open_store()
    if type(mine).__name__ == "Virtual":
        return
    await mine.close()
    with pytest.raises(StoreUnavailable):
        await mine.subscribed("ann", ["rock"])
    if mine.shape.reads_memory:
        with pytest.raises(StoreUnavailable):
            mine.subscribed_now("ann", ["rock"])
