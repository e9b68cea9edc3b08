"""All subscriptions of a store on Riak: full partitions, large sets, listings that fail, nothing written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ingeborg.broker.store.base import Store, StoreMisconfigured, StoreUnavailable
from ingeborg.broker.store.riak import layout, listing
from ingeborg.protocol.hashes import slot_of

from .conftest import StoreOn
from .double import RiakDouble


async def everything(store: Store) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    async for page in store.subscriptions():
        found.update((topic, client) for topic, clients in page for client in clients)
    return found


async def test_topics_that_came_after_their_partition_was_full_are_found_by_listing_keys(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "OBJECT_BYTES_MAX", 400)
    monkeypatch.setattr(layout, "TOPIC_CLIENTS_MAX", 5)
    store = await store_on(riak)
    # Of one slot, so that a partition fills; and others, one of them with a large set beside a partition with room.
    slot = [f"song {index}" for index in range(200_000) if slot_of(f"song {index}") == 7][:40]
    wanted = {(topic, client) for topic in slot for client in ("ann", "bob")}
    wanted |= {("hit", f"client {index:03}") for index in range(300)}
    await store.subscribe([(client, [topic]) for topic, client in sorted(wanted)])
    assert store.counters["partitions_filled"] == 1
    assert store.counters["topics_spilled"] >= 1
    assert await everything(await store_on(riak, read_only=True)) == dict.fromkeys(wanted, 1)


async def fill_a_partition(riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "OBJECT_BYTES_MAX", 100)
    store = await store_on(riak)
    await store.subscribe([(f"client {index}", ["hit"]) for index in range(20)])
    assert store.counters["partitions_filled"] == 1


@pytest.mark.parametrize("behaviour", ["refuse", "hang up", "say nothing"])
async def test_a_listing_that_fails_is_no_end_of_the_subscriptions(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    await fill_a_partition(riak, store_on, monkeypatch)
    monkeypatch.setattr(listing, "LIST_SILENCE_S", 0.1)
    if behaviour == "refuse":
        monkeypatch.setitem(riak_out_of_scope(), 17, "RpbListKeysReq")
    else:
        await spoil_lists(riak, monkeypatch, hang=behaviour == "say nothing")
    with pytest.raises(StoreUnavailable, match="Riak did not do"):
        await everything(await store_on(riak))


def riak_out_of_scope() -> dict[int, str]:
    from .double import node

    return node.OUT_OF_SCOPE


async def spoil_lists(riak: RiakDouble, monkeypatch: pytest.MonkeyPatch, *, hang: bool) -> None:
    """Lists of keys end before they say so: the connection is closed there, or nothing more comes."""
    for node in riak.nodes:
        handle = node._handle

        def cut(code: int, *rest: Any, handle: Callable[..., tuple[bytes, bool]] = handle) -> tuple[bytes, bool]:
            frames, hang_up = handle(code, *rest)
            return (frames[:-7], not hang) if code == 17 else (frames, hang_up)  # without the frame that says `done`

        monkeypatch.setattr(node, "_handle", cut)


async def test_for_reading_only_nothing_is_written_siblings_are_left_and_no_store_is_made(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    with pytest.raises(StoreMisconfigured, match="there is no store"):
        await store_on(riak, read_only=True)
    one, other = await store_on(riak, nodes=[0, 1]), await store_on(riak, nodes=[2], node_confirms=1)
    await one.subscribe([("first", ["rock"])])
    riak.memory.cut([0, 1], [2])
    riak.memory.node_confirms[b"ingeborg"] = 0
    await one.subscribe([("ann", ["rock"])])
    await other.subscribe([("bob", ["rock"])])
    riak.memory.heal()
    await one.close()
    await other.close()
    reader = await store_on(riak, read_only=True)
    assert set(await everything(reader)) == {("rock", "first"), ("rock", "ann"), ("rock", "bob")}
    assert reader.counters["siblings_found"] >= 1
    await reader.repaired()
    assert reader.counters["puts"] == 0
    with pytest.raises(StoreUnavailable, match="for reading only"):
        await reader.subscribe([("ann", ["jazz"])])
