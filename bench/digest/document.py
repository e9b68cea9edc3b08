"""The content of a digest: the document for the report, made from the figures that Spark computed.

Owns the shape of digest.json, the totals over measured phases, the judgement of goals, and the notes on everything a
reader must know before believing a figure. Pure: rows in, plain JSON values out. It never reads a log.
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
"""The percentiles of the table, in parts per million: ranks are computed in integers, so that they are exact."""

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
"""Counts of a phase, which add up over phases. `reports` is in, `delivered` is out; SCHEMA.md defines each."""

CAUSAL = "causal_violations"
"""A goal that the causal check judges, which runs only if a run has it."""

ALWAYS = {"lost": 0, "duplicated": 0}
"""Goals of every run, even if its run.json does not name them."""

DUPLICATES_DROPPED = re.compile(r"(^|_)duplicates?(_dropped)?_total$")
"""The server's counter of dropped duplicates, by its name without labels."""

STORE_OPERATIONS = re.compile(r'^ingeborg_store_total\{(.*,)?what="(gets|puts|reads|writes)"')
"""The broker's counters of its store operations."""

SECONDS_MIN = 3
"""Minimum number of whole seconds of a phase for its noise: with two, neither a deviation nor quartiles mean
anything."""

PHASE_TABLES = ("sending", "deliveries", "outcomes", "errors", "latency", "lag", "processes")
TABLES = (*PHASE_TABLES, "phases", "latency_measured", "seconds", "machine", "counters", "causal")
"""The tables that `document` takes; the first have a row per phase, and more."""

_LATENCY_GOAL = re.compile(r"(p\d+(?:[._]\d+)?|max|mean)_ms")


def document(runs: Sequence[Json], figures: Mapping[str, Rows]) -> Json:
    """Return the digest of `runs` (each `{"facts", "directory", "log", "percentile_error"}`: the last is null if the
    percentiles of its phases are exact, else the bound of the error of their ranks, as a share of the deliveries).

    `figures` are tables whose rows have a `run` column: phases, sending, deliveries, outcomes, errors, latency, lag,
    seconds, machine, processes, counters; latency_measured, over all measured phases of runs with several; and causal,
    the verdicts of runs that have a goal of that name.

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
    """Return every phase, in time: listed in phases.csv, or only named by events of a run that was cut short."""
    facts = run["facts"]
    seen = {row["phase"]: row for row in figures["sending"]}
    listed = {row["phase"]: row for row in figures["phases"]}
    if len(listed) != len(figures["phases"]):
        raise BenchError(f"{run['directory']}/phases.csv lists a phase twice")
    unlisted = sorted(set(seen) - set(listed))
    if unlisted and facts["complete"]:
        raise BenchError(f"{run['directory']}: events are of phase {unlisted[0]!r}, which phases.csv does not list")
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
    """Return rates between a phase's first and last message, per second; null with fewer than two messages, or if no
    time passed."""

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
    """Return how far the sender was behind its schedule: `p50`, `p99`, `max`; null for a phase that sent nothing."""
    by_ppm = {row["ppm"]: row["lag_ns"] for row in rows}
    return {name: by_ppm.get(PERCENTILES_PPM[name]) for name in ("p50", "p99", "max")}


def noise(seconds: Mapping[int, Mapping[str, Any]], start_ns: int, end_ns: int) -> Json | None:
    """Return how much the whole seconds inside a phase (ns since the run's start) differ: `seconds`, their number;
    `delivered_per_s`: `mean` and `cv`, the standard deviation over the mean (null if the mean is 0); `p99_ns`:
    quartiles `q1, median, q3` (null if fewer than three seconds have a latency). Null with fewer than three seconds."""
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
    """Return `latency_ns`: percentiles by name and the mean, null without deliveries; `curve`: [ppm, ns] …"""
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
    """Judge each goal: `goal`, `limit`, `measured` (in the goal's unit; null: nothing to measure), and `met`.

    A latency goal without any delivery is missed, not met by silence. A goal of an unknown name is shown, but not
    judged (`met` is null).
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
    """Return the servers' counters (`…_total`) over the measured phases, per name: `delta` over all sources and by
    `sources`."""
    totals: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["phase"] not in measured or not _base(row["name"]).endswith("_total"):
            continue
        delta = row["last"] if row["reset"] else row["last"] - row["first"]
        if row["reset"]:
            notes.append(
                f"Counter {row['name']} of {row['source']} went back in phase “{row['phase']}” (a restart): only its "
                "growth afterwards counts."
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
    """Return how many duplicates the system reports as dropped in the measured phases; None if it does not say."""
    deltas: list[float] = [row["delta"] for row in counters if DUPLICATES_DROPPED.search(_base(row["name"]))]
    return sum(deltas) if deltas else None


def store_operations(counters: Iterable[Mapping[str, Any]], delivered: int) -> float | None:
    """Return the broker's store operations (gets, puts, reads, writes) per delivered message in the measured phases;
    None if the system does not count them, or delivered nothing."""
    deltas: list[float] = [row["delta"] for row in counters if STORE_OPERATIONS.search(row["name"])]
    return sum(deltas) / delivered if deltas and delivered else None


def _notes(run: Json, measured: Mapping[str, Any], figures: Mapping[str, Rows]) -> list[str]:
    """Return the notes that a reader must know before believing the figures."""
    notes = []
    log = run["log"]
    if not run["facts"]["complete"]:
        notes.append("The run was cut short: these are the figures of what it logged before.")
    if log["torn"]:
        files = ", ".join(log["torn"])
        notes.append(f"{len(log['torn'])} torn last line(s) were skipped, in: {files}.")
    if log["empty"]:
        notes.append(f"{len(log['empty'])} empty file(s) were skipped: {', '.join(log['empty'])}.")
    if not measured["news"]:
        notes.append("Nothing was measured: no measured phase has any news. No goal is met.")
    elif not measured["delivered"]:
        notes.append("Nothing was delivered in the measured phases.")
    skipped = sum(row["skipped"] for row in figures["outcomes"])
    conflated = sum(row["conflated"] for row in figures["outcomes"])
    if skipped > conflated:
        notes.append(f"{skipped - conflated:,} messages that deliveries stand for had come, or were due to nobody.")
    if measured["excess"]:
        notes.append(f"{measured['excess']:,} deliveries reached connections beyond the number the log expected.")
    rewritten = sum(row["rewritten"] for row in figures["outcomes"])
    if rewritten:
        notes.append(f"{rewritten:,} news are in the log more than once: their losses are counted once.")
    unannounced = sum(row["unannounced"] for row in figures["deliveries"])
    if unannounced:
        notes.append(f"{unannounced:,} deliveries belong to no news in the log.")
    if run["percentile_error"] is not None:
        notes.append(
            "The run has too many deliveries for exact percentiles of phases: a sketch gives the rank of each within "
            f"{run['percentile_error']:.4%} of the deliveries. Those of seconds are exact."
        )
    if not figures["machine"]:
        notes.append("No machine.csv: processor and memory were not recorded.")
    return notes
