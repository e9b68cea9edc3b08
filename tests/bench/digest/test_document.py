"""The document from rows: phases, goals, notes. No Spark."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.bench.digest import document as digest
from ingeborg.bench.digest.document import Json
from ingeborg.bench.errors import BenchError
from tests.bench import synthetic
from tests.bench.synthetic import START_NS, S


def described(**changes: Any) -> Json:
    log = {"files": 3, "size_bytes": 10, "lines": 3, "torn": [], "empty": []}
    return {"facts": synthetic.facts("r", **changes), "directory": "/runs/r", "log": log, "percentile_error": None}


def document(run: Json, **tables: Any) -> Json:
    rows = {name: [{"run": "r"} | row for row in table] for name, table in tables.items()}
    made: Json = digest.document([run], rows)["runs"][0]
    return made


SENDING = {"phase": "run", "news": 3, "reports": 9, "duplicates_offered": 6, "errors": 0}
SPAN = {"first_ns": START_NS + S, "last_ns": START_NS + 2 * S}


def test_a_complete_run_must_list_every_phase_its_events_name() -> None:
    with pytest.raises(BenchError, match=r"/runs/r: events name phase 'run', which phases\.csv does not list"):
        document(described(), sending=[SENDING | SPAN])


def test_a_run_cut_short_keeps_its_unlisted_phase_but_no_goal_is_met_by_it() -> None:
    run = document(described(complete=False), sending=[SENDING | SPAN])
    [phase] = run["phases"]
    assert (phase["phase"], phase["news"], phase["start_s"], phase["measured"]) == ("run", 3, 1.0, False)
    assert [goal["met"] for goal in run["goals"]] == [False] * 4
    said = " ".join(run["notes"])
    for text in ("“run” was cut short", "The run was cut short", "Nothing was measured"):
        assert text in said


def test_what_was_skipped_is_said() -> None:
    run = described()
    run["log"] |= {"torn": ["events-000-0000.csv"], "empty": ["machine.csv"]}
    said = " ".join(document(run)["notes"])
    assert "Skipped torn last lines: 1, in " in said
    assert "events-000-0000.csv" in said
    assert "Skipped empty files: 1, " in said


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
def test_each_goal_is_met_missed_or_said_not_to_be_judged(
    goal: str, limit: float, measured: float | None, met: bool | None
) -> None:
    judged = {row["goal"]: row for row in digest.goals({goal: limit}, MEASURED)}
    assert (judged[goal]["measured"], judged[goal]["met"]) == (measured, met)


def test_nothing_lost_and_nothing_twice_are_always_goals() -> None:
    judged = {row["goal"]: row["met"] for row in digest.goals({}, MEASURED)}
    assert judged == {"lost": True, "duplicated": False}
    assert [row["met"] for row in digest.goals({}, MEASURED | {"news": 0})] == [False, False], "nothing is not success"


def test_duplicates_dropped_are_found_by_name_and_absence_is_not_zero() -> None:
    rows = [
        {"name": 'ingeborg_duplicates_dropped_total{endpoint="a"}', "delta": 3.0},
        {"name": "ingeborg_duplicates_dropped_total", "delta": 4.0},
        {"name": "ingeborg_duplicates_extended_seconds_total", "delta": 100.0},
    ]
    assert digest.duplicates_dropped(rows) == 7.0
    assert digest.duplicates_dropped(rows[2:]) is None


DELIVERIES = {"phase": "run", "duplicated": 0, "reordered": 0, "unannounced": 0, "mean_ns": 1.5}


def listed(
    name: str = "run", kind: str = "run", start: int = 0, end: int = 2 * S, measured: int = 0, **more: Any
) -> Json:
    row = {"phase": name, "kind": kind, "start_ns": START_NS + start, "end_ns": START_NS + end, "measured": measured}
    return row | {"offered_per_s": None, "amount": None, "detail": None} | more


def test_a_phase_says_what_it_was_made_of_and_how_fast() -> None:
    made = listed("subscribe", "subscribe", offered_per_s=2.0, amount=5_000, detail="held")
    [phase] = document(described(), phases=[made])["phases"]
    assert (phase["kind"], phase["offered_per_s"], phase["detail"]) == ("subscribe", 2.0, "held")
    assert (phase["amount"], phase["amount_per_s"]) == (5_000, 2_500)
    [phase] = document(described(), phases=[listed(end=0, amount=5)])["phases"]
    assert phase["amount_per_s"] is None, "no time passed"


def test_rates_between_the_first_and_the_last_message() -> None:
    sending = SENDING | {"reports": 5, "first_sent_ns": START_NS + S, "last_sent_ns": START_NS + 3 * S}
    sending |= {"first_ns": START_NS, "last_ns": START_NS + S, "first_intended_ns": START_NS}
    received = DELIVERIES | {"delivered": 9, "first_received_ns": START_NS, "last_received_ns": START_NS + 4 * S}
    [phase] = document(described(), phases=[listed()], sending=[sending], deliveries=[received])["phases"]
    assert (phase["produce_per_s"], phase["consume_per_s"], phase["end_to_end_per_s"]) == (2.0, 2.0, 2.25)
    one = received | {"delivered": 1, "first_received_ns": START_NS + 4 * S}
    [phase] = document(described(), phases=[listed()], deliveries=[one])["phases"]
    assert (phase["produce_per_s"], phase["consume_per_s"], phase["end_to_end_per_s"]) == (None, None, None)


def test_noise_is_of_the_whole_seconds_inside() -> None:
    rows = [{"second": second, "delivered": second, "p99_ns": 10 * second} for second in range(10)]
    seconds = {row["second"]: row for row in rows}
    # From the middle of second 1 to that of second 6: 2, 3, 4 and 5 are complete.
    made = digest.noise(seconds, 3 * S // 2, 13 * S // 2)
    assert made is not None
    assert made["seconds"] == 4
    assert made["delivered_per_s"] == {"mean": 3.5, "cv": pytest.approx(1.2909944 / 3.5)}
    assert made["p99_ns"] == {"q1": 27.5, "median": 35.0, "q3": 42.5}
    assert digest.noise(seconds, 2 * S, 4 * S) is None, "of two seconds, nothing is said"
    silent = digest.noise({}, 0, 4 * S)
    assert silent is not None
    assert silent["delivered_per_s"] == {"mean": 0.0, "cv": None}
    assert silent["p99_ns"] == {"q1": None, "median": None, "q3": None}


def test_store_operations_are_those_that_count_and_absence_is_not_zero() -> None:
    def counter(what: str, last: float, more: str = "") -> Json:
        name = f'ingeborg_store_total{{{more}what="{what}"}}'
        return {"phase": "run", "source": "a", "name": name, "first": 1.0, "last": last, "reset": False}

    tables = {"phases": [listed(measured=1)], "deliveries": [DELIVERIES | {"delivered": 10}]}
    counters = [counter("gets", 31.0), counter("puts", 6.0), counter("siblings", 99.0), counter("reads", 6.0, 'a="b",')]
    made = document(described(), **tables, counters=counters)
    assert made["store_operations_per_delivered"] == 4.0
    assert document(described(), **tables)["store_operations_per_delivered"] is None
    silent = document(described(), phases=tables["phases"], counters=counters)
    assert silent["store_operations_per_delivered"] is None, "nothing was delivered"


def test_the_error_of_a_sketch_is_said() -> None:
    exact, sketch = described(), described() | {"percentile_error": 1e-5}
    assert document(exact)["percentile_error"] is None
    made = document(sketch)
    assert made["percentile_error"] == 1e-5
    assert any("off by at most 0.0010% of the deliveries" in note for note in made["notes"])


def test_a_run_that_failed_at_once_has_no_figures_and_is_no_error() -> None:
    made = document(described(complete=False, failed="no connection"))
    assert (made["failed"], made["phases"]) == ("no connection", [])
    assert set(made["measured"]["latency_ns"].values()) == {None}
    assert made["memory"] == {"server_bytes_per_connection": None, "server_bytes_per_subscription": None}
