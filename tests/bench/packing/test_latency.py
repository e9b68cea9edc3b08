"""Latencies of equations 16 to 27, compared with a naive model: byte after byte, then sorted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ingeborg.autoscaler.groups.instance import NOWHERE
from ingeborg.bench.packing.latency import (
    CONSUMED,
    ITERATION_S,
    PAUSE_S,
    PERCENTILES,
    STEP_S,
    by_count,
    latencies,
    mean_consumers,
)
from ingeborg.bench.packing.streams import CAPACITY

#: Sampled bytes of a queue in an iteration of the naive model.
SAMPLES = 400

Stream = list[list[float]]


def naive(stream: Sequence[Sequence[float]], assignments: Sequence[Sequence[int]]) -> list[tuple[float, float]]:
    """Return samples (latency in seconds, bytes), in the document's own terms: W, R, m, b, T, L."""
    found: list[tuple[float, float]] = []
    b_f: defaultdict[int, float] = defaultdict(float)
    for k, (sizes, where) in enumerate(zip(stream, assignments, strict=True)):
        after: defaultdict[int, float] = defaultdict(float)
        for c in set(where):
            rebalanced = [
                j for j in range(len(where)) if where[j] == c and k and assignments[k - 1][j] not in (NOWHERE, c)
            ]
            w_r = sum(sizes[j] for j in rebalanced)
            w_f = sum(sizes[j] for j in range(len(where)) if where[j] == c and j not in rebalanced)
            r_f = min(CONSUMED, w_f) if w_r else CONSUMED
            if w_f:
                m, t = 1 / r_f - 1 / w_f, ITERATION_S * w_f
                found += [(max(m * t * (i + 0.5) / SAMPLES + b_f[c], 0.0), t / SAMPLES) for i in range(SAMPLES)]
                after[c] = max(m * t + b_f[c], 0.0)
            if w_r:
                m, t = 1 / (CONSUMED - r_f) - 1 / w_r, ITERATION_S * w_r
                found += [(max(m * t * (i + 0.5) / SAMPLES + PAUSE_S, 0.0), t / SAMPLES) for i in range(SAMPLES)]
        b_f = after
    return sorted(found)


def percentile(found: list[tuple[float, float]], part: float) -> float:
    """Return the latency that this share of the bytes does not exceed."""
    left = part * sum(weight for _, weight in found)
    for latency, weight in found:
        left -= weight
        if left <= 0.0:
            return latency
    return found[-1][0]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Stream, list[list[int]]]:
    """Draw a few iterations of four items at three consumers, who may be too few."""
    rounds = draw(st.integers(1, 4))
    stream = [[float(draw(st.sampled_from([0, 10, 40, 80]))) for _ in range(4)] for _ in range(rounds)]
    where = [[draw(st.integers(0, 2)) for _ in range(4)] for _ in range(rounds)]
    return stream, where


@settings(max_examples=60)
@given(cases())
def test_percentiles_are_those_of_all_bytes_sorted(case: tuple[Stream, list[list[int]]]) -> None:
    stream, where = case
    # The document divides by the remaining rate for the rebalanced queue, so it must not be zero.
    for sizes, assigned in zip(stream, where, strict=True):
        for c in set(assigned):
            assume(sum(size for size, bin in zip(sizes, assigned, strict=True) if bin == c) < 0.95 * CONSUMED)
    found = naive(stream, where)
    assume(found)
    one = latencies(stream, where)
    late = [(latency, weight) for latency, weight in found if latency > 0.0]
    total = sum(weight for _, weight in found)
    assert one.late == pytest.approx(sum(weight for _, weight in late) / total, abs=0.02)
    assert (one.over_positive is None) is (one.late == 0.0)
    step = max((latency for latency, _ in found), default=0.0) / SAMPLES + 1e-6
    for index, part in enumerate(PERCENTILES):
        if late and one.late > 0.01 and one.over_positive:
            # Near a step of the distribution, one sample more or less can be on its other side.
            around = [percentile(late, min(1.0, max(0.0, part + by))) for by in (-0.01, 0.01)]
            assert around[0] - 3 * step <= one.over_positive[index] <= around[1] + 3 * step
        around = [percentile(found, min(1.0, max(0.0, part + by))) for by in (-0.01, 0.01)]
        assert around[0] - 3 * step <= one.over_all[index] <= around[1] + 3 * step


def test_who_reads_as_fast_as_is_written_and_keeps_everything_is_never_late() -> None:
    one = latencies([[60.0, 40.0]] * 3, [[0, 0]] * 3)
    assert (one.late, one.most, one.over_all, sum(one.histogram)) == (0.0, 0.0, [0.0] * len(PERCENTILES), 0.0)
    assert one.over_positive is None


def test_what_moves_waits_for_the_pause_and_less_and_less() -> None:
    # The consumer reads 480 bytes from 30 s at the rest of its rate (the document's example).
    one = latencies([[16.0], [16.0]], [[0], [1]])
    assert one.most == PAUSE_S
    # From 5 s downwards, evenly over the bytes, as long as the latency is above 0; half of all bytes have moved.
    slope = ITERATION_S * (16.0 / CONSUMED - 1.0)
    above = PAUSE_S / -slope
    assert one.late == pytest.approx(above / 2)
    assert one.over_positive is not None
    assert one.over_positive[PERCENTILES.index(0.5)] == pytest.approx(PAUSE_S / 2)
    assert one.over_positive[PERCENTILES.index(0.9)] == pytest.approx(0.9 * PAUSE_S)


def test_a_backlog_grows_from_iteration_to_iteration_and_is_processed() -> None:
    more, less = 1.5 * CONSUMED, 0.5 * CONSUMED
    growing = latencies([[more], [more]], [[0], [0]])
    assert growing.most == pytest.approx(2 * ITERATION_S * 0.5)
    assert latencies([[more], [less], [less]], [[0]] * 3).most == pytest.approx(ITERATION_S * 0.5)
    # 15 s behind, and 15 s less with each iteration at half of the rate: exactly 0 at its end.
    assert latencies([[more], [less], [less]], [[0]] * 3).late == pytest.approx(0.8)


def test_a_consumer_has_room_to_catch_up_with_all_that_a_bin_holds() -> None:
    one = latencies([[CAPACITY], [CAPACITY]], [[0], [1]])
    assert one.most == PAUSE_S
    assert one.late == pytest.approx(0.5)


@given(st.integers(1, 40), st.integers(1, 32), st.integers(1, 99))
def test_by_count_gives_each_consumer_as_many_items_but_for_one(items: int, consumers: int, seed: int) -> None:
    where = by_count(items, consumers, seed)
    numbers = Counter(where)
    assert len(where) == items
    assert all(0 <= consumer < consumers for consumer in numbers)
    each = [numbers[consumer] for consumer in range(consumers)]
    assert max(each) - min(each) <= 1
    assert where == by_count(items, consumers, seed)


def test_a_histogram_has_the_share_of_all_bytes_in_each_step() -> None:
    one = latencies([[16.0], [16.0]], [[0], [1]])
    assert sum(one.histogram) == pytest.approx(one.late)
    steps = [part for part in one.histogram if part]
    assert len(steps) == PAUSE_S / STEP_S
    assert max(steps) == pytest.approx(min(steps))


def test_consumers_are_counted_over_the_iterations() -> None:
    assert mean_consumers([[0, 1, 2], [0, 0, 0]]) == 2.0
