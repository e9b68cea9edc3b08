"""The content of a digest: the document for the report, made from the figures that Spark computed.

Owns the shape of digest.json, the totals over measured phases, the judgement of goals, and the notes on everything that
a reader must know before relying on a figure. Its functions turn rows into plain JSON values. They never read a log.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ingeborg.bench.digest import usage
from ingeborg.bench.errors import BenchError

DIGEST_VERSION = 2

Rows = Sequence[Mapping[str, Any]]
Json = dict[str, Any]

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

PERCENTILES_PPM = {
    "p50": 500_000,
    "p90": 900_000,
    "p95": 950_000,
    "p99": 990_000,
    "p99.9": 999_000,
    "p99.99": 999_900,
    "max": 1_000_000,
}
"""The percentiles of the table, in parts per million. Ranks are computed with integers, which makes them exact."""

COUNTS = (
    "news",
    "reports",
    "duplicates_offered",
    "expected",
    "delivered",
    "lost",
    "conflated",
    "duplicated",
    "reordered",
    "overtaken",
    "excess",
    "unannounced",
    "errors",
)
"""Counts of a phase, which add up over phases. `reports` counts messages sent to the system, and `delivered` counts
messages that clients got from the system. SCHEMA.md defines each count."""

CAUSAL = "causal_violations"
"""The goal that the causal check judges. The check runs only if a run has this goal."""

ALWAYS = {"lost": 0, "duplicated": 0}
"""Goals that apply to every run, even if its run.json does not name them."""

DUPLICATES_DROPPED = re.compile(r"(^|_)duplicates?(_dropped)?_total$")
"""Matches the name, without labels, of a server's counter of dropped duplicates."""

STORE_OPERATIONS = re.compile(r'^ingeborg_store_total\{(.*,)?what="(gets|puts|reads|writes)"')
"""Matches the broker's counters of its store operations."""

SECONDS_MIN = 3
"""The noise of a phase is computed from at least this number of whole seconds. With two seconds, neither a standard
deviation nor quartiles mean anything."""

PHASE_TABLES = ("sending", "deliveries", "outcomes", "errors", "latency", "lag", "processes")
TABLES = (*PHASE_TABLES, "phases", "latency_measured", "seconds", "machine", "counters", "causal")
"""The tables that `document` takes. The tables of `PHASE_TABLES` have one or more rows for each phase."""

_LATENCY_GOAL = re.compile(r"(p\d+(?:[._]\d+)?|max|mean)_ms")


def document(runs: Sequence[Json], figures: Mapping[str, Rows]) -> Json:
    """Return the digest of `runs`, each of which is `{"facts", "directory", "log", "percentile_error"}`.
    `percentile_error` is null if the percentiles of the run's phases are exact. Otherwise it bounds the error of their
    ranks, as a share of the deliveries.

    `figures` are tables whose rows have a `run` column: phases, sending, deliveries, outcomes, errors, latency, lag,
    seconds, machine, processes and counters. There are two more tables: latency_measured covers all measured phases
    together, for runs with several measured phases; causal has the verdicts of runs with the goal `causal_violations`.

    Raises BenchError if events name a phase that a complete run does not list.
    """
    of_run: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for name, rows in figures.items():
        for row in rows:
            of_run.setdefault(row["run"], {}).setdefault(name, []).append(row)
    return {"digest": DIGEST_VERSION, "runs": [_run(run, of_run.get(run["facts"]["run"], {})) for run in runs]}


def _run(run: Json, tables: Mapping[str, Rows]) -> Json:
    facts = run["facts"]
    notes: list[str] = []
    figures = {name: tables.get(name, ()) for name in TABLES}
    phases = _phases(run, figures, notes)
    measured = _measured(phases, figures)
    counters = _counters(figures["counters"], {phase["phase"] for phase in phases if phase["measured"]}, notes)
    measured["duplicates_dropped"] = duplicates_dropped(counters)
    for verdict in figures["causal"]:
        measured[CAUSAL] = verdict["violations"]
    notes += _notes(run, measured, figures)
    return {
        "run": facts["run"],
        "facts": facts,
        "failed": facts.get("failed"),
        "log": run["log"],
        "percentile_error": run["percentile_error"],
        "phases": phases,
        "measured": measured,
        "goals": goals(facts["goals"], measured),
        "memory": usage.memory(figures["processes"], phases),
        "store_operations_per_delivered": store_operations(counters, measured["delivered"]),
        "counters": counters,
        "notes": notes,
    }


