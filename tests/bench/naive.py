"""The digest's figures the slow and plain way, with which the Spark job must agree.

Reads a made-up run's rows, not its files, and follows the words of bench/SCHEMA.md without regard to cost.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from typing import Any

from tests.bench.synthetic import START_NS, Row, Run, S

LAGS = ("p50", "p99", "max")
POINTS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "max": 1.0}


def nearest_rank(values: list[int], p: float) -> int:
    ordered = sorted(values)
    return ordered[max(1, math.ceil(round(p * len(ordered), 9))) - 1]


def digest(run: Run) -> dict[str, Any]:
    """Return `phases` -> phase -> its counts and percentiles; `seconds` -> second -> its counts and percentiles."""
    news = {(row[3], row[4]): row for row in run.events if row[0] == "news"}
    phases: dict[str, dict[str, Any]] = {row[0]: Counter() for row in run.phases}
    seconds: dict[int, Counter[str]] = defaultdict(Counter)
    latencies: dict[str, list[int]] = defaultdict(list)
    sent: dict[str, list[tuple[int, int]]] = defaultdict(list)
    received: dict[str, list[int]] = defaultdict(list)
    by_second: dict[int, list[int]] = defaultdict(list)
    codes: dict[str, Counter[str]] = defaultdict(Counter)
    reached: dict[tuple[int, int], set[int]] = defaultdict(set)
    skipped: Counter[tuple[int, str]] = Counter()
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
                sent[phase].append((intended, at))
            elif kind == "error":
                phases[phase]["errors"] += 1
                second["errors"] += 1
                codes[phase][detail] += 1
            else:
                second["delivered"] += 1
                by_second[(intended - START_NS) // S].append(value)
                arrivals.append((at, part, line, connection, topic, seq, phase, value))
                if (topic, seq) in news:
                    skipped[topic, news[topic, seq][1]] += detail or 0
    meant: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for row in run.events:
        if row[0] == "sent":
            meant[row[3], row[4]].append((row[5], row[2]))
    earlier: dict[tuple[int, int], list[tuple[int, int | None]]] = defaultdict(list)
    for at, _, _, connection, topic, seq, own_phase, latency in sorted(arrivals):
        known = (topic, seq) in news
        phase = news[topic, seq][1] if known else own_phase
        repeated = connection in reached[topic, seq]
        reached[topic, seq].add(connection)
        only = _only_publisher(meant[topic, seq], at)
        stream = earlier[connection, topic]
        late = not repeated and any(other > seq for other, _ in stream)
        reordered = late and only is not None and any(other > seq and only == of_it for other, of_it in stream)
        stream.append((seq, only))
        phases[phase].update(
            delivered=1,
            duplicated=repeated,
            reordered=reordered,
            overtaken=late and not reordered,
            unannounced=not known,
        )
        latencies[phase].append(latency)
        received[phase].append(at)
    absent: dict[int, dict[str, int]] = defaultdict(dict)  # by topic: the missing deliveries of each phase, in order
    for (topic, seq), row in sorted(news.items()):
        missing = row[7] - len(reached[topic, seq])
        phases[row[1]].update(excess=max(-missing, 0))
        absent[topic][row[1]] = absent[topic].get(row[1], 0) + max(missing, 0)
    for topic, of_phases in absent.items():
        standing = 0
        for phase in reversed(of_phases):  # a delivery stands for those of its phase, else for earlier ones
            standing += skipped[topic, phase]
            conflated = min(standing, of_phases[phase])
            standing -= conflated
            phases[phase].update(lost=of_phases[phase] - conflated, conflated=conflated)
    for name, made in phases.items():
        values = latencies[name]
        made["latency_ns"] = {point: nearest_rank(values, p) if values else None for point, p in POINTS.items()}
        made["values"] = values
        made["mean_ns"] = sum(values) / len(values) if values else None
        made["codes"] = dict(codes[name])
        lags = [at - intended for intended, at in sent[name]]
        made["lag_ns"] = {point: nearest_rank(lags, POINTS[point]) if lags else None for point in LAGS}
        # Counter.update would add.
        dict.update(made, _rates(sent[name], received[name]))
    for number, values in by_second.items():
        seconds[number].update(p50_ns=nearest_rank(values, 0.5), p99_ns=nearest_rank(values, 0.99), max_ns=max(values))
    for name, kind, start, end, _, _, amount, _ in run.phases:
        phases[name]["processes"] = used = _processes(run.machine, start, end)
        phases[name]["saturated"] = _saturated(used, run.facts["machine"]["cores"])
        phases[name]["noise"] = _noise(seconds, start, end)
        if kind in ("connect", "subscribe"):
            phases[name]["memory"] = _memory(run.machine, start, end, amount)
    return {"phases": phases, "seconds": seconds}


def _only_publisher(meant: list[tuple[int, int]], until: int) -> int | None:
    """Return the connection whose report was due first, unless another connection's was also due until then."""
    if not meant:
        return None
    _, first = min(meant)
    return None if any(at <= until and connection != first for at, connection in meant) else first


