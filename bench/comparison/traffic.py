"""The comparison of traffic runs: the greatest sustained rate of each system, its cost, and its limit.

Owns the compared figures of a traffic run, and the judgement of what limited its rate. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingeborg.bench.comparison.groups import (
    Figures,
    Limit,
    Read,
    baseline_first,
    by_load,
    distinct,
    failure,
    figures,
    load,
    of_kind,
    repetitions,
    saturated,
)
from ingeborg.bench.digest.document import Json

LOAD = ("connections", "topics", "fanout", "size", "skew", "repeat_within_s", "rate", "p99_ms")
"""The settings that determine the load of a traffic run. Only runs with equal settings are in one table. The share of
repeated payloads is not among these settings, because a column shows it. (It is 0 if nothing would drop repeated
payloads.)"""

CEILING = 0.999
"""A rate of at least this share of the search's greatest rate was limited by the search, not by the system."""

_BROKE = "breach"
"""The beginning of the verdict on a step that exceeded a limit (bench/SCHEMA.md: `detail` of a phase of kind
`search`)."""


@dataclass(frozen=True)
class TrafficRow:
    """One system and variant under traffic. `runs` are its repetitions. `chosen` is the run that plots show, which is
    the closest to the median. `phase` is the kind of phase from which the figures come (`sustained`, `run`, or
    None)."""

    name: str
    system: str
    variant: str
    runs: tuple[Json, ...]
    chosen: Json
    phase: str | None
    figures: Figures
    limits: tuple[Limit, ...]
    failed: tuple[str, ...]

    @property
    def noise(self) -> Json | None:
        """Return the noise within the run if there is only one run. With repetitions, their extremes tell more."""
        phase = main_phase(self.runs[0]) if len(self.runs) == 1 else None
        return phase["noise"] if phase else None


@dataclass(frozen=True)
class TrafficTable:
    """The rows of one load. The baseline comes first. `load` has the settings of the load."""

    load: Json
    rows: tuple[TrafficRow, ...]

    @property
    def baseline(self) -> TrafficRow:
        return self.rows[0]


def traffic(document: Json) -> list[TrafficTable]:
    """Return one table per load, in the document's order."""
    runs = [run for run in document["runs"] if run["facts"]["workload"] == "traffic"]
    return [
        TrafficTable(settings, tuple(baseline_first([_row(name, group) for name, group in repetitions(of_load)])))
        for settings, of_load in by_load(runs, LOAD)
    ]


def main_phase(run: Json) -> Json | None:
    """Return the phase that gives a traffic run's figures: `sustained`, or the phase at a fixed rate."""
    phase = of_kind(run, "sustained") or of_kind(run, "run")
    return phase if phase is not None and phase["measured"] else None


def headline(run: Json) -> Json:
    """Return a run's figures for one line. For traffic, they are from the phase at the sustained rate, because
    including the phase at half that rate would only blur them. For another workload, they are the total over the
    measured phases."""
    return (main_phase(run) if run["facts"]["workload"] == "traffic" else None) or run["measured"]


def limits(run: Json) -> tuple[Limit, ...]:
    """Return the limits of a run's figures. For traffic, these are the limits of its sustained rate. For another
    workload, they are the parts that were at their limit in a measured phase."""
    if run["facts"]["workload"] == "traffic":
        return distinct(limits_of(run))
    return saturated(phase for phase in run["phases"] if phase["measured"])


def _phase_figure(name: str) -> Read:
    return lambda run: phase[name] if (phase := main_phase(run)) else None


def _latency(percentile: str, kind: str | None = None) -> Read:
    def read(run: Json) -> float | None:
        phase = of_kind(run, kind) if kind else main_phase(run)
        value: float | None = phase["latency_ns"][percentile] if phase else None
        return value

    return read


def _processor(role: str) -> Read:
    return lambda run: phase["cpu_us_per_delivered"][role] if (phase := main_phase(run)) else None


def _amount_rate(kind: str) -> Read:
    return lambda run: phase["amount_per_s"] if (phase := of_kind(run, kind)) else None


