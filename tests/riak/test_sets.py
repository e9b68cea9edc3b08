"""Sets that spread over objects as they grow, compared with plain sets; the limits are small, so they spread at
once."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import strategies as st

from ingeborg.broker.store.base import Subscribe
from ingeborg.broker.store.riak import RiakStore, layout, partitions, sets
from tests.contract.asking import subscribers

from .conftest import StoreOn
from .double import RiakDouble
from .storages import holds_for_any


@pytest.fixture
def small_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layout, partitions, sets):
        monkeypatch.setattr(module, "OBJECT_BYTES_MAX", 120)
    monkeypatch.setattr(partitions, "TOPIC_CLIENTS_MAX", 3)


async def pages(store: RiakStore, client: str, limit: int) -> list[str]:
    topics: list[str] = []
    cursor = None
    while True:
        page, cursor = await store.topics(client, cursor, limit)
        assert 0 < len(page) <= limit or (not topics and cursor is None)
        topics += page
        if cursor is None:
            return topics


@pytest.mark.usefixtures("small_objects")
async def test_a_topic_spreads_over_all_levels_and_is_read_whole(riak: RiakDouble, store_on: StoreOn) -> None:
    store, other = await store_on(riak), await store_on(riak)
    clients = [f"client {number}" for number in range(500)]
    for start in range(0, len(clients), 100):
        await store.subscribe([Subscribe(client, ["hit"]) for client in clients[start : start + 100]])
        assert await subscribers(other, ["hit"]) == [set(clients[: start + 100])]
    assert store.counters["topics_spilled"] + store.counters["partitions_filled"] == 1
    assert store.counters["sets_grown"] >= 2
    await other.unsubscribe([(client, ["hit"], None) for client in clients[::2]])
    assert await subscribers(store, ["hit"]) == [set(clients[1::2])]
    await store.subscribe([Subscribe(client, ["hit"]) for client in clients[::2]])
    assert await subscribers(other, ["hit"]) == [set(clients)]


@pytest.mark.usefixtures("small_objects")
async def test_a_clients_topics_spread_and_come_in_pages(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    topics = [f"song {number}" for number in range(600)]
    for start in range(0, 600, 200):
        await store.subscribe([Subscribe("ann", topics[start : start + 200])])
    assert store.counters["sets_grown"] >= 2
    for limit in (1, 7, 100, 599, 600, 601):
        found = await pages(store, "ann", limit)
        assert found == sorted(topics, key=layout.place_of)


@pytest.mark.usefixtures("small_objects")
async def test_two_processes_that_grow_one_set_at_once_lose_nothing(riak: RiakDouble, store_on: StoreOn) -> None:
    stores = [await store_on(riak), await store_on(riak)]
    await asyncio.gather(
        *(
            store.subscribe([Subscribe(f"client {number} {start + offset}", ["hit"]) for offset in range(10)])
            for number, store in enumerate(stores)
            for start in range(0, 100, 10)
        )
    )
    everybody = {f"client {number} {index}" for number in range(2) for index in range(100)}
    for store in stores:
        assert await subscribers(store, ["hit"]) == [everybody]


@pytest.mark.usefixtures("small_objects")
def test_any_growing_set_is_the_set_the_model_has() -> None:
    names = st.integers(0, 40).map(lambda number: f"member {number}")
    steps = st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.lists(names, max_size=20)), max_size=6)
    fresh = itertools.count()

    async def check(stores: list[RiakStore], history: list[tuple[bool, int, list[str]]]) -> None:
        topic, client = f"topic {next(fresh)}", f"client {next(fresh)}"
        clients: set[str] = set()
        topics: set[str] = set()
        for adding, handle, members in history:
            rows = [*((member, [topic]) for member in members), (client, [topic + member for member in members])]
            if adding:
                await stores[handle].subscribe([Subscribe(*row) for row in rows])
            else:
                await stores[handle].unsubscribe([(*row, None) for row in rows])
            (clients.update if adding else clients.difference_update)(members)
            (topics.update if adding else topics.difference_update)(topic + member for member in members)
        for store in stores:
            assert await subscribers(store, [topic]) == [clients]
            assert await pages(store, client, 3) == sorted(topics, key=layout.place_of)

    holds_for_any(steps, check)
