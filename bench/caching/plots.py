"""The plots of `bench caching`: the lines of the document's seven experiments.

Owns: lines, scales and captions. Must never: compute a figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ingeborg.bench.caching.found import MISSED, ON_LMDB, ROOMS, Found, Json
from ingeborg.bench.caching.judging import room
from ingeborg.bench.caching.live.cases import LATENCY, POLLING, STRATEGIES, THROUGHPUT
from ingeborg.bench.caching.policies.named import RULES
from ingeborg.bench.report.plots import Plot, Point, Series
from ingeborg.bench.report.scales import Axis, linear, logarithmic
from ingeborg.bench.text.blocks import Block, Figure

Value = Callable[[int, str], float | None]
"""A function that returns a value for a number of records and a strategy."""


def hits(found: Found) -> list[Block]:
    """Plot experiment 1 for each room, and for each interpretation of bounded memory."""
    blocks = _over_records(
        found.records,
        lambda records, name: _mean(found.document(records, name), "by_read"),
        "Experiment 1: hit rate by read, memory without a limit",
        "e1-unbounded",
        "The share of reads that memory answered, over the number of records. The strategy `owed` keeps all records, "
        "as `all` does.",
        _percent,
    )
    for share in ROOMS[1:]:
        for again, reading in MISSED.items():
            blocks += _over_records(
                found.records,
                lambda records, name, share=share, again=again: _mean(  # type: ignore[misc]
                    found.document(records, name, share, again=again), "by_read"
                ),
                f"Experiment 1: hit rate by read, memory for {room(share)}, {reading}",
                f"e1-{room(share).strip('%')}-{again}",
                "The document's strategies evict by LRU. The strategy `none` has no hits, and so no line.",
                _percent,
                STRATEGIES[1:],
                near=True,
            )
    return blocks


def copies(found: Found) -> list[Block]:
    """Plot experiment 2, the duplication factor, and copies per record."""

    def lines(what: str, title: str, identity: str, caption: str) -> list[Block]:
        return _over_records(
            found.records,
            lambda records, name: _mean(found.document(records, name), what),
            f"Experiment 2{title}",
            identity,
            caption,
            "{:g}".format,
        )

    caption = "Mean number of subscribers of a record in memory, without a limit."
    others = "Mean number of subscribers of any record. A record that did not come into memory counts as 0."
    return [
        *lines("duplication", ": duplication factor", "e2", caption),
        *lines("copies_per_record", ", additionally: copies per record", "e2-copies", others),
    ]


def latency(found: Found) -> list[Block]:
    """Plot experiment 3: the whole latency, and the database's part."""
    title = "Experiment 3, additionally: the part that a strategy can change"
    caption = "The mean time from the moment when a record should be sent until its subscriber has it."
    others = "The mean time for reading the database, which is a part of the latencies above."
    text = "{:g} ms".format
    return [
        *_measured(found, LATENCY, "latency_ms", "Experiment 3: end-to-end latency", "e3", caption, text),
        *_measured(found, LATENCY, "database_ms", title, "e3-database", others, text),
    ]


def throughput(found: Found) -> list[Block]:
    """Plot experiment 4."""
    return _measured(
        found,
        THROUGHPUT,
        "records_per_s",
        "Experiment 4: throughput",
        "e4",
        "Records per second until all are delivered, as means of the runs.",
        lambda value: f"{value / 1000:g} k/s" if value else "0",
    )


def parameters(found: Found) -> list[Block]:
    """Plot experiments 5 to 7: hit rates, with unlimited and with bounded memory."""
    share = linear(1.0, lambda value: f"{value:.1f}")
    batch = logarithmic([1, 10_000], lambda value: f"{value:,.0f}")
    blocks: list[Block] = []
    for policy, title, identity, x in (
        ("threshold", "Experiment 5: threshold, over λ (μ = 1 − λ)", "e5", share),
        ("mean", "Experiment 6: mean, over the batch", "e6", batch),
    ):
        lines = {}
        for room_of, again in ((None, False), *((0.1, again) for again in MISSED)):
            rows = found.sweep(policy, room_of, again=again)
            name = room(room_of) if room_of is None else f"{room(room_of)}, {MISSED[again]}"
            lines[name] = sorted((float(values.split()[0]), _mean(row, "by_read")) for values, row in rows.items())
        blocks += _rates(lines, title, identity, x, "The hit rate by read, with 10,000 records.")
    weights: dict[str, list[Point]] = {}
    for values, row in sorted(found.sweep("buffer").items()):
        own, before = values.split()
        weights.setdefault(f"γ = {own}", []).append((float(before), _mean(row, "by_read")))
    return blocks + _rates(
        weights,
        "Experiment 7: buffer, over α for each γ",
        "e7",
        share,
        "The hit rate by read, with 10,000 records and unlimited memory. Where γ + α = 1, all lines have the same "
        "value, because only α/(1−γ) decides.",
    )


def _mean(row: Json | None, what: str) -> float | None:
    value = None if row is None else row.get(what)
    return None if value is None else float(value[0] if isinstance(value, list) else value)


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _measured(
    found: Found, kind: str, what: str, title: str, identity: str, caption: str, text: Callable[[float], str]
) -> list[Block]:
    """Draw the real processes on LMDB with unlimited memory: with polls that wait, or else with polls twice a
    second."""
    setups = (ON_LMDB, ON_LMDB._replace(fetches=POLLING))
    setup = next((one for one in setups if found.measured_records(kind, one)), ON_LMDB)
    return _over_records(
        found.measured_records(kind, setup),
        lambda records, name: _mean(found.measured(kind, records, name, None, setup), what),
        title,
        identity,
        f"{caption} Unlimited memory; {setup}.",
        text,
    )


def _over_records(
    records: Sequence[int],
    value: Value,
    title: str,
    identity: str,
    caption: str,
    text: Callable[[float], str],
    names: Sequence[str] = tuple(RULES),
    *,
    near: bool = False,
) -> list[Block]:
    """Draw a line for each strategy. By default, only the document's strategies have lines, because with unlimited
    memory, `owed` would lie on the line of `all`. With ``near``, the axis begins below the least value instead of at
    0."""
    series = []
    for name in names:
        points: list[Point] = [(number, value(number, name)) for number in records]
        if any(y is not None for _, y in points):
            # Each strategy has the same colour in all plots.
            series.append(Series(name, points, STRATEGIES.index(name), dots=True))
    values = [y for line in series for _, y in line.points if y is not None]
    if not values:
        return []
    low = math.floor(20 * min(values)) / 20 if near else 0.0
    ends = ", ".join(f"{line.name} {_said(line.points[-1][1])}" for line in series)
    plot = Plot(
        title=title,
        description=f"With {records[-1]:,} records: {ends}.",
        series=series,
        x=logarithmic(records, lambda number: f"{number:,.0f}"),
        y=linear(max(values) or 1.0, text, low),
    )
    return [Figure(plot, identity, f"{caption} The axis begins at {text(low)}." if low else caption)]


def _said(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"


def _rates(lines: dict[str, list[Point]], title: str, identity: str, x: Axis, caption: str) -> list[Block]:
    series = [Series(name, points, index, dots=True) for index, (name, points) in enumerate(lines.items()) if points]
    if not series:
        return []
    ends = ", ".join(f"{line.name} {_said(line.points[0][1])} to {_said(line.points[-1][1])}" for line in series)
    description = f"From the first value to the last: {ends}."
    return [Figure(Plot(title, description, series, x, linear(1.0, _percent)), identity, caption)]
