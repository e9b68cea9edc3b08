"""Problems that ``open`` finds, and its advice about them."""

from __future__ import annotations

import logging
from typing import Any

import ormsgpack
import pytest

from ingeborg.broker.store.base import Settings, StoreMisconfigured, StoreUnavailable, Subscribe
from ingeborg.broker.store.riak import RiakStore
from ingeborg.broker.store.riak.layout import VERSION, Buckets
from tests.contract.asking import subscribers

from .conftest import StoreOn
from .double import Key, RiakDouble

LAYOUT = Key(b"ingeborg", *Buckets("ingeborg").layout)
NONE = Settings()
ONE, OTHER = Settings(replication=True, history="memory"), Settings(replication=False, history="store")


def packed(*features: str, revision: int = 0, settings: Settings = NONE, parts: int = 1) -> bytes:
    """Return a layout object's value."""
    return ormsgpack.packb([VERSION, 4096, parts, features, revision, list(settings)])


def versions(riak: RiakDouble) -> list[bytes]:
    """Return the content of the layout object, sibling by sibling."""
    return sorted(sibling.content["value"] for sibling in riak.memory.object(LAYOUT).siblings)


def write_unseen(riak: RiakDouble, value: bytes) -> None:
    """Write as a process does on the other side of a network partition, which has seen none of the versions."""
    riak.memory.write(0, LAYOUT, {}, {"value": value, "vtag": b"t" * 22}, {})


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
            "First configure the backends in every node's riak.conf: docs/riak.md, Backends first.",
            "On Riak before 3.0 leave node_confirms out. docs/riak.md has the reasons.",
        ]


@pytest.mark.parametrize(
    ("props", "words"),
    [
        ({"allow_mult": False}, "allow_mult=false"),
        ({"last_write_wins": True}, "last_write_wins=true"),
        ({"n_val": 1}, "n_val 1; it has to be 3"),
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
    await first.subscribe([Subscribe("ann", [f"song {number}" for number in range(100)])])
    second = await store_on(riak)  # takes the existing value
    assert await subscribers(second, ["song 7"]) == [{"ann"}]
    await store_on(riak, partitions_per_slot=4)
    assert "created with 4 partitions per slot" in await complaint(riak, store_on, partitions_per_slot=2)
    assert "power of two" in await complaint(riak, store_on, namespace="other", partitions_per_slot=3)


async def test_a_store_that_the_nodes_do_not_find_any_more_is_said(
    riak: RiakDouble, store_on: StoreOn, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        store = await store_on(riak)
        assert "found no store under the namespace 'ingeborg', so this endpoint makes one" in caplog.text
        caplog.clear()
        await store_on(riak)
        assert "makes one" not in caplog.text
    assert (await store.settings(), await store.revocations()) == (None, [])
    for node in range(3):
        riak.memory.wipe(node)  # like a node with another backend
    for asked in (store.settings(), store.revocations()):
        with pytest.raises(StoreMisconfigured, match="no longer finds this store"):
            await asked


async def test_two_that_created_it_differently_at_once_are_told_so(riak: RiakDouble, store_on: StoreOn) -> None:
    await store_on(riak, partitions_per_slot=1)
    write_unseen(riak, packed(parts=2))
    said = await complaint(riak, store_on)
    assert "two versions" in said
    assert "[1, 2]" in said
    assert len(riak.memory.object(LAYOUT).siblings) == 2  # left for a person to decide


async def test_a_foreign_object_is_named(riak: RiakDouble, store_on: StoreOn) -> None:
    write_unseen(riak, b"something else")
    assert "ingeborg.layout" in await complaint(riak, store_on)


async def test_another_layout_is_refused_with_one_line(riak: RiakDouble, store_on: StoreOn) -> None:
    write_unseen(riak, ormsgpack.packb([4, 4096, 1, [], 0, [False, "off"]]))
    assert await complaint(riak, store_on) == (
        "the object b'layout' in bucket b'ingeborg.layout' is not one of this version: it has layout version 4, and "
        f"this version reads {VERSION} only; export the store with the version that wrote it, and import the export "
        "under another riak-namespace (`ingeborg export`, `import`). See docs/riak.md, Layout"
    )


async def test_a_feature_that_is_not_known_here_is_refused_at_the_start_and_no_endpoint_that_runs_minds(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    write_unseen(riak, packed("later"))
    for options in ({}, {"read_only": True}):
        assert await complaint(riak, store_on, **options) == (
            "the store whose buckets begin with 'ingeborg' has features that this version does not know: 'later'. "
            "Start a version that knows them"
        )
    await store.set_settings(ONE)
    assert packed("later", revision=1, settings=ONE) in versions(riak)
    await store.subscribe([Subscribe("ann", ["rock"])])
    assert await subscribers(store, ["rock"]) == [{"ann"}]


async def test_settings_that_missed_each_other_are_what_both_promise_until_the_next_change(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store, other = await store_on(riak), await store_on(riak)
    assert await store.settings(ONE) == ONE
    write_unseen(riak, packed(revision=1, settings=OTHER))
    both = Settings(replication=False, history="memory")
    assert await store.settings(ONE) == await other.settings(OTHER) == both
    await other.set_settings(OTHER)
    assert versions(riak) == [packed(revision=2, settings=OTHER)]
    write_unseen(riak, packed(revision=1, settings=ONE))
    assert await store.settings() == OTHER


async def test_who_records_first_settings_returns_what_counts(
    riak: RiakDouble, store_on: StoreOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await store_on(riak)
    change = store._objects.change

    async def disturbed(*arguments: Any) -> Any:
        result = await change(*arguments)
        write_unseen(riak, packed(revision=1, settings=OTHER))
        return result

    monkeypatch.setattr(store._objects, "change", disturbed)
    assert await store.settings(ONE) == Settings(replication=False, history="memory")


async def test_for_reading_only_no_settings_are_recorded(riak: RiakDouble, store_on: StoreOn) -> None:
    await store_on(riak)
    reader = await store_on(riak, read_only=True)
    for record in (reader.settings(ONE), reader.set_settings(ONE)):
        with pytest.raises(StoreUnavailable, match="reading only"):
            await record
    assert await reader.settings() is None


async def test_settings_of_a_layout_that_contradicts_itself_are_left_for_a_person(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    write_unseen(riak, packed(parts=2))
    with pytest.raises(StoreMisconfigured, match="contradictory versions"):
        await store.set_settings(ONE)
    assert await store.settings() is None
    await store.repaired()
    assert len(versions(riak)) == 2


async def test_namespaces_are_kept_apart(riak: RiakDouble, store_on: StoreOn) -> None:
    one, other = await store_on(riak, namespace="one"), await store_on(riak, namespace="other")
    await one.subscribe([Subscribe("ann", ["rock"])])
    await one.settings(ONE)
    assert await subscribers(other, ["rock"]) == [set()]
    assert await other.topics("ann", None, 10) == ([], None)
    assert await other.settings() is None


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
