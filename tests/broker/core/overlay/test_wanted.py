"""The timer for announced payloads that have not arrived: it follows the lag of the tree."""

from __future__ import annotations

from random import Random

import pytest

from ingeborg.broker.core.overlay.branch import Branch
from ingeborg.broker.core.overlay.wanted import (
    ANSWER_S,
    ANSWERED_MAX,
    LAG_S,
    TIMER_S_MAX,
    TIMER_S_MIN,
    Want,
    Wanted,
)

TREE, OTHER = Branch("tree", 1), Branch("other", 2)


def after(lags: list[float]) -> Wanted:
    """Return a timer whose wanted payloads came by the tree after these lags, in seconds."""
    wanted = Wanted()
    for number, lag in enumerate(lags, 1):
        if lag:
            wanted.rows["r", number] = Want(0.0, 9.9)
        wanted.came(("r", number), TREE, lag)
    return wanted


@pytest.mark.parametrize("mean_s", [0.05, 0.2, 0.5])
def test_the_timer_is_twice_the_99th_percentile_of_the_lag(mean_s: float) -> None:
    random = Random(3)
    lags = [random.uniform(0.0, 2 * mean_s) for _ in range(20_000)]
    assert after(lags).timer_s() == pytest.approx(2 * 2 * mean_s * 0.99, rel=0.25)


def test_the_timer_has_bounds() -> None:
    assert Wanted().timer_s() == 2 * LAG_S
    assert after([0.0] * 10_000).timer_s() == TIMER_S_MIN
    assert after([60.0] * 10_000).timer_s() == TIMER_S_MAX


@pytest.mark.parametrize("asked_first", [True, False])
def test_a_tree_that_is_slower_than_the_timer_makes_it_longer(asked_first: bool) -> None:
    """This holds whether the tree's payload comes before the requested one or after it."""
    wanted = after([0.0] * 10_000)
    for number in range(60):
        key = ("q", number)
        wanted.rows[key] = Want(0.0, 9.9, OTHER)
        if asked_first:
            wanted.came(key, OTHER, 0.3)
            wanted.came_again(key, 1.0)
        else:
            wanted.came(key, TREE, 1.0)
            wanted.came_again(key, 1.1)
    assert wanted.timer_s() > 1.0


def test_a_tree_that_brings_nothing_does_not_make_it_longer() -> None:
    wanted = after([0.0] * 10_000)
    for number in range(10 * ANSWERED_MAX):
        wanted.rows["q", number] = Want(0.0, 9.9, OTHER)
        wanted.came(("q", number), OTHER, 1.0)
    assert wanted.timer_s() == TIMER_S_MIN
    assert len(wanted.answered) == ANSWERED_MAX


def test_the_next_neighbour_is_asked_later_each_time() -> None:
    wanted = after([0.0] * 10_000)
    want = Want(0.0, ANSWER_S, OTHER)
    pauses = []
    for _ in range(10):
        wanted.ask(want, TREE, 7.0)
        pauses.append(want.due_at - 7.0)
    assert want.of is TREE
    assert pauses[0] == 2 * ANSWER_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == TIMER_S_MAX


def test_what_is_due_is_told_and_when_the_next_is() -> None:
    wanted = Wanted()
    assert wanted.next_at() == float("inf")
    wanted.rows["r", 1] = Want(0.0, 3.0)
    wanted.rows["r", 2] = Want(0.0, 2.0)
    assert wanted.next_at() == 2.0
    assert wanted.due(2.5) == [("r", 2)]
    assert wanted.due(3.0) == [("r", 1), ("r", 2)]
