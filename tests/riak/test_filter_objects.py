"""Values of subscriptions with filters: they merge to the same in any order, and their sizes stay within the limits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.store.riak import filter_objects, layout
from ingeborg.broker.store.riak.filter_objects import FilterObject, FilterPartition
from ingeborg.broker.store.riak.layout import VERSION
from ingeborg.broker.store.riak.objects import StoredObject

NAMES = st.sampled_from("abc")
FILTERS = st.sampled_from("fgh")
CLIENTS = st.dictionaries(NAMES, st.lists(FILTERS, min_size=1, max_size=3, unique=True), max_size=3)
PARTITIONS = st.builds(
    lambda topics, spilled, full: ormsgpack.packb([VERSION, topics, spilled, full]),
    st.dictionaries(NAMES, CLIENTS, max_size=3),
    st.lists(NAMES, max_size=2, unique=True),
    st.booleans(),
)
OBJECTS = st.builds(
    lambda level, filters: ormsgpack.packb([VERSION, "name", level, filters]), st.integers(0, 3), CLIENTS
)

Triples = set[tuple[str, str, str]]
"""Topic, client and filter."""


def state(kind: Callable[[], StoredObject], values: Iterable[bytes]) -> dict[str, Any]:
    merged = kind()
    for value in values:
        merged.absorb(value)
    return {name: field for name, field in vars(merged).items() if name not in ("dirty", "_bytes")}


def triples(partition: FilterPartition) -> Triples:
    of = partition.topics
    return {(topic, client, text) for topic in of for client in of[topic] for text in of[topic][client]}


def filled(partition: FilterPartition, topic: str, long: str) -> int:
    """Put filters of as many clients as have room there."""
    kept = 0
    while partition.put(topic, f"a client, number {kept}", f"{long} {kept}"):
        kept += 1
    return kept


@pytest.mark.parametrize(
    ("kind", "values"),
    [(FilterPartition, PARTITIONS), (FilterObject, OBJECTS)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_versions_merge_to_the_same_in_any_order_and_any_number_of_times(
    kind: Callable[[], StoredObject], values: st.SearchStrategy[bytes]
) -> None:
    @given(st.lists(values, max_size=3))
    def check(versions: list[bytes]) -> None:
        expected = state(kind, versions)
        merged = kind()
        for version in versions:
            merged.absorb(version)
        for order in itertools.permutations(versions):
            assert state(kind, [*order, *order]) == expected
            assert state(kind, [*order, merged.encode(), *order]) == expected

    check()


def test_a_merge_keeps_both_filters_of_a_client() -> None:
    one, other, both = FilterPartition(), FilterPartition(), FilterPartition()
    assert one.put("rock", "ann", "f")
    assert other.put("rock", "ann", "g")
    assert other.put("jazz", "bob", "f")
    for version in (one, other):
        both.absorb(version.encode())
    assert triples(both) == {("rock", "ann", "f"), ("rock", "ann", "g"), ("jazz", "bob", "f")}
    assert both.held("rock", "ann") == {"f", "g"}
    assert both.held("rock", "bob") == both.held("none", "ann") == frozenset()


@given(st.lists(st.tuples(NAMES, NAMES, FILTERS, st.booleans()), max_size=20))
def test_a_partition_keeps_what_was_put_in_and_not_taken_out(steps: list[tuple[str, str, str, bool]]) -> None:
    partition = FilterPartition()
    model: Triples = set()
    for topic, client, text, adding in steps:
        if adding:
            assert partition.put(topic, client, text)
            model.add((topic, client, text))
        else:
            partition.discard(topic, client, text)
            model.discard((topic, client, text))
    again = FilterPartition()
    again.absorb(partition.encode())
    assert triples(partition) == triples(again) == model


@given(st.lists(st.tuples(NAMES, FILTERS, st.sampled_from(["put", "take", "take all"])), max_size=20))
def test_an_object_of_a_topics_own_keeps_what_was_put_in_and_not_taken_out(steps: list[tuple[str, str, str]]) -> None:
    shard = FilterObject()
    shard.belongs_to("rock")
    model: set[tuple[str, str]] = set()
    for client, text, how in steps:
        if how == "put":
            assert shard.put(client, text, layout.OBJECT_BYTES_MAX)
            model.add((client, text))
        else:
            shard.take(client, text if how == "take" else None)
            model = {pair for pair in model if pair[0] != client or (how == "take" and pair[1] != text)}
    again = FilterObject()
    again.absorb(shard.encode())
    for found in (shard, again):
        assert {(client, text) for client, texts in found.filters.items() for text in texts} == model
        assert found.members == {client for client, _ in model}


def test_what_is_there_already_is_written_all_the_same() -> None:
    partition, shard = FilterPartition(), FilterObject()
    assert partition.put("rock", "ann", "f")
    assert shard.put("ann", "f", 1_000)
    partition.full = True
    for object_ in (partition, shard):
        object_.dirty = False
    assert partition.put("rock", "ann", "f")
    assert not partition.put("rock", "ann", "g")
    assert shard.put("ann", "f", 0)
    assert partition.dirty
    assert shard.dirty


def test_what_has_no_room_changes_nothing() -> None:
    partition, shard = FilterPartition(), FilterObject()
    partition.full = True
    assert not partition.put("rock", "ann", "f")
    assert not shard.put("ann", "f", 40)
    assert shard.put("ann", "f", 1_000)
    shard.dirty = False
    assert not shard.put("ann", "g" * 1_000, 1_000)
    assert (partition.dirty, shard.dirty) == (False, False)
    assert shard.filters == {"ann": {"f"}}


def test_objects_stay_within_their_limit_and_a_partition_says_when_it_is_full() -> None:
    partition, kept = FilterPartition(), 0
    while partition.put(f"a topic of some length, number {kept}", f"a client, number {kept}", '{"food":["pizza"]}'):
        kept += 1
    assert partition.full
    assert partition.dirty
    assert layout.OBJECT_BYTES_MAX * 0.8 < len(partition.encode()) <= layout.OBJECT_BYTES_MAX
    shard, held = FilterObject(), 0
    shard.belongs_to("a topic of some length")
    while shard.put(f"a client, number {held % 500}", f'{{"food":["{held}"]}}', layout.OBJECT_BYTES_MAX):
        held += 1
    assert layout.OBJECT_BYTES_MAX * 0.8 < len(shard.encode()) <= layout.OBJECT_BYTES_MAX
    long = FilterObject()
    long.belongs_to("rock")
    placed = sum(long.put("ann", f"{number:04}" * 1_024, layout.OBJECT_BYTES_MAX) for number in range(64))
    assert placed == 63  # the last one goes on elsewhere
    assert len(long.encode()) <= layout.OBJECT_BYTES_MAX


def test_what_left_gives_its_room_back() -> None:
    partition, shard = FilterPartition(), FilterObject()
    for _ in range(50):
        for number in range(20):
            text = f"{number:04}" * 1_000
            assert partition.put(f"topic {number}", "ann", text)
            assert shard.put("ann", text, layout.OBJECT_BYTES_MAX)
        for number in range(20):
            partition.discard(f"topic {number}", "ann", f"{number:04}" * 1_000)
        shard.take("ann", None)
    assert partition.encode() == FilterPartition().encode()
    assert shard.encode() == FilterObject().encode()


def test_a_topic_with_much_goes_on_elsewhere_and_the_others_do_not() -> None:
    partition = FilterPartition()
    assert partition.put("small", "ann", "f")
    kept = filled(partition, "large", "x" * 100)
    assert 200 < kept < 400
    assert partition.spilled == {"large"}
    assert not partition.full
    assert filter_objects.TOPIC_BYTES_MAX * 0.8 < len(partition.encode()) < filter_objects.TOPIC_BYTES_MAX + 100
    assert partition.elsewhere("large")
    assert partition.put("small", "bob", "f")
    # What has left does not call it back.
    partition.discard("large", "a client, number 0", "x" * 100 + " 0")
    assert not partition.put("large", "ann", "f")
    again = FilterPartition()
    again.absorb(partition.encode())
    assert again.elsewhere("large")
    # Counted anew after it was read, and as much.
    fresh = FilterPartition()
    assert filled(fresh, "large", "x" * 100) == kept
    fresh.spilled.clear()
    half = FilterPartition()
    half.absorb(fresh.encode())
    assert not half.put("large", "ann", "x" * 100)


def test_a_single_filter_of_any_length_finds_room_in_a_partition() -> None:
    partition = FilterPartition()
    assert partition.put("rock", "ann", "x" * 4_096)
    assert partition.put("jazz", "ann", "x" * (filter_objects.TOPIC_BYTES_MAX + 1))


@pytest.mark.parametrize("kind", [FilterPartition, FilterObject])
@pytest.mark.parametrize("value", [b"", b"\xc1", ormsgpack.packb([1, {}, [], False]), ormsgpack.packb([VERSION, {}])])
def test_what_is_of_another_layout_is_refused_and_not_guessed_at(
    kind: Callable[[], StoredObject], value: bytes
) -> None:
    with pytest.raises(ValueError, match=r"not|items"):
        kind().absorb(value)
