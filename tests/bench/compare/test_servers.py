"""This broker in a comparison, with a port that its endpoints share: `loadgen` gets the port, and each endpoint's
metrics."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from ingeborg.bench.compare import run, servers
from ingeborg.bench.compare.matrix import Cell, System, Workload

pytestmark = pytest.mark.cluster

WORKLOAD = "connections = 4\ntopics = 10\nfanout = 2\nrate = 100\nduration_s = 3\n"


def test_with_a_shared_port_there_is_one_url_and_each_endpoint_is_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "traffic.toml"
    file.write_text(WORKLOAD)
    system = System("ours", "ingeborg", serve=("--endpoints", "2", "--share-port", "--name", "e"))
    with servers.running(system, tmp_path / "state", layer=False) as running:
        assert len(running.urls) == 1
        assert len(running.inside) == 2
        cell = Cell(system, Workload("traffic", "traffic", file), 1)
        command = run._command(cell, running, tmp_path / "log")
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    facts = json.loads((tmp_path / "log" / "run.json").read_text())
    assert facts["config"]["servers"] == 2
    with (tmp_path / "log" / "counters.csv").open(newline="") as table:
        assert {row["source"] for row in csv.DictReader(table)} == {"e-1", "e-2"}
    with (tmp_path / "log" / "machine.csv").open(newline="") as table:
        rows = [row for row in csv.DictReader(table) if row["role"] == "server"]
    assert {row["source"] for row in rows} == {url.removeprefix("ws://") for url in running.inside}


def test_with_ports_of_their_own_there_is_nothing_else_to_look_at(tmp_path: Path) -> None:
    system = System("ours", "ingeborg", serve=("--endpoints", "2"))
    with servers.running(system, tmp_path / "state", layer=False) as running:
        assert len(running.urls) == 2
        assert running.inside == ()
