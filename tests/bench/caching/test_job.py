"""Compares the Spark job with `naive`, which finds the same figures without it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from ingeborg.bench.caching import work
from ingeborg.bench.caching.beside import SIMULATED
from ingeborg.bench.caching.cases import Document
from ingeborg.bench.caching.found import LIVE, STRATEGIES, Found
from ingeborg.bench.caching.policies.named import BELADY, ONLINE, OURS, OWED
from ingeborg.bench.caching.replay import Ways

from . import naive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]

SEEDS = (1, 2, 3)
UNITS = [
    *(Document(60, seed, rooms=True) for seed in SEEDS),
    Document(80, 1),
    *(Document(60, seed, rooms=seed == 1, sweeps=True) for seed in SEEDS),
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


def write(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("caching")
    for unit in UNITS:
        work.run(unit, folder, None)
    write(folder / work.ROWS / "reads.jsonl", reads())
    write(folder / work.ROWS / "requests.jsonl", plain())
    theirs = {"exponent": 1.0, "share": 0.1, "policy": "lru", "simulated": 401, "narrow": 400}
    write(folder / SIMULATED / "one.jsonl", [theirs | {"seed": 1}])
    return folder


@pytest.fixture(scope="module")
def found(out: Path, spark: SparkSession) -> Found:
    from ingeborg.bench.caching import job

    return Found(*job.figures(spark, out))


def rows_of(out: Path) -> list[Row]:
    return [
        orjson.loads(line) for path in sorted((out / work.ROWS).iterdir()) for line in path.read_bytes().splitlines()
    ]


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


@pytest.mark.parametrize("share", [None, 0.1, 0.01])
def test_the_documents_experiments_are_as_it_has_them(found: Found, out: Path, share: float | None) -> None:
    values: dict[str, naive.Value] = {
        "by_read": naive.by_read,
        "by_record": naive.by_record,
        "duplication": naive.duplication,
        "copies_per_record": naive.copies,
    }
    for what, value in values.items():
        expected = naive.document(rows_of(out), value, share=share, sweep=False)
        assert {name for name, _ in expected} == set(STRATEGIES)
        for (name, _), by_records in expected.items():
            for records, rate in by_records.items():
                row = found.document(records, name, share)
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
    assert found.difference(60, "buffer", "sieve", "by_read") is None


def test_parameters_and_requests_have_their_rows(found: Found) -> None:
    assert len(found.sweep("threshold")) == 9
    assert len(found.sweep("buffer", 0.1)) == 25
    row = found.requests(1.0, 0.1, "lru")
    assert row is not None
    assert row["rate"][0] == pytest.approx(0.402)
    assert (row["libcachesim"], row["narrow"]) == ([0.401, 0.0], [0.4, 0.0])
    assert found.live == []


def test_runs_that_differ_by_their_seed_are_one_row(out: Path, spark: SparkSession, tmp_path: Path) -> None:
    from ingeborg.bench.caching import job

    parts = {"database": {"mean_ms": 0.5, "p99_ms": 1.0}}
    facts = {"kind": "throughput", "records": 500, "strategy": "mean", "capacity": None, "database": "lmdb"}
    facts |= {"via": "direct", "deliveries": 100, "hit_rate": 0.5, "database_reads": 50, "latency_mean_ms": 9.0}
    for seed in SEEDS:
        name = f"unit-{seed}"
        row = facts | {"unit": name, "seed": seed, "parameters": {}, "parts": parts, "records_per_s": 100.0 * seed}
        write(tmp_path / LIVE / "rows" / f"{name}.json", [row])
        write(
            tmp_path / LIVE / "digested" / f"{name}.json", [{"unit": name, "latency": {"p50_ms": 8.0, "p99_ms": 11.0}}]
        )
    swept = facts | {"unit": "swept", "seed": 1, "parameters": {"rise": "0.3", "fall": "0.7"}, "parts": parts}
    write(tmp_path / LIVE / "rows" / "swept.json", [swept | {"kind": "latency", "strategy": "threshold"}])
    (tmp_path / work.ROWS).symlink_to(out / work.ROWS)
    found = Found(*job.figures(spark, tmp_path))
    one = found.measured("throughput", 500, "mean")
    assert one is not None
    assert (one["runs"], one["slowest_per_s"], one["records_per_s"], one["fastest_per_s"]) == (3, 100, 200, 300)
    assert (one["database_ms"], one["p99_ms"], one["from_database"]) == (0.5, 11.0, 0.5)
    assert list(found.measured_sweep("threshold")) == ["0.3 0.7"]


def test_ours_is_told_or_it_is_nothing() -> None:
    assert work.ways(OWED, whole=False) == [Ways(reads_in=False, told=True), Ways(reads_in=True, told=True)]