def _rates(sent: list[tuple[int, int]], received: list[int]) -> dict[str, float | None]:
    def rate(messages: int, first: int, last: int) -> float | None:
        return messages / ((last - first) / S) if last > first else None

    written = [at for _, at in sent]
    several = len(received) > 1
    return {
        "produce_per_s": rate(len(sent) - 1, min(written), max(written)) if len(sent) > 1 else None,
        "consume_per_s": rate(len(received) - 1, min(received), max(received)) if several else None,
        "end_to_end_per_s": rate(len(received), min(sent)[0], max(received)) if several and sent else None,
    }


def _samples(machine: list[Row], start: int, end: int) -> dict[str, tuple[str, list[Row]]]:
    """Return source -> its role and its samples from the one nearest to the start to the one nearest to the end."""
    found = {}
    for source in {row[1] for row in machine}:
        rows = sorted(row for row in machine if row[1] == source)
        if any(start <= row[0] <= end for row in rows):
            first = min(rows, key=lambda row: (abs(row[0] - start), row[0]))
            last = min(rows, key=lambda row: (abs(row[0] - end), row[0]))
            found[source] = rows[0][2], [row for row in rows if first[0] <= row[0] <= last[0]]
    return found


def _processes(machine: list[Row], start: int, end: int) -> dict[str, dict[str, Any]]:
    roles: dict[str, dict[str, Any]] = {}
    for role, rows in _samples(machine, start, end).values():
        used = sum(max(b[3] - a[3], 0.0) for a, b in itertools.pairwise(rows))
        cores = used / ((rows[-1][0] - rows[0][0]) / S)
        if role not in roles:
            roles[role] = {"cpu_s": 0.0, "cpu_cores_max": 0.0, "rss_bytes": 0, "anon_bytes": 0}
        of_role = roles[role]
        of_role["cpu_s"] += used
        of_role["cpu_cores_max"] = max(of_role["cpu_cores_max"], cores)
        of_role["rss_bytes"] += rows[-1][4]
        anon, known = rows[-1][5], of_role["anon_bytes"]
        of_role["anon_bytes"] = None if anon is None or known is None else known + anon
    return roles


def _saturated(used: dict[str, dict[str, Any]], cores: int) -> list[str]:
    limits = {"generator": ("generator", 0.9), "layer": ("layer", 0.9), "host": ("machine", 0.85 * cores)}
    return [name for role, (name, limit) in limits.items() if role in used and used[role]["cpu_cores_max"] >= limit]


def _memory(machine: list[Row], start: int, end: int, amount: int | None) -> float | None:
    servers = [rows for role, rows in _samples(machine, start, end).values() if role == "server"]
    if not servers or not amount:
        return None
    grown = 0
    for rows in servers:
        level = 4 if rows[0][5] is None else 5
        grown += rows[-1][level] - rows[0][level]
    return grown / amount


def _noise(seconds: dict[int, Counter[str]], start: int, end: int) -> dict[str, Any] | None:
    whole = [s for s in range(-10, 20) if START_NS + s * S >= start and START_NS + (s + 1) * S <= end]
    if len(whole) < 3:
        return None
    delivered = [seconds[s]["delivered"] if s in seconds else 0 for s in whole]
    mean = sum(delivered) / len(whole)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in delivered) / (len(whole) - 1))
    return {
        "seconds": len(whole),
        "mean": mean,
        "cv": deviation / mean if mean else None,
        "p99": sorted(seconds[s]["p99_ns"] for s in whole if s in seconds and "p99_ns" in seconds[s]),
    }
