"""The timer for what was announced and is not here: it follows the lag of the tree."""

from __future__ import annotations

from random import Random

import pytest

from ingeborg.broker.core.overlay.wanted import LAG_S, TIMER_S_MAX, TIMER_S_MIN, Want, Wanted


def after(lags: list[float]) -> Wanted:
    """What was wanted came after these lags, in seconds."""
    wanted = Wanted()
    for number, lag in enumerate(lags, 1):
        if lag:
            wanted.rows["r", number] = Want(0.0, 9.9, 0)
        wanted.came(("r", number), lag)
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


def test_lags_that_are_beyond_the_timer_make_it_longer_soon() -> None:
    wanted = after([0.0] * 10_000)
    for number in range(60):
        wanted.rows["q", number] = Want(0.0, 9.9, 1)
        wanted.came(("q", number), 1.0)
    assert wanted.timer_s() > 1.0


def test_the_next_neighbour_is_asked_later_each_time() -> None:
    wanted = after([0.0] * 10_000)
    times = [wanted.ask_again_at(Want(0.0, 0.0, asked), 0.0) for asked in (1, 2, 3, 100)]
    assert times == sorted(times)
    assert times[0] >= 2 * TIMER_S_MIN
    assert times[-1] == TIMER_S_MAX


def test_what_is_due_is_told_and_when_the_next_is() -> None:
    wanted = Wanted()
    assert wanted.next_at() == float("inf")
    wanted.rows["r", 1] = Want(0.0, 3.0, 0)
    wanted.rows["r", 2] = Want(0.0, 2.0, 0)
    assert wanted.next_at() == 2.0
    assert wanted.due(2.5) == [("r", 2)]
    assert wanted.due(3.0) == [("r", 1), ("r", 2)]
