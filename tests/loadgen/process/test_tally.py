"""The tally: percentiles within their buckets, and repetitions separated from reorderings."""

from __future__ import annotations

import json
import math

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


Meant = dict[tuple[int, int], tuple[int, int]]
"""For a topic and number: the connection that publishes it first, and the time from which another one also does."""


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 12)), max_size=80),
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(1, 12)), st.tuples(st.integers(0, 1), st.integers(0, 100)), max_size=48
    ),
    st.sets(st.integers(0, 80)),
    st.sampled_from([0, 1 << 24]),
)
def test_repetitions_and_reorderings_as_a_naive_model_finds_them(
    messages: list[tuple[int, int, int]], meant: Meant, judged_at: set[int], dense_max: int
) -> None:
    def publisher(topic: int, seq: int, by_ns: int) -> int | None:
        assert by_ns < drawn_ns, "nobody knows yet what was meant"
        first, others_ns = meant.get((topic, seq), (0, 1000))
        return first if others_ns > by_ns else None

    before, tally._DENSE_MAX = tally._DENSE_MAX, dense_max  # both ways of storing them
    try:
        sequences = Sequences(3, 4)
    finally:
        tally._DENSE_MAX = before
    drawn_ns = 1000
    seen: dict[tuple[int, int, int], int | None] = {}
    repeated = reordered = overtaken = 0
    for at_ns, (connection, topic, seq) in enumerate(messages):
        new = (connection, topic, seq) not in seen
        later = [only for message, only in seen.items() if message[:2] == (connection, topic) and message[2] > seq]
        only = publisher(topic, seq, at_ns)
        seen.setdefault((connection, topic, seq), only)
        repeated += not new
        if new and later:
            in_order = only is not None and only in later
            reordered += in_order
            overtaken += not in_order
        assert sequences.add(connection, topic, seq, at_ns) == new
        if at_ns in judged_at:
            drawn_ns = at_ns  # the process is behind: it has not yet drawn what is due now
            sequences.judge(publisher, drawn_ns)
            drawn_ns = 1000
    sequences.judge(publisher, math.inf)
    assert (sequences.repeated, sequences.reordered, sequences.overtaken) == (repeated, reordered, overtaken)


def test_a_message_that_another_one_stands_for_is_not_missing_and_one_that_comes_late_is_no_repetition() -> None:
    sequences = Sequences(1, 2)
    for seq, skipped in ((1, 0), (4, 1), (6, 1), (9, 5)):
        assert sequences.add(0, 0, seq, seq)
        sequences.skip(0, 0, skipped)
    assert sequences._missing == {}
    # A message stands for the lowest missing number. So 3 can still come, after 4.
    for seq, skipped in ((4, 1), (3, 0), (3, 0)):
        sequences.add(0, 1, seq, seq)
        sequences.skip(0, 1, skipped)
    sequences.judge(lambda topic, seq, by_ns: 0, math.inf)
    assert (sequences.repeated, sequences.reordered, sequences._missing) == (1, 1, {1: {2}})
