"""What ``open`` finds wrong, and that it says what to do about it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ingeborg.broker.store.base import StoreMisconfigured
from ingeborg.broker.store.riak import RiakStore
from ingeborg.broker.store.riak.layout import Buckets

from .conftest import StoreOn
from .double import Key, RiakDouble


async def complaint(riak: RiakDouble, store_on: StoreOn, **options: object) -> str:
    with pytest.raises(StoreMisconfigured) as raised:
        await store_on(riak, **options)
    return str(raised.value)


async def test_missing_bucket_types_are_listed_with_the_commands_that_create_them(store_on: StoreOn) -> None:
    async with RiakDouble(nodes=1) as riak:
        assert (await complaint(riak, store_on)).splitlines() == [
            "Riak is not set up for this broker:",
            "  - bucket type 'ingeborg' does not exist, or is not active",
            "  - bucket type 'ingeborg_seen' does not exist, or is not active",
            "Run these on one node of the cluster (a type that exists already needs only 'activate' or 'update'):",
            '  riak-admin bucket-type create ingeborg \'{"props":{"allow_mult":true,"n_val":3,"node_confirms":2}}\'',
            "  riak-admin bucket-type activate ingeborg",
            "  riak-admin bucket-type create ingeborg_seen "
            '\'{"props":{"allow_mult":false,"last_write_wins":true,"dvv_enabled":false,"n_val":3}}\'',
            "  riak-admin bucket-type activate ingeborg_seen",
            "Every node has to have its backends before, in its riak.conf: docs/riak.md, Backends first.",
            "On Riak before 3.0 leave node_confirms out. docs/riak.md has the reasons.",
        ]


@pytest.mark.parametrize(
    ("props", "words"),
    [
        ({"allow_mult": False}, "allow_mult=false"),
        ({"last_write_wins": True}, "last_write_wins=true"),
        ({"n_val": 1}, "n_val 1; it takes 3"),
        ({"datatype": b"set"}, "datatype set"),
        ({"write_once": True}, "write_once set"),
    ],
)
async def test_a_type_that_would_lose_subscriptions_is_refused(
    store_on: StoreOn, props: dict[str, Any], words: str
) -> None:
    async with RiakDouble(nodes=1) as riak:
        riak.create_broker_types()
        riak.memory.create_type("ingeborg", **props)
        said = await complaint(riak, store_on)
        assert words in said
        assert "bucket-type create ingeborg " in said
        assert "ingeborg_seen" not in said


async def test_types_may_have_other_names(store_on: StoreOn) -> None:
    async with RiakDouble(nodes=1) as riak:
        assert "bucket-type create house_seen" in await complaint(
            riak, store_on, bucket_type="house", seen_type="house_seen"
        )


async def test_the_layout_is_chosen_once_and_for_all(riak: RiakDouble, store_on: StoreOn) -> None:
    first = await store_on(riak, partitions_per_slot=4)
    await first.subscribe([("ann", [f"song {number}" for number in range(100)])])
    second = await store_on(riak)  # takes what is there
    assert await second.subscribers(["song 7"]) == [{"ann"}]
    await store_on(riak, partitions_per_slot=4)
    assert "created with 4 partitions per slot" in await complaint(riak, store_on, partitions_per_slot=2)
    assert "power of two" in await complaint(riak, store_on, namespace="other", partitions_per_slot=3)


async def test_a_store_that_the_nodes_do_not_find_any_more_is_said(
    riak: RiakDouble, store_on: StoreOn, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        store = await store_on(riak)
        assert "no store under the namespace 'ingeborg', and one is made" in caplog.text
        caplog.clear()
        await store_on(riak)
        assert "one is made" not in caplog.text
    assert await store.features() == frozenset()
    for node in range(3):
        riak.memory.wipe(node)  # as one that is given another backend
    with pytest.raises(StoreMisconfigured, match="does not find this store any more"):
        await store.features()


async def test_two_that_created_it_differently_at_once_are_told_so(riak: RiakDouble, store_on: StoreOn) -> None:
    await store_on(riak, partitions_per_slot=1)
    layout = Key(b"ingeborg", *Buckets("ingeborg").layout)
    (sibling,) = riak.memory.object(layout).siblings
    rival = sibling.content["value"][:-1] + b"\x02"  # its last item is the number
    riak.memory.write(0, layout, {}, {"value": rival, "vtag": b"t" * 22}, {})
    said = await complaint(riak, store_on)
    assert "two versions" in said
    assert "[1, 2]" in said
    assert len(riak.memory.object(layout).siblings) == 2  # left for a person to decide


async def test_a_foreign_object_is_named(riak: RiakDouble, store_on: StoreOn) -> None:
    layout = Key(b"ingeborg", *Buckets("ingeborg").layout)
    riak.memory.write(0, layout, {}, {"value": b"something else", "vtag": b"t" * 22}, {})
    assert "ingeborg.layout" in await complaint(riak, store_on)


async def test_namespaces_are_kept_apart(riak: RiakDouble, store_on: StoreOn) -> None:
    one, other = await store_on(riak, namespace="one"), await store_on(riak, namespace="other")
    await one.subscribe([("ann", ["rock"])])
    assert await other.subscribers(["rock"]) == [set()]
    assert await other.topics("ann", None, 10) == ([], None)


async def test_an_old_server_is_warned_about(store_on: StoreOn, caplog: pytest.LogCaptureFixture) -> None:
    async with RiakDouble(nodes=3, version="2.9.10") as riak:
        riak.create_broker_types()
        with caplog.at_level(logging.WARNING):
            await store_on(riak)
    assert "2.9.10" in caplog.text
    assert "node_confirms" in caplog.text


def test_a_store_without_nodes_is_no_store() -> None:
    with pytest.raises(StoreMisconfigured):
        RiakStore([])
