"""Judges findings and goals from handmade figures, with one changed at a time."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.bench.caching import claims, goals
from ingeborg.bench.caching.claims import EQUAL, FAILS, HOLDS
from ingeborg.bench.caching.found import Found

from . import figured

Row = dict[str, Any]


def verdicts(found: Found) -> dict[int, dict[str, str]]:
    return {claim.number: dict(claim.verdicts) for claim in claims.judged(found)}


def test_what_is_as_the_document_says_holds() -> None:
    found = verdicts(figured.found())
    assert list(found) == [1, 2, 3, 4, 5, 6, 7]
    assert {verdict for each in found.values() for verdict in each.values()} == {HOLDS}
    assert list(found[1]) == ["unbounded", "10%", "1%"]
    assert list(found[3]) == ["LMDB", "Kafka", "Riak", "the database's part"]
    assert list(found[7]) == ["hit rate", "latency"]


@pytest.mark.parametrize(
    ("difference", "verdict"), [([-0.05, 0.01], HOLDS), ([-0.005, 0.01], EQUAL), ([0.05, 0.01], FAILS)]
)
def test_buffer_has_to_be_ahead_for_certain_with_each_number_of_records(difference: list[float], verdict: str) -> None:
    def change(row: Row) -> Row:
        same = (row["one"], row["other"], row["records"], row["share"]) == ("mean", "buffer", 2_000, 0.1)
        return row | {"by_read": difference} if same else row

    found = verdicts(figured.found("differences", change))
    assert found[1] == {"unbounded": HOLDS, "10%": verdict, "1%": HOLDS}


def test_duplication_is_judged_as_the_most_and_as_similar() -> None:
    def apart(row: Row) -> Row:
        return row | {"duplication": [72.0, 1.0]} if row["policy"] == "mean" else row

    assert verdicts(figured.found("document", apart))[2] == {"the greatest": HOLDS, "similar": FAILS}

    def less(row: Row) -> Row:
        return row | {"duplication": [-1.0, 0.5]} if (row["one"], row["other"]) == ("mean", "buffer") else row

    assert verdicts(figured.found("differences", less))[2] == {"the greatest": FAILS, "similar": HOLDS}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"latency_ms": 290.0, "database_ms": 0.1}, EQUAL),  # slower, but not because of the database
        ({"latency_ms": 255.0, "database_ms": 5.0}, EQUAL),
        ({"latency_ms": 290.0, "database_ms": 5.0, "writing_ms": 30.0}, HOLDS),  # its writes wait for its reads
        ({"latency_ms": 200.0, "database_ms": -50.0}, FAILS),
    ],
)
def test_a_latency_is_judged_by_what_the_database_takes_of_it(changes: Row, verdict: str) -> None:
    def change(row: Row) -> Row:
        same = row["kind"] == "latency" and row["via"] == "kafka" and row["strategy"] == "none"
        return row | changes if same else row

    found = verdicts(figured.found("live", change))[3]
    assert (found["LMDB"], found["Kafka"]) == (HOLDS, verdict)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"records_per_s": 30_000.0, "slowest_per_s": 29_000.0, "fastest_per_s": 31_000.0}, FAILS),
        ({"records_per_s": 18_000.0, "slowest_per_s": 15_000.0, "fastest_per_s": 21_000.0}, EQUAL),
        ({"records_per_s": 18_000.0, "runs": 1}, EQUAL),
    ],
)
def test_a_throughput_is_the_greatest_if_all_runs_are_and_there_are_several(changes: Row, verdict: str) -> None:
    def change(row: Row) -> Row:
        return row | changes if row["kind"] == "throughput" and row["strategy"] == "buffer" else row

    assert verdicts(figured.found("live", change))[4]["LMDB"] == verdict


def test_parameters_are_judged_by_hit_rates_and_by_latencies() -> None:
    def dip(row: Row) -> Row:
        return row | {"by_read": [0.3, 0.01]} if row["sweep"] and row["parameters"] in ("3", "0.3 0.7") else row

    found = verdicts(figured.found("document", dip))
    assert [found[number]["hit rate"] for number in (5, 6, 7)] == [FAILS, FAILS, HOLDS]

    def fast(row: Row) -> Row:
        return row | {"database_ms": 0.01} if row["parameters"] else row

    found = verdicts(figured.found("live", fast))
    assert [found[number]["latency"] for number in (5, 6, 7)] == [EQUAL] * 3


def test_each_finding_says_its_figures_and_why() -> None:
    found = {claim.number: claim for claim in claims.judged(figured.found())}
    assert all(claim.found and claim.why for claim in found.values())
    assert "buffer 0.700" in found[1].found[0]
    assert "at most 0.000 off" in found[5].why
    assert "from 0.5000 to 0.5000" in found[7].why


def test_without_processes_and_without_the_log_the_rest_is_judged() -> None:
    pure, _ = figured.digests()
    found = Found(pure, {"live": figured.columns([])})
    assert set(verdicts(found)) == {1, 2, 5, 6, 7}
    empty = figured.columns([])
    few = {name: table if name in ("document", "differences") else empty for name, table in pure.items()}
    assert goals.goals(Found(few, {"live": empty})) == []


def test_goals_are_met_or_missed_for_each_stream() -> None:
    all_of_them = goals.goals(figured.found())
    assert [len(goal.found) for goal in all_of_them] == [8, 2, 2, 2, 2, 2, 2]
    assert all(met for goal in all_of_them for _, _, met in goal.found)

    def behind(row: Row) -> Row:
        return row | {"by_read": [0.049, 0.001]} if row["stream"] == "zipf 1" else row

    [ahead, *_] = goals.goals(figured.found("ahead", behind))
    assert [reading for reading, _, met in ahead.found if not met] == ["zipf 1, 1%", "zipf 1, 10%"]

    def above(row: Row) -> Row:
        return row | {"by_read": [0.72, 0.001]} if (row["policy"], row["share"]) == ("gdsf", 0.1) else row

    [_, bounded, *_] = goals.goals(figured.found("reads", above))
    assert [(text[:6], met) for _, text, met in bounded.found] == [("0 of 6", True), ("4 of 6", False)]

    def apart(row: Row) -> Row:
        return row | {"libcachesim": [0.51, 0.0]} if row["policy"] == "sieve" else row

    missed = {goal.text for goal in goals.goals(figured.found("requests", apart)) if not goal.found[0][2]}
    assert missed == {"sieve against libcachesim's"}

    def exact(row: Row) -> Row:
        return row | {"rate": [0.52, 0.0]} if row["policy"] == "tinylfu" else row

    assert all(met for goal in goals.goals(figured.found("requests", exact)) for _, _, met in goal.found)
