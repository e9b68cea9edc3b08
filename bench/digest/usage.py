"""The use of each process in a phase, the cost of a delivery and a connection, and the limit of a run.

Owns the judgement of saturation: a figure is only the system's if nothing else was at its limit. Pure: rows of
`processes` (ingeborg.bench.spark.transforms.machine_phases) in, plain JSON values out. It never reads a log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
Json = dict[str, Any]

CORES_SATURATED = 0.9
"""Mean cores from which a process counts as a limit. The generator and the layer are Python: a process can use one
core, and one that is busy nine tenths of a phase was behind in some seconds."""

MACHINE_SATURATED = 0.85
"""Share of all cores from which the machine counts as the limit. If more processes than cores are ready to run, the
wait for a core breaks a latency limit of some milliseconds long before the last tenth of the cores is used."""

_WORDS = {"generator": "the busiest generator process", "layer": "the busiest process of the deduplication layer"}


def processes(rows: Rows) -> Json:
    """Return, by role, for one phase: `cpu_s` of all its sources, `cpu_cores_max`: the busiest one's mean, `rss_bytes`
    and `anon_bytes` at the phase's end, added up. A value is null if no source (for sums: not every source) has it."""
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
    """Return processor microseconds per delivered message, by role; null if nothing was delivered or the role is
    unknown. The host has none: it includes everything else."""
    return {
        role: used[role]["cpu_s"] * 1e6 / delivered
        if delivered and role in used and used[role]["cpu_s"] is not None
        else None
        for role in ("server", "layer", "generator")
    }


def saturated(used: Mapping[str, Json], cores: Any) -> list[Json]:
    """Return what other than the system may have been the limit in a phase: `part` and, in words, `why`. Empty:
    nothing."""
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
    """Return the servers' memory per connection, and per subscription: the growth over the phases that make them,
    divided by their number. Null without such a phase or number, or without samples at both its ends."""
    return {
        "server_bytes_per_connection": _growth(rows, phases, "connect"),
        "server_bytes_per_subscription": _growth(rows, phases, "subscribe"),
    }


def _growth(rows: Rows, phases: Sequence[Json], kind: str) -> float | None:
    of_kind = {phase["phase"]: phase["amount"] for phase in phases if phase["kind"] == kind and phase["amount"]}
    servers = [row for row in rows if row["role"] == "server" and row["phase"] in of_kind]
    # Connections of phases without memory samples would make the others look cheap.
    amount = sum(of_kind[phase] for phase in {row["phase"] for row in servers})
    grown = _sum([_level_growth(row) for row in servers])
    return grown / amount if grown is not None and amount else None


def _level_growth(row: Mapping[str, Any]) -> float | None:
    """Return a source's growth of anonymous memory; of resident memory if the former is unknown."""
    if row["elapsed_s"] is None:
        return None
    for level in ("anon", "rss"):
        first, last = row[f"{level}_first"], row[f"{level}_last"]
        if first is not None and last is not None:
            grown: float = last - first
            return grown
    return None


def _sum(values: Sequence[float | None]) -> float | None:
    """Add up; null for no values, and null if one is unknown: a sum with a part missing is too small."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
