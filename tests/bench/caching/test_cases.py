"""The plan: its parts, their units, and what they cost."""

from __future__ import annotations

import pytest

from ingeborg.bench.caching import cases, reads
from ingeborg.bench.caching.cases import LIBCACHESIM, PARTS, SEEDS, Document, Reads, Simulated, Work, units, wants_log
from ingeborg.bench.caching.live import cases as live
from ingeborg.bench.experiments.experiment import Part

DEFAULT_S_MAX = 18 * 60
"""Limit on the default parts: 20 minutes on two idle cores, with two minutes for the digests."""

EVERY = [part.name for part in PARTS]
DEFAULT = [part.name for part in PARTS if part.is_default]


def works(*parts: str, seeds: int = SEEDS) -> list[Work]:
    return [unit.work for unit in units(seeds, parts, log=True)]


def test_the_whole_plan_has_each_unit_once_and_without_a_log_none_that_wants_one() -> None:
    whole, without = (units(SEEDS, EVERY, log=log) for log in (True, False))
    assert len({unit.name for unit in whole}) == len(whole)
    assert {unit.name for unit in whole} - {unit.name for unit in without} == {
        unit.name for unit in whole if wants_log(unit.work)
    }
    compared = [work for work in works("reads") if isinstance(work, Reads)]
    assert len(compared) == len(cases.STREAMS) * sum(cases.COMPARED_SEEDS.values())
    assert {(work.stream, work.share) for work in compared if work.whole} == {
        (stream, share) for stream in cases.STREAMS for share in cases.SHARES
    }
    assert {(work.away_s, work.wishes) for work in compared} == {(reads.AWAY_S, reads.WISHES)}


def test_experiments_over_the_number_of_records_have_all_numbers_and_rooms() -> None:
    found = [work for work in works("experiment1") if isinstance(work, Document)]
    for records in cases.RECORDS:
        seeds = [work.share for work in found if work.records == records]
        assert {share: seeds.count(share) for share in (None, *cases.SHARES)} == {None: 10, 0.01: 5, 0.1: 5}
    assert {work.share for work in works("capacity") if isinstance(work, Document)} == {None, *cases.CAPACITIES}


def test_a_part_and_a_seed_alone_take_seconds() -> None:
    found = units(1, ["experiment2"], log=True)
    assert {unit.work.seed for unit in found} == {1}
    assert len(found) == len(cases.RECORDS) * 3
    assert sum(unit.cost for unit in found) < 15
    assert live.units(1, ["experiment2"]) == []


def test_units_that_two_parts_share_run_once() -> None:
    assert works("experiment1", "experiment2") == works("experiment1")
    both = units(SEEDS, ["requests", LIBCACHESIM], log=True)
    assert [unit.work for unit in both if unit.part == "requests"] == works("requests")
    simulated = [unit.work.requests for unit in both if isinstance(unit.work, Simulated)]
    assert sorted(simulated, key=str) == sorted(works("requests"), key=str)


def test_all_parts_have_more_seeds_if_the_user_wants_more() -> None:
    def most(part: str, seeds: int) -> int:
        return max(int(unit.work.seed) for unit in units(seeds, [part], log=False))

    assert [most("reads", seeds) for seeds in (1, 10, 20)] == [1, 5, 10]
    assert [most("subscribers", seeds) for seeds in (1, 10, 30)] == [1, 1, 3]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_can_be_chosen_alone(part: Part) -> None:
    plan = [*units(1, [part.name], log=False), *live.units(1, [part.name])]
    assert plan
    assert {unit.part for unit in plan} == {part.name}
    assert not part.about.endswith(".")


def test_the_default_parts_take_less_than_twenty_minutes_on_two_cores() -> None:
    streams, processes = units(SEEDS, DEFAULT, log=True), live.units(SEEDS, DEFAULT)
    assert sum(unit.cost for unit in streams) / 2 + sum(unit.cost for unit in processes) < DEFAULT_S_MAX
    assert all(unit.cost > 0 for unit in (*streams, *processes))
    assert [unit.cost for unit in streams] == sorted((unit.cost for unit in streams), reverse=True)
    assert {(unit.work.database, unit.work.via) for unit in processes} == {(live.LMDB, live.DIRECT)}
