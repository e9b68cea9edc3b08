"""Units through the command: run once, digested by the project's job, and stored if both agree."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from ingeborg.bench.caching.live import __main__ as command
from ingeborg.bench.caching.live import cases, subscribing, work
from ingeborg.bench.caching.live.cases import KAFKA, LATENCY, POLLING, THROUGHPUT, Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNITS = [
    Unit(LATENCY, 200, "mean", subscribers=30),
    Unit(THROUGHPUT, 200, "none", subscribers=30),
    Unit(LATENCY, 200, "owed", 0.1, fetches=POLLING, subscribers=30),
    Unit(LATENCY, 200, "mean", via=KAFKA, subscribers=30),
]


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the tests' session in place of a separate one."""
    from ingeborg.bench.caching.live import job

    @contextlib.contextmanager
    def same(*_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(job, "local_session", same)


@pytest.mark.spark
@pytest.mark.usefixtures("one_session")
def test_units_are_run_once_and_the_digest_of_their_logs_agrees_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ingeborg.bench.caching.live.job import differences

    monkeypatch.setattr(subscribing, "POLL_S", 0.05)
    monkeypatch.setattr(cases, "plan", lambda *_, **__: UNITS)
    assert command.main(["--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "4 units, 0 of them done before" in said
    assert "1 units are left out without a Kafka: give --kafka" in said
    latencies = [UNITS[0], UNITS[2]]
    [throughput] = [orjson.loads(work.path_of(tmp_path, work.ROWS, UNITS[1]).read_bytes())]
    assert throughput["records_per_s"] > 0 == throughput["hits"]
    assert not work.path_of(tmp_path, work.DIGESTED, UNITS[1]).exists()
    rows = [orjson.loads(work.path_of(tmp_path, work.ROWS, unit).read_bytes()) for unit in latencies]
    digests = [orjson.loads(work.path_of(tmp_path, work.DIGESTED, unit).read_bytes()) for unit in latencies]
    assert [row["unit"] for row in rows] == [found["unit"] for found in digests] == [unit.name for unit in latencies]
    for row, found in zip(rows, digests, strict=True):
        assert found["latency"]["mean_ms"] == pytest.approx(row["latency_mean_ms"], abs=1e-3)
        assert found["latency"]["p50_ms"] <= found["latency"]["p99_ms"] <= found["latency"]["max_ms"]
        assert sum(part["mean_ms"] for part in row["parts"].values()) == pytest.approx(row["latency_mean_ms"], abs=1e-4)
    assert not any((tmp_path / work.LOGS).iterdir())
    assert command.main(["--out", str(tmp_path)]) == 0
    assert "4 units, 3 of them done before" in capsys.readouterr().out
    # The command reports every difference in the digest.
    found = digests[0]
    assert differences(rows[0], found) == []
    [differ] = differences({**rows[0], "hits": 1}, found)
    assert differ.startswith("hits 1, in the digest ")
    [differ] = differences({**rows[0], "latency_mean_ms": 0.5}, found)
    assert differ.startswith("mean latency 0.5 ms, in the digest ")
    found["counts"]["lost"] = 1
    assert differences(rows[0], found) == ["lost 0, in the digest 1"]
