"""The verdicts of the benchmarks of bounds, and one short load on a real endpoint."""

from __future__ import annotations

import math

from ingeborg.bench.budgets import bounds, many_bounds, overload
from ingeborg.bench.budgets.floor import COUNTING, Load, floor
from ingeborg.bench.budgets.overload import Age, Overload


def test_the_saving_is_compared_round_by_round() -> None:
    found = {"plain": [10.0, 20.0, 10.0], "all": [6.0, 12.0, 9.0], "latest": [6.0, 12.0, 1.0]}
    of_all, of_latest = bounds.interval_checks(found, 600)
    assert (of_all.met, of_latest.met) == (True, False)
    assert of_all.measured == "40% (10% to 40%) of 10.00 (10.00 to 20.00) us per due delivery"


def test_the_price_above_the_limit_is_that_of_the_load_which_exceeds_it() -> None:
    check = bounds.held_check({1.6: [3.0, 5.0, 4.0], 0.8: [4.0, 4.0, 4.0]})
    assert (check.measured, check.met) == ("1.00 (0.75 to 1.25) times 4.00 (4.00 to 4.00) us per due delivery", True)


def test_an_overload_is_judged_by_the_first_preset_and_by_the_way_back() -> None:
    fresh = [Age("live", 0.04, 0.0), Age("screen", 9.0, 8.0)]
    gain, p99, back = overload.checks([100.0], [130.0], [Overload(fresh, 3.0, True)])
    assert (gain.met, p99.met, back.met) == (True, True, True)
    *_, p99, back = overload.checks([1.0], [1.0], [Overload(fresh[::-1], math.inf, True), Overload(fresh, 3.0, False)])
    assert (p99.met, back.met) == (False, False)


def test_a_message_is_too_old_beyond_its_staleness_and_the_lag_at_its_arrival() -> None:
    yardstick = [(float(number), number + (0.2 if number == 7 else 0.001)) for number in range(10)]
    held = [(number - 0.5, number + 0.005) for number in range(10)]  # 7 arrived while the lag was 0.2 s
    late = [(6.7, 7.21), (8.0, 8.512)]  # 0.01 s beyond its staleness while the endpoint lags; 0.012 s while it does not
    load = Load(0, 0.0, 0.0, 0, True, [], [yardstick, held, late])
    assert overload.beyond(load, 0.5) == 1 / 12


def test_memory_is_compared_between_the_first_and_the_last_third() -> None:
    sizes = [100e6, 100e6, 150e6, 110e6, 101e6, 101e6, 300e6, 101e6, 90e6]
    idle, memory = many_bounds.checks(1e5, 0.0072, many_bounds.Load(sizes, [0.0, 3.0, 0.0]))
    assert (idle.met, idle.measured) == (True, "0.72%")
    assert (memory.met, memory.measured) == (True, "+1.0% of 100 MB, at level 3")
    assert not many_bounds.checks(1e5, 0.03, many_bounds.Load([100e6, 1e6, 103e6], [0.0]))[1].met


async def test_a_load_gets_everything_or_notice_of_it() -> None:
    async with floor() as clients:
        await clients.bind(overload.preset)
        load = await clients.load(lambda at: 200 + 100 * at, 1.0, 30.0)
    assert load.is_whole
    assert load.published == 250
    assert 250 < load.received < 250 * len(COUNTING)
    assert all(load.probes)
