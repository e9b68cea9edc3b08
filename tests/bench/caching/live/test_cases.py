"""The plan has each unit once, everything that the document requires, and nothing that does not exist."""

from __future__ import annotations

from ingeborg.bench.caching.live import cases
from ingeborg.bench.caching.live.cases import KAFKA, LATENCY, RECORDS, RIAK, STRATEGIES, THROUGHPUT, plan
from ingeborg.bench.caching.live.strategies import policy_of


def test_names_are_of_one_unit_each() -> None:
    units = plan(kafka=True, riak=True)
    names = [unit.name for unit in units]
    assert len(set(names)) == len(names)
    assert all(name.replace("%", "").replace(".", "").replace("-", "").isalnum() for name in names)


def test_experiments_three_and_four_are_whole() -> None:
    for kind in (LATENCY, THROUGHPUT):
        units = [unit for unit in cases.document(1) if unit.kind == kind and unit.seed == 1]
        unbounded = {(unit.records, unit.strategy) for unit in units if unit.capacity is None}
        assert unbounded == {(records, strategy) for records in RECORDS for strategy in STRATEGIES}
        bounded = {(unit.records, unit.strategy, unit.capacity) for unit in units if unit.capacity is not None}
        others = [strategy for strategy in STRATEGIES if strategy != "none"]
        assert bounded == {(RECORDS[-1], strategy, share) for strategy in others for share in (0.1, 0.01)}


def test_what_is_not_there_is_not_planned() -> None:
    assert not [unit for unit in plan(kafka=False, riak=False) if unit.via == KAFKA or unit.database == RIAK]
    assert {unit.via for unit in plan(kafka=True, riak=False)} == {"direct", KAFKA}


def test_all_latencies_of_a_database_are_at_one_rate() -> None:
    units = [unit for unit in plan(kafka=True, riak=True) if unit.kind == LATENCY]
    assert {(unit.database, unit.rate_per_s) for unit in units} == {
        ("lmdb", cases.RATE_PER_S),
        ("riak", cases.RIAK_RATE_PER_S),
    }


def test_every_unit_has_a_policy() -> None:
    for unit in plan(kafka=True, riak=True):
        policy_of(unit.strategy, dict(unit.parameters), 1_000, 10)
