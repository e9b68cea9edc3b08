"""`ingeborg.bench.budgets.scaling` without measurements: where the model expects subscribers, the fitted costs, and the
projection to more endpoints.
"""

from __future__ import annotations

import itertools
import random
from statistics import fmean

import pytest

from ingeborg.bench.budgets import scaling
from ingeborg.bench.budgets.scaling import ENDPOINTS, RATES, Costs, Found, Line, Point
from ingeborg.bench.errors import BenchError

COSTS = Costs(publish=60.0, hop=140.0, forward=25.0, delivery=5.0)
EXACT = dict.fromkeys(scaling.KINDS, COSTS)

All = dict[int, Found]


def points(costs: Costs) -> list[Point]:
    """Return figures of loads with exactly these costs."""
    found = []
    for endpoints, fanout in itertools.product(ENDPOINTS, RATES):
        forwards = scaling.forwards_expected(endpoints, fanout)
        cpu_us = costs.of(endpoints, fanout, forwards)
        found.append(Point(endpoints, fanout, cpu_us, scaling.holders_expected(endpoints, fanout), forwards))
    return found


# -- the model


@pytest.mark.parametrize(("endpoints", "fanout"), [(1, 5), (2, 1), (3, 2), (4, 5), (5, 3)])
def test_as_many_endpoints_hold_a_subscriber_and_are_forwarded_to_as_counted_over_all_placements(
    endpoints: int, fanout: int
) -> None:
    places = [set(placed) for placed in itertools.product(range(endpoints), repeat=fanout)]
    assert scaling.holders_expected(endpoints, fanout) == pytest.approx(fmean(len(held) for held in places))
    forwards = fmean(len(held - {home}) for held in places for home in range(endpoints))
    assert scaling.forwards_expected(endpoints, fanout) == pytest.approx(forwards)


def test_one_endpoint_forwards_nothing_and_a_thousand_to_nearly_every_subscriber() -> None:
    assert scaling.forwards_expected(1, 20) == scaling.away(1) == 0
    assert 4.98 < scaling.forwards_expected(1000, 5) < 5


def test_a_publish_costs_what_its_steps_cost() -> None:
    # Half of the publishes go to the other endpoint.
    assert COSTS.of(2, 5, 0.75) == pytest.approx(60 + 140 * 0.5 + 25 * 0.75 + 5 * 5)


@pytest.mark.parametrize("costs", [COSTS, Costs(100.0, 290.0, 98.0, 6.7), Costs(10.0, 1.0, 80.0, 0.1)])
def test_the_costs_are_found_again(costs: Costs) -> None:
    assert scaling.fit(points(costs)) == pytest.approx(costs, abs=1e-6)


def test_the_costs_are_about_found_again_where_every_measurement_is_off_by_some_per_cent() -> None:
    drawn = random.Random(1)
    noisy = [point._replace(cpu_us=point.cpu_us * drawn.uniform(0.97, 1.03)) for point in points(COSTS)]
    found = scaling.fit(noisy)
    assert scaling.worst_error(noisy, found) < 0.05
    assert found.publish == pytest.approx(COSTS.publish, rel=0.1)
    assert found.hop == pytest.approx(COSTS.hop, rel=0.2)


def test_loads_that_leave_a_cost_open_are_refused() -> None:
    with pytest.raises(BenchError, match="too few different loads"):
        scaling.fit([point for point in points(COSTS) if point.endpoints == 1])


def test_the_worst_error_is_that_of_the_point_that_is_missed_most() -> None:
    found = points(COSTS)
    found[3] = found[3]._replace(cpu_us=found[3].cpu_us / 1.2)
    found[5] = found[5]._replace(cpu_us=found[5].cpu_us / 0.9)
    assert scaling.worst_error(found, COSTS) == pytest.approx(0.2)


