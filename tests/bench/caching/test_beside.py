"""Stored hits of libcachesim: asked once, from a program that stands in for it."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson
import pytest

from ingeborg.bench.caching import beside, requests, simulator
from ingeborg.bench.caching.cases import SHARES, Document, Requests
from ingeborg.bench.caching.policies.named import BELADY, PLAIN
from ingeborg.bench.experiments import units

#: Answers with the number of entries that fit, in place of hits.
PROGRAM = """
import json, sys
for line in sys.stdin:
    print(json.loads(line)["entries_max"], flush=True)
"""


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "room.py"
    path.write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setattr(simulator, "PROGRAM", path)
    monkeypatch.setattr(requests, "zipf", lambda exponent, seed: [1, 2, 1, 3, 1, 1])
    # In this process, where the two patches apply.
    monkeypatch.setattr(units, "run", lambda work, jobs, processes: [work(job) for job in jobs])


def test_plain_requests_are_asked_once_and_nothing_else_is(tmp_path: Path) -> None:
    unit = Requests(1.0, 2)
    beside.run([Document(500, 1), unit], tmp_path, sys.executable, None, 2)
    [path] = (tmp_path / beside.SIMULATED).iterdir()
    assert path == beside.path_of(tmp_path, unit)
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert [(row["share"], row["policy"]) for row in rows] == [
        (share, name) for share in SHARES for name in (*PLAIN, BELADY)
    ]
    assert {row["simulated"] for row in rows} == {100, 1_000}
    assert [row["narrow"] for row in rows if row["policy"] == "tinylfu"] == [3, 3]
    assert {row["narrow"] for row in rows if row["policy"] != "tinylfu"} == {None}
    beside.run([unit], tmp_path, "no interpreter, and none is wanted", None, 2)


def test_without_plain_requests_nobody_is_asked(tmp_path: Path) -> None:
    beside.run([Document(500, 1)], tmp_path, "no interpreter, and none is wanted", None, 2)
    assert not (tmp_path / beside.SIMULATED).exists()
