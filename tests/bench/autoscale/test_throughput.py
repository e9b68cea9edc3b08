"""The conditions of table VI."""

from __future__ import annotations

from ingeborg.bench.autoscale.cases import CONDITIONS
from ingeborg.bench.autoscale.throughput import shares


def test_partitions_are_shared_out_among_tables() -> None:
    assert [sum(shares(each)) for each in CONDITIONS] == [32, 116, 144]
    assert [len(shares(each)) for each in CONDITIONS] == [1, 5, 5]
    assert all(max(shares(each)) - min(shares(each)) <= 1 for each in CONDITIONS)
