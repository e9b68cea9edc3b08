"""A run whose clients have bounds, against a real endpoint: what is missing, a later message stands for."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ingeborg.loadgen.workloads.settings import Traffic, settings
from ingeborg.loadgen.workloads.traffic import TrafficPlan

from ..cluster.processes import cluster_of
from .generator import Generator

GROUPS = """
bounds = [
    { share = 0.5, bounds = [{ prefix = "", interval_ms = 200, staleness_ms = 1000, deliver = "latest" }] },
    { share = 0.25, bounds = [{ prefix = "", interval_ms = 200, staleness_ms = 1000, numerical = 9 }] },
]
bounds_window = 100
connections = 8
topics = 4
fanout = 8
items = 2
weight = 3
rate = 400
duration_s = 1.5
p99_ms = 5000
"""


@pytest.mark.cluster
async def test_a_run_with_bounds_loses_nothing_and_says_what_was_conflated(tmp_path: Path) -> None:
    workload = tmp_path / "bounds.toml"
    workload.write_text(GROUPS)
    arguments = ("traffic", "--workload", str(workload), "--processes", "2", "--check")
    async with (
        cluster_of(["a"], tmp_path) as cluster,
        Generator(cluster["a"].url, tmp_path / "log", *arguments) as run,
    ):
        assert await run.ended() == (0, ""), run.said
    assert run.facts["variant"] == "bounds"
    rows = [row for part in run.out.glob("events-*.csv") for row in csv.DictReader(part.open())]
    due = sum(int(row["value"]) for row in rows if row["kind"] == "news")
    received = [row for row in rows if row["kind"] == "received"]
    skipped = sum(int(row["detail"] or 0) for row in received)
    assert due == len(received) + skipped
    assert len({row["connection"] for row in received if row["detail"]}) == 4  # the first group's clients
    assert skipped > due / 4
    # When all is quiet, everybody has the last message of each item.
    traffic = settings(Traffic, workload, {})
    plan = TrafficPlan(traffic, duplicates=traffic.duplicates)
    last = {(send.topic, send.item): send.seq for send in plan.sends(traffic.rate, traffic.duration_s) if send.first}
    came = {(int(row["connection"]), int(row["topic"]), int(row["seq"])) for row in received}
    assert len(last) == traffic.topics * traffic.items
    assert came >= {(number, topic, seq) for (topic, _), seq in last.items() for number in range(traffic.connections)}
    assert f"conflated {skipped:,}".split() in [line.split() for line in run.said.splitlines()]
