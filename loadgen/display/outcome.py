"""The report that a person reads at the end of a run, and the faults that `--check` finds in it.

Owns: wording. Must never: compute a figure that the run does not have, because the digest computes the published
figures.
"""

from __future__ import annotations

from ..coordinator.run import Outcome, Phase
from ..coordinator.session import goals
from ..workloads.settings import Settings

#: A single-threaded process that uses this share of a core is at its limit.
_BUSY = 0.9
#: Names of the errors which mean that the system could not be reached, by code (`Outcome.gone`).
_GONE = {"connection_lost": "connections lost", "timeout": "time-outs", "closed": "calls on a closed connection"}

#: Text that follows the number of messages that arrived after a later message. It says why this is not a fault.
_OVERTAKEN = " (another connection had published the same message, and there is no order between connections)"


def rows(outcome: Outcome) -> list[tuple[str, str]]:
    """Return names and values for a table."""
    total = outcome.total
    found = [
        ("sent", f"{total.sent:,}"),
        ("deliveries expected", f"{total.expected:,}"),
        ("delivered", f"{total.delivered:,}"),
        *([("conflated", f"{total.skipped:,}")] if total.skipped else []),
        ("lost", f"{total.behind:,}"),
        ("delivered twice", f"{total.repeated:,}"),
        ("out of order", f"{total.reordered:,}"),
        ("overtaken", f"{total.overtaken:,}{_OVERTAKEN if total.overtaken else ''}"),
        ("errors", ", ".join(f"{code} {count:,}" for code, count in sorted(total.errors.items())) or "0"),
    ]
    for phase in outcome.phases:
        if phase.kind in ("subscribe", "unsubscribe") and phase.amount:
            found.append((phase.name, f"{phase.amount:,} topics in {phase.duration_s:.2f} s"))
        if phase.measured:
            found += _measured(phase)
    if outcome.result is not None:
        found.append(("search", outcome.result))
    return found


def ending(outcome: Outcome) -> str:
    """Return one line that says how the run ended and what it lost."""
    parts = []
    if outcome.failed is not None:
        parts.append(f"failed: {outcome.failed}")
    elif not outcome.complete:
        parts.append("interrupted and cut short")
    elif troubled(outcome):
        parts.append("done, with losses")
    else:
        parts.append("done")
    total = outcome.total
    if not outcome.complete and total.behind > 0:
        parts.append(f"{total.behind:,} of {total.expected:,} deliveries are missing")
    elif outcome.complete:
        if outcome.lost:
            parts.append(f"{outcome.lost:,} of {total.expected:,} deliveries were lost")
        if outcome.lost_in_search > 0:
            parts.append(f"{outcome.lost_in_search:,} were lost in steps that look for the limit")
    parts += [f"{_GONE[code]}: {count:,}" for code, count in outcome.gone.items()]
    parts += outcome.troubles
    if not outcome.complete:
        parts.append("the log holds all measurements up to the end, and is marked incomplete")
    return "; ".join(parts)


def troubled(outcome: Outcome) -> bool:
    """Return whether a complete run lost connections, lost deliveries outside the search, or had other troubles."""
    return bool(outcome.lost or outcome.gone or outcome.troubles)


def in_a_line(outcome: Outcome) -> str:
    """Return one line that summarizes one run of a topics benchmark."""
    parts = []
    for phase in outcome.phases:
        if phase.kind == "subscribe" and phase.amount:
            parts.append(f"subscribed in {phase.duration_s:.2f} s ({phase.amount / phase.duration_s:,.0f}/s)")
        elif phase.measured:
            parts.append(f"{phase.delivered / max(phase.duration_s, 1e-9):,.0f}/s end to end")
            if (cost_us := phase.cpu_us_per_delivered("server")) is not None:
                parts.append(f"server CPU {cost_us:.1f} us a message")
    return ", ".join([*parts, f"lost {outcome.total.behind:,}"])


def _measured(phase: Phase) -> list[tuple[str, str]]:
    p50_ns, p99_ns = (phase.latencies.percentile_ns(percent) for percent in (50, 99))
    seconds = max(phase.duration_s, 1e-9)
    if p50_ns is None or p99_ns is None:
        return [(phase.name, f"{phase.sent / seconds:,.0f}/s in; nothing was delivered")]
    found = [
        (
            phase.name,
            f"{phase.sent / seconds:,.0f}/s in, {phase.delivered / seconds:,.0f}/s out, "
            f"p50 {p50_ns / 1e6:.2f} ms, p99 {p99_ns / 1e6:.2f} ms",
        )
    ]
    if (cost_us := phase.cpu_us_per_delivered("server")) is not None:
        found.append(("  server CPU", f"{cost_us:.1f} us per delivered message"))
    for role, name in (("generator", "the generator"), ("layer", "the deduplication layer")):
        busy = phase.cores(role)
        if busy is not None and busy >= _BUSY:
            found.append(("  note", f"{name} used {busy:.0%} of a core, so it may have limited the rate"))
    return found


def faults(outcome: Outcome, settings: Settings) -> list[str]:
    """Return the faults of a complete run, as text."""
    total = outcome.total
    found = [
        f"{count:,} {what}"
        for what, count in (
            ("lost", total.behind),
            ("delivered twice", total.repeated),
            ("errors", total.errors.total()),
        )
        if count
    ]
    latencies = {goal: limit_ms for goal, limit_ms in goals(settings).items() if goal.endswith("_ms")}
    for phase in outcome.phases:
        for goal, limit_ms in latencies.items():
            value_ns = phase.latencies.percentile_ns(float(goal[1:-3])) if phase.measured else None
            if value_ns is not None and value_ns / 1e6 > limit_ms:
                found.append(f"{goal[:-3]} of {value_ns / 1e6:.1f} ms in {phase.name} is above {limit_ms:g} ms")
    return found
