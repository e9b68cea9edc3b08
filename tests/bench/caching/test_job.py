"""Compares the Spark job with `naive`, which finds the same figures without it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingeborg.bench.caching import work
from ingeborg.bench.caching.cases import SHARES, SWEEP_SHARE, Document, Sweep, Work
from ingeborg.bench.caching.found import Found, Setup, Stream
from ingeborg.bench.caching.live.cases import STRATEGIES
from ingeborg.bench.caching.policies.named import BELADY, NOVEL, ONLINE, OURS, OWED
from ingeborg.bench.caching.replay import Ways
from ingeborg.bench.experiments.experiment import Results, Unit

from . import naive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]

SEEDS = (1, 2, 3)
UNITS: list[Work] = [
    *(Document(60, seed, share) for seed in SEEDS for share in (None, *SHARES)),
    Document(80, 1),
    *(Sweep(policy, seed, records=60) for policy in NOVEL for seed in SEEDS),
    *(Sweep(policy, 1, SWEEP_SHARE, records=60) for policy in NOVEL),
]


def reads() -> list[Row]:
    """Return rows of two streams with random hits, so that either way can be better."""
    numbers = random.Random(7)
    rows: list[Row] = []
    for stream in ("plays", "zipf 1"):
        for seed in SEEDS:
            facts: Row = {
                "kind": "reads",
                "stream": stream,
                "away_s": 21_600.0,
                "wishes": 16.0,
                "seed": seed,
                "share": 0.1,
            }
            for name in ONLINE:
                for way in work.ways(name, whole=True):
                    hits = {"reads": 1_000, "hits": numbers.randint(0, 700), "records": 100}
                    told = {"reads_in": way.reads_in, "told": way.told, "by_record": numbers.random()}
                    rows.append(facts | {"policy": name} | hits | told)
            most = {"reads": 1_000, "records": 100}
            rows.append(
                facts | most | {"policy": BELADY, "hits": 800, "by_record": 0.8, "reads_in": True, "told": True}
            )
            rows.append(facts | most | {"policy": work.BOUND, "hits": 900})
            rows.append(facts | most | {"policy": work.CEILING, "hits": 750.25})
    return rows


def plain() -> list[Row]:
    """Return rows of requests."""
    facts = {"kind": "requests", "exponent": 1.0, "share": 0.1, "requests": 1_000}
    return [facts | {"seed": seed, "policy": "lru", "hits": 400 + seed} for seed in SEEDS]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("caching")
    results = Results(folder)
    for unit in UNITS:
        work.run(Unit(unit.name, "a part", unit), results, None, None)
    results.keep(work.ROWS, "reads", reads())
    results.keep(work.ROWS, "requests", plain())
    theirs = {"exponent": 1.0, "share": 0.1, "policy": "lru", "simulated": 401, "narrow": 400}
    results.keep(work.SIMULATED, "one", [theirs | {"seed": 1}])
    return folder


@pytest.fixture(scope="module")
def found(out: Path, spark: SparkSession) -> Found:
    from ingeborg.bench.caching import job

    return Found(*job.figures(spark, Results(out)))


def rows_of(out: Path) -> list[Row]:
    return list(Results(out).rows(work.ROWS))


def test_streams_are_as_the_naive_reading_has_them(found: Found) -> None:
    expected = naive.Reads(reads())
    assert found.streams == sorted(expected.streams)
    ways = set()
    for stream in expected.streams:
        for name in expected.policies(stream):
            for told in (False, True):
                best, row = expected.best(stream, name, told=told), found.reads(stream, name, knows=told)
                assert (best is None) == (row is None)
                if best is not None and row is not None:
                    assert row["by_read"] == pytest.approx(best.rate(), abs=1e-5)
                    assert row["reads_in"] == best.reads_in
                    ways.add(best.reads_in)
        for told in (False, True):
            ahead, row = expected.ahead(stream, told=told), found.ahead(stream, knows=told)
            assert row is not None
            assert (row["other"], row["by_read"]) == (ahead.other, pytest.approx(ahead.rate, abs=1e-5))
            assert row["other"] not in OURS
    assert ways == {False, True}


def test_each_policy_is_compared_with_the_best_of_the_documents_rules(found: Found) -> None:
    expected = naive.Reads(reads())
    for stream in expected.streams:
        best = {name: expected.best(stream, name) for name in ONLINE}
        rates = {name: one.rate()[0] for name, one in best.items() if one is not None}
        rule = max(NOVEL, key=lambda name: rates[name])
        for name in ONLINE:
            row = found.over_rules(stream, name)
            assert (row is None) == (name in NOVEL)
            if row is not None:
                assert (row["rule"], row["by_read"][0]) == (rule, pytest.approx(rates[name] - rates[rule], abs=1e-5))


@pytest.mark.parametrize(("share", "again"), [(None, False), (0.1, False), (0.1, True), (0.01, False), (0.01, True)])
def test_the_documents_experiments_are_as_it_has_them(
    found: Found, out: Path, share: float | None, again: bool
) -> None:
    values: dict[str, naive.Value] = {
        "by_read": naive.by_read,
        "by_record": naive.by_record,
        "duplication": naive.duplication,
        "copies_per_record": naive.copies,
    }
    for what, value in values.items():
        expected = naive.document(rows_of(out), value, share=share, reads_in=again, sweep=False)
        assert {name for name, _ in expected} == set(STRATEGIES)
        for (name, _), by_records in expected.items():
            for records, rate in by_records.items():
                row = found.document(records, name, share, again=again)
                assert row is not None
                assert row[what] == pytest.approx(rate, abs=1e-5)


def test_differences_are_of_the_same_seeds(found: Found, out: Path) -> None:
    def by_seed(policy: str) -> dict[int, float]:
        wanted = (policy, 60, None, False)
        return {
            row["seed"]: naive.by_read(row)
            for row in rows_of(out)
            if row["kind"] == "document" and (row["policy"], row["records"], row["share"], row["sweep"]) == wanted
        }

    one, other = by_seed("buffer"), by_seed("mean")
    mean = sum(one[seed] - other[seed] for seed in SEEDS) / len(SEEDS)
    difference = found.difference(60, "buffer", "mean", "by_read")
    back = found.difference(60, "mean", "buffer", "by_read")
    assert difference is not None
    assert back is not None
    assert difference[0] == pytest.approx(mean, abs=1e-5)
    assert (back[0], back[1]) == (-difference[0], difference[1])
    assert found.difference(60, "buffer", "owed", "by_read") is None


def test_parameters_and_requests_have_their_rows(found: Found) -> None:
    assert len(found.sweep("threshold")) == 9
    for again in (False, True):
        assert len(found.sweep("buffer", 0.1, again=again)) == 25
    assert all(row["variance"] is not None for row in found.sweep("buffer").values())
    row = found.requests(1.0, 0.1, "lru")
    assert row is not None
    assert row["rate"][0] == pytest.approx(0.402)
    assert (row["libcachesim"], row["narrow"]) == ([0.401, 0.0], [0.4, 0.0])
    assert found.live == []


def test_runs_that_repeat_a_unit_are_one_row_with_an_interval(spark: SparkSession, tmp_path: Path) -> None:
    from ingeborg.bench.caching import job

    results = Results(tmp_path)
    parts = {"database": {"mean_ms": 0.5, "p99_ms": 1.0}}
    facts = {"kind": "throughput", "records": 500, "rounds": 4, "strategy": "mean", "capacity": None}
    facts |= {"database": "lmdb", "via": "direct", "writes": "always", "fetches": "waiting", "seconds": 2.5}
    facts |= {"deliveries": 100, "hit_rate": 0.5, "database_reads": 50, "latency_mean_ms": 9.0, "written": 2_000}
    for run in SEEDS:
        name = f"unit-{run}"
        row = facts | {"unit": name, "seed": 1, "run": run, "parameters": {}, "parts": parts}
        results.keep("live", name, [row | {"records_per_s": 100.0 * run, "broker_cpu_s": 0.1}])
    either = facts | {"unit": "either", "seed": 1, "run": 1, "parameters": {}, "parts": parts, "writes": "either"}
    results.keep("live", "either", [either | {"records_per_s": 500.0, "written": 500}])
    swept = facts | {"unit": "swept", "seed": 1, "run": 1, "parameters": {"rise": "0.3", "fall": "0.7"}}
    swept |= {"parts": parts, "kind": "latency", "strategy": "threshold"}
    results.keep("live", "swept", [swept])
    results.keep("digested", "swept", [{"unit": "swept", "latency": {"p50_ms": 8.0, "p99_ms": 11.0}}])
    found = Found(*job.figures(spark, results))  # without any replayed stream
    assert found.records == []
    one = found.measured("throughput", 500, "mean")
    assert one is not None
    assert (one["runs"], one["records_per_s"]) == (3, [200.0, pytest.approx(4.303 * 100 / 3**0.5, abs=1e-3)])
    assert one["cpu_us"] == [50.0, 0.0]
    assert (one["database_ms"], one["from_database"], one["written_share"]) == (0.5, 0.5, 1.0)
    other = found.measured("throughput", 500, "mean", None, Setup("LMDB", writes="either"))
    assert other is not None
    assert (other["runs"], other["records_per_s"], other["written_share"]) == (1, [500.0, 0.0], 0.25)
    assert {name: row["p99_ms"] for name, row in found.measured_sweep("threshold").items()} == {"0.3 0.7": 11.0}


def test_the_figures_of_a_few_rows_are_those_that_were_found_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    from ingeborg.bench.caching import job

    stream = Stream("zipf 1", 3_600.0, 16.0, 0.1)

    def row(policy: str, seed: int, hits: float, **more: Any) -> Row:
        return {"kind": "reads", "seed": seed, "policy": policy, "reads": 100, "hits": hits} | stream._asdict() | more

    def ways(policy: str, told: bool, plain: tuple[int, int], again: tuple[int, int]) -> list[Row]:
        pairs = [(reads_in, *one) for reads_in, each in ((False, plain), (True, again)) for one in enumerate(each, 1)]
        return [row(policy, seed, hits, reads_in=reads_in, told=told) for reads_in, seed, hits in pairs]

    facts: Row = {"kind": "document", "policy": "mean", "parameters": "", "share": None, "sweep": False, "reads": 80}
    facts |= {"exponent": 1.0, "returns": 20.0, "copies": 60, "told": False}
    documents = [(20, 1, False, 8, 30), (20, 2, False, 16, 60), (20, 1, True, 8, 1), (20, 2, True, 8, 1)]
    names = ("records", "seed", "reads_in", "hits", "cached")
    rows = [
        *ways("lru", False, (10, 30), (25, 20)),
        *ways("lru", True, (40, 42), (10, 10)),
        *ways("mean", False, (20, 20), (30, 10)),
        *ways("owed", True, (50, 54), (56, 52)),
        *ways("owed inflated", True, (99, 99), (99, 99)),
        *(row("belady", seed, hits, reads_in=True, told=True) for seed, hits in ((1, 70), (2, 72))),
        *(row("ceiling", seed, hits) for seed, hits in ((1, 55.5), (2, 54.5))),
        *ways("gdsf", False, (22, 0), (0, 0))[:1],
        *(facts | dict(zip(names, each, strict=True)) for each in (*documents, (40, 1, False, 40, 0))),
    ]
    results = Results(tmp_path)
    results.keep(work.ROWS, "rows", rows)
    found = Found(*job.figures(spark, results))
    reads = {name: found.reads(stream, name) or {} for name in ("lru", "mean", "belady", "ceiling")}
    assert reads["lru"]["reads_in"]  # more hits on average over all seeds
    assert not reads["mean"]["reads_in"]  # equal: no record comes in again
    assert reads["lru"]["by_read"] == pytest.approx([0.225, 12.706 * 0.05 / 2], abs=1e-5)
    assert [reads[name]["by_read"][0] for name in ("belady", "ceiling")] == [0.71, 0.55]
    ahead, told = (found.ahead(stream, knows=knows) or {} for knows in (False, True))
    assert (ahead["other"], told["other"], told["by_read"][0]) == ("lru", "lru", 0.13)
    assert ahead["by_read"] == pytest.approx([0.315, 12.706 * 0.01 / 2], abs=1e-5)  # 31 and 32 points
    over = found.over_rules(stream, "gdsf") or {}
    assert (over["rule"], over["by_read"]) == ("mean", [0.02, 0.0])  # only of the seed that both have
    keys = ((20, False), (20, True), (40, False))
    document = {key: found.document(key[0], "mean", again=key[1]) or {} for key in keys}
    assert document[20, False]["by_read"] == pytest.approx([0.15, 0.6353], abs=1e-4)
    assert [document[key]["duplication"][0] for key in keys] == [1.5, 60.0, 0.0]  # 0 without a record in memory
    assert document[20, False]["copies_per_record"][0] == 3.0


def test_ours_is_told_or_it_is_nothing() -> None:
    assert work.ways(OWED, whole=False) == [Ways(reads_in=False, told=True), Ways(reads_in=True, told=True)]
