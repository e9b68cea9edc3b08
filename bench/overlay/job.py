"""Compare the digest of a cell's log with the simulator's own counts.

Owns: the stored part of a digest, and the comparison. Must never: simulate a cell, read a log, or make a report.

The digest computes latencies, losses, duplicates and reorderings from the log, and ``metrics`` computes them from the
record.
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

AGREE_MS: Final = 1e-3
"""The largest permitted difference between the two figures, in milliseconds. It is not 0, because both are rounded."""

_KEPT = ("news", "expected", "delivered", "lost", "duplicated", "reordered", "excess")


def of_run(run: Json) -> Json:
    """Return the stored part of a run's digest: for each phase with messages, its counts, and its latencies in ms."""
    phases = {}
    for phase in run["phases"]:
        if phase["news"]:
            latency = {name: value for name, value in phase["latency_ns"].items() if value is not None}
            phases[phase["phase"]] = {
                **{name: phase[name] for name in _KEPT},
                **{f"{name}_ms": round(value / 1e6, 6) for name, value in latency.items()},
            }
    return {"cell": run["run"], "lines": run["log"]["lines"], "phases": phases}


def differences(row: Json, found: Json) -> list[str]:
    """Return the differences between the simulator's row and the digest of its log.

    If a root delivers its own message again, the simulator counts a double, but the log has a first delivery at that
    node. So in a cell with doubles, the log can have more deliveries than the record, up to the number of doubles, and
    figures that depend on deliveries are not compared.
    """
    differ = []
    doubles = row["doubles"]
    for name, ours in row["phases"].items():
        theirs = found["phases"].get(name)
        if theirs is None:
            if ours["messages"]:
                differ.append(f"{name}: no messages in the log")
            continue
        pairs = {"messages": "news", "deliveries": "delivered"}
        for mine, other in pairs.items():
            # A double has a row in the log, but the simulator does not count it as a delivery.
            value = theirs[other] - (theirs["duplicated"] if other == "delivered" else 0)
            if not 0 <= value - ours[mine] <= (doubles if other == "delivered" else 0):
                differ.append(f"{name}: {mine} {ours[mine]}, in the log {value}")
        if not doubles and (ours["reliability"] < 1.0) != (theirs["lost"] > 0):
            differ.append(f"{name}: reliability {ours['reliability']}, but the log has {theirs['lost']} lost")
        if doubles:
            continue  # the log's latencies include doubles
        differ += [
            f"{name}: {figure} {ours[figure]}, in the log {theirs.get(figure)}"
            for figure in ("mean_ms", "p50_ms", "p99_ms", "max_ms")
            if abs(ours[figure] - theirs.get(figure, 0.0)) > AGREE_MS
        ]
    return differ
