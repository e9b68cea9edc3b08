"""What a digest says: the document that the report is made of, from the figures that Spark computed.

Owns the shape of digest.json, the totals over measured phases, the judgement of goals, and the notes on everything a
reader must know before believing a figure. Pure: rows in, plain JSON values out. It never reads a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.errors import BenchError

DIGEST_VERSION = 1

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
    "duplicated",
    "reordered",
    "excess",
    "unannounced",
    "errors",
)
"""Counts of a phase, which add up over phases. `reports` is in, `delivered` is out; SCHEMA.md says each in words."""

ALWAYS = {"lost": 0, "duplicated": 0}
"""Goals of every run, whether its run.json says them or not."""

DUPLICATES_DROPPED = re.compile(r"(^|_)duplicates?(_dropped)?_total$")
"""The endpoint counter of dropped duplicates, by its name without labels."""

_LATENCY_GOAL = re.compile(r"(p\d+(?:[._]\d+)?|max|mean)_ms")


def document(runs: Sequence[Json], figures: Mapping[str, Rows]) -> Json:
    """The digest of `runs` (each `{"facts", "directory", "log"}`) from the tables in `figures` (each with a `run`
    column): sending, deliveries, outcomes, errors, phases, latency, counters, machine; and latency_measured, over all
    measured phases of runs that have several.

    Raises BenchError where events name a phase that a complete run does not list.
    """
    return {"digest": DIGEST_VERSION, "runs": [_run(run, _of_run(figures, run["facts"]["run"])) for run in runs]}


def _of_run(figures: Mapping[str, Rows], run: str) -> dict[str, Rows]:
    return {name: [row for row in rows if row["run"] == run] for name, rows in figures.items()}


def _run(run: Json, figures: Mapping[str, Rows]) -> Json:
    facts = run["facts"]
    notes: list[str] = []
    phases = _phases(run, figures, notes)
    measured = _measured(phases, figures)
    counters = _counters(figures["counters"], {phase["phase"] for phase in phases if phase["measured"]}, notes)
    measured["duplicates_dropped"] = duplicates_dropped(counters)
    notes += _notes(run, measured, figures)
    return {
        "run": facts["run"],
        "facts": facts,
        "log": run["log"],
        "phases": phases,
        "measured": measured,
        "goals": goals(facts["goals"], measured),
        "rates": _command_rates(facts, phases),
        "counters": counters,
        "notes": notes,
    }


def _phases(run: Json, figures: Mapping[str, Rows], notes: list[str]) -> list[Json]:
    """Every phase, in time: listed in phases.csv, or only named by events of a run that was cut short."""
    facts = run["facts"]
    seen = {row["phase"]: row for row in figures["sending"]}
    listed = {row["phase"]: row for row in figures["phases"]}
    if len(listed) != len(figures["phases"]):
        raise BenchError(f"{run['directory']}/phases.csv lists a phase twice")
    unlisted = sorted(set(seen) - set(listed))
    if unlisted and facts["complete"]:
        raise BenchError(f"{run['directory']}: events are of phase {unlisted[0]!r}, which phases.csv does not list")
    notes += [f"Phase “{phase}” was cut short: its events are counted, and judged by no goal." for phase in unlisted]
    spans = [(row["start_ns"], row["end_ns"], bool(row["measured"]), True, name) for name, row in listed.items()]
    spans += [(seen[name]["first_ns"], seen[name]["last_ns"], False, False, name) for name in unlisted]
    return [
        _phase(name, start - facts["started_ns"], end - facts["started_ns"], is_measured, is_listed, figures)
        for start, end, is_measured, is_listed, name in sorted(spans)
    ]


def _phase(name: str, start_ns: int, end_ns: int, measured: bool, listed: bool, figures: Mapping[str, Rows]) -> Json:
    counts: Json = dict.fromkeys(COUNTS, 0)
    mean_ns = None
    for table in ("sending", "deliveries", "outcomes"):
        for row in figures[table]:
            if row["phase"] == name:
                counts |= {count: row[count] for count in COUNTS if count in row}
                mean_ns = row.get("mean_ns", mean_ns)
    codes = {row["code"]: row["errors"] for row in figures["errors"] if row["phase"] == name}
    latency = [row for row in figures["latency"] if row["phase"] == name]
    duration_s = (end_ns - start_ns) / NS_PER_S
    return {
        "phase": name,
        "start_s": start_ns / NS_PER_S,
        "end_s": end_ns / NS_PER_S,
        "duration_s": duration_s,
        "measured": measured,
        "listed": listed,
        **counts,
        **_rates(counts, duration_s),
        "error_codes": dict(sorted(codes.items())),
        **_latency(latency, mean_ns),
    }


def _rates(counts: Json, duration_s: float) -> Json:
    def rate(count: int) -> float | None:
        return count / duration_s if duration_s > 0 else None

    return {"reports_per_s": rate(counts["reports"]), "delivered_per_s": rate(counts["delivered"])}


def _latency(rows: Rows, mean_ns: float | None) -> Json:
    """`latency_ns`: the table's percentiles by name and the mean, null without deliveries; `curve`: [ppm, ns] …"""
    by_ppm = {row["ppm"]: row["latency_ns"] for row in rows}
    table = {name: by_ppm.get(ppm) for name, ppm in PERCENTILES_PPM.items()}
    return {"latency_ns": table | {"mean": mean_ns}, "curve": [list(point) for point in sorted(by_ppm.items())]}