def _phases(run: Json, figures: Mapping[str, Rows], notes: list[str]) -> list[Json]:
    """Return all phases in chronological order: the phases that phases.csv lists and, if the run was cut short, the
    phases that only its events name."""
    facts = run["facts"]
    seen = {row["phase"]: row for row in figures["sending"]}
    listed = {row["phase"]: row for row in figures["phases"]}
    if len(listed) != len(figures["phases"]):
        raise BenchError(f"{run['directory']}/phases.csv lists a phase twice")
    unlisted = sorted(set(seen) - set(listed))
    if unlisted and facts["complete"]:
        raise BenchError(f"{run['directory']}: events name phase {unlisted[0]!r}, which phases.csv does not list")
    notes += [f"Phase “{phase}” was cut short: its events are counted, but no goal judges them." for phase in unlisted]
    spans = [row | {"measured": bool(row["measured"]), "listed": True} for row in map(dict, listed.values())]
    spans += [
        {"phase": name, "start_ns": seen[name]["first_ns"], "end_ns": seen[name]["last_ns"]}
        | {"measured": False, "listed": False}
        for name in unlisted
    ]
    cores = (facts.get("machine") or {}).get("cores")
    seconds = {row["second"]: row for row in figures["seconds"]}
    by_time = sorted(spans, key=lambda span: (span["start_ns"], span["end_ns"], span["phase"]))
    return [_phase(span, facts["started_ns"], cores, seconds, _of_phase(figures, span["phase"])) for span in by_time]


def _of_phase(figures: Mapping[str, Rows], phase: str) -> dict[str, Rows]:
    return {name: [row for row in figures[name] if row["phase"] == phase] for name in PHASE_TABLES}


def _phase(span: Json, started_ns: int, cores: Any, seconds: Mapping[int, Any], figures: Mapping[str, Rows]) -> Json:
    counts: Json = dict.fromkeys(COUNTS, 0)
    times: Json = {}
    for table in ("sending", "deliveries", "outcomes"):
        for row in figures[table]:
            counts |= {count: row[count] for count in COUNTS if count in row}
            times |= {name: value for name, value in row.items() if name not in COUNTS}
    codes = {row["code"]: row["errors"] for row in figures["errors"]}
    start_ns, end_ns = span["start_ns"] - started_ns, span["end_ns"] - started_ns
    duration_s = (end_ns - start_ns) / NS_PER_S
    amount = span.get("amount")
    processes = usage.processes(figures["processes"])
    return {
        "phase": span["phase"],
        "kind": span.get("kind"),
        "start_s": start_ns / NS_PER_S,
        "end_s": end_ns / NS_PER_S,
        "duration_s": duration_s,
        "measured": span["measured"],
        "listed": span["listed"],
        "offered_per_s": span.get("offered_per_s"),
        "amount": amount,
        "amount_per_s": amount / duration_s if amount is not None and duration_s > 0 else None,
        "detail": span.get("detail"),
        **counts,
        **_rates(counts, duration_s),
        **_spans_rates(counts, times),
        "error_codes": dict(sorted(codes.items())),
        **_latency(figures["latency"], times.get("mean_ns")),
        "lag_ns": _lag(figures["lag"]),
        "processes": processes,
        "cpu_us_per_delivered": usage.cpu_us_per_delivered(processes, counts["delivered"]),
        "saturated": usage.saturated(processes, cores),
        "noise": noise(seconds, start_ns, end_ns),
    }


def _spans_rates(counts: Json, times: Json) -> Json:
    """Return the rates per second between a phase's first and last message. A rate is null if there are fewer than two
    messages, or if no time passed between them."""

    def rate(count: int, gaps: int, since: str, until: str) -> float | None:
        first, last = times.get(since), times.get(until)
        passed = 0 if first is None or last is None else last - first
        return gaps * NS_PER_S / passed if count >= 2 and passed > 0 else None

    reports, delivered = counts["reports"], counts["delivered"]
    return {
        "produce_per_s": rate(reports, reports - 1, "first_sent_ns", "last_sent_ns"),
        "consume_per_s": rate(delivered, delivered - 1, "first_received_ns", "last_received_ns"),
        "end_to_end_per_s": rate(delivered, delivered, "first_intended_ns", "last_received_ns"),
    }


