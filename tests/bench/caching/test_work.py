"""A unit keeps its rows: the same bytes from the same seed, and only once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from ingeborg.bench.caching import cases, reads, work
from ingeborg.bench.caching import requests as plain
from ingeborg.bench.caching.cases import Document, Reads, Requests, Unit, units
from ingeborg.bench.caching.policies.named import ONLINE, RULES

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


def rows(unit: Unit, out: Path, log: Path | None = None) -> list[dict[str, Any]]:
    work.run(unit, out, log)
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
    found = rows(Document(200, 1, rooms=True), tmp_path)
    names = {*RULES, "owed"}
    for share in (None, *cases.SHARES):
        assert {row["policy"] for row in found if row["share"] == share} == names
    unlimited = {row["policy"]: row for row in found if row["share"] is None}
    assert (unlimited["none"]["hits"], unlimited["all"]["hits"]) == (0, unlimited["all"]["reads"])
    assert unlimited["owed"]["hits"] == unlimited["all"]["hits"]
    assert {row["reads"] for row in found} == {unlimited["all"]["reads"]}
    assert [row for row in found if row["share"] is None] == rows(Document(200, 1), tmp_path / "without")


def test_sweeps_have_a_row_for_each_parameter(tmp_path: Path) -> None:
    found = rows(Document(200, 1, rooms=True, sweeps=True), tmp_path)
    for share in (None, work.SWEEP_SHARE):
        swept = [row for row in found if row["share"] == share]
        assert [row["parameters"] for row in swept if row["policy"] == "threshold"][:2] == ["0.1 0.9", "0.2 0.8"]
        assert [row["parameters"] for row in swept if row["policy"] == "mean"] == list(map(str, cases.BATCHES))
        assert len([row for row in swept if row["policy"] == "buffer"]) == len(cases.WEIGHTS) ** 2
    hits = {row["parameters"]: row["hits"] for row in found if row["policy"] == "buffer" and row["share"] is None}
    assert hits["0.1 0.9"] == hits["0.7 0.3"] == hits["0.9 0.1"]


def test_the_same_unit_gives_the_same_bytes(tmp_path: Path, log: Path) -> None:
    for unit in (
        Requests(0.8, 2),
        Reads("zipf 1.2", 0.01, 2, wishes=WISHES),
        Reads(cases.PLAYS, 0.1, 1, wishes=WISHES),
        Document(100, 3, rooms=True),
    ):
        for name in ("one", "other"):
            work.run(unit, tmp_path / name, log)
    kept = {
        name: {path.name: path.read_bytes() for path in (tmp_path / name / work.ROWS).iterdir()}
        for name in ("one", "other")
    }
    assert len(kept["one"]) == 4
    assert kept["one"] == kept["other"]


def test_a_unit_that_is_kept_is_not_run_again_and_one_that_was_cut_short_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = Document(50, 1)
    work.run(unit, tmp_path, None)
    [path] = (tmp_path / work.ROWS).iterdir()
    before = path.read_bytes()

    def never(*_: object) -> None:
        raise AssertionError("it was run again")

    with monkeypatch.context() as patch:
        patch.setattr(work, "rows", never)
        work.run(unit, tmp_path, None)
        path.unlink()
        with pytest.raises(AssertionError):
            work.run(unit, tmp_path, None)
    work.run(unit, tmp_path, None)
    assert path.read_bytes() == before
    assert len(list((tmp_path / work.ROWS).iterdir())) == 1


def test_the_whole_plan_has_each_unit_once_and_without_a_log_none_that_wants_one() -> None:
    plan = units(2, log=True)
    assert len({unit.name for unit in plan}) == len(plan)
    without = units(2, log=False)
    assert {unit.name for unit in plan} - {unit.name for unit in without} == {
        unit.name for unit in plan if unit.wants_log
    }
    compared = [unit for unit in plan if isinstance(unit, Reads) and unit.stream in cases.STREAMS]
    plain = [unit for unit in compared if (unit.away_s, unit.wishes) == (reads.AWAY_S, reads.WISHES)]
    assert len(plain) == len(cases.STREAMS) * (2 + 2 + 2)  # two more seeds with little room
    assert {(unit.stream, unit.share) for unit in plain if unit.whole} == {
        (stream, share) for stream in cases.STREAMS for share in cases.SHARES
    }
    counted = [unit.records for unit in plan if isinstance(unit, Document) and not unit.sweeps and unit.exponent]
    assert [counted.count(records) for records in cases.RECORDS[:-1]] == [cases.DOCUMENT_SEEDS] * 5
