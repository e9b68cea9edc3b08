"""Judges findings and goals from handmade figures, with one changed at a time."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.bench.caching import claims, conclusions, goals
from ingeborg.bench.caching.found import Found
from ingeborg.bench.experiments.figures import columns
from ingeborg.bench.text.blocks import FAILS, HOLDS, NOISE, Claim

from . import figured

Row = dict[str, Any]

ROOMS = "50%, 20%, 10%, 5%, 2%, 1%"
OUT, AGAIN = "missed records stay out", "missed records ask again"
LMDB = "LMDB, polls wait, each record written"


def numbered(found: Found) -> dict[int, Claim]:
    """Return the document's claims by the numbers of their experiments. The motivation is 0."""
    return {
        int(claim.where.removeprefix("experiment ").replace("motivation", "0")): claim for claim in claims.judged(found)
    }


def verdicts(found: Found) -> dict[int, dict[str, str]]:
    return {number: {one.reading: one.verdict for one in claim.verdicts} for number, claim in numbered(found).items()}


def ours(found: Found) -> dict[str, dict[str, str]]:
    """Return the verdicts on our own sentences by a word of each."""
    words = ("admit every record", "LRU", "factor", "slowest")
    return {
        next(word for word in words if word in claim.text): {one.reading: one.verdict for one in claim.verdicts}
        for claim in conclusions.judged(found)
    }


def test_what_is_as_the_document_says_holds_by_each_reading() -> None:
    found = verdicts(figured.found())
    assert list(found) == list(range(8))
    noise = {("LMDB, polls twice a second, each record written: above all with many records")}
    for each in found.values():
        assert {verdict for reading, verdict in each.items() if reading not in noise} == {HOLDS}
    assert list(found[1]) == ["unlimited memory", f"{ROOMS}, {OUT}", f"{ROOMS}, {AGAIN}"]
    assert list(found[3])[:4] == [
        f"{LMDB}: greatest",
        f"{LMDB}: above all with many records",
        f"{LMDB}: negligible with few",
        "LMDB, polls wait, memory or database: greatest",
    ]
    assert list(found[4])[:4] == [
        "LMDB, each record written: greatest",
        "LMDB, each record written: least CPU time",
        "LMDB, each record written: above all with many records",
        "LMDB, memory or database, all writes nothing: greatest",
    ]
    assert "LMDB, memory or database, all writes each: least CPU time" in found[4]
    assert list(found[7])[2:] == [
        f"hit rate, 10%, {AGAIN}",
        "latency, polls wait",
        "variance of the threshold, γ = 0.7",
        "variance of the threshold, γ + α = 1",
    ]
    assert list(found[0])[:2] == ["LMDB, polls wait: reads", "LMDB, polls wait: writes"]


@pytest.mark.parametrize(
    ("difference", "verdict"), [([-0.05, 0.01], HOLDS), ([-0.005, 0.01], NOISE), ([0.05, 0.01], FAILS)]
)
@pytest.mark.parametrize("again", [False, True])
def test_buffer_has_to_be_ahead_for_certain_with_each_number_of_records(
    again: bool, difference: list[float], verdict: str
) -> None:
    def change(row: Row) -> Row:
        wanted = ("mean", "buffer", 2_000, 0.1, again)
        same = tuple(row[name] for name in ("one", "other", "records", "share", "reads_in")) == wanted
        return row | {"by_read": difference} if same else row

    all_found = figured.found("differences", change)
    found = verdicts(all_found)[1]
    changed, other = (AGAIN, OUT) if again else (OUT, AGAIN)
    assert found[f"{ROOMS}, {other}"] == found["unlimited memory"] == HOLDS
    if verdict == HOLDS:
        assert found[f"{ROOMS}, {changed}"] == HOLDS
    else:  # the room with another verdict has a line of its own
        assert found[f"10%, {changed}"] == verdict
        assert found[f"{ROOMS.replace('10%, ', '')}, {changed}"] == HOLDS
    said = " ".join(one.found for one in numbered(all_found)[1].verdicts)
    assert ("mean is ahead of buffer with 2,000 records" in said) == (verdict == FAILS)


def test_a_verdict_of_a_single_seed_says_so() -> None:
    def single(row: Row) -> Row:
        return row | {"seeds": 1} if row["share"] == 0.01 and not row["sweep"] else row

    found = verdicts(figured.found("document", single))[1]
    assert f"50%, 20%, 10%, 5%, 2%, 1% (one seed), {OUT}" in found
    assert "unlimited memory" in found


