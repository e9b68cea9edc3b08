"""Logs of units: digested by the project's job, and stored if both agree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingeborg.bench.caching.live import subscribing, work
from ingeborg.bench.caching.live.cases import LATENCY, POLLING, THROUGHPUT, Case
from ingeborg.bench.experiments.experiment import Results

if TYPE_CHECKING:
    pass

UNITS = [
    Case(LATENCY, 200, "mean", subscribers=30),
    Case(THROUGHPUT, 200, "none", subscribers=30),
    Case(LATENCY, 200, "owed", 0.1, fetches=POLLING, subscribers=30),
]


@pytest.mark.spark
@pytest.mark.usefixtures("one_session")
def test_the_digest_of_a_log_agrees_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ingeborg.bench.caching.live import job
    from ingeborg.bench.experiments.digesting import DIGESTED

    monkeypatch.setattr(subscribing, "POLL_S", 0.05)
    results = Results(tmp_path)
    for unit in UNITS:
        work.run(unit, results)
    job.digest(UNITS, results)
    rows = {row["unit"]: row for row in results.rows(work.LIVE)}
    digests = {found["unit"]: found for found in results.rows(DIGESTED)}
    throughput = rows.pop(UNITS[1].name)
    assert throughput["records_per_s"] > 0 == throughput["hits"]
    assert rows.keys() == digests.keys() == {UNITS[0].name, UNITS[2].name}
    for name, row in rows.items():
        latency = digests[name]["latency"]
        assert latency["mean_ms"] == pytest.approx(row["latency_mean_ms"], abs=1e-3)
        assert latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"]
        assert sum(part["mean_ms"] for part in row["parts"].values()) == pytest.approx(row["latency_mean_ms"], abs=1e-4)
    assert not any((tmp_path / work.LOGS).iterdir())
    # As if the run had been interrupted while it deleted a log.
    results.path(work.LOGS, UNITS[0].name, "").mkdir()
    job.digest(UNITS, results)
    assert not any((tmp_path / work.LOGS).iterdir())
    # Every difference is reported.
    row, found = rows[UNITS[0].name], digests[UNITS[0].name]
    assert job.differences(row, found) == []
    [differ] = job.differences({**row, "hits": 1}, found)
    assert differ.startswith("hits 1, in the digest ")
    [differ] = job.differences({**row, "latency_mean_ms": 0.5}, found)
    assert differ.startswith("mean latency 0.5 ms, in the digest ")
    found["counts"]["lost"] = 1
    assert job.differences(row, found) == ["lost 0, in the digest 1"]