def _lag(rows: Rows) -> Json:
    """Return how far the sender was behind its schedule, as `p50`, `p99` and `max`. They are null if the phase sent
    nothing."""
    by_ppm = {row["ppm"]: row["lag_ns"] for row in rows}
    return {name: by_ppm.get(PERCENTILES_PPM[name]) for name in ("p50", "p99", "max")}


def noise(seconds: Mapping[int, Mapping[str, Any]], start_ns: int, end_ns: int) -> Json | None:
    """Return how much the whole seconds inside a phase differ from each other, or null if there are fewer than three
    whole seconds. The phase's bounds are in ns since the run's start.

    `seconds` is the number of whole seconds. `delivered_per_s` has their `mean` and `cv`, the standard deviation
    divided by the mean (null if the mean is 0). `p99_ns` has the quartiles `q1, median, q3` (null if fewer than three
    seconds have a latency).
    """
    whole = [seconds.get(second, {}) for second in range(-(-start_ns // NS_PER_S), end_ns // NS_PER_S)]
    if len(whole) < SECONDS_MIN:
        return None
    delivered = [second.get("delivered", 0) for second in whole]
    mean = statistics.fmean(delivered)
    p99 = [second["p99_ns"] for second in whole if second.get("p99_ns") is not None]
    quartiles: list[float | None] = [None] * 3
    if len(p99) >= SECONDS_MIN:
        quartiles = [*statistics.quantiles(p99, n=4, method="inclusive")]
    return {
        "seconds": len(whole),
        "delivered_per_s": {"mean": mean, "cv": statistics.stdev(delivered) / mean if mean else None},
        "p99_ns": dict(zip(("q1", "median", "q3"), quartiles, strict=True)),
    }


def _rates(counts: Json, duration_s: float) -> Json:
    def rate(count: int) -> float | None:
        return count / duration_s if duration_s > 0 else None

    return {"reports_per_s": rate(counts["reports"]), "delivered_per_s": rate(counts["delivered"])}


def _latency(rows: Rows, mean_ns: float | None) -> Json:
    """Return `latency_ns`, the mean and the percentiles by name (all null without deliveries), and `curve`, a list of
    [ppm, ns]."""
    by_ppm = {row["ppm"]: row["latency_ns"] for row in rows}
    table = {name: by_ppm.get(ppm) for name, ppm in PERCENTILES_PPM.items()}
    return {"latency_ns": table | {"mean": mean_ns}, "curve": [list(point) for point in sorted(by_ppm.items())]}


def _measured(phases: Sequence[Json], figures: Mapping[str, Rows]) -> Json:
    """Return the totals over the measured phases, which the goals judge."""
    chosen = [phase for phase in phases if phase["measured"]]
    counts: Json = {count: sum(phase[count] for phase in chosen) for count in COUNTS}
    duration_s = sum(phase["duration_s"] for phase in chosen)
    codes: dict[str, int] = {}
    for phase in chosen:
        for code, errors in phase["error_codes"].items():
            codes[code] = codes.get(code, 0) + errors
    weighted = [(phase["latency_ns"]["mean"], phase["delivered"]) for phase in chosen if phase["delivered"]]
    latency = figures["latency_measured"]
    if len(chosen) == 1:
        latency = [row for row in figures["latency"] if row["phase"] == chosen[0]["phase"]]
    mean_ns = sum(mean * n for mean, n in weighted) / counts["delivered"] if weighted else None
    return {
        "phases": [phase["phase"] for phase in chosen],
        "duration_s": duration_s,
        **counts,
        **_rates(counts, duration_s),
        "error_codes": dict(sorted(codes.items())),
        **_latency(latency, mean_ns),
    }


def goals(wanted: Mapping[str, float], measured: Mapping[str, Any]) -> list[Json]:
    """Judge each goal. A verdict has `goal`, `limit`, `measured` (in the goal's unit, or null if there was nothing to
    measure) and `met`.

    A latency goal counts as missed if nothing was delivered. A goal with an unknown name is listed but not judged
    (`met` is null).
    """
    judged: list[Json] = []
    for goal, limit in {**wanted, **{name: limit for name, limit in ALWAYS.items() if name not in wanted}}.items():
        latency = _LATENCY_GOAL.fullmatch(goal)
        value: float | None = None
        known = goal in COUNTS or goal == CAUSAL
        if latency:
            known = (name := latency[1].replace("_", ".")) in measured["latency_ns"]
            value_ns = measured["latency_ns"].get(name)
            value = None if value_ns is None else value_ns / NS_PER_MS
        elif known and measured["news"]:
            value = measured.get(goal)
        met = (value is not None and value <= limit) if known else None
        judged.append({"goal": goal, "limit": limit, "measured": value, "met": met})
    return judged


def _counters(rows: Rows, measured: set[str], notes: list[str]) -> list[Json]:
    """Return how much each of the servers' counters (`…_total`) grew over the measured phases: `delta` is the sum over
    all sources, and `sources` has the growth at each source."""
    totals: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["phase"] not in measured or not _base(row["name"]).endswith("_total"):
            continue
        delta = row["last"] if row["reset"] else row["last"] - row["first"]
        if row["reset"]:
            notes.append(
                f"Counter {row['name']} of {row['source']} was reset in phase “{row['phase']}” (a restart): only its "
                "growth after the reset counts."
            )
        sources = totals.setdefault(row["name"], {})
        sources[row["source"]] = sources.get(row["source"], 0.0) + delta
    return [
        {"name": name, "delta": sum(sources.values()), "sources": dict(sorted(sources.items()))}
        for name, sources in sorted(totals.items())
    ]


def _base(name: str) -> str:
    return name.partition("{")[0]


def duplicates_dropped(counters: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the number of duplicates that the system dropped in the measured phases, by its own count, or None if it
    does not count them."""
    deltas: list[float] = [row["delta"] for row in counters if DUPLICATES_DROPPED.search(_base(row["name"]))]
    return sum(deltas) if deltas else None


def store_operations(counters: Iterable[Mapping[str, Any]], delivered: int) -> float | None:
    """Return the broker's store operations (gets, puts, reads, writes) per delivered message in the measured phases.
    Returns None if the system does not count these operations, or if it delivered nothing."""
    deltas: list[float] = [row["delta"] for row in counters if STORE_OPERATIONS.search(row["name"])]
    return sum(deltas) / delivered if deltas and delivered else None


def _notes(run: Json, measured: Mapping[str, Any], figures: Mapping[str, Rows]) -> list[str]:
    """Return the notes that a reader must know before relying on the figures."""
    notes = []
    log = run["log"]
    if not run["facts"]["complete"]:
        notes.append("The run was cut short: the figures cover only the part that it logged.")
    if log["torn"]:
        notes.append(f"Skipped torn last lines: {len(log['torn'])}, in {', '.join(log['torn'])}.")
    if log["empty"]:
        notes.append(f"Skipped empty files: {len(log['empty'])}, {', '.join(log['empty'])}.")
    if not measured["news"]:
        notes.append("Nothing was measured: no new message was sent in a measured phase. No goal is met.")
    elif not measured["delivered"]:
        notes.append("Nothing was delivered in the measured phases.")
    skipped = sum(row["skipped"] for row in figures["outcomes"])
    conflated = sum(row["conflated"] for row in figures["outcomes"])
    if skipped > conflated:
        notes.append(
            "Messages that were delivered although others replaced them, or that were due to nobody: "
            f"{skipped - conflated:,}."
        )
    if measured["excess"]:
        notes.append(f"Deliveries to more connections than the log expected: {measured['excess']:,}.")
    rewritten = sum(row["rewritten"] for row in figures["outcomes"])
    if rewritten:
        notes.append(
            f"New messages that the log has more than once: {rewritten:,}. Their losses are counted only once."
        )
    unannounced = sum(row["unannounced"] for row in figures["deliveries"])
    if unannounced:
        notes.append(f"Deliveries of messages that the log does not record as sent: {unannounced:,}.")
    if run["percentile_error"] is not None:
        notes.append(
            "The run has too many deliveries for exact percentiles of its phases, so a sketch estimates them. Their "
            f"ranks are off by at most {run['percentile_error']:.4%} of the deliveries. The percentiles of each second "
            "are exact."
        )
    if not figures["machine"]:
        notes.append("There is no machine.csv: the use of processor and memory was not recorded.")
    return notes
