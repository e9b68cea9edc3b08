"""Values and their merging: a union or a maximum, whatever the order; and sizes that stay within their limits."""

from __future__ import annotations

import itertools
import zlib

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store.base import Location
from broker.store.riak import layout
from broker.store.riak.layout import (
    VERSION,
    Buckets,
    Directory,
    Entry,
    Layout,
    Partition,
    SetObject,
    Whereabouts,
    partition_of,
    place_of,
    shard_of,
)

NAMES = st.text(min_size=1, max_size=4)
PARTITIONS = st.builds(
    lambda topics, spilled, full: ormsgpack.packb([VERSION, topics, spilled, full]),
    st.dictionaries(NAMES, st.lists(NAMES, max_size=4, unique=True), max_size=4),
    st.lists(NAMES, max_size=2, unique=True),
    st.booleans(),
)
LOCATIONS = st.builds(
    lambda number, incarnation, online: ormsgpack.packb([VERSION, number, incarnation, online]),
    st.integers(1, 3),
    st.sampled_from("ab"),
    st.booleans(),
)
ENTRIES = st.builds(
    lambda *fields: ormsgpack.packb([VERSION, *fields]),
    st.integers(1, 3),
    st.sampled_from("ab"),
    st.booleans(),
    st.sampled_from(["ws://a", "ws://b"]),
    st.integers(0, 3),
)
SETS = st.builds(
    lambda level, members: ormsgpack.packb([VERSION, "name", level, members]),
    st.integers(0, 3),
    st.lists(NAMES, max_size=4, unique=True),
)


def state(kind, values):
    merged = kind()
    for value in values:
        merged.absorb(value)
    return {name: field for name, field in vars(merged).items() if name not in ("dirty", "_bytes")}


@pytest.mark.parametrize(
    ("kind", "values"),
    [(Partition, PARTITIONS), (Whereabouts, LOCATIONS), (Entry, ENTRIES), (SetObject, SETS)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_versions_merge_to_the_same_in_any_order_and_any_number_of_times(kind, values) -> None:
    # An entry's url belongs to its registration: two that differ in nothing else never are.
    @given(st.lists(values, max_size=3))
    def check(versions) -> None:
        if kind is Entry:
            by_rank = {tuple(ormsgpack.unpackb(version)[i] for i in (1, 2, 3, 5)): version for version in versions}
            versions = list(by_rank.values())
        expected = state(kind, versions)
        for order in itertools.permutations(versions):
            assert state(kind, [*order, *order]) == expected

    check()


@given(st.lists(st.tuples(NAMES, NAMES, st.booleans()), max_size=20))
def test_a_partition_keeps_what_was_put_in_and_not_taken_out(steps) -> None:
    partition, model = Partition(), set()
    for topic, client, adding in steps:
        if adding:
            assert partition.add(topic, client)
            model.add((topic, client))
        else:
            partition.discard(topic, client)
            model.discard((topic, client))
    again = Partition()
    again.absorb(partition.encode())
    for found in (partition, again):
        assert {(topic, client) for topic, clients in found.topics.items() for client in clients} == model


def test_a_merge_is_the_union_topic_by_topic() -> None:
    one, other = Partition(), Partition()
    one.add("rock", "ann")
    one.add("jazz", "ann")
    other.add("rock", "bob")
    merged = Partition()
    merged.absorb(one.encode())
    merged.absorb(other.encode())
    assert merged.topics == {"rock": {"ann", "bob"}, "jazz": {"ann"}}


def test_an_object_stays_within_its_limit_and_says_when_it_is_full() -> None:
    partition = Partition()
    kept = 0
    while partition.add(f"a topic of some length, number {kept}", f"a client, number {kept}"):
        kept += 1
    assert partition.full
    assert partition.dirty
    assert kept > 3_000
    assert layout.OBJECT_BYTES_MAX * 0.8 < len(partition.encode()) <= layout.OBJECT_BYTES_MAX
    # What is in it can still be taken out and confirmed, but nothing new comes in: where to look stays the same.
    assert partition.add("a topic of some length, number 0", "a client, number 0")
    partition.discard("a topic of some length, number 0", "a client, number 0")
    assert not partition.add("a topic of some length, number 0", "a client, number 0")


def test_a_topic_with_many_subscribers_goes_on_elsewhere_and_the_others_do_not(monkeypatch) -> None:
    monkeypatch.setattr(layout, "TOPIC_CLIENTS_MAX", 3)
    partition = Partition()
    assert [partition.add("hit", client) for client in "abcde"] == [True, True, True, False, False]
    assert partition.add("other", "a")
    assert partition.elsewhere("hit")
    assert not partition.elsewhere("other")
    again = Partition()
    again.absorb(partition.encode())
    assert again.elsewhere("hit")


def test_an_unsubscription_that_empties_a_topic_leaves_no_trace_of_it() -> None:
    partition = Partition()
    size = len(partition.encode())
    partition.add("rock", "ann")
    partition.discard("rock", "ann")
    assert len(partition.encode()) == size


@given(st.text(max_size=20), st.sampled_from([1, 2, 16, 256]))
def test_a_partition_lies_within_the_slot_of_the_routing(topic, partitions_per_slot) -> None:
    slot, part = partition_of(topic, partitions_per_slot)
    assert slot == zlib.crc32(topic.encode()) & 4095
    assert 0 <= part < partitions_per_slot


@given(st.lists(st.text(max_size=8), min_size=2, max_size=20))
def test_the_objects_of_a_level_hold_their_members_in_the_order_of_the_pages(members) -> None:
    ordered = sorted(members, key=place_of)
    for level in (1, 2, 3):
        shards = [shard_of(member, level) for member in ordered]
        assert shards == sorted(shards)
        assert all(0 <= shard < 16**level for shard in shards)


@given(st.text(max_size=20))
def test_topics_of_one_slot_share_an_object_of_each_level(topic) -> None:
    """A large subscribe comes in the order of slots: a part of it goes to few objects of the client's set."""
    slot, _ = partition_of(topic, 1)
    assert [shard_of(topic, level) for level in (3, 2, 1)] == [slot, slot >> 4, slot >> 8]


def test_the_registry_entry_of_any_name_is_not_the_directory() -> None:
    buckets = Buckets("ingeborg")
    assert buckets.endpoint("directory") != buckets.directory


def test_an_offline_location_beats_an_online_one_of_the_same_listen_only() -> None:
    whereabouts = Whereabouts()
    for location in (Location(2, "a", True), Location(1, "z", False), Location(2, "a", False)):
        whereabouts.absorb(ormsgpack.packb([VERSION, *location]))
    assert whereabouts.location == Location(2, "a", False)


@pytest.mark.parametrize("kind", [Layout, Partition, SetObject, Whereabouts, Directory, Entry])
@pytest.mark.parametrize(
    "value",
    [b"", b"\xc1", b"text", ormsgpack.packb(7), ormsgpack.packb([]), ormsgpack.packb([1, {}, [], False])]
    + [ormsgpack.packb([VERSION] * length) for length in (1, 9)],
)
def test_what_is_of_another_layout_is_refused_and_not_guessed_at(kind, value) -> None:
    with pytest.raises(ValueError, match=r"MessagePack|layout|belong"):
        kind().absorb(value)
