"""Lists the goals that each system met and missed. Readers want to know this first.

Owns the words of a goal's verdict. The judgements come from the digest unchanged. A run that ended early is listed with
its reason, even if it missed no goal. The result is plain text without escaping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ingeborg.bench import comparison
from ingeborg.bench.comparison import failure
from ingeborg.bench.comparison.topics import number_of_topics
from ingeborg.bench.digest.document import Json
from ingeborg.bench.text import figures, tables
from ingeborg.bench.text.blocks import Cell, Table

MISSED_MAX = 5
"""Maximum number of missed goals to list for one system. The table gives the number of further missed goals, and the
sections of the runs list them."""


def verdicts(runs: Sequence[Json]) -> Table:
    """Return a table with a row per workload, system and variant."""
    groups: dict[tuple[str, str, str], list[Json]] = {}
    for run in runs:
        facts = run["facts"]
        groups.setdefault((str(facts["workload"]), str(facts["system"]), str(facts.get("variant") or "")), []).append(
            run
        )
    rows = []
    for (workload, system, variant), group in groups.items():
        judged = [goal for run in group for goal in run["goals"] if goal["met"] is not None and _counts(run, goal)]
        missed = list(_missed(group))
        more = [f"and {len(missed) - MISSED_MAX:,} more"] if len(missed) > MISSED_MAX else []
        early = sum(failure(run) is not None for run in group)
        met = sum(goal["met"] for goal in judged)
        small = [f"{early} ended early"] if early else []
        small += [text] if (text := _limits_text(group)) else []
        mark = "bad" if met < len(judged) else "warn" if early else "good"
        rows.append(
            (
                Cell(
                    " · ".join(part for part in (system, variant) if part),
                    f"{workload}, {figures.counted(len(group), 'run')}",
                ),
                Cell(f"{met} of {len(judged)} met", "; ".join(small), mark),
                Cell("; ".join(missed[:MISSED_MAX] + more) or "none"),
            )
        )
    return Table("Goals by system", ("System", "Goals", "Missed, or ended early"), tuple(rows))


def _counts(run: Json, goal: Mapping[str, Any]) -> bool:
    """Return whether a goal counts. A run that ended before there was anything to judge is listed with its reason and
    has no verdict."""
    return failure(run) is None or goal["measured"] is not None


def _missed(runs: Sequence[Json]) -> Iterator[str]:
    for run in runs:
        of_topics = run["facts"]["workload"] == "topics"
        where = (
            f"{figures.counted(number_of_topics(run), 'topic')}: "
            if of_topics
            else f"{run['run']}: "
            if len(runs) > 1
            else ""
        )
        early = failure(run)
        if early is not None:
            yield f"{where}{early}"
        for goal in run["goals"]:
            if goal["met"] is False and _counts(run, goal):
                name = figures.goal_name(goal["goal"])
                value, limit = (figures.goal(goal["goal"], goal[key]) for key in ("measured", "limit"))
                seen = f"{value}, not ≤ {limit}" if goal["measured"] is not None else "not measured"
                yield f"{where}{name} {seen}"


def _limits_text(runs: Sequence[Json]) -> str:
    """Return a text such as `at its limit: machine`, or for some of several runs, `at its limit: machine (3 runs)`."""
    parts = Counter(tables.part_name(limit) for run in runs for limit in tables.doubts(comparison.limits(run)))
    said = [
        part if count == len(runs) else f"{part} ({figures.counted(count, 'run')})" for part, count in parts.items()
    ]
    return f"at its limit: {', '.join(said)}" if said else ""


def goals_text(run: Json) -> str:
    """Return a text such as `4 of 4 met` or `4 of 4 met, at its limit: machine`."""
    goals = run["goals"]
    met = f"{sum(goal['met'] is True for goal in goals)} of {len(goals)} met"
    return ", ".join(text for text in (met, _limits_text([run])) if text)


def limits_text(run: Json) -> str:
    """Return sentences that say what limited a run's figures, or an empty text if the run does not show it."""
    limits = comparison.limits(run)
    if doubts := tables.doubts(limits):
        whys = "; ".join(limit.why for limit in doubts)
        return f"{whys[:1].upper()}{whys[1:]}. So the system itself may do better than these figures say."
    return "".join(f"The limit was the system itself: {limit.why}." for limit in limits if limit.part == "system")


def goal_text(goal: Mapping[str, Any]) -> str:
    """Return a text such as `p99 97.3 ms ≤ 2.00 s met`."""
    value, limit = (figures.goal(goal["goal"], goal[name]) for name in ("measured", "limit"))
    relation = "against" if goal["met"] is None or goal["measured"] is None else "≤" if goal["met"] else ">"
    return f"{figures.goal_name(goal['goal'])} {value} {relation} {limit} {verdict(goal)}"


def verdict(goal: Mapping[str, Any]) -> str:
    """Return whether a goal was met or missed, or was not judged because the digest does not know its name."""
    return {True: "met", False: "MISSED", None: "not judged"}[goal["met"]]
