"""The due times of records, compared with the bytes to be written."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.autoscale.load import Load

RATES = st.lists(st.floats(0.0, 5_000.0), min_size=2, max_size=2)


@given(st.lists(RATES, min_size=1, max_size=4), st.integers(0, 9), st.lists(st.floats(0.0, 1.5), max_size=6))
def test_as_many_records_come_as_bytes_were_to_be_written(
    stream: list[list[float]], seed: int, looks: list[float]
) -> None:
    load = Load(stream, 1.0, 100, seed)
    found = []
    for look in [*sorted(looks), load.length_s + 1.0]:
        found += load.due(look)
    for partition in range(2):
        times = [each.time_s for each in found if each.partition == partition]
        written = sum(row[partition] for row in stream)
        assert written / 100 - 1 <= len(times) <= written / 100 + 1
        assert times == sorted(times)
        assert all(0.0 <= time_s <= load.length_s for time_s in times)


def test_records_of_a_steady_rate_are_evenly_apart() -> None:
    times = [each.time_s for each in Load([[2_000.0]], 2.0, 100, 1).due(2.0)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([0.05] * len(gaps), abs=1e-6)


def test_nothing_is_due_twice_or_before_its_time() -> None:
    load = Load([[1_000.0]], 1.0, 100, 1)
    first = load.due(0.5)
    assert all(each.time_s <= 0.5 for each in first)
    assert load.due(0.5) == []
    assert all(each.time_s > 0.5 - 0.01 for each in load.due(1.0))
    assert load.due(5.0) == []


def test_a_rate_changes_when_its_measurement_begins() -> None:
    found = Load([[0.0], [1_000.0]], 1.0, 100, 1).due(2.0)
    assert found
    assert all(each.time_s >= 1.0 for each in found)
