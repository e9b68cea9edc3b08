"""Judges the document's sentences by handmade figures, with one changed at a time."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.bench.autoscale import claims
from ingeborg.bench.autoscale.cases import ASSIGNORS
from ingeborg.bench.text.blocks import FAILS, HOLDS, PARTLY, Claim

Json = dict[str, Any]


def system(name: str, number: int, members: float, p99_s: float, **more: Any) -> Json:
    """Return a row of a group: p50, p90 and p99 are equal here."""
    row: Json = {"system": name, "number": number, "seeds": 5, "not_caught_up": 0}
    return {**row, "members": [members, 0.5], "latency_s": [[p99_s, 0.1]] * 4, **more}


def step(event: str, of: str, median_s: float, most_s: float) -> Json:
    return {"event": event, "of": of, "count": 100, "seconds": [median_s, most_s, most_s, most_s], "most": most_s}


def run(name: str, number: int, seed: int, p99_s: float) -> Json:
    return {"system": name, "number": number, "seed": seed, "latency_s": [p99_s] * 4}


def document(**changed: Any) -> Json:
    """Return a digest that is as the document says, with some of its parts replaced."""
    systems = [system("mwf", 0, 20.0, 0.2), system("keda", 50, 26.0, 13.0)]
    runs = []
    for name in ASSIGNORS:
        systems += [system(name, number, float(number), {18: 20.0, 32: 0.1}[number]) for number in (18, 32)]
        runs += [run(name, number, 1, p99_s) for number, p99_s in ((18, 20.0), (22, 21.0), (27, 12.0))]
    changes = [step("decided", "delta 5", 0.01, 0.9), step("joined", "delta 5", 20.0, 400.0)]
    found: Json = {
        "systems": systems,
        "runs": runs,
        "changes": [*changes, step("settled", "delta 5", 5.2, 9.0)],
        "throughput": [{"test": test, "median": 2.3e6} for test in (1, 2, 3)],
        "steps": {"known_after_s": [28.0, 30.0]},
    }
    return {**found, **changed}


def one(words: str, **changed: Any) -> Claim:
    """Return the sentence that has these words."""
    [claim] = [claim for claim in claims.judged(document(**changed)) if words in claim.text]
    return claim


def verdicts(claim: Claim) -> list[tuple[str, str]]:
    return [(one.reading, one.verdict) for one in claim.verdicts]


def test_what_is_as_the_document_says_holds_and_every_verdict_names_its_reading() -> None:
    judged = claims.judged(document())
    assert len(judged) == 9
    for claim in judged:
        assert claim.verdict == HOLDS
        assert all(one.reading for one in claim.verdicts)
        assert claim.where in ("Abstract", "VI-C", "VI-F")


def test_without_figures_nothing_is_judged() -> None:
    assert claims.judged(dict.fromkeys(("systems", "runs", "changes", "throughput", "steps"))) == []
    assert claims.judged({}) == []


@pytest.mark.parametrize(("behind", "count"), [(2, "2 of 5 runs"), (None, "an unknown number of 5 runs")])
def test_keda_is_not_judged_if_a_run_began_with_a_backlog_or_does_not_say(behind: int | None, count: str) -> None:
    rows = [system("mwf", 0, 20.0, 0.2), system("keda", 50, 26.0, 13.0, not_caught_up=behind)]
    claim = one("KEDA's way", systems=rows)
    assert claim.verdicts == []
    assert f"{count} began with a backlog" in claim.found[0]
    both = one("KEDA's way", systems=[*rows, system("keda", 150, 23.0, 13.0)])
    assert [(each.reading, each.verdict) for each in both.verdicts] == [("lag 150, p99", HOLDS)]
    assert both.found == claim.found


def test_keda_is_reliable_if_its_interval_reaches_mwf() -> None:
    rows = [system("mwf", 0, 20.0, 0.2), system("keda", 50, 26.0, 0.25)]
    assert verdicts(one("KEDA's way", systems=rows)) == [("lag 50, p99", FAILS)]


def test_more_members_are_unreliable_if_a_stream_gets_worse_and_reliable_if_none_does() -> None:
    assert "worse at 1 of 2 steps, such as 18 to 22 (stream 1)" in one("More consumers").verdicts[0].found
    rows = [run("range", number, seed, 30.0 - number) for number in (18, 22, 27) for seed in (1, 2)]
    assert verdicts(one("More consumers", runs=rows)) == [("range, p99 of a stream", FAILS)]


def test_more_members_needed_counts_the_fewest_that_are_better() -> None:
    def rows(at_22_s: float) -> list[Json]:
        return [system("mwf", 0, 20.0, 0.2), *(system("range", n, n, s) for n, s in ((18, 9.0), (22, at_22_s)))]

    assert verdicts(one("at least 60 %", systems=rows(0.1))) == [("range, p99", FAILS)]
    never = one("at least 60 %", systems=rows(5.0))
    assert (verdicts(never), "never better" in never.verdicts[0].found) == ([("range, p99", HOLDS)], True)


def test_the_factor_is_of_as_many_members() -> None:
    rows = [system("mwf", 0, 20.0, 0.2), system("range", 18, 18.0, 9.0), system("range", 22, 22.0, 99.0)]
    claim = one("48 times", systems=rows)
    assert verdicts(claim) == [("range, all data", FAILS)]
    assert "45 times" in claim.verdicts[0].found


@pytest.mark.parametrize(
    ("words", "changed", "expected"),
    [
        ("2.3 MB/s", {"throughput": [{"median": 120e6}, {"median": 144e6}]}, [HOLDS, FAILS]),
        ("2.3 MB/s", {"throughput": [{"median": 2.3e6}, {"median": 3.3e6}]}, [FAILS, PARTLY]),
        ("Δt1", {"steps": {"known_after_s": [28.0, None]}}, [PARTLY]),
        ("Δt2", {"changes": [step("decided", "delta 5", 0.01, 1.2)]}, [FAILS]),
        ("Δt3", {"changes": [step("joined", "delta 5", 1.1, 3.6)]}, [FAILS]),
        ("Δt4", {"changes": [step("settled", "delta 5", 0.5, 0.9)]}, [FAILS]),
    ],
)
def test_a_time_or_a_rate_is_judged_by_the_documents_figure(words: str, changed: Json, expected: list[str]) -> None:
    assert [verdict for _, verdict in verdicts(one(words, **changed))] == expected
