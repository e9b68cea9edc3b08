"""The plan: its parts, their units, and what they cost."""

from __future__ import annotations

import pytest

from ingeborg.bench.experiments.experiment import Part
from ingeborg.bench.packing.cases import (
    ADAPTED,
    ALGORITHMS,
    LARGE,
    LATENCY,
    NAMING,
    OPTIMUM,
    OPTIMUM_SEEDS,
    PART_DOCUMENT,
    PARTS,
    SEEDS,
    cases,
    units,
)

MINUTES_MAX, CORES = 10.0, 2
EVERY = [part.name for part in PARTS]


def test_the_whole_plan_has_each_unit_once_and_every_part() -> None:
    plan = units(SEEDS, EVERY)
    assert len({unit.name for unit in plan}) == len(plan)
    of = [(unit.work.case.name, unit.work.delta) for unit in plan]
    assert of.count(("32", 5.0)) == of.count(("200", 25.0)) == of.count(("latency", 5.0)) == SEEDS
    assert of.count(("optimum", 5.0)) == OPTIMUM_SEEDS
    assert {unit.part for unit in plan} == {part.name for part in PARTS} == set(cases(SEEDS))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_can_be_chosen_alone(part: Part) -> None:
    plan = units(2, [part.name])
    assert plan
    assert {unit.part for unit in plan} == {part.name}


def test_the_expensive_units_come_first_and_the_whole_takes_at_most_ten_minutes_on_two_cores() -> None:
    plan = units(SEEDS, EVERY)
    costs = [unit.cost for unit in plan]
    assert costs == sorted(costs, reverse=True)
    assert min(costs) > 0.0
    assert sum(costs) <= CORES * MINUTES_MAX * 60.0


def test_the_cost_of_a_unit_grows_with_its_packings() -> None:
    of = {unit.name: unit.cost for unit in units(1, EVERY)}
    assert of["200-d5-s1"] == pytest.approx(200 / 32 * of["32-d5-s1"])
    assert of["200-naming-d5-s1"] == pytest.approx(2 * len(ADAPTED) / len(ALGORITHMS) * of["200-d5-s1"])
    assert of["4096-d5-s1"] > of["32-d5-s1"]


def test_only_very_many_items_are_timed_and_only_naming_is_packed_twice() -> None:
    for unit in units(1, EVERY):
        assert unit.work.case.timed is (unit.part == LARGE)
        assert unit.work.case.unnamed is (unit.part == NAMING)
        assert unit.part not in (PART_DOCUMENT, OPTIMUM, LATENCY) or unit.work.case.algorithms == tuple(ALGORITHMS)
