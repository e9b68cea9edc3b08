"""The registry: cheap heartbeats, and one holder of a name even if two processes took it without seeing each other."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest

from ingeborg.broker.store.base import Endpoint, Superseded
from ingeborg.broker.store.riak.layout import VERSION, Buckets
from ingeborg.broker.store.riak.registry import FULL_EVERY

from .conftest import StoreOn
from .double import Key, RiakDouble, StoredObject

ANN = Endpoint("ann", "a", "ws://127.0.0.1:9000", 0)
RIVAL = Endpoint("ann", "b", "ws://127.0.0.1:9001", 0)


async def test_a_heartbeat_is_one_write_and_now_and_then_a_read(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.register(ANN)
    before = dict(store.counters)
    for count in range(1, FULL_EVERY):
        await store.heartbeat(ANN._replace(heartbeat=count))
    assert store.counters["puts"] - before["puts"] == FULL_EVERY - 1
    assert store.counters["gets"] == before["gets"]
    await store.heartbeat(ANN._replace(heartbeat=FULL_EVERY))
    assert store.counters["puts"] - before["puts"] == FULL_EVERY
    assert store.counters["gets"] - before["gets"] == 2  # the entry, and the directory
    assert await store.endpoints() == [ANN._replace(heartbeat=FULL_EVERY)]


async def test_the_next_heartbeat_tells_a_holder_that_the_name_is_anothers(riak: RiakDouble, store_on: StoreOn) -> None:
    store, other = await store_on(riak), await store_on(riak)
    await store.register(ANN)
    await store.heartbeat(ANN._replace(heartbeat=1))
    await other.register(RIVAL)
    with pytest.raises(Superseded, match=r"ann.*ws://127\.0\.0\.1:9001"):
        await store.heartbeat(ANN._replace(heartbeat=2))
    await other.heartbeat(RIVAL._replace(heartbeat=1))
    assert await store.endpoints() == [RIVAL._replace(heartbeat=1)]


async def test_a_rival_that_came_between_reading_and_writing_is_noticed(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    entry = Key(b"ingeborg", *Buckets("ingeborg").endpoint("ann"))
    rival = ormsgpack.packb([VERSION, 5, "b", True, RIVAL.url, 0])
    read = riak.memory.read

    def read_and_be_overtaken(at: int, key: Key, request: dict[str, Any]) -> StoredObject:
        found = read(at, key, request)
        if key == entry and request.get("notfound_ok") is False:  # the second read, just before the write
            riak.memory.write(0, entry, {}, {"value": rival, "vtag": b"t" * 22}, {})
        return found

    riak.memory.read = read_and_be_overtaken  # type: ignore[method-assign]
    await store.register(ANN)
    with pytest.raises(Superseded):
        await store.heartbeat(ANN._replace(heartbeat=1))
    assert await store.endpoints() == [RIVAL]


async def test_of_two_that_took_a_name_on_two_sides_of_a_cut_one_keeps_it(store_on: StoreOn) -> None:
    async with RiakDouble(nodes=5) as riak:
        riak.create_broker_types()
        for number in range(60):  # a namespace whose directory and entry have primaries on both sides
            buckets = Buckets(namespace := f"house {number}")
            places = [buckets.directory, buckets.endpoint("ann")]
            nodes = [{p.node for p in riak.memory.preference_list(0, Key(b"ingeborg", *place))} for place in places]
            if all(on & {0, 1} and on & {2, 3, 4} for on in nodes):
                break
        left = await store_on(riak, nodes=[0, 1], namespace=namespace)
        right = await store_on(riak, nodes=[2, 3, 4], namespace=namespace)
        riak.memory.cut([0, 1], [2, 3, 4])
        await left.register(ANN)
        await right.register(RIVAL)
        await left.heartbeat(ANN)
        await right.heartbeat(RIVAL)
        riak.memory.heal()
        outcomes = []
        for count in range(2 * FULL_EVERY):
            for store, endpoint in ((left, ANN), (right, RIVAL)):
                try:
                    await store.heartbeat(endpoint._replace(heartbeat=count))
                except Superseded:
                    outcomes.append(endpoint.incarnation)
        assert set(outcomes) == {"a"}  # both took it for the first time; the greater incarnation wins
        assert [endpoint.incarnation for endpoint in await left.endpoints()] == ["b"]


async def test_a_restarted_endpoint_takes_its_name_back(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.register(RIVAL)  # the greater incarnation, so that the number has to decide
    again = await store_on(riak)
    await again.register(ANN)
    assert await store.endpoints() == [ANN]
    with pytest.raises(Superseded):
        await store.heartbeat(RIVAL)


async def test_a_name_lost_from_the_directory_comes_back(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.register(ANN)
    directory = Key(b"ingeborg", *Buckets("ingeborg").directory)
    context = riak.memory.object(directory).vector
    riak.memory.write(0, directory, context, {"value": b"", "vtag": b"t" * 22, "deleted": True}, {})
    assert await store.endpoints() == []
    for count in range(FULL_EVERY):
        await store.heartbeat(ANN._replace(heartbeat=count))
    assert [endpoint.name for endpoint in await store.endpoints()] == ["ann"]


async def test_leaving_and_coming_again(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.register(RIVAL)
    await store.deregister(ANN)  # no longer its entry
    assert await store.endpoints() == [RIVAL]
    await store.deregister(RIVAL)
    assert await store.endpoints() == []
    await store.register(ANN)
    assert await store.endpoints() == [ANN]
