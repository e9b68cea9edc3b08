"""A histogram of times: its buckets are as Prometheus expects them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.histogram import BOUNDS_S, Histogram

TIMES = st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5)), max_size=50)


@given(TIMES)
def test_a_bucket_counts_what_took_no_longer(times: list[tuple[float, int]]) -> None:
    histogram = Histogram()
    for seconds, count in times:
        histogram.observe(seconds, count)
    for bound, count in histogram.buckets():
        assert count == sum(many for seconds, many in times if bound is None or seconds <= bound)
    assert abs(histogram.sum_s - sum(seconds * many for seconds, many in times)) < 1e-6


def test_the_bounds_rise_and_hold_the_goals() -> None:
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))
    assert {0.005, 0.01, 0.05, 0.1, 1.0} <= set(BOUNDS_S)
