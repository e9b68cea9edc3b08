"""The level that follows the load."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.bounds.rules import Bound
from ingeborg.broker.core.bounds.steering import LEVEL_MAX, Steering
from ingeborg.broker.core.model import Load
from ingeborg.protocol.bounds import Rule

TICK_S = 0.1


def levels(steering: Steering, load: Load, seconds: float, begin: float) -> list[int]:
    """The level at each tick under this load."""
    found = []
    for tick in range(1, round(seconds / TICK_S) + 1):
        steering.observe(load, begin + tick * TICK_S)
        found.append(steering.level)
    return found


def bound(priority: float, staleness_ms: int | None = None) -> Bound:
    return Bound(Rule(None, "", staleness_ms, None, 0, False, priority))


def test_an_idle_endpoint_stays_at_level_zero() -> None:
    assert set(levels(Steering(0.0), Load(0.55, 0.001), 60.0, 0.0)) == {0}


def test_the_level_goes_up_a_step_in_a_fifth_of_a_second_and_no_further_than_it_may() -> None:
    found = levels(Steering(0.0), Load(1.0, 0.0), 10.0, 0.0)
    assert found[-1] == LEVEL_MAX
    assert all(later - sooner in (0, 1) for sooner, later in pairwise(found))
    assert 35 <= found.index(LEVEL_MAX) <= 55


def test_a_loop_that_is_late_counts_as_load() -> None:
    steering = Steering(0.0)
    steering.observe(Load(0.1, 0.05), 0.1)
    assert steering.level == 1


def test_a_very_late_loop_sets_the_level_at_once() -> None:
    steering = Steering(0.0)
    steering.observe(Load(0.1, 1.0), 0.1)
    assert bound(0.0).steered(steering.level) == pytest.approx(0.64)


def test_without_load_it_is_back_within_ten_seconds() -> None:
    steering = Steering(0.0)
    levels(steering, Load(1.0, 0.1), 10.0, 0.0)
    found = levels(steering, Load(), 10.0, 10.0)
    assert found[-1] == 0
    assert sorted(found, reverse=True) == found


@given(st.floats(0.62, 0.78), st.integers(0, LEVEL_MAX))
def test_at_its_target_it_rests(busy: float, level: int) -> None:
    steering = Steering(0.0)
    steering.level, steering.busy = level, busy
    assert set(levels(steering, Load(busy, 0.001), 30.0, 0.0)) == {level}


@given(st.floats(0.9, 3.0))
def test_it_does_not_swing_where_slack_saves_work(demand: float) -> None:
    """Each level saves a part of the work: the level comes to rest, and stays."""
    steering = Steering(0.0)
    found = []
    for tick in range(1, 601):
        busy = min(1.0, demand / (1 + steering.level / 4))
        steering.observe(Load(busy, 0.03 if busy >= 1 else 0.0), tick * TICK_S)
        found.append(steering.level)
    assert max(found[300:]) - min(found[300:]) <= 1


@given(st.integers(0, LEVEL_MAX), st.floats(-1, 1), st.floats(-1, 1))
def test_a_more_urgent_bound_is_never_paced_more(level: int, one: float, other: float) -> None:
    high, low = bound(max(one, other)), bound(min(one, other))
    assert high.steered(level) <= low.steered(level) <= 40.96


@given(st.integers(0, LEVEL_MAX), st.floats(-1, 1), st.integers(10, 40_960))
def test_no_pace_is_beyond_the_staleness(level: int, priority: float, staleness_ms: int) -> None:
    assert bound(priority, staleness_ms).steered(level) <= staleness_ms / 1000
