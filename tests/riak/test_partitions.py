"""Objects with records: merging gives the same in any order, and their sizes stay within the limits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.store.riak import partitions
from ingeborg.broker.store.riak.entries import ALL, NOTHING, PLAIN, Entries, Stamped
from ingeborg.broker.store.riak.layout import OBJECT_BYTES_MAX, VERSION
from ingeborg.broker.store.riak.objects import StoredObject
from ingeborg.broker.store.riak.partitions import TOPIC_BYTES_MAX, Partition, TopicObject

NAMES = st.sampled_from("abc")
RECORDS = st.dictionaries(
    st.sampled_from([ALL, "f", "g"]),
    st.none() | st.builds(Stamped, st.booleans(), st.sampled_from([0.0, 1.5]), st.integers(1, 2)),
    min_size=1,
    max_size=2,
)
CLIENTS = st.dictionaries(NAMES, RECORDS, max_size=3)
ONE: Entries = {"f": None}


def partition_of(topics: dict[str, dict[str, Entries]], spilled: Iterable[str] = (), full: bool = False) -> Partition:
    """Return a partition with these records, regardless of room."""
    partition = Partition()
    for topic, clients in topics.items():
        for client, entries in clients.items():
            partition.assign(topic, client, entries)
    partition.spilled.update(spilled)
    partition.full = full
    return partition


def topic_object_of(level: int, clients: dict[str, Entries]) -> TopicObject:
    shard = TopicObject()
    shard.belongs_to("name")
    shard.level = level
    for client, entries in clients.items():
        shard.assign(client, entries)
    return shard


PARTITIONS = st.builds(partition_of, st.dictionaries(NAMES, CLIENTS, max_size=3), st.sets(NAMES), st.booleans())
OBJECTS = st.builds(topic_object_of, st.integers(0, 3), CLIENTS)


def merged(kind: Callable[[], Any], values: Iterable[bytes]) -> Any:
    found = kind()
    for value in values:
        found.absorb(value)
    return found


def state(kind: Callable[[], StoredObject], values: Iterable[bytes]) -> dict[str, Any]:
    fields = vars(merged(kind, values))
    return {name: field for name, field in fields.items() if name not in ("dirty", "_bytes", "_shares")}


@pytest.mark.parametrize(("kind", "values"), [(Partition, PARTITIONS), (TopicObject, OBJECTS)], ids=["many", "one"])
def test_versions_merge_to_the_same_in_any_order_and_any_number_of_times(
    kind: Callable[[], StoredObject], values: st.SearchStrategy[StoredObject]
) -> None:
    @given(st.lists(values, max_size=3))
    def check(objects: list[StoredObject]) -> None:
        versions = [each.encode() for each in objects]
        expected = state(kind, versions)
        again = merged(kind, versions).encode()
        for order in itertools.permutations(versions):
            assert state(kind, [*order, *order]) == expected
            assert state(kind, [*order, again, *order]) == expected

    check()


def test_a_merge_has_what_each_version_has_and_each_client_in_one_place() -> None:
    expiring: Entries = {ALL: Stamped(True, 0.0, 7)}
    one = partition_of({"rock": {"ann": expiring, "bob": ONE, "cat": PLAIN}, "jazz": {"ann": expiring}})
    other = partition_of({"rock": {"ann": PLAIN, "bob": PLAIN, "cat": PLAIN}, "jazz": {"ann": PLAIN}})
    for versions in itertools.permutations([one.encode(), other.encode()]):
        both = merged(Partition, versions)
        assert both.topics == {"rock": {"ann", "cat"}, "jazz": {"ann"}}
        assert both.others == {"rock": {"bob": {ALL: None, "f": None}}}
    for client, entries in (("ann", PLAIN), ("bob", {ALL: None, "f": None}), ("nobody", NOTHING)):
        assert both.held("rock", client) == entries
    shards = [topic_object_of(0, {"ann": expiring, "bob": ONE}), topic_object_of(0, {"ann": PLAIN, "bob": PLAIN})]
    for pair in itertools.permutations(shards):
        shard = merged(TopicObject, [each.encode() for each in pair])
        assert dict(shard.records()) == {"ann": PLAIN, "bob": {ALL: None, "f": None}}
        assert shard.others.keys() == {"bob"}


def test_most_subscriptions_are_a_name_in_a_list() -> None:
    partition = partition_of({"rock": {"ann": PLAIN, "bob": PLAIN}})
    assert ormsgpack.unpackb(partition.encode()) == [VERSION, {"rock": ["ann", "bob"]}, {}, [], False]
    shard = topic_object_of(0, {"ann": PLAIN, "bob": {"f": Stamped(True, 0.0, 7)}})
    assert ormsgpack.unpackb(shard.encode()) == [VERSION, "name", 0, ["ann"], {"bob": {"f": [True, 0.0, 7]}}]


@given(st.lists(st.tuples(NAMES, NAMES, RECORDS | st.just({})), max_size=20))
def test_an_object_has_what_was_put_in_last(steps: list[tuple[str, str, Entries]]) -> None:
    partition, shard = Partition(), TopicObject()
    shard.belongs_to("name")
    model: dict[tuple[str, str], Entries] = {}
    for topic, client, entries in steps:
        if entries:
            assert partition.put(topic, client, entries)
            assert shard.put(topic + client, entries, OBJECT_BYTES_MAX)
            model[topic, client] = entries
        else:
            partition.assign(topic, client, entries)
            shard.assign(topic + client, entries)
            model.pop((topic, client), None)
    for found in (partition, merged(Partition, [partition.encode()])):
        topics = {*found.topics, *found.others}
        assert {(t, client): entries for t in topics for client, entries in found.records(t)} == model
    for large in (shard, merged(TopicObject, [shard.encode()])):
        assert dict(large.records()) == {topic + client: entries for (topic, client), entries in model.items()}


@pytest.mark.parametrize("entries", [PLAIN, {"a filter": None}, {ALL: Stamped(True, 1e9 + 0.5, 1 << 40)}])
def test_objects_stay_within_their_limit_and_a_partition_says_when_it_is_full(entries: Entries) -> None:
    partition, kept = Partition(), 0
    while partition.put(f"a topic of some length, number {kept}", f"a client, number {kept}", entries):
        kept += 1
    assert partition.full
    assert partition.dirty
    assert OBJECT_BYTES_MAX * 0.7 < len(partition.encode()) <= OBJECT_BYTES_MAX
    # Its records can still be confirmed and removed, but nothing new comes in: readers find the same places.
    first = ("a topic of some length, number 0", "a client, number 0")
    assert partition.put(*first, entries)
    partition.assign(*first, NOTHING)
    assert not partition.put(*first, entries)
    shard, held = TopicObject(), 0
    shard.belongs_to("a topic of some length")
    while shard.put(f"a client, number {held}", entries, OBJECT_BYTES_MAX):
        held += 1
    assert OBJECT_BYTES_MAX * 0.7 < len(shard.encode()) <= OBJECT_BYTES_MAX


def test_what_has_left_gives_its_room_back() -> None:
    partition, shard = Partition(), TopicObject()
    long: Entries = {"f" * 4_000: None}
    for entries in [PLAIN, long] * 50:
        for number in range(20):
            assert partition.put(f"topic {number}", "ann", entries)
            assert shard.put(f"client {number}", entries, OBJECT_BYTES_MAX)
        for number in range(20):
            partition.assign(f"topic {number}", "ann", NOTHING)
            shard.assign(f"client {number}", NOTHING)
    assert partition.encode() == Partition().encode()
    assert shard.encode() == TopicObject().encode()


def test_a_topic_with_many_goes_on_elsewhere_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "TOPIC_CLIENTS_MAX", 3)
    partition = Partition()
    assert [partition.put("hit", client, PLAIN) for client in "abcde"] == [True, True, True, False, False]
    assert partition.put("other", "a", PLAIN)
    kept = 0
    while partition.put("large", f"a client, number {kept}", ONE):
        kept += 1
    for found in (partition, merged(Partition, [partition.encode()])):
        assert found.spilled == {"hit", "large"}
        assert found.elsewhere("hit")
        assert not found.elsewhere("other")
        assert not found.full
    assert TOPIC_BYTES_MAX * 0.5 < len(partition.encode()) <= TOPIC_BYTES_MAX
    # Free room does not bring a spilled topic back.
    partition.assign("large", "a client, number 0", NOTHING)
    assert not partition.put("large", "ann", ONE)
    # A partition that is read back counts its bytes again, and gets as many.
    fresh = Partition()
    for number in range(kept):
        assert fresh.put("large", f"a client, number {number}", ONE)
    assert not merged(Partition, [fresh.encode()]).put("large", "ann", ONE)


def test_who_is_in_an_object_adds_there_a_little_beyond_its_limit() -> None:
    partition = Partition()
    while partition.put("large", f"client {len(partition.others.get('large', {}))}", {"x" * 100: None}):
        pass
    filters = 0
    entries: dict[str, None] = {"x" * 100: None}
    while partition.put("large", "client 0", {**entries, f"{filters:04}" * 1_000: None}):
        entries[f"{filters:04}" * 1_000] = None
        filters += 1
    assert 8 <= filters <= 11
    assert partition.held("large", "client 0") == entries
    assert len(partition.encode()) <= 2 * TOPIC_BYTES_MAX
    # A record with fewer filters always finds room.
    assert partition.put("large", "client 0", {"x" * 100: None})
    shard = TopicObject()
    assert shard.put("ann", ONE, 60)
    assert not shard.put("bob", {"f" * 100: None}, 60)
    assert shard.put("ann", {"f" * 4_000: None}, 60)
    assert not shard.put("ann", {"f" * (TOPIC_BYTES_MAX + 4_100): None}, 60)
    assert shard.put("ann", ONE, 60)


def test_a_single_filter_of_any_length_finds_room_in_a_partition() -> None:
    partition = Partition()
    assert partition.put("rock", "ann", {"x" * (TOPIC_BYTES_MAX + 1): None})


def test_what_is_put_in_is_written_even_where_it_is_there_already() -> None:
    partition, shard = partition_of({"rock": {"ann": PLAIN, "bob": ONE}}), topic_object_of(0, {"ann": PLAIN})
    partition.full = True
    for entries, client in ((PLAIN, "ann"), (ONE, "bob")):
        partition.dirty = False
        assert partition.put("rock", client, entries)
        assert partition.dirty
    partition.dirty = shard.dirty = False
    assert not partition.put("rock", "cat", PLAIN)
    assert not partition.dirty
    assert shard.put("ann", PLAIN, 0)
    assert shard.dirty


@pytest.mark.parametrize("kind", [Partition, TopicObject])
@pytest.mark.parametrize(
    "value", [b"", b"\xc1", ormsgpack.packb([4, {}, [], False]), *(ormsgpack.packb([VERSION] * n) for n in (1, 9))]
)
def test_what_is_of_another_layout_is_refused_and_not_guessed_at(
    kind: Callable[[], StoredObject], value: bytes
) -> None:
    with pytest.raises(ValueError, match=r"MessagePack|layout|instead of"):
        kind().absorb(value)
