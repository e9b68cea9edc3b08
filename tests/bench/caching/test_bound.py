"""The bound is above all possible ways, and the ceiling is the sum that it claims to be."""

from __future__ import annotations

from fractions import Fraction
from functools import cache as remembered
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.caching import bound, ceiling
from ingeborg.bench.caching.policies.belady import Belady
from ingeborg.bench.caching.policies.named import ONLINE, OWED
from ingeborg.bench.caching.reads import Stream
from ingeborg.bench.caching.replay import Ways, replay

from . import small


def most_hits(stream: Stream, room: int) -> int:
    """Try all ways to keep some of the records after each event; return the most hits."""
    events = list(stream.events)

    @remembered
    def from_here(at: int, inside: frozenset[int]) -> int:
        if at == len(events):
            return 0
        record = max(events[at], ~events[at])
        candidates = sorted(one for one in inside | {record} if ~one in events[at + 1 :])
        best = 0
        for count in range(len(candidates), -1, -1):
            for kept in combinations(candidates, count):
                if sum(stream.sizes[one] for one in kept) <= room:
                    best = max(best, from_here(at + 1, frozenset(kept)))
        return best + (events[at] < 0 and record in inside)

    return from_here(0, frozenset())


@settings(max_examples=40)
@given(st.integers(0, 1_000), st.integers(0, 60))
def test_no_way_passes_the_bound(seed: int, room: int) -> None:
    stream = small.stream(seed, 6, 3, 3, even=False)
    assert most_hits(stream, room) <= bound.hits(stream, room)


def test_the_bound_by_hand() -> None:
    stream = small.listed((3, 3, 3), 2, 0, 0, 0, 1, 2)
    # By publications 6 byte-steps exist, and the reads need 4, 0, 0, 2 and 0; by events 16, and 6, 2, 2, 10 and 10.
    assert bound.hits(stream, 2) == 4
    assert most_hits(stream, 2) == 3
    assert bound.hits(stream, 1) == 0


@settings(max_examples=40)
@given(st.integers(0, 1_000), st.integers(0, 4))
def test_of_one_size_belady_is_the_best_way_and_the_bound_is_not_below(seed: int, room: int) -> None:
    stream = small.stream(seed, 6, 3, 3)
    best = replay(stream, Belady(stream.following()), 10 * room, Ways(reads_in=True, told=True)).hits
    assert best == most_hits(stream, 10 * room) <= bound.hits(stream, 10 * room)


@settings(max_examples=40)
@given(st.integers(0, 1_000), st.integers(0, 400), st.booleans())
def test_the_ceiling_is_the_best_memory_at_each_read(seed: int, room: int, even: bool) -> None:
    stream = small.stream(seed, even=even)
    left: dict[int, int] = {}
    wanted = Fraction(0)
    for event in stream.events:
        if event >= 0:
            left[event] = stream.readers[event]
            continue
        sizes = stream.sizes
        worth = {record: Fraction(owed, sizes[record]) for record, owed in left.items() if owed}
        here = worth[~event]
        above = sum(
            sizes[record]
            for record in worth
            if (-worth[record], left[record], sizes[record]) < (-here, left[~event], sizes[~event])
        )
        alike = sum(sizes[one] for one in worth if (left[one], sizes[one]) == (left[~event], sizes[~event]))
        wanted += min(Fraction(1), max(Fraction(0), Fraction(room - above, alike)))
        left[~event] -= 1
    assert ceiling.hits(stream, room) == pytest.approx(float(wanted))


def test_nobody_has_more_than_the_ceiling_on_average_and_owed_has_nearly_as_many() -> None:
    streams = [small.stream(seed, 300, 20, 30) for seed in range(8)]
    most = fmean(ceiling.hits(stream, 300) / len(stream.events) for stream in streams)

    def share(name: str) -> float:
        ways = [Ways(reads_in, told) for reads_in in (False, True) for told in (False, True)]
        return max(
            fmean(replay(stream, ONLINE[name](300, 30), 300, way).hits / len(stream.events) for stream in streams)
            for way in (ways[-1:] if name == OWED else ways)
        )

    shares = {name: share(name) for name in ONLINE if name != "owed inflated"}
    assert max(shares.values()) == shares[OWED]
    assert most - 0.01 < shares[OWED] < most + 0.002
