"""The plots of `bench caching`: the lines of the document's seven experiments.

Owns: lines, scales and captions. Must never: compute a figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingeborg.bench.caching.found import MISSED, ROOMS, STRATEGIES, Found
from ingeborg.bench.caching.judging import room
from ingeborg.bench.caching.live.cases import LATENCY, THROUGHPUT
from ingeborg.bench.report.charts import Drawn
from ingeborg.bench.report.markup import Html, plot
from ingeborg.bench.report.plots import Plot, Point, Scale, Series, linear, logarithmic

Json = Mapping[str, Any]
Text = Callable[[float], str]
Axis = Callable[[int], Scale]

Value = Callable[[int, str], float | None]
"""A function that returns a value for a number of records and a strategy."""


def hits(found: Found) -> list[Html]:
    """Plot experiment 1 for each room, and for both readings of bounded memory."""
    return [
        _over_records(
            found,
            _hit_rates(found, share, again),
            f"Experiment 1: hit rate by read, memory {'without a limit' if share is None else f'for {share:.0%}'}"
            + ("" if share is None else f", {MISSED[again]}"),
            lambda value: f"{value:.0%}",
            f"e1-{room(share).strip('%')}{'-again' * again}",
            "The share of reads that memory answered, over the number of records."
            + (
                " The strategies all and owed are both at 100 %."
                if share is None
                else " The document's strategies evict by LRU. The strategy none has no hits, and so no line."
            ),
            names=STRATEGIES if share is None else STRATEGIES[1:],
            live="",
            near=share is not None,
        )
        for share in ROOMS
        for again in ([False] if share is None else MISSED)
    ]


def copies(found: Found) -> list[Html]:
    """Plot experiment 2, the duplication factor, and copies per record."""
    return [
        _over_records(
            found,
            _of_document(found, what),
            title,
            lambda value: f"{value:g}",
            identity,
            caption,
            live="",
        )
        for what, title, identity, caption in (
            (
                "duplication",
                "Experiment 2: duplication factor",
                "e2",
                "Mean number of subscribers of a record in memory, without a limit.",
            ),
            (
                "copies_per_record",
                "Experiment 2, additionally: copies per record",
                "e2-copies",
                "Mean number of subscribers of any record. A record that did not come into memory counts as 0.",
            ),
        )
    ]


def latency(found: Found) -> list[Html]:
    """Plot experiment 3: the whole latency, and the database's part."""
    return [
        _over_records(
            found,
            _measured(found, LATENCY, what),
            title,
            lambda value: f"{value:g} ms",
            identity,
            caption,
        )
        for what, title, identity, caption in (
            (
                "latency_ms",
                "Experiment 3: end-to-end latency",
                "e3",
                "The mean time from the moment when a record should be sent until its subscriber has it. Polls wait at "
                "the broker, which writes each record. The database is LMDB, and memory has no limit.",
            ),
            (
                "database_ms",
                "Experiment 3, additionally: the part that a strategy can change",
                "e3-database",
                "The mean time for reading the database, which is a part of the latencies above.",
            ),
        )
    ]


def throughput(found: Found) -> list[Html]:
    """Plot experiment 4."""
    if not found.throughputs:
        return []
    return [
        _over_records(
            found,
            _measured(found, THROUGHPUT, "records_per_s"),
            "Experiment 4: throughput",
            lambda value: f"{value / 1000:g} k/s" if value else "0",
            "e4",
            "Records per second until all are delivered, as means of the runs. On LMDB, with unlimited memory. The "
            "broker writes each record.",
            live=THROUGHPUT,
        )
    ]


def parameters(found: Found) -> list[Html]:
    """Plot experiments 5 to 7: hit rates, with unlimited and with bounded memory."""
    plots = [
        _swept(
            found,
            "threshold",
            "Experiment 5: threshold, over λ (μ = 1 − λ)",
            "e5",
            linear(1.0, lambda value: f"{value:.1f}"),
        ),
        _swept(
            found,
            "mean",
            "Experiment 6: mean, over the batch",
            "e6",
            logarithmic([1, 10_000], lambda value: f"{value:,.0f}"),
        ),
        _weights(found),
    ]
    return [one for one in plots if one]


