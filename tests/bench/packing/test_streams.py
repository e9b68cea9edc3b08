"""Streams follow equation 15, and the same seed gives the same stream."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ingeborg.bench.packing.streams import CAPACITY, LEAST_SHARE, MOST_SHARE, TOPICS, Reading, Start, drawn, hashed
from ingeborg.protocol.hashes import SLOTS, slot_of

seeds = st.integers(1, 10_000)
deltas = st.sampled_from([0.0, 5.0, 25.0, 100.0])


@settings(max_examples=30)
@given(seeds, deltas, st.sampled_from(Reading), st.sampled_from(Start))
def test_a_size_changes_by_at_most_delta_and_stays_within_its_bounds(
    seed: int, delta: float, reading: Reading, start: Start
) -> None:
    assume(reading is not Reading.WHOLE or start is Start.RANDOM)
    stream = list(drawn(8, 40, delta, seed, reading, start))
    assert [len(sizes) for sizes in stream] == [8] * 40
    most = math.inf if reading is Reading.AS_WRITTEN else CAPACITY
    assert all(0.0 <= size <= most for sizes in stream for size in sizes)
    for before, after in itertools.pairwise(stream):
        assert all(abs(a - b) <= delta / 100 * CAPACITY + 1e-9 for a, b in zip(before, after, strict=True))
    if delta == 0.0:
        assert stream == [stream[0]] * 40


@pytest.mark.parametrize(("start", "size"), [(Start.NOTHING, 0.0), (Start.HALF, CAPACITY / 2), (Start.FULL, CAPACITY)])
def test_a_stream_starts_where_it_is_told_to(start: Start, size: float) -> None:
    assert next(drawn(5, 2, 5.0, 1, start=start)) == [size] * 5


def test_a_random_start_is_spread_over_the_capacity() -> None:
    first = next(drawn(10_000, 1, 5.0, 1))
    assert sum(first) / len(first) == pytest.approx(CAPACITY / 2, rel=0.03)
    assert min(first) < 1.0
    assert max(first) > 99.0


def test_as_written_sizes_pass_the_capacity_and_as_published_they_do_not() -> None:
    most = {reading: max(max(sizes) for sizes in drawn(50, 200, 25.0, 1, reading)) for reading in Reading}
    assert most[Reading.CLAMPED] == most[Reading.WHOLE] == CAPACITY < most[Reading.AS_WRITTEN]


def test_sizes_in_whole_per_cent_are_whole_reach_both_ends_and_refuse_another_start() -> None:
    sizes = {size for row in drawn(50, 200, 5.0, 1, Reading.WHOLE) for size in row}
    assert {size == int(size) for size in sizes} == {True}
    assert {0.0, CAPACITY} <= sizes
    for start, delta in ((Start.HALF, 5.0), (Start.RANDOM, 2.5)):
        with pytest.raises(ValueError, match="need a random start and a whole delta"):
            next(drawn(4, 2, delta, 1, Reading.WHOLE, start))


@given(seeds, seeds)
@settings(max_examples=10)
def test_the_same_seed_gives_the_same_stream_and_another_another(one: int, other: int) -> None:
    streams = [list(drawn(4, 5, 5.0, seed)) for seed in (one, one, other)]
    assert streams[0] == streams[1]
    assert (streams[0] == streams[2]) == (one == other)


def test_all_topics_are_in_the_slots_that_their_names_are_hashed_to() -> None:
    sizes, changed = hashed(1.0, 2, 25.0, 7)
    assert len(sizes) == SLOTS
    assert sum(sizes) == pytest.approx(CAPACITY * sum(1 / rank for rank in range(1, TOPICS + 1)))
    assert max(sizes) == sizes[slot_of("station 7 1")] >= CAPACITY
    for before, after in zip(sizes, changed, strict=True):
        assert 0.75 * before - 1e-9 <= after <= 1.25 * before + 1e-9


def test_a_slot_stays_within_its_share_of_its_first_size() -> None:
    first, *others = hashed(0.5, 30, 50.0, 7)
    for sizes in others:
        assert all(LEAST_SHARE * a <= b <= MOST_SHARE * a for a, b in zip(first, sizes, strict=True))
