"""What the processes of a run used in a phase, what a delivery and a connection cost, and what was the limit.

Owns the judgement of who was saturated: a figure is only the system's if nothing else was at its limit. Pure: rows of
`processes` (ingeborg.bench.spark.transforms.machine_phases) in, plain JSON values out. It never reads a log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
Json = dict[str, Any]

CORES_SATURATED = 0.9
"""Mean cores of a process from which it counts as a limit. The generator and the layer are Python: a process is one
core's, and one that is busy nine tenths of a phase was behind in some of its seconds."""

MACHINE_SATURATED = 0.85
"""Share of all cores from which the machine counts as the limit. Where more processes than cores want to run, waiting
for a core breaks a latency limit of some milliseconds long before the last tenth of the cores is used."""

_WORDS = {"generator": "the busiest generator process", "layer": "the busiest process of the deduplication layer"}


def processes(rows: Rows) -> Json:
    """By role, for one phase: `cpu_s` of all its sources, `cpu_cores_max`: the busiest one's mean, `rss_bytes` and
    `anon_bytes` at the phase's end, added up. Null is what no source (or, of sums, not every source) says."""
    roles: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        roles.setdefault(row["role"], []).append(row)
    return {
        role: {
            "cpu_s": _sum([row["cpu_s"] for row in of_role]),
            "cpu_cores_max": max(
                (row["cpu_s"] / row["elapsed_s"] for row in of_role if row["cpu_s"] is not None), default=None
            ),
            "rss_bytes": _sum([row["rss_last"] for row in of_role]),
            "anon_bytes": _sum([row["anon_last"] for row in of_role]),
        }
        for role, of_role in sorted(roles.items())
    }


def cpu_us_per_delivered(used: Mapping[str, Json], delivered: int) -> Json:
    """Processor microseconds per delivered message, by role; null where nothing was delivered or the role is not
    known. The host has none: it is everything else too."""
    return {
        role: used[role]["cpu_s"] * 1e6 / delivered
        if delivered and role in used and used[role]["cpu_s"] is not None
        else None
        for role in ("server", "layer", "generator")
    }


def saturated(used: Mapping[str, Json], cores: Any) -> list[Json]:
    """What besides the system may have been the limit in a phase: `part` and, in words, `why`. Empty: nothing."""
    found: list[Json] = []
    for part, words in _WORDS.items():
        busiest = used.get(part, {}).get("cpu_cores_max")
        if busiest is not None and busiest >= CORES_SATURATED:
            found.append({"part": part, "why": f"{words} used {busiest:.0%} of a core".replace("%", " %")})
    host = used.get("host", {}).get("cpu_cores_max")
    if host is not None and isinstance(cores, int) and cores > 0 and host >= MACHINE_SATURATED * cores:
        why = f"the machine used {host / cores:.0%} of its {cores} cores".replace("%", " %")
        found.append({"part": "machine", "why": why})
    return found


def memory(rows: Rows, phases: Sequence[Json]) -> Json:
    """What a connection, and a subscription, took of the servers' memory: the growth over the phases of the kind that
    makes them, divided by their amount. Null without such a phase or amount, or without samples at both its ends."""
    return {
        "server_bytes_per_connection": _growth(rows, phases, "connect"),
        "server_bytes_per_subscription": _growth(rows, phases, "subscribe"),
    }


def _growth(rows: Rows, phases: Sequence[Json], kind: str) -> float | None:
    of_kind = {phase["phase"]: phase["amount"] for phase in phases if phase["kind"] == kind and phase["amount"]}
    servers = [row for row in rows if row["role"] == "server" and row["phase"] in of_kind]
    # Amounts of phases whose memory nobody sampled would make the others look cheap.
    amount = sum(of_kind[phase] for phase in {row["phase"] for row in servers})
    grown = _sum([_level_growth(row) for row in servers])
    return grown / amount if grown is not None and amount else None


def _level_growth(row: Mapping[str, Any]) -> float | None:
    """A source's growth of anonymous memory; of resident memory where that is not known."""
    if row["elapsed_s"] is None:
        return None
    for level in ("anon", "rss"):
        first, last = row[f"{level}_first"], row[f"{level}_last"]
        if first is not None and last is not None:
            grown: float = last - first
            return grown
    return None


def _sum(values: Sequence[float | None]) -> float | None:
    """Null of nothing, and null if one is unknown: a sum with a part missing is too small."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