def test_duplication_is_judged_as_the_most_and_as_similar_for_each_reading() -> None:
    def apart(row: Row) -> Row:
        changed = (row["policy"], row["share"], row["reads_in"]) == ("mean", 0.1, True)
        return row | {"duplication": [72.0, 1.0]} if changed else row

    found = verdicts(figured.found("document", apart))[2]
    assert [reading for reading, verdict in found.items() if verdict == FAILS] == [f"similar: 10%, {AGAIN}"]

    def less(row: Row) -> Row:
        changed = (row["one"], row["other"], row["share"]) == ("mean", "buffer", None)
        return row | {"duplication": [-1.0, 0.5]} if changed else row

    found = verdicts(figured.found("differences", less))[2]
    assert [reading for reading, verdict in found.items() if verdict == FAILS] == ["the greatest: unlimited memory"]


def with_live(kind: str, strategy: str, changes: Row, **wanted: Any) -> Found:
    """Return the figures with changes in the largest runs of one strategy in one set-up."""
    wanted = {"database": "lmdb", "via": "direct", "writes": "always", "fetches": "waiting", "capacity": None} | wanted
    wanted |= {"kind": kind, "strategy": strategy, "parameters": ""}

    def change(row: Row) -> Row:
        same = all(row[name] == value for name, value in ({"records": 10_000} | wanted).items())
        return row | changes if same else row

    return figured.found("live", change)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"latency_ms": [60.0, 0.1], "database_ms": 0.1}, NOISE),  # slower, but not because of the database
        ({"latency_ms": [24.0, 2.0], "database_ms": 21.0}, NOISE),  # the interval overlaps that of threshold
        ({"latency_ms": [60.0, 0.1], "database_ms": 30.0, "writing_ms": 29.5}, HOLDS),  # its writes wait for its reads
        ({"latency_ms": [2.0, 0.1], "database_ms": -1.0, "writing_ms": 2.5}, FAILS),
    ],
)
def test_a_latency_is_judged_by_its_interval_and_by_the_databases_part(changes: Row, verdict: str) -> None:
    found = verdicts(with_live("latency", "none", changes, via="kafka"))[3]
    assert found[f"{LMDB}: greatest"] == HOLDS
    assert found["Kafka, polls wait, each record written: greatest"] == verdict


def test_with_few_records_the_difference_must_be_noise() -> None:
    slow = {"latency_ms": [9.0, 0.1], "database_ms": 6.0}
    found = verdicts(with_live("latency", "none", slow, records=500))[3]
    assert found[f"{LMDB}: negligible with few"] == FAILS
    assert found["Riak, polls wait, each record written: negligible with few"] == HOLDS


@pytest.mark.parametrize(
    ("per_s", "verdict"),
    [([30_000.0, 100.0], FAILS), ([19_000.0, 950.0], NOISE), ([19_000.0, 100.0], HOLDS)],
)
def test_a_throughput_is_the_greatest_if_no_interval_reaches_its_own(per_s: list[float], verdict: str) -> None:
    found = verdicts(with_live("throughput", "buffer", {"records_per_s": per_s}))[4]
    assert found["LMDB, each record written: greatest"] == verdict
    assert found["LMDB, memory or database, all writes nothing: greatest"] == HOLDS


def test_the_least_cpu_time_is_judged_apart_from_the_throughput() -> None:
    noisy = {"records_per_s": [17_000.0, 9_000.0], "cpu_us": [40.0, 0.5]}
    found = verdicts(with_live("throughput", "buffer", noisy))[4]
    assert found["LMDB, each record written: greatest"] == NOISE
    assert found["LMDB, each record written: least CPU time"] == FAILS


def test_reads_and_writes_of_the_database_are_judged_by_their_share_of_a_latency() -> None:
    found = verdicts(with_live("latency", "none", {"database_ms": 2.1, "writing_ms": 2.2}))[0]
    assert (found["LMDB, polls wait: reads"], found["LMDB, polls wait: writes"]) == (FAILS, HOLDS)  # of 43 ms
    assert found["Riak, polls wait: reads"] == HOLDS


def test_one_or_two_runs_prove_nothing() -> None:
    found = verdicts(with_live("throughput", "buffer", {"records_per_s": [30_000.0, 0.0], "runs": 2}))[4]
    assert found["LMDB, each record written: greatest"] == NOISE


def test_unlimited_caching_is_judged_as_writing_nothing_and_as_writing_each_record() -> None:
    found = verdicts(with_live("throughput", "all", {"records_per_s": [12_000.0, 100.0]}))[4]
    assert found["LMDB, memory or database, all writes nothing: greatest"] == HOLDS
    assert found["LMDB, memory or database, all writes each: greatest"] == FAILS


def test_the_lead_of_a_cache_must_grow_with_the_records() -> None:
    found = verdicts(with_live("throughput", "all", {"records_per_s": [20_000.0, 100.0]}, records=500))[4]
    assert found["LMDB, each record written: above all with many records"] == NOISE
    found = verdicts(with_live("throughput", "all", {"records_per_s": [40_000.0, 100.0]}, records=500))[4]
    assert found["LMDB, each record written: above all with many records"] == FAILS


