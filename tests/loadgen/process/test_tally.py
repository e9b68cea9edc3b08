"""The tally: percentiles within their buckets, and repetitions told from reorderings."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.loadgen.process import tally
from ingeborg.loadgen.process.tally import Latencies, Sequences


@given(st.lists(st.integers(-(10**9), 10**11), min_size=1), st.sampled_from([1, 50, 99, 100]), st.integers(1, 4))
def test_percentiles_are_within_their_bucket_however_many_processes_counted(
    values: list[int], percent: int, processes: int
) -> None:
    parts = [Latencies() for _ in range(processes)]
    for number, value in enumerate(values):
        parts[number % processes].add(value)
    latencies = Latencies.merged(json.loads(json.dumps(part.dump())) for part in parts)
    assert latencies.count == len(values)
    exact_ns = max(sorted(values)[max(-(-len(values) * percent // 100) - 1, 0)], 0)
    found_ns = latencies.percentile_ns(percent)
    assert found_ns is not None
    assert exact_ns <= found_ns
    assert found_ns <= exact_ns * (1 + 1 / 16) + 2048


def test_of_nothing_there_is_no_percentile() -> None:
    assert Latencies().percentile_ns(50) is None


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 12)), max_size=80),
    st.sampled_from([0, 1 << 24]),
)
def test_repetitions_and_reorderings_as_a_naive_model_finds_them(
    messages: list[tuple[int, int, int]], dense_max: int
) -> None:
    before, tally._DENSE_MAX = tally._DENSE_MAX, dense_max  # both ways of keeping them
    try:
        sequences = Sequences(3, 4)
    finally:
        tally._DENSE_MAX = before
    seen: set[tuple[int, int, int]] = set()
    repeated = reordered = 0
    for connection, topic, seq in messages:
        new = (connection, topic, seq) not in seen
        later = any(message[:2] == (connection, topic) and message[2] > seq for message in seen)
        seen.add((connection, topic, seq))
        repeated += not new
        reordered += new and later
        assert sequences.add(connection, topic, seq) == new
    assert (sequences.repeated, sequences.reordered) == (repeated, reordered)
