"""The plan has each unit once, and everything that the document requires."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.bench.caching.cases import RECORDS, SEEDS
from ingeborg.bench.caching.live import cases
from ingeborg.bench.caching.live.cases import (
    ALWAYS,
    EITHER,
    ENDS,
    LATENCY,
    POLLING,
    STRATEGIES,
    THROUGHPUT,
    WAITING,
    Case,
    units,
)
from ingeborg.bench.caching.policies.named import policy_of

EVERY = list(cases.PARTS)


def plan(*parts: str) -> list[Case]:
    return [unit.work for unit in units(SEEDS, parts or EVERY)]


def test_names_are_of_one_unit_each() -> None:
    units = plan()
    names = [unit.name for unit in units]
    assert len(set(names)) == len(names)
    assert all(name.replace("%", "").replace(".", "").replace("-", "").isalnum() for name in names)


def test_experiment_three_has_all_numbers_of_records_without_a_poll_and_both_readings_of_writes() -> None:
    units = plan("experiment3")
    assert {(unit.kind, unit.fetches, unit.capacity) for unit in units} == {(LATENCY, WAITING, None)}
    always = {(unit.records, unit.strategy) for unit in units if unit.writes == ALWAYS}
    assert always == {(records, strategy) for records in RECORDS for strategy in STRATEGIES}
    either = {(unit.records, unit.strategy) for unit in units if unit.writes == EITHER}
    assert either == {(records, strategy) for records in ENDS for strategy in ("all", "mean", "buffer")}
    for records in RECORDS:
        runs = {unit.run for unit in units if unit.records == records}
        assert runs == (set(range(1, cases.LATENCY_RUNS + 1)) if records in ENDS else {1})


def test_experiment_four_has_long_runs_that_repeat_in_turn() -> None:
    units = plan("experiment4")
    assert {unit.kind for unit in units} == {THROUGHPUT}
    assert {unit.records for unit in units} == set(ENDS)
    assert min(unit.published for unit in units) >= 40_000
    most = [unit for unit in units if unit.records == RECORDS[-1]]
    assert [unit.run for unit in most] == sorted(unit.run for unit in most)
    for run in range(1, cases.THROUGHPUT_RUNS + 1):
        assert [(unit.strategy, unit.writes) for unit in most if unit.run == run] == [
            ("none", ALWAYS),
            ("all", ALWAYS),
            ("all", EITHER),
            ("threshold", ALWAYS),
            ("mean", ALWAYS),
            ("mean", EITHER),
            ("buffer", ALWAYS),
            ("buffer", EITHER),
            ("owed", ALWAYS),
        ]


def test_bounded_memory_is_measured_where_subscribers_are_absent() -> None:
    units = plan("live-polling")
    assert {unit.fetches for unit in units} == {POLLING}
    bounded = {(unit.records, unit.strategy, unit.capacity) for unit in units if unit.capacity is not None}
    others = [strategy for strategy in STRATEGIES if strategy != "none"]
    assert bounded == {(RECORDS[-1], strategy, share) for strategy in others for share in (0.01,)}


def test_each_unit_runs_alone_and_says_its_part_and_cost() -> None:
    planned = units(20, EVERY)
    assert {unit.part for unit in planned} == set(cases.PARTS)
    assert all(unit.is_live and unit.cost > 1.0 and unit.name == unit.work.name for unit in planned)
    assert {unit.work.seed for unit in planned} == {1, 2}


def test_all_latencies_of_a_database_are_at_one_rate() -> None:
    units = [unit for unit in plan() if unit.kind == LATENCY]
    assert {(unit.database, unit.rate_per_s) for unit in units} == {
        ("lmdb", cases.RATE_PER_S),
        ("riak", cases.RIAK_RATE_PER_S),
    }


def test_every_unit_has_a_policy() -> None:
    for unit in plan():
        policy_of(unit.strategy, dict(unit.parameters), 1_000, 10)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"strategy": "mean", "capacity": 0.1, "writes": EITHER}, "evicted records would be lost"),
        ({"strategy": "owed", "writes": EITHER}, "only all, mean, buffer can write either way"),
        ({"strategy": "mean", "kind": THROUGHPUT, "fetches": POLLING}, "throughput needs subscribers that wait"),
        ({"strategy": "mean", "rounds": 2}, "latency is measured in one round"),
    ],
)
def test_a_unit_that_would_measure_nothing_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Case(**{"kind": LATENCY, "records": 500, **more})
