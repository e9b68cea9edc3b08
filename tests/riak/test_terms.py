"""Values of ending subscriptions and their merging: the same in any order, and sizes that stay within their limits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.store.base import ENDED_TOPICS_MAX, Ended, Term
from ingeborg.broker.store.riak import layout
from ingeborg.broker.store.riak.layout import RECENT_MS, VERSION
from ingeborg.broker.store.riak.objects import StoredObject
from ingeborg.broker.store.riak.terms import MARKED_MS, EndedTopics, Stamped, TermObject, TermPartition

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
GONE = Term(disconnect=True, ends_at=0.0)

NAMES = st.sampled_from("abc")
STAMPED = st.tuples(
    st.booleans(),
    st.sampled_from([-1.0, 0.0, 1.5]),
    st.sampled_from([NOW_MS - MARKED_MS - 1, *range(NOW_MS - 3, NOW_MS)]),
)
PARTITIONS = st.builds(
    lambda topics, spilled, full: ormsgpack.packb([VERSION, topics, spilled, full]),
    st.dictionaries(NAMES, st.dictionaries(NAMES, STAMPED, max_size=3), max_size=3),
    st.lists(NAMES, max_size=2, unique=True),
    st.booleans(),
)
OBJECTS = st.builds(
    lambda level, terms: ormsgpack.packb([VERSION, "name", level, terms]),
    st.integers(0, 3),
    st.dictionaries(NAMES, STAMPED, max_size=3),
)
TIMES = st.sampled_from([NOW_MS - RECENT_MS - 1, *range(NOW_MS - 3, NOW_MS)])
ENDED = st.builds(
    lambda topics, back, unnamed, unnamed_ms: ormsgpack.packb([VERSION, topics, back, unnamed, unnamed_ms]),
    st.dictionaries(NAMES, TIMES, max_size=3),
    st.dictionaries(NAMES, TIMES, max_size=3),
    st.integers(0, 2),
    TIMES,
)


def state(kind: Callable[[], StoredObject], values: Iterable[bytes]) -> dict[str, Any]:
    merged = kind()
    for value in values:
        merged.absorb(value)
    return {name: field for name, field in vars(merged).items() if name not in ("dirty", "_bytes")}


@pytest.mark.parametrize(
    ("kind", "values"),
    [(TermPartition, PARTITIONS), (TermObject, OBJECTS), (EndedTopics, ENDED)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_versions_merge_to_the_same_in_any_order_and_any_number_of_times(
    kind: Callable[[int], StoredObject], values: st.SearchStrategy[bytes]
) -> None:
    now = partial(kind, NOW_MS)

    @given(st.lists(values, max_size=3))
    def check(versions: list[bytes]) -> None:
        expected = state(now, versions)
        merged = now()
        for version in versions:
            merged.absorb(version)
        for order in itertools.permutations(versions):
            assert state(now, [*order, *order]) == expected
            assert state(now, [*order, merged.encode(), *order]) == expected

    check()


@given(st.lists(st.tuples(NAMES, NAMES, st.booleans(), st.integers(0, 2)), max_size=20))
def test_a_partition_has_what_was_put_in_last_and_not_taken_out_by_its_stamp(
    steps: list[tuple[str, str, bool, int]],
) -> None:
    partition = TermPartition(NOW_MS)
    model: dict[tuple[str, str], Stamped] = {}
    for topic, client, adding, number in steps:
        held = model.get((topic, client))
        if adding:
            term = Term(disconnect=True, ends_at=float(number))
            assert partition.put(topic, client, term)
            stamp = held.stamp + 1 if held else NOW_MS
            model[topic, client] = Stamped(True, float(number), stamp)
        elif held is not None:
            # One that was replaced since, then the one that is there.
            assert partition.take(topic, client, held.stamp - 1) == held
            assert partition.take(topic, client, held.stamp if number else None) is None
            del model[topic, client]
        else:
            assert partition.take(topic, client, None) is None
    again = TermPartition(NOW_MS)
    again.absorb(partition.encode())
    for found in (partition, again):
        assert {(topic, client): entry for topic, of in found.topics.items() for client, entry in of.items()} == model


def test_an_object_stays_within_its_limit_and_says_when_it_is_full() -> None:
    partition, kept = TermPartition(NOW_MS), 0
    while partition.put(f"a topic of some length, number {kept}", f"a client, number {kept}", GONE):
        kept += 1
    assert partition.full
    assert partition.dirty
    assert layout.OBJECT_BYTES_MAX * 0.8 < len(partition.encode()) <= layout.OBJECT_BYTES_MAX
    shard, held = TermObject(NOW_MS), 0
    shard.belongs_to("a topic of some length")
    while shard.put(f"a client, number {held}", GONE, layout.OBJECT_BYTES_MAX):
        held += 1
    assert layout.OBJECT_BYTES_MAX * 0.8 < len(shard.encode()) <= layout.OBJECT_BYTES_MAX
    assert shard.take("a client, number 0", None) is None
    assert shard.put("a client, number 1", GONE, layout.OBJECT_BYTES_MAX)
    assert shard.terms["a client, number 1"].stamp == NOW_MS + 1
    assert shard.members == set(shard.terms)


def test_what_has_ended_is_named_as_far_as_there_is_room() -> None:
    ended = EndedTopics(NOW_MS)
    assert ended.add([f"song {number:04}" for number in range(1_500)], DAY_MS) == 500
    later = EndedTopics(NOW_MS + 1)
    later.absorb(ended.encode())
    assert later.add(["the last"], DAY_MS) == 1
    topics, total = later.ended(DAY_MS) or ([], 0)
    assert topics[-1] == "the last"
    assert topics[0] == "song 0501"
    assert (len(topics), total) == (ENDED_TOPICS_MAX, 1_501)
    later.discard(topics)
    assert later.ended(DAY_MS) == Ended([], 501)
    long = EndedTopics(NOW_MS)
    lost = long.add([f"{number:04}" * 256 for number in range(500)], DAY_MS)
    topics, total = long.ended(DAY_MS) or ([], 0)
    assert 0 < len(topics) < 500
    assert (len(topics) + lost, total) == (500, 500)
    assert len(long.encode()) <= layout.OBJECT_BYTES_MAX
    long.discard(topics)
    assert len(long.encode()) <= layout.OBJECT_BYTES_MAX


def test_a_mark_is_one_for_a_while() -> None:
    partition, shard = TermPartition(NOW_MS), TermObject(NOW_MS)
    for client in ("ann", "bob"):
        partition.put("rock", client, GONE)
        shard.put(client, GONE, layout.OBJECT_BYTES_MAX)
    for client in ("ann", "nobody"):
        partition.mark("rock", client)
        shard.mark(client)
    partition.mark("none", "ann")
    for after_ms, expected in ((0, {"ann", "bob"}), (MARKED_MS + 1, {"ann", "bob"}), (MARKED_MS + 2, {"bob"})):
        later, later_shard = TermPartition(NOW_MS + after_ms), TermObject(NOW_MS + after_ms)
        later.absorb(partition.encode())
        later_shard.absorb(shard.encode())
        assert later.topics["rock"].keys() == later_shard.members == later_shard.terms.keys() == expected
    assert partition.topics["rock"]["ann"].mark
    assert partition.topics["rock"]["ann"].stamp == NOW_MS + 1
    assert partition.take("rock", "bob", None) is None
    alone = TermPartition(NOW_MS + 2 * MARKED_MS)
    alone.absorb(partition.encode())
    assert alone.topics == {}


def test_of_an_end_and_a_subscription_that_missed_each_other_the_later_is_true() -> None:
    ended = EndedTopics(NOW_MS)
    ended.add(["rock", "jazz"], DAY_MS)
    first = ended.encode()
    back = EndedTopics(NOW_MS)  # in the same millisecond, and after it
    back.absorb(first)
    back.discard(["rock", "never"])
    again = EndedTopics(NOW_MS)
    again.absorb(back.encode())
    again.add(["rock"], DAY_MS)
    for versions, expected in (
        ([first, back.encode()], ["jazz"]),
        ([back.encode(), again.encode(), first], ["jazz", "rock"]),
    ):
        merged = EndedTopics(NOW_MS + 2)
        for version in versions:
            merged.absorb(version)
        assert merged.ended(DAY_MS) == Ended(expected, len(expected))


def test_what_ended_long_ago_is_forgotten_with_its_number() -> None:
    ended = EndedTopics(NOW_MS)
    ended.add([f"song {number:04}" for number in range(1_001)], DAY_MS)
    later = EndedTopics(NOW_MS + DAY_MS + 1)
    later.absorb(ended.encode())
    assert later.ended(2 * DAY_MS) is not None
    later.add(["rock"], DAY_MS)
    assert later.ended(DAY_MS) == Ended(["rock"], 1)
