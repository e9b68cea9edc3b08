"""The plan: its parts, whole seeds, each group once, within the announced time."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ingeborg.bench.autoscale import cases, experiment, scale
from ingeborg.bench.autoscale.cases import ASSIGNORS, KEDA, PACKED, Changes, GroupRun, group_runs, labels
from ingeborg.bench.autoscale.throughput import shares
from ingeborg.bench.autoscale.work import stream_of

RUN_S_MAX, DEFAULT_HOURS_MAX = 300.0, 6.0

EVERY = tuple(part.name for part in cases.PARTS)
DEFAULT = tuple(part.name for part in cases.PARTS if part.is_default)


def units(*parts: str, seeds: int = scale.SEEDS, iterations: int = scale.ITERATIONS, delta: float = 5.0) -> list[Any]:
    return cases.units(parts, seeds, iterations, delta)


def hours(*parts: str) -> float:
    return float(sum(unit.cost for unit in units(*parts))) / 3_600.0


def test_each_seed_has_each_group_once_and_seeds_follow_each_other() -> None:
    runs = group_runs(3)
    each = {run.label for run in labels()}
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    for seed in (1, 2, 3):
        assert sorted(run.label for run in runs if run.seed == seed) == sorted(each)


def test_every_kind_of_group_is_there_with_four_numbers_of_members() -> None:
    by_system = {system: [run.number for run in labels() if run.system == system] for system in ASSIGNORS}
    assert all(numbers == list(scale.COUNTS) and len(numbers) == 4 for numbers in by_system.values())
    assert {run.system for run in labels()} == {*ASSIGNORS, KEDA, *PACKED}


def test_a_run_takes_at_most_five_minutes_and_the_default_parts_six_hours() -> None:
    assert scale.ITERATIONS * scale.ITERATION_S <= RUN_S_MAX
    assert experiment.ITERATIONS_MAX * scale.ITERATION_S <= RUN_S_MAX
    assert 5.0 <= hours(*DEFAULT) <= DEFAULT_HOURS_MAX


def test_no_partition_is_over_nine_tenths_of_what_a_member_reads() -> None:
    for seed in range(1, scale.SEEDS + 1):
        stream = stream_of(seed, scale.ITERATIONS)
        assert all(len(row) == scale.PARTITIONS for row in stream)
        assert max(map(max, stream)) <= 0.9 * scale.CONSUMED


def test_partitions_are_shared_out_among_tables() -> None:
    assert [sum(shares(each)) for each in cases.CONDITIONS] == [32, 116, 144]
    assert [len(shares(each)) for each in cases.CONDITIONS] == [1, 5, 5]
    assert all(max(shares(each)) - min(shares(each)) <= 1 for each in cases.CONDITIONS)


def test_every_part_has_live_units_of_its_own_with_different_names() -> None:
    whole = units(*EVERY)
    assert {unit.part for unit in whole} == set(EVERY)
    assert len({unit.name for unit in whole}) == len(whole)
    assert all(unit.is_live and unit.cost > 0.0 for unit in whole)
    for part in EVERY:
        assert units(part) == [unit for unit in whole if unit.part == part]


def test_the_long_part_does_not_run_by_default_and_has_the_documents_numbers_of_decisions() -> None:
    assert DEFAULT == ("throughput", "response", "groups")
    long = [unit.work for unit in units(cases.LONG)]
    each = Counter(work.iterations for work in long if isinstance(work, GroupRun))
    assert each == {100: 3 * len(labels()), 500: len(labels())}
    assert [(work.delta, work.count) for work in long if isinstance(work, Changes)] == [(5.0, 500), (25.0, 500)]
    assert 12.0 <= hours(cases.LONG) <= 14.0
    assert GroupRun("mend", 0, 2, 100, part=cases.LONG).name == "mend-n100-s2"


def test_the_streams_of_the_comparison_can_be_chosen() -> None:
    chosen = units(cases.GROUPS, seeds=2, iterations=20, delta=25.0)
    assert {(unit.work.iterations, unit.work.delta) for unit in chosen} == {(20, 25.0)}
    assert [unit.name for unit in chosen] == [run.name for run in group_runs(2)]


def test_only_groups_with_a_fixed_number_of_members_may_share_the_machine() -> None:
    assert {unit.work.system for unit in units(*EVERY) if cases.may_share(unit.work)} == set(ASSIGNORS)
