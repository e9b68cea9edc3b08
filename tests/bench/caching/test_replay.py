"""A replay counts the same as a naive one; with room for all it follows from the rules alone."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.caching.policies.named import ONLINE, RULES
from ingeborg.bench.caching.policies.ruled import Ruled
from ingeborg.bench.caching.policies.rules import Rule
from ingeborg.bench.caching.reads import Stream
from ingeborg.bench.caching.replay import Ways, replay, unbounded
from ingeborg.bench.caching.restaurants import stream as read_by
from ingeborg.bench.caching.restaurants import world
from ingeborg.broker.core.caches.lru import Lru
from ingeborg.broker.core.caches.pending_readers import PendingReaders

from . import small

all_ways = st.builds(Ways, st.booleans(), st.booleans())


def naive_lru(stream: Stream, room: int, way: Ways) -> tuple[int, int, int]:
    """Return hits, records that came in at first, and records that came in at any time."""
    inside: list[int] = []  # the oldest first
    left = list(stream.readers)
    hits = first = 0
    came: set[int] = set()

    def put(record: int) -> bool:
        if stream.sizes[record] > room:
            return False
        inside.append(record)
        came.add(record)
        while sum(stream.sizes[one] for one in inside) > room:
            inside.pop(0)
        return True

    for event in stream.events:
        record = max(event, ~event)
        if event >= 0:
            first += put(record)
            continue
        left[record] -= 1
        if record in inside:
            hits += 1
            inside.remove(record)
            if left[record] or not way.told:
                inside.append(record)
        elif way.reads_in and (left[record] or not way.told):
            put(record)
    return hits, first, len(came)


@settings(max_examples=60)
@given(st.integers(0, 1_000), st.integers(0, 300), all_ways, st.booleans())
def test_lru_is_replayed_as_a_list_is(seed: int, room: int, way: Ways, even: bool) -> None:
    stream = small.stream(seed, even=even)
    outcome = replay(stream, Lru(), room, way)
    assert (outcome.hits, outcome.cached, outcome.reads) == (
        *naive_lru(stream, room, way)[:2],
        len(stream.events) - len(stream.sizes),
    )


@settings(max_examples=60)
@given(st.integers(0, 1_000), st.integers(0, 200), st.booleans())
def test_owed_is_replayed_as_looking_at_all_is(seed: int, room: int, reads_in: bool) -> None:
    stream = small.stream(seed, even=False)
    inside: dict[int, int] = {}  # record: the time since when it has its present worth
    left, hits, now = list(stream.readers), 0, 0

    def put(record: int) -> None:
        if stream.sizes[record] <= room:
            inside[record] = now
            while sum(stream.sizes[one] for one in inside) > room:
                del inside[min(inside, key=lambda one: (left[one] / stream.sizes[one], inside[one]))]

    for event in stream.events:
        record, now = max(event, ~event), now + 1
        if event >= 0:
            put(record)
            continue
        left[record] -= 1
        if record in inside:
            hits += 1
            inside[record] = now
            if not left[record]:
                del inside[record]
        elif reads_in and left[record]:
            put(record)
    assert replay(stream, PendingReaders(), room, Ways(reads_in, told=True)).hits == hits


class Noting(Rule):
    """Admits every record, and notes the utilities."""

    def __init__(self) -> None:
        self.utilities: list[int] = []

    def admits(self, utility: int) -> bool:
        self.utilities.append(utility)
        return True


def test_only_who_is_told_knows_how_many_have_not_had_a_record() -> None:
    stream = small.listed((3, 3), 1, 0, 1, 0, 1, 0)  # with room for one, all are misses
    for told, utilities in ((False, [3] * 7), (True, [3, 3, 2, 2, 1, 1])):  # no reader is left after the last one
        rule = Noting()
        outcome = replay(stream, Ruled(rule), 1, Ways(reads_in=True, told=told))
        assert (rule.utilities, outcome.hits) == (utilities, 0)
    rule = Noting()
    replay(stream, Ruled(rule), 1, Ways(told=True))
    assert rule.utilities == [3, 3]


@pytest.mark.parametrize("name", RULES)
def test_with_room_for_all_a_replay_is_what_the_rules_say(name: str) -> None:
    found = world(300, 1)
    stream = read_by(found, 1)
    whole = unbounded(found.utilities, RULES[name]())
    outcome = replay(stream, Ruled(RULES[name]()), None, Ways())
    assert astuple(outcome)[:6] == pytest.approx(astuple(whole)[:6])


def test_by_record_each_record_counts_as_much() -> None:
    # One of the four subscribers does not come again, and nobody reads the third record.
    stream = small.listed((4, 1, 2), 1, 0, 0, 0, 1)
    outcome = replay(stream, Lru(), 1, Ways())  # only the last one stays
    assert (outcome.hits, outcome.reads, outcome.by_record) == (0, 4, 0.0)
    outcome = replay(stream, Lru(), 2, Ways())  # the last two
    assert (outcome.hits, outcome.reads, outcome.by_record) == (1, 4, 0.5)
    outcome = replay(stream, Lru(), 2, Ways(reads_in=True))  # the first comes in with its first read
    assert (outcome.hits, outcome.by_record) == (2, 1 / 3)


@pytest.mark.parametrize("name", ONLINE)
def test_every_policy_stays_within_its_room(name: str) -> None:
    stream = small.stream(5, 200, even=False)
    for way in (Ways(), Ways(reads_in=True), Ways(reads_in=True, told=True)):
        outcome = replay(stream, ONLINE[name](200, 12), 200, way)
        assert 0 < outcome.hits <= outcome.reads
        assert outcome.copies <= sum(stream.readers)