def _in_all(run: Json) -> float | None:
    phase = main_phase(run)
    if phase is None or phase["reports_per_s"] is None:
        return None
    return float(phase["reports_per_s"] + phase["delivered_per_s"])


def _repeats(run: Json) -> float | None:
    phase = main_phase(run)
    return phase["duplicates_offered"] / phase["reports"] if phase and phase["reports"] else None


_FIGURES: Mapping[str, Read] = {
    "in_per_s": _phase_figure("reports_per_s"),
    "out_per_s": _phase_figure("delivered_per_s"),
    "all_per_s": _in_all,
    "p50_ns": _latency("p50"),
    "p99_ns": _latency("p99"),
    "lag_p99_ns": lambda run: phase["lag_ns"]["p99"] if (phase := main_phase(run)) else None,
    "half_p50_ns": _latency("p50", "half"),
    "half_p99_ns": _latency("p99", "half"),
    "server_cpu_us": _processor("server"),
    "layer_cpu_us": _processor("layer"),
    "bytes_per_connection": lambda run: run["memory"]["server_bytes_per_connection"],
    "bytes_per_subscription": lambda run: run["memory"]["server_bytes_per_subscription"],
    "store_operations": lambda run: run["store_operations_per_delivered"],
    "subscribe_per_s": _amount_rate("subscribe"),
    "unsubscribe_per_s": _amount_rate("unsubscribe"),
    "repeats": _repeats,
}


def _row(name: str, runs: Sequence[Json]) -> TrafficRow:
    facts = runs[0]["facts"]
    found = figures(_FIGURES, runs)
    middle = found["out_per_s"]
    chosen = runs[0]
    if middle is not None:
        measured = [(run, phase["delivered_per_s"]) for run in runs if (phase := main_phase(run))]
        rated = [(run, out) for run, out in measured if out is not None]
        chosen = min(rated, key=lambda pair: abs(pair[1] - middle.value))[0]
    phase = main_phase(chosen)
    return TrafficRow(
        name=name,
        system=str(facts["system"]),
        variant=str(facts.get("variant") or ""),
        runs=tuple(runs),
        chosen=chosen,
        phase=phase["kind"] if phase else None,
        figures=found,
        limits=distinct(limit for run in runs for limit in limits_of(run)),
        failed=tuple(text for run in runs if (text := failure(run)) is not None),
    )


def limits_of(run: Json) -> list[Limit]:
    """Return the limits of the sustained rate. They are the parts that were at their limit in the measured phase, or in
    the search's lowest step above the sustained rate, which exceeded a limit. If no other part was at its limit, the
    system itself was the limit."""
    phase = main_phase(run)
    if phase is not None and phase["kind"] == "run":
        return [Limit("rate", "the run was made at a fixed rate"), *saturated([phase])]
    offered = [step for step in run["phases"] if step["kind"] == "search" and step["offered_per_s"] is not None]
    if phase is None:
        # If no rate was sustained, the lowest step that exceeded a limit is the step that should have held.
        broken = [step for step in offered if str(step["detail"] or "").startswith(_BROKE)]
        lowest = min((step["offered_per_s"] for step in broken), default=None)
        return list(saturated(step for step in broken if step["offered_per_s"] == lowest))
    above = [step for step in offered if step["offered_per_s"] > (phase["offered_per_s"] or 0)]
    lowest = min((step["offered_per_s"] for step in above), default=None)
    found = [*saturated([phase, *(step for step in above if step["offered_per_s"] == lowest)])]
    most = load(run, ("most_rate",)).get("most_rate")
    if isinstance(most, int | float) and phase["offered_per_s"] and phase["offered_per_s"] >= CEILING * most:
        found.append(Limit("ceiling", f"the search had an upper end of {most:,.10g}/s"))
    if not found and "generator" not in phase["processes"]:
        return [Limit("unknown", "the generator's processor use was not recorded")]
    return found or [Limit("system", "neither the generator, nor a layer, nor the machine was at its limit")]
