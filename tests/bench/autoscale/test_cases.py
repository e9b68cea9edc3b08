"""The plan: its parts, whole seeds, each group once, within the announced time."""

from __future__ import annotations

from collections import Counter

import pytest

from ingeborg.bench.autoscale import cases, command, scale
from ingeborg.bench.autoscale.cases import ASSIGNORS, KEDA, PACKED, Changes, Unit, labels, plan, units
from ingeborg.bench.autoscale.work import stream_of
from ingeborg.bench.errors import UsageError

RUN_S_MAX, WHOLE_HOURS_MAX = 300.0, 6.0


def test_each_seed_has_each_group_once_and_seeds_follow_each_other() -> None:
    plan = units(3)
    each = {unit.label for unit in labels()}
    assert [unit.seed for unit in plan] == sorted(unit.seed for unit in plan)
    for seed in (1, 2, 3):
        assert sorted(unit.label for unit in plan if unit.seed == seed) == sorted(each)
    assert len({unit.name for unit in plan}) == len(plan)


def test_every_kind_of_group_is_there_with_four_numbers_of_members() -> None:
    by_system = {system: [unit.number for unit in labels() if unit.system == system] for system in ASSIGNORS}
    assert all(numbers == list(scale.COUNTS) and len(numbers) == 4 for numbers in by_system.values())
    assert {unit.system for unit in labels()} == {*ASSIGNORS, KEDA, *PACKED}


def test_a_run_takes_at_most_five_minutes_and_the_whole_six_hours() -> None:
    assert scale.ITERATIONS * scale.ITERATION_S <= RUN_S_MAX
    assert command.ITERATIONS_MAX * scale.ITERATION_S <= RUN_S_MAX
    assert cases.hours(plan(command.USUAL)) <= WHOLE_HOURS_MAX


def test_no_partition_is_over_nine_tenths_of_what_a_member_reads() -> None:
    for seed in range(1, scale.SEEDS + 1):
        stream = stream_of(seed, scale.ITERATIONS)
        assert all(len(row) == scale.PARTITIONS for row in stream)
        assert max(map(max, stream)) <= 0.9 * scale.CONSUMED


@pytest.mark.parametrize("part", cases.PARTS, ids=lambda part: part.name)
def test_a_part_can_be_chosen_alone_and_says_in_a_sentence_what_it_measures(part: tuple[str, str]) -> None:
    name, text = part
    chosen = plan([name])
    assert chosen
    assert {unit.part for unit in chosen} == {name}
    assert text.endswith(".")
    assert all(unit.cost > 0.0 for unit in chosen)


def test_the_parts_of_a_plan_have_no_unit_in_common_and_an_unknown_part_is_refused() -> None:
    names = [unit.name for unit in plan()]
    assert len(set(names)) == len(names)
    with pytest.raises(UsageError, match="--only does not know longer: choose from throughput, response, groups, long"):
        plan(["longer"])


def test_the_long_part_has_the_documents_numbers_of_decisions_and_states_its_hours() -> None:
    long = plan([cases.LONG])
    each = Counter(unit.iterations for unit in long if isinstance(unit, Unit))
    assert each == {100: 3 * len(labels()), 500: len(labels())}
    assert [(unit.delta, unit.count) for unit in long if isinstance(unit, Changes)] == [(5.0, 500), (25.0, 500)]
    assert 12.0 <= cases.hours(long) <= 14.0
    assert Unit("mend", 0, 2, 100, part=cases.LONG).name == "mend-n100-s2"


def test_the_streams_of_the_comparison_can_be_chosen() -> None:
    chosen = plan([cases.GROUPS], seeds=2, iterations=20, delta=25.0)
    assert {(unit.iterations, unit.delta) for unit in chosen if isinstance(unit, Unit)} == {(20, 25.0)}
    assert [unit.name for unit in chosen] == [unit.name for unit in units(2)]