def test_a_line_is_what_one_has_alone_and_more_for_each_peer() -> None:
    found = scaling.line({endpoints: 250 + 150 * (endpoints - 1) for endpoints in ENDPOINTS})
    assert found == pytest.approx((250, 150))
    assert found.at(1000) == pytest.approx(250 + 150 * 999)


# -- the projection


def test_endpoints_carry_what_their_cores_leave_them() -> None:
    idle = Line(0.01, 0.001)
    found = scaling.projection(COSTS, idle, 100, 5)
    forwards = scaling.forwards_expected(100, 5)
    assert found.cpu_us == pytest.approx(COSTS.of(100, 5, forwards))
    assert found.hops == pytest.approx(0.99 + forwards)
    assert found.per_core == pytest.approx((1 - 0.109) * 1e6 / found.cpu_us)
    assert found.total == pytest.approx(100 * found.per_core)


def test_endpoints_that_are_busy_with_each_other_carry_nothing() -> None:
    assert scaling.projection(COSTS, Line(0.01, 0.001), 1000, 5).total == 0


def test_a_publish_costs_hardly_more_at_a_thousand_endpoints_than_at_a_hundred() -> None:
    hundred, thousand = (scaling.projection(COSTS, Line(0, 0), n, 5).cpu_us for n in (100, 1000))
    assert hundred < thousand < 1.03 * hundred


@pytest.mark.parametrize(("endpoints", "least", "most"), [(1, 1, 1), (10, 1.03, 1.15), (1000, 2.2, 4)])
def test_the_fewer_slots_an_endpoint_has_the_more_unevenly_they_are_spread(
    endpoints: int, least: float, most: float
) -> None:
    assert least <= scaling.fullest(endpoints) <= most


# -- output


def found(costs: Costs = COSTS, singles: tuple[tuple[int, int], ...] = ((0, 1), (3, 3)), refused: int = 0) -> All:
    """Return the result of a full measurement; the singles and the refusals are those of the last number of
    endpoints."""
    seen = {}
    for endpoints in ENDPOINTS:
        loads = [point for point in points(costs) if point.endpoints == endpoints]
        seen[endpoints] = Found(loads, list(loads), 0.003, 250.0, [], 0)
    seen[endpoints] = seen[endpoints]._replace(singles=list(singles), refused=refused)
    return seen


def test_all_is_met_where_nothing_is_forwarded_in_vain_and_the_model_holds() -> None:
    checks = scaling.checks(found(), EXACT)
    assert [check.met for check in checks] == [True] * 4
    assert checks[0].measured == "0 of 2 single publishes and 24 loads"


@pytest.mark.parametrize(
    ("seen", "met"),
    [
        (found(singles=((2, 1),)), [False, True, True, True]),
        (found(refused=1), [True, False, True, True]),
        (found(COSTS._replace(publish=90.0)), [True, True, False, False]),
    ],
)
def test_what_is_not_as_it_has_to_be_is_said(seen: All, met: list[bool]) -> None:
    assert [check.met for check in scaling.checks(seen, EXACT)] == met


def test_a_load_that_is_forwarded_more_often_than_endpoints_hold_subscribers_is_counted() -> None:
    seen = found()
    seen[4].alone[0] = seen[4].alone[0]._replace(forwards=1.1)
    assert scaling.checks(seen, EXACT)[0].measured.startswith("1 of ")


def test_four_endpoints_are_set_beside_one_by_subscribers() -> None:
    one, four = (COSTS.of(n, 5, scaling.forwards_expected(n, 5)) for n in (1, 4))
    assert scaling.ratios(found(), "bursts")[5] == pytest.approx(four / one)


def test_every_topic_is_published_equally_often_at_every_endpoint() -> None:
    assert all(scaling.PUBLISHES % (endpoints * scaling.TOPICS) == 0 for endpoints in ENDPOINTS)
    assert all(scaling.PUBLISHES % (endpoints * burst) == 0 for endpoints in ENDPOINTS for burst in scaling.BURSTS)