def _hit_rates(found: Found, share: float | None, again: bool) -> Value:
    return lambda records, name: _first(found.document(records, name, share, again=again), "by_read")


def _of_document(found: Found, what: str) -> Value:
    return lambda records, name: _first(found.document(records, name), what)


def _measured(found: Found, kind: str, what: str) -> Value:
    return lambda records, name: _value(found.measured(kind, records, name), what)


def _first(row: Json | None, what: str) -> float | None:
    return None if row is None or row.get(what) is None else float(row[what][0])


def _value(row: Json | None, what: str) -> float | None:
    value = None if row is None else row.get(what)
    return None if value is None else float(value[0] if isinstance(value, list) else value)


def _over_records(
    found: Found,
    value: Value,
    title: str,
    text: Text,
    identity: str,
    caption: str,
    names: Sequence[str] = STRATEGIES,
    *,
    live: str = LATENCY,
    near: bool = False,
) -> Html:
    """Draw a line for each strategy. ``live`` is the kind of the figures from real processes, or empty for others. With
    ``near``, the axis begins below the least value instead of at 0."""
    records = found.measured_records(live) if live else found.records
    series = []
    for index, name in enumerate(STRATEGIES):
        if name not in names:
            continue  # each strategy keeps its colour, with or without the others
        points: list[Point] = [(number, value(number, name)) for number in records]
        if any(y is not None for _, y in points):
            # The last line is dashed, so that both lines are visible if it lies on another line.
            series.append(Series(name, points, index, dots=True, dashed=name == STRATEGIES[-1]))
    if not series or not records:
        return Html("")
    values = [y for line in series for _, y in line.points if y is not None]
    low = math.floor(20 * min(values)) / 20 if near else 0.0
    drawn = Drawn(
        Plot(
            title=title,
            description=f"With {records[-1]:,} records: "
            + ", ".join(f"{line.name} {_said(line.points[-1][1])}" for line in series)
            + ".",
            series=series,
            x=logarithmic(records, lambda number: f"{number:,.0f}"),
            y=linear(max(values) or 1.0, text, low),
        )
    )
    return plot(drawn, identity, caption)


def _said(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"


def _swept(found: Found, policy: str, title: str, identity: str, x: Axis) -> Html:
    series = []
    for index, (share, again) in enumerate(((None, False), (0.1, False), (0.1, True))):
        rows = sorted(found.sweep(policy, share, again=again).items(), key=lambda item: float(item[0].split()[0]))
        points: list[Point] = [(float(name.split()[0]), _first(row, "by_read")) for name, row in rows]
        if points:
            name = room(share) if share is None else f"{room(share)}, {MISSED[again]}"
            series.append(Series(name, points, index, dots=True))
    return _rates(series, title, identity, x, "The hit rate by read, with 10,000 records.")


def _weights(found: Found) -> Html:
    """Plot experiment 7, with α on the axis and a line for each γ."""
    rows = found.sweep("buffer")
    lines: dict[str, list[Point]] = {}
    for name, row in sorted(rows.items()):
        own, before = name.split()
        lines.setdefault(own, []).append((float(before), _first(row, "by_read")))
    series = [Series(f"γ = {own}", points, index, dots=True) for index, (own, points) in enumerate(lines.items())]
    caption = (
        "The hit rate by read, with 10,000 records and unlimited memory. Where γ + α = 1, all lines have the same "
        "value, because only α/(1−γ) decides."
    )
    x = linear(1.0, lambda value: f"{value:.1f}")
    return _rates(series, "Experiment 7: buffer, over α for each γ", "e7", x, caption)


def _rates(series: Sequence[Series], title: str, identity: str, x: Axis, caption: str) -> Html:
    if not series:
        return Html("")
    ends = ", ".join(f"{line.name} {_said(line.points[0][1])} to {_said(line.points[-1][1])}" for line in series)
    drawn = Drawn(
        Plot(
            title=title,
            description=f"From the first value to the last: {ends}.",
            series=series,
            x=x,
            y=linear(1.0, lambda value: f"{value:.0%}"),
        )
    )
    return plot(drawn, identity, caption)
