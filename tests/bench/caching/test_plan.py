"""The plan is a list of units that follows from the selected parts, the seeds and the systems that exist."""

from __future__ import annotations

import pytest

from ingeborg.bench.caching import cases, plan, reads
from ingeborg.bench.caching.cases import Document, Reads
from ingeborg.bench.caching.live import cases as live
from ingeborg.bench.errors import UsageError

DEFAULT_S_MAX = 18 * 60
"""Limit on the default plan: 20 minutes on two idle cores, with two minutes for the digests."""


def test_the_whole_plan_has_each_unit_once_and_without_a_log_none_that_wants_one() -> None:
    whole, without = plan.streams(log=True), plan.streams(log=False)
    assert len({unit.name for unit in whole}) == len(whole)
    assert {unit.name for unit in whole} - {unit.name for unit in without} == {
        unit.name for unit in whole if unit.wants_log
    }
    compared = [unit for unit in plan.streams(["reads"], log=True) if isinstance(unit, Reads)]
    assert len(compared) == len(cases.STREAMS) * (cases.SEEDS + 2 + cases.SEEDS)  # two more seeds with little room
    assert {(unit.stream, unit.share) for unit in compared if unit.whole} == {
        (stream, share) for stream in cases.STREAMS for share in cases.SHARES
    }
    assert {(unit.away_s, unit.wishes) for unit in compared} == {(reads.AWAY_S, reads.WISHES)}


def test_experiments_over_the_number_of_records_have_all_numbers_and_rooms() -> None:
    units = [unit for unit in plan.streams(["experiment1"], log=False) if isinstance(unit, Document)]
    for records in cases.RECORDS:
        seeds = {share: [unit.seed for unit in units if (unit.records, unit.share) == (records, share)]
                 for share in (None, *cases.SHARES)}  # fmt: skip
        assert {share: len(each) for share, each in seeds.items()} == {None: 10, 0.01: 5, 0.1: 5}
    assert {unit.share for unit in plan.streams(["capacity"], log=False) if isinstance(unit, Document)} == {
        None,
        *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    }


def test_a_user_selects_parts_and_seeds() -> None:
    units = plan.streams(["experiment2"], [7], log=True)
    assert {unit.seed for unit in units} == {7}
    assert len(units) == len(cases.RECORDS) * 3
    assert sum(unit.cost for unit in units) < 15
    assert plan.processes(["experiment2"], [7]) == []
    assert {unit.seed for unit in plan.processes(["experiment4"], [2, 3])} == {2, 3}
    assert plan.streams(["experiment4"], log=True) == []
    both = plan.streams(["experiment1", "experiment2"], log=True)
    assert both == plan.streams(["experiment1"], log=True)


@pytest.mark.parametrize("name", plan.PARTS)
def test_each_part_has_units_and_a_sentence(name: str) -> None:
    assert plan.streams([name], log=True) or plan.processes([name])
    assert plan.PARTS[name][0].isupper()
    assert plan.PARTS[name].count(".") == 1
    assert plan.PARTS[name].endswith(".")


def test_an_unknown_part_is_refused_with_the_names_of_all() -> None:
    plan.check(["experiment1", "live-riak"])
    with pytest.raises(UsageError, match=r"no part is called experiment8; the parts are experiment1, .*, live-riak"):
        plan.check(["experiment1", "experiment8"])


def test_the_default_plan_takes_less_than_twenty_minutes_on_two_cores() -> None:
    streams = sum(unit.cost for unit in plan.streams(log=True)) / 2
    processes = sum(unit.cost for unit in plan.processes(kafka=False, riak=False))
    assert streams + processes < DEFAULT_S_MAX
    assert all(unit.cost > 0 for unit in (*plan.streams(log=True), *plan.processes()))
    assert {unit.database for unit in plan.processes(riak=False)} == {live.LMDB}
