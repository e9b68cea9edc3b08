"""The plan: its parts, their units, and what they cost."""

from __future__ import annotations

import pytest

from ingeborg.bench.errors import UsageError
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


def test_the_whole_plan_has_each_unit_once_and_every_part() -> None:
    plan = units(SEEDS)
    assert len({unit.name for unit in plan}) == len(plan)
    of = [(unit.case.name, unit.delta) for unit in plan]
    assert of.count(("32", 5.0)) == of.count(("200", 25.0)) == of.count(("latency", 5.0)) == SEEDS
    assert of.count(("optimum", 5.0)) == OPTIMUM_SEEDS
    assert {unit.part for unit in plan} == {part.name for part in PARTS} == set(cases(SEEDS))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_can_be_chosen_alone_and_says_in_a_sentence_what_it_measures(part: tuple[str, str]) -> None:
    name, text = part
    plan = units(2, [name])
    assert plan
    assert {unit.part for unit in plan} == {name}
    assert text.endswith(".")
    assert text[0].isupper()


def test_parts_can_be_combined_and_an_unknown_one_is_refused() -> None:
    assert {unit.part for unit in units(1, [LATENCY, NAMING])} == {NAMING, LATENCY}
    with pytest.raises(
        UsageError, match=r"--only does not know latencies: choose from document, as-written, .*optimum"
    ):
        units(1, ["latencies", LATENCY])


def test_the_expensive_units_come_first_and_the_whole_takes_at_most_ten_minutes_on_two_cores() -> None:
    plan = units(SEEDS)
    costs = [unit.cost for unit in plan]
    assert costs == sorted(costs, reverse=True)
    assert min(costs) > 0.0
    assert sum(costs) <= CORES * MINUTES_MAX * 60.0


def test_the_cost_of_a_unit_grows_with_its_packings() -> None:
    of = {unit.name: unit.cost for unit in units(1)}
    assert of["200-d5-s1"] == pytest.approx(200 / 32 * of["32-d5-s1"])
    assert of["200-naming-d5-s1"] == pytest.approx(2 * len(ADAPTED) / len(ALGORITHMS) * of["200-d5-s1"])
    assert of["4096-d5-s1"] > of["32-d5-s1"]


def test_only_very_many_items_are_timed_and_only_naming_is_packed_twice() -> None:
    for unit in units(1):
        assert unit.case.timed is (unit.part == LARGE)
        assert unit.case.unnamed is (unit.part == NAMING)
        assert unit.part not in (PART_DOCUMENT, OPTIMUM, LATENCY) or unit.case.algorithms == tuple(ALGORITHMS)
