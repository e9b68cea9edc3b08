"""KEDA's rule, as Kubernetes applies it."""

from __future__ import annotations

import pytest

from ingeborg.bench.autoscale.lag import LagRule


@pytest.mark.parametrize(
    ("lag", "running", "wanted"),
    [
        (1_000, 10, 10),  # as many as exist
        (1_090, 10, 10),  # within a tenth
        (1_150, 10, 12),
        (5_000, 10, 20),  # no more than twice as many at once
        (500, 2, 5),
        (1_000, 2, 6),  # or four more
        (9_000, 20, 32),  # one for each partition
        (0, 1, 1),
    ],
)
def test_it_grows_with_the_lag(lag: float, running: int, wanted: int) -> None:
    assert LagRule(100, 32).wanted(0.0, lag, running) == wanted


def test_it_falls_to_the_greatest_number_of_the_last_minutes() -> None:
    rule = LagRule(100, 32)
    assert rule.wanted(0.0, 2_000, 20) == 20
    assert rule.wanted(15.0, 500, 20) == 20
    assert rule.wanted(200.0, 800, 20) == 20
    assert rule.wanted(299.0, 300, 20) == 20
    assert rule.wanted(310.0, 300, 20) == 8
    assert rule.wanted(700.0, 0, 8) == 1


def test_the_members_at_the_start_count_as_wanted_for_as_long_as_a_later_number() -> None:
    # Kubernetes' autoscaler records the running number as its first recommendation.
    rule = LagRule(100, 32)
    assert rule.wanted(0.0, 0, 18) == 18
    assert rule.wanted(299.0, 0, 18) == 18
    assert rule.wanted(301.0, 0, 18) == 1
