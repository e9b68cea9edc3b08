"""A unit keeps its rows: the same bytes from the same seed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingeborg.bench.caching import cases, reads, simulator, work
from ingeborg.bench.caching import requests as plain
from ingeborg.bench.caching.cases import Document, Reads, Requests, Simulated, Sweep, Work
from ingeborg.bench.caching.policies.named import BELADY, ONLINE, PLAIN, RULES
from ingeborg.bench.experiments.experiment import Results, Unit

LOG = "station,offset_s,artist,track,duration_s\n" + "".join(
    f"s{at % 7},{at * 140},artist {at * 7919 % 601 % 150},t,200\n" for at in range(600)
)


#: Mean number of topics that a subscriber wishes for, so that a record has a few subscribers.
WISHES = 0.2


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a made-up log."""
    path = tmp_path / "log.csv"
    path.write_text(LOG, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use streams of a few events."""
    whole, items = reads.zipf, plain.zipf
    monkeypatch.setattr(reads, "zipf", lambda *found, **named: whole(*found, **named, topics=200, count=600))
    monkeypatch.setattr(plain, "zipf", lambda exponent, seed: items(exponent, seed, 500, 2_000))
    monkeypatch.setattr(plain, "ITEMS", 500)


def run(unit: Work, out: Path, log: Path | None = None, python: str | None = None) -> None:
    work.run(Unit(unit.name, "a part", unit), Results(out), log, python)


def rows(unit: Work, out: Path, log: Path | None = None) -> list[dict[str, Any]]:
    run(unit, out, log)
    return [orjson.loads(line) for line in (out / work.ROWS / f"{unit.name}.jsonl").read_bytes().splitlines()]


def test_requests_have_a_row_for_each_policy_and_room(tmp_path: Path, log: Path) -> None:
    for unit in (Requests(1.0, 1), Requests(0.0, 1)):
        found = rows(unit, tmp_path, log)
        assert [(row["share"], row["policy"]) for row in found] == [
            (share, name) for share in cases.SHARES for name in ("lru", "sieve", "tinylfu", "gdsf", "belady")
        ]
        for share in cases.SHARES:
            hits = {row["policy"]: row["hits"] for row in found if row["share"] == share}
            assert max(hits.values()) == hits["belady"]


@pytest.mark.parametrize("stream", [*cases.STREAMS, cases.POPULAR, cases.UNEVEN, cases.SIZES, cases.GONE])
def test_reads_have_a_row_for_each_policy_in_each_way(tmp_path: Path, log: Path, stream: str) -> None:
    found = rows(Reads(stream, 0.1, 1, wishes=WISHES), tmp_path, log)
    assert {row["policy"] for row in found} - {"bound", "ceiling", "belady"} == set(ONLINE)
    assert len({row["reads"] for row in found}) == len({row["records"] for row in found}) == 1
    hits = {row["policy"]: row["hits"] for row in found}
    assert max(hits.values()) == hits["bound"]
    assert ("ceiling" in hits) == (stream not in (cases.UNEVEN, cases.GONE))
    assert [(row["reads_in"], row["told"]) for row in found if row["policy"] == "owed"] == [(False, True), (True, True)]
    assert [(row["reads_in"], row["told"]) for row in found if row["policy"] == "lru"] == [
        (False, False),
        (True, False),
    ]
    whole = rows(Reads(stream, 0.1, 1, wishes=WISHES, whole=True), tmp_path / "whole", log)
    assert [
        row for row in whole if not row.get("told") or row["policy"] not in ONLINE or "owed" in row["policy"]
    ] == found
    assert len(whole) == len(found) + 2 * (len(ONLINE) - 2)


def test_the_documents_rows_are_of_all_rules_and_ours_with_room_for_all_and_without(tmp_path: Path) -> None:
    names = {*RULES, "owed"}
    found = {share: rows(Document(200, 1, share), tmp_path) for share in (None, *cases.CAPACITIES)}
    for share, those in found.items():
        assert {row["share"] for row in those} == {share}
        assert {row["policy"] for row in those} == names
        ways = [False] if share is None else [False, True]
        assert {(row["policy"], row["reads_in"]) for row in those} == {(name, way) for name in names for way in ways}
    unlimited = {row["policy"]: row for row in found[None]}
    assert (unlimited["none"]["hits"], unlimited["all"]["hits"]) == (0, unlimited["all"]["reads"])
    assert unlimited["owed"]["hits"] == unlimited["all"]["hits"]
    assert {row["reads"] for those in found.values() for row in those} == {unlimited["all"]["reads"]}


def test_missed_records_stay_out_in_one_reading_and_ask_again_in_the_other(tmp_path: Path) -> None:
    """With room for half, the slides' rule has the hits of unlimited memory or less, since a record has one chance."""
    bounded, unlimited = rows(Document(500, 1, 0.5), tmp_path), rows(Document(500, 1), tmp_path)
    whole = {row["policy"]: row["hits"] for row in unlimited}
    out = {row["policy"]: row for row in bounded if not row["reads_in"]}
    again = {row["policy"]: row for row in bounded if row["reads_in"]}
    for name in ("threshold", "mean", "buffer"):
        assert out[name]["hits"] <= whole[name] < again[name]["hits"]
        assert (out[name]["cached"], out[name]["copies"]) != (again[name]["cached"], again[name]["copies"])


def test_a_record_goes_to_memory_or_to_the_database_or_to_the_database_in_any_case(tmp_path: Path) -> None:
    unlimited = {row["policy"]: row for row in rows(Document(200, 1), tmp_path)}
    written = {name: row["written"] for name, row in unlimited.items()}
    assert written == {
        **dict.fromkeys(("none", "threshold", "owed"), 200),
        **{name: 200 - unlimited[name]["cached"] for name in ("all", "mean", "buffer")},
    }
    assert written["all"] == 0 < written["mean"] < 200
    bounded = {row["policy"]: row for row in rows(Document(200, 1, 0.1), tmp_path) if not row["reads_in"]}
    # What LRU evicts must be written then: all but the records that are in memory at the end.
    assert 200 - 30 < bounded["all"]["written"] == bounded["all"]["evicted"] < 200


@pytest.mark.parametrize(("policy", "count"), [("threshold", 9), ("mean", len(cases.BATCHES)), ("buffer", 25)])
def test_sweeps_have_a_row_for_each_parameter(tmp_path: Path, policy: str, count: int) -> None:
    unlimited = rows(Sweep(policy, 1, records=200), tmp_path)
    bounded = rows(Sweep(policy, 1, cases.SWEEP_SHARE, records=200), tmp_path)
    assert len({row["parameters"] for row in unlimited}) == len(unlimited) == count
    for reads_in in (False, True):
        assert [row["parameters"] for row in bounded if row["reads_in"] is reads_in] == [
            row["parameters"] for row in unlimited
        ]
    if policy == "buffer":
        hits = {row["parameters"]: row["hits"] for row in unlimited}
        assert hits["0.1 0.9"] == hits["0.7 0.3"] == hits["0.9 0.1"]
        variance = {row["parameters"]: row["variance"] for row in unlimited}
        assert variance["0.5 0.5"] < variance["0.7 0.3"] < variance["0.9 0.1"] < 1
    else:
        assert "variance" not in unlimited[0]


def test_the_same_unit_gives_the_same_bytes(tmp_path: Path, log: Path) -> None:
    for unit in (
        Requests(0.8, 2),
        Reads("zipf 1.2", 0.01, 2, wishes=WISHES),
        Reads(cases.PLAYS, 0.1, 1, wishes=WISHES),
        Document(100, 3, 0.1),
        Sweep("mean", 3, 0.1, records=100),
    ):
        for name in ("one", "other"):
            run(unit, tmp_path / name, log)
    kept = {
        name: {path.name: path.read_bytes() for path in (tmp_path / name / work.ROWS).iterdir()}
        for name in ("one", "other")
    }
    assert len(kept["one"]) == 5
    assert kept["one"] == kept["other"]


#: Answers with the number of entries that fit, in place of libcachesim's hits.
PROGRAM = """
import json, sys
for line in sys.stdin:
    print(json.loads(line)["entries_max"], flush=True)
"""


def test_libcachesim_is_asked_about_the_same_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "room.py"
    program.write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setattr(simulator, "PROGRAM", program)
    monkeypatch.setattr(plain, "zipf", lambda exponent, seed: [1, 2, 1, 3, 1, 1])
    unit = Simulated(Requests(1.0, 2))
    run(unit, tmp_path, python=sys.executable)
    found = list(Results(tmp_path).rows(work.SIMULATED))
    assert [(row["share"], row["policy"]) for row in found] == [
        (share, name) for share in cases.SHARES for name in (*PLAIN, BELADY)
    ]
    assert {row["simulated"] for row in found} == {5, 50}
    assert [row["narrow"] for row in found if row["policy"] == "tinylfu"] == [3, 3]
    assert {row["narrow"] for row in found if row["policy"] != "tinylfu"} == {None}