def _measured(phases: Sequence[Json], figures: Mapping[str, Rows]) -> Json:
    """The totals over the measured phases: what the goals judge."""
    chosen = [phase for phase in phases if phase["measured"]]
    counts: Json = {count: sum(phase[count] for phase in chosen) for count in COUNTS}
    duration_s = sum(phase["duration_s"] for phase in chosen)
    codes: dict[str, int] = {}
    for phase in chosen:
        for code, errors in phase["error_codes"].items():
            codes[code] = codes.get(code, 0) + errors
    weighted = [(phase["latency_ns"]["mean"], phase["delivered"]) for phase in chosen if phase["delivered"]]
    latency = figures.get("latency_measured", ())
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
    """Each goal: `goal`, `limit`, `measured` (in the goal's unit; null: nothing to measure), and `met`.

    A latency goal without any delivery is missed, not met by silence. A goal of an unknown name is not judged (`met` is
    null), and shown as such.
    """
    judged: list[Json] = []
    for goal, limit in {**wanted, **{name: limit for name, limit in ALWAYS.items() if name not in wanted}}.items():
        latency = _LATENCY_GOAL.fullmatch(goal)
        value: float | None = None
        known = goal in COUNTS
        if latency:
            known = (name := latency[1].replace("_", ".")) in measured["latency_ns"]
            value_ns = measured["latency_ns"].get(name)
            value = None if value_ns is None else value_ns / NS_PER_MS
        elif known and measured["news"]:
            value = measured[goal]
        met = (value is not None and value <= limit) if known else None
        judged.append({"goal": goal, "limit": limit, "measured": value, "met": met})
    return judged


def _command_rates(facts: Mapping[str, Any], phases: Sequence[Json]) -> Json:
    """Subscriptions made, and undone, a second, where run.json says how many, by phase `subscribe`, `unsubscribe`."""
    rates: Json = {}
    made = facts.get("subscriptions")
    for phase in phases:
        if phase["phase"] in ("subscribe", "unsubscribe") and isinstance(made, int) and phase["duration_s"] > 0:
            rates[phase["phase"]] = {
                "subscriptions": made,
                "duration_s": phase["duration_s"],
                "per_s": made / phase["duration_s"],
            }
    return rates


def _counters(rows: Rows, measured: set[str], notes: list[str]) -> list[Json]:
    """Endpoint counters (`…_total`) over the measured phases, per name: `delta` of all sources and by `sources`."""
    totals: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["phase"] not in measured or not _base(row["name"]).endswith("_total"):
            continue
        delta = row["last"] if row["reset"] else row["last"] - row["first"]
        if row["reset"]:
            notes.append(
                f"Counter {row['name']} of {row['source']} went back in phase “{row['phase']}” (a restart): only what "
                "came after is counted."
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
    """How many duplicates the system says it dropped in the measured phases; None if it does not say."""
    deltas: list[float] = [row["delta"] for row in counters if DUPLICATES_DROPPED.search(_base(row["name"]))]
    return sum(deltas) if deltas else None


def _notes(run: Json, measured: Mapping[str, Any], figures: Mapping[str, Rows]) -> list[str]:
    """What a reader must know before believing the figures."""
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
    if measured["excess"]:
        notes.append(f"{measured['excess']:,} deliveries reached connections beyond the number the log expected.")
    rewritten = sum(row["rewritten"] for row in figures["outcomes"])
    if rewritten:
        notes.append(f"{rewritten:,} news are in the log more than once: their losses are counted once.")
    unannounced = sum(row["unannounced"] for row in figures["deliveries"])
    if unannounced:
        notes.append(f"{unannounced:,} deliveries belong to no news in the log.")
    if not figures["machine"]:
        notes.append("No machine.csv: processor and memory were not recorded.")
    return notes
