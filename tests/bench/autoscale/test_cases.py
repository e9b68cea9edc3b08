"""The plan: whole seeds, each group once, within the announced time."""

from __future__ import annotations

from ingeborg.bench.autoscale import command, scale
from ingeborg.bench.autoscale.cases import ASSIGNORS, KEDA, PACKED, labels, units
from ingeborg.bench.autoscale.work import stream_of

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
    assert command.hours(scale.SEEDS, scale.ITERATIONS) <= WHOLE_HOURS_MAX


def test_no_partition_is_over_nine_tenths_of_what_a_member_reads() -> None:
    for seed in range(1, scale.SEEDS + 1):
        stream = stream_of(seed, scale.ITERATIONS)
        assert all(len(row) == scale.PARTITIONS for row in stream)
        assert max(map(max, stream)) <= 0.9 * scale.CONSUMED