def test_our_own_sentences_are_judged_by_each_reading() -> None:
    found = ours(figured.found())
    assert found["admit every record"] == dict.fromkeys(
        (f"lru, sieve, tinylfu, gdsf, owed, owed inflated, {room}" for room in ("1%", "10%")), HOLDS
    )
    assert found["LRU"] == {f"{ROOMS}, {OUT}": HOLDS, f"{ROOMS}, {AGAIN}": HOLDS}
    assert found["factor"] == {OUT: HOLDS, AGAIN: HOLDS}
    assert found["slowest"]["LMDB, each record written, 10,000 records: throughput"] == FAILS

    def behind(row: Row) -> Row:
        changed = (row["policy"], row["share"], row["stream"]) == ("gdsf", 0.1, "zipf 1")
        return row | {"by_read": [-0.03, 0.001]} if changed else row

    found = ours(figured.found("over_rules", behind))
    assert found["admit every record"]["gdsf, 10%"] == FAILS
    assert found["admit every record"]["lru, sieve, tinylfu, owed, owed inflated, 10%"] == HOLDS

    def apart(row: Row) -> Row:
        changed = (row["policy"], row["share"], row["reads_in"]) == ("threshold", 0.01, True)
        return row | {"duplication": [76.0, 1.0]} if changed else row

    assert ours(figured.found("document", apart))["factor"] == {OUT: HOLDS, AGAIN: FAILS}


@pytest.mark.parametrize(("per_s", "verdict"), [([9_000.0, 100.0], HOLDS), ([9_850.0, 100.0], NOISE)])
def test_owed_is_the_slowest_only_if_no_interval_reaches_its_own(per_s: list[float], verdict: str) -> None:
    found = ours(with_live("throughput", "owed", {"records_per_s": per_s, "cpu_us": [200.0, 1.0]}))["slowest"]
    assert found["LMDB, each record written, 10,000 records: throughput"] == verdict
    assert found["LMDB, each record written, 10,000 records: CPU time"] == HOLDS


def test_parameters_are_judged_by_hit_rates_and_by_latencies() -> None:
    def dip(row: Row) -> Row:
        changed = row["sweep"] and row["parameters"] in ("3", "0.3 0.7") and row["reads_in"] is False
        return row | {"by_read": [0.3, 0.01]} if changed else row

    found = verdicts(figured.found("document", dip))
    assert [found[number]["hit rate, unlimited memory"] for number in (5, 6, 7)] == [FAILS, FAILS, HOLDS]
    assert [found[number][f"hit rate, 10%, {AGAIN}"] for number in (5, 6, 7)] == [HOLDS] * 3

    def fast(row: Row) -> Row:
        return row | {"database_ms": 0.01} if row["parameters"] else row

    found = verdicts(figured.found("live", fast))
    assert [found[number]["latency, polls wait"] for number in (5, 6, 7)] == [NOISE] * 3

    def most_at_the_ends(row: Row) -> Row:
        if row["policy"] != "buffer" or not row["sweep"]:
            return row
        own, before = map(float, row["parameters"].split())
        return row | {"variance": [own**2 + before**2, 0.001]}

    found = verdicts(figured.found("document", most_at_the_ends))
    assert found[7]["variance of the threshold, γ = 0.7"] == HOLDS
    assert found[7]["variance of the threshold, γ + α = 1"] == FAILS


def test_each_finding_says_its_figures_and_why() -> None:
    found = numbered(figured.found())
    assert all(claim.why and any(one.found for one in claim.verdicts) for claim in found.values())
    assert "buffer 0.700" in found[1].verdicts[0].found
    assert "10,000 records +10.0 ± 1.0" in found[1].verdicts[0].found
    assert found[1].verdicts[1].found.startswith("10% all 1.000, threshold 0.500, mean 0.600, buffer 0.700")
    assert "at most 0.000 off" in found[5].why
    assert "from 0.5000 to 0.5000" in found[7].why
    assert "all 0%, threshold 100%, mean 40%, buffer 30%" in found[4].found[-1]


def test_parts_that_did_not_run_are_left_out() -> None:
    pure, measured = figured.digests()
    empty = columns([])
    nothing = dict.fromkeys(pure, empty)
    assert set(verdicts(Found(pure, {"live": empty}))) == {1, 2, 5, 6, 7}
    assert set(verdicts(Found(nothing, measured))) == {0, 3, 4, 5, 6, 7}
    few = nothing | {name: pure[name] for name in ("document", "differences")}
    assert goals.goals(Found(few, {"live": empty})) == []
    assert set(ours(Found(few, {"live": empty}))) == {"LRU", "factor"}
    assert claims.judged(Found(nothing, {"live": empty})) == conclusions.judged(Found(nothing, {"live": empty})) == []


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
