"""The document from rows: phases, goals, notes. No Spark."""

from __future__ import annotations

import pytest

from bench import digest
from bench.errors import BenchError
from tests.bench import synthetic
from tests.bench.synthetic import START_NS, S

TABLES = "sending deliveries outcomes errors phases latency counters machine".split()  # noqa: SIM905


def described(**changes):
    log = {"files": 3, "size_bytes": 10, "lines": 3, "torn": [], "empty": []}
    return {"facts": synthetic.facts("r", **changes), "directory": "/runs/r", "log": log}


def document(run, **tables):
    rows = {name: [{"run": "r"} | row for row in tables.get(name, [])] for name in TABLES}
    return digest.document([run], rows)["runs"][0]


SENDING = {"phase": "run", "news": 3, "reports": 9, "duplicates_offered": 6, "errors": 0}
SPAN = {"first_ns": START_NS + S, "last_ns": START_NS + 2 * S}


def test_a_complete_run_must_list_every_phase_its_events_name():
    with pytest.raises(BenchError, match=r"/runs/r: events are of phase 'run', which phases\.csv does not list"):
        document(described(), sending=[SENDING | SPAN])


def test_a_run_cut_short_keeps_its_unlisted_phase_but_no_goal_is_met_by_it():
    run = document(described(complete=False), sending=[SENDING | SPAN])
    [phase] = run["phases"]
    assert (phase["phase"], phase["news"], phase["start_s"], phase["measured"]) == ("run", 3, 1.0, False)
    assert [goal["met"] for goal in run["goals"]] == [False] * 4
    said = " ".join(run["notes"])
    for text in ("“run” was cut short", "The run was cut short", "Nothing was measured"):
        assert text in said


def test_what_was_skipped_is_said():
    run = described()
    run["log"] |= {"torn": ["events-000-0000.csv"], "empty": ["machine.csv"]}
    said = " ".join(document(run)["notes"])
    assert "1 torn last line(s)" in said
    assert "events-000-0000.csv" in said
    assert "1 empty file(s)" in said


MEASURED = {
    "news": 5,
    "lost": 0,
    "duplicated": 2,
    "latency_ns": {"p50": 1_500_000, "p99": None, "p99.9": 9_000_000, "max": 10_000_000, "mean": 2_000_000.0},
}


@pytest.mark.parametrize(
    ("goal", "limit", "measured", "met"),
    [
        ("p50_ms", 1.5, 1.5, True),
        ("p50_ms", 1.4, 1.5, False),
        ("p99_ms", 1000, None, False),
        ("p99.9_ms", 9, 9.0, True),
        ("p99_9_ms", 9, 9.0, True),
        ("max_ms", 9, 10.0, False),
        ("mean_ms", 9, 2.0, True),
        ("p12_ms", 9, None, None),
        ("beauty", 9, None, None),
        ("lost", 0, 0, True),
        ("duplicated", 2, 2, True),
    ],
)
def test_each_goal_is_met_missed_or_said_not_to_be_judged(goal, limit, measured, met):
    judged = {row["goal"]: row for row in digest.goals({goal: limit}, MEASURED)}
    assert (judged[goal]["measured"], judged[goal]["met"]) == (measured, met)


def test_nothing_lost_and_nothing_twice_are_always_goals():
    judged = {row["goal"]: row["met"] for row in digest.goals({}, MEASURED)}
    assert judged == {"lost": True, "duplicated": False}
    assert [row["met"] for row in digest.goals({}, MEASURED | {"news": 0})] == [False, False], "nothing is not success"


def test_duplicates_dropped_are_found_by_name_and_absence_is_not_zero():
    rows = [
        {"name": 'ingeborg_duplicates_dropped_total{endpoint="a"}', "delta": 3.0},
        {"name": "ingeborg_duplicates_dropped_total", "delta": 4.0},
        {"name": "ingeborg_duplicates_extended_seconds_total", "delta": 100.0},
    ]
    assert digest.duplicates_dropped(rows) == 7.0
    assert digest.duplicates_dropped(rows[2:]) is None


def test_subscribe_rate_where_the_run_says_how_many():
    phases = [{"phase": "subscribe", "start_ns": START_NS, "end_ns": START_NS + 2 * S, "measured": 0}]
    rates = document(described(subscriptions=5_000), phases=phases)["rates"]
    assert rates["subscribe"]["per_s"] == 2_500
    assert document(described(), phases=phases)["rates"] == {}
