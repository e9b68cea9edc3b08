"""The digest's figures the slow and plain way: what the Spark job must agree with.

Reads a made-up run's rows, not its files, and follows the words of bench/SCHEMA.md without regard to cost.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

from tests.bench.synthetic import START_NS, Run, S

POINTS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "max": 1.0}


def nearest_rank(values: list[int], p: float) -> int:
    ordered = sorted(values)
    return ordered[max(1, math.ceil(round(p * len(ordered), 9))) - 1]


def digest(run: Run) -> dict[str, dict[str, Any]]:
    """Phase -> its counts and percentiles; `seconds` -> second -> its counts and percentiles."""
    news = {(row[3], row[4]): row for row in run.events if row[0] == "news"}
    phases: dict[str, dict[str, Any]] = {name: Counter() for name, *_ in run.phases}
    seconds: dict[int, Counter[str]] = defaultdict(Counter)
    latencies: dict[str, list[int]] = defaultdict(list)
    by_second: dict[int, list[int]] = defaultdict(list)
    codes: dict[str, Counter[str]] = defaultdict(Counter)
    reached: dict[tuple[int, int], set[int]] = defaultdict(set)
    arrivals = []
    for part, rows in enumerate(run.parts):
        for line, row in enumerate(rows):
            kind, phase, connection, topic, seq, intended, at, value, detail = row
            second = seconds[(at - START_NS) // S]
            if kind == "news":
                phases[phase]["news"] += 1
                phases[phase]["expected"] += value
                second["news"] += 1
            elif kind == "sent":
                for counts in (phases[phase], second):
                    counts["reports"] += 1
                    counts["duplicates_offered"] += value == 0
            elif kind == "error":
                phases[phase]["errors"] += 1
                second["errors"] += 1
                codes[phase][detail] += 1
            else:
                second["delivered"] += 1
                by_second[(intended - START_NS) // S].append(value)
                arrivals.append((at, part, line, connection, topic, seq, phase, value))
    highest: dict[tuple[int, int], int] = {}
    for _, _, _, connection, topic, seq, own_phase, latency in sorted(arrivals):
        known = (topic, seq) in news
        phase = news[topic, seq][1] if known else own_phase
        repeated = connection in reached[topic, seq]
        reached[topic, seq].add(connection)
        before = highest.get((connection, topic), 0)
        highest[connection, topic] = max(before, seq)
        phases[phase].update(
            delivered=1, duplicated=repeated, reordered=not repeated and seq < before, unannounced=not known
        )
        latencies[phase].append(latency)
    for (topic, seq), row in news.items():
        missing = row[7] - len(reached[topic, seq])
        phases[row[1]].update(lost=max(missing, 0), excess=max(-missing, 0))
    for name, counts in phases.items():
        values = latencies[name]
        counts["latency_ns"] = {point: nearest_rank(values, p) if values else None for point, p in POINTS.items()}
        counts["values"] = values
        counts["mean_ns"] = sum(values) / len(values) if values else None
        counts["codes"] = dict(codes[name])
    for second, values in by_second.items():
        seconds[second].update(p50_ns=nearest_rank(values, 0.5), p99_ns=nearest_rank(values, 0.99), max_ns=max(values))
    return {"phases": phases, "seconds": seconds}
