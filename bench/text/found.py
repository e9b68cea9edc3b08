"""The sentences at the top of a page: what a run's workload does, and what the comparisons found.

Owns these sentences, as plain text without escaping. Must never: compute a figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ingeborg.bench import comparison
from ingeborg.bench.comparison import TopicsTable, TrafficTable
from ingeborg.bench.digest.document import Json
from ingeborg.bench.text import figures
from ingeborg.bench.text.statements import joined
from ingeborg.bench.text.tables import doubts, ending, part_name

_RADIO = (
    "report each change of song, and the broker sends one message to every listener ({clients} in all) that wishes for "
    "the song."
)

WORKLOADS = {
    "radio": "The listeners of {stations} " + _RADIO,
    "replay": "The listeners of radio stations, which play as a recorded log says, " + _RADIO,
    "traffic": "Over {connections}, clients publish and subscribe to {topics}; the run searches for the greatest rate "
    "that keeps p99 within {p99}, and measures at that rate and at half of it.",
    "fixed": "Over {connections}, clients publish and subscribe to {topics}, at a fixed rate.",
    "topics": "One client subscribes to {topics}, and another publishes to them in turn as fast as it can, with at "
    "most {window} in flight.",
    "causal": "Some of {clients} ask questions and others answer on topics of their own, so that the log shows each "
    "answer that arrives before its question.",
}
"""A description of what each workload does. `fixed` is traffic without a search."""

NOUNS = {
    "connections": "connection",
    "topics": "topic",
    "stations": "invented radio station",
    "clients": "client",
    "window": "message",
}
"""The settings that the sentences name, each with the singular word for what it counts."""


def workload(facts: Mapping[str, Any]) -> str:
    """Return one sentence that says what the run's workload does, or an empty text for an unknown workload. If a
    setting is missing, its number is left out."""
    config = facts.get("config")
    config = config if isinstance(config, dict) else {}
    values = {
        name: figures.counted(value, noun) if isinstance(value := config.get(name), int) else f"{noun}s"
        for name, noun in NOUNS.items()
    }
    limit_ms = config.get("p99_ms")
    p99 = figures.goal("p99_ms", limit_ms) if isinstance(limit_ms, int | float) else "a limit"
    name = str(facts["workload"])
    text = WORKLOADS.get("fixed" if name == "traffic" and config.get("rate") else name, "")
    return text.format(**values, p99=p99)


def compared(document: Json) -> list[str]:
    """Return sentences that say what the comparisons found."""
    return [
        *(text for table in comparison.traffic(document) for text in _traffic(table)),
        *(_topics(table) for table in comparison.topics(document)),
    ]


def _traffic(table: TrafficTable) -> Iterator[str]:
    rates = [(figure.value, row.name) for row in table.rows if (figure := row.figures["out_per_s"]) is not None]
    rates.sort(key=lambda pair: -pair[0])
    at = "the fixed rate" if table.load.get("rate") else "its sustained rate"
    for number, (rate, name) in enumerate(rates, 1):
        if number == 1:
            best = f"of {len(table.rows)} systems, {name} delivers most," if len(table.rows) > 1 else f"{name} delivers"
            yield f"Traffic: {best} {figures.rate(rate)} at {at}."
        elif name == table.baseline.name:
            yield f"Traffic: {name} is number {number} and delivers {figures.rate(rate)}."
    if none := [row.name for row in table.rows if row.phase is None]:
        yield f"Traffic: no rate was sustained by {joined(none)}."
    parts = Counter(part_name(limit) for row in table.rows for limit in doubts(row.limits))
    if parts:
        rows = sum(bool(doubts(row.limits)) for row in table.rows)
        of = f"{rows} of {len(table.rows)} systems" if len(table.rows) > 1 else "the system"
        said = joined(f"{part} ({count})" if len(table.rows) > 1 else part for part, count in parts.items())
        yield f"Traffic: {of} may do better, because something else was at its limit: {said}."


def _topics(table: TopicsTable) -> str:
    most = max(table.numbers)
    done = [series for series in table.series if series.finished == most]
    ended = [f"{series.name} {ending(series).text}" for series in table.series if series.failure is not None]
    finished = f"Topics: {len(done)} of {figures.counted(len(table.series), 'system')} finished "
    return joined([f"{finished}{figures.counted(most, 'topic')}", *ended]) + "."
