"""Compute the resources that each process used in a phase, the cost of a delivery and of a connection, and whether
something other than the system under test was at its limit.

Owns the judgement of saturation: a figure says something about the system only if nothing else was at its limit. The
functions turn rows of `processes` (ingeborg.bench.spark.transforms.machine_phases) into plain JSON values. They never
read a log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
Json = dict[str, Any]

CORES_SATURATED = 0.9
"""A process that used at least this many cores on average counts as a limit. The generator and the deduplication layer
run on Python, so each of their processes can use at most one core. A process that was busy for 90 % of a phase was
overloaded in some seconds of that phase."""

MACHINE_SATURATED = 0.85
"""The machine counts as a limit if at least this share of all its cores was used. If more processes than cores are
ready to run, they wait for a core. Such a wait exceeds a latency limit of a few milliseconds well before all cores are
fully used."""

_WORDS = {"generator": "the busiest generator process", "layer": "the busiest process of the deduplication layer"}


def processes(rows: Rows) -> Json:
    """Return the resources that the processes of each role used in one phase. `cpu_s` is the sum over the role's
    sources, and `cpu_cores_max` is the mean number of cores that the busiest source used. `rss_bytes` and `anon_bytes`
    are sums at the phase's end. A sum is null if any source lacks the value. `cpu_cores_max` is null if all sources
    lack it."""
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
    """Return the CPU time in microseconds per delivered message, by role. It is null if nothing was delivered, or if
    the CPU time of the role is unknown. The role `host` is left out, because it includes all others."""
    return {
        role: used[role]["cpu_s"] * 1e6 / delivered
        if delivered and role in used and used[role]["cpu_s"] is not None
        else None
        for role in ("server", "layer", "generator")
    }


def saturated(used: Mapping[str, Json], cores: Any) -> list[Json]:
    """Return the parts other than the system that may have been the limit in a phase. Each has `part`, and the reason
    in words as `why`. The list is empty if there are none."""
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
    """Return the servers' memory per connection and per subscription. This is the growth of memory over the phases that
    make connections (or subscriptions), divided by the number made. A value is null if there is no such phase, if the
    number is unknown, or if a sample is missing at an end of the phase."""
    return {
        "server_bytes_per_connection": _growth(rows, phases, "connect"),
        "server_bytes_per_subscription": _growth(rows, phases, "subscribe"),
    }


def _growth(rows: Rows, phases: Sequence[Json], kind: str) -> float | None:
    of_kind = {phase["phase"]: phase["amount"] for phase in phases if phase["kind"] == kind and phase["amount"]}
    servers = [row for row in rows if row["role"] == "server" and row["phase"] in of_kind]
    # Count only the connections of phases with memory samples. Other connections would make the memory per connection
    # look too small.
    amount = sum(of_kind[phase] for phase in {row["phase"] for row in servers})
    grown = _sum([_level_growth(row) for row in servers])
    return grown / amount if grown is not None and amount else None


def _level_growth(row: Mapping[str, Any]) -> float | None:
    """Return how much a source's anonymous memory grew, or its resident memory if anonymous memory is unknown."""
    if row["elapsed_s"] is None:
        return None
    for level in ("anon", "rss"):
        first, last = row[f"{level}_first"], row[f"{level}_last"]
        if first is not None and last is not None:
            grown: float = last - first
            return grown
    return None


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum, or None if there are no values. Also return None if a value is unknown, because a sum of the
    other values would be too small."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
