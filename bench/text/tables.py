"""The tables of a comparison as text, which the page, the Markdown summary and the terminal share.

Owns the columns, their headings and units, and the words of their cells. Must never: compute a figure, or escape text
for HTML or Markdown. The ratios come from `comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingeborg.bench.comparison import (
    CUT_SHORT,
    Figure,
    Limit,
    TopicsPoint,
    TopicsSeries,
    TopicsTable,
    TrafficRow,
    TrafficTable,
    ratio,
)
from ingeborg.bench.comparison.topics import SLOPE_TOPICS_MIN, slope
from ingeborg.bench.text import figures
from ingeborg.bench.text.blocks import Cell, Table

Format = Callable[[float | None], str]


PARTS = {
    "system": ("the system", "good"),
    "generator": ("generator", "warn"),
    "layer": ("layer", "warn"),
    "machine": ("machine", "warn"),
    "ceiling": ("end of the search", "warn"),
    "rate": ("fixed rate", ""),
    "unknown": ("unknown", "warn"),
}
"""The words for the part that was the limit, and the mark of its cell. Only the first entry says something about the
system."""

FOOTNOTES = {"generator": "†", "layer": "§", "machine": "‡"}
"""The signs for these parts in tables that have no room for words."""


def lost(measured: Mapping[str, Any]) -> str:
    """Return the number of lost deliveries of a run, and the number of conflated deliveries if there are any."""
    if not measured["news"]:
        return figures.NONE
    conflated = measured.get("conflated")  # digests of older versions lack this count
    return figures.count(measured["lost"]) + (f" ({figures.count(conflated)} conflated)" if conflated else "")


def cell(figure: Figure | None, text: Format) -> Cell:
    """Return a cell with a figure. If runs were repeated, it also has the least and the greatest figure, unless their
    texts are the same."""
    if figure is None:
        return Cell(figures.NONE)
    low, high = text(figure.low), text(figure.high)
    return Cell(text(figure.value), f"{low} … {high}" if low != high else "")


def count(figure: Figure | None) -> Cell:
    """Return a cell with a count that should be 0. For repeated runs, the count is already their sum."""
    if figure is None:
        return Cell(figures.NONE)
    return Cell(figures.count(figure.value), mark="bad" if figure.value else "")


def limit(limits: Sequence[Limit]) -> Cell:
    """Return a cell that names the part that was the limit. It never names the system if another part was at its
    limit."""
    if not limits:
        return Cell(figures.NONE)
    marks = {PARTS.get(one.part, (one.part, "warn"))[1] for one in limits}
    more = "; ".join(one.why for one in doubts(limits))
    return Cell(", ".join(map(part_name, limits)), more, "warn" if "warn" in marks else marks.pop())


def part_name(limit: Limit) -> str:
    return PARTS.get(limit.part, (limit.part, ""))[0]


def doubts(limits: Sequence[Limit]) -> list[Limit]:
    """Return the limits outside the system. Without these limits, the system might reach better figures."""
    return [limit for limit in limits if limit.part not in ("system", "rate")]


def traffic(table: TrafficTable) -> list[Table]:
    """Return three tables of all systems: rates and latency, costs, and commands with errors."""
    return [_rates(table), _cost(table), _commands(table)]


_LATENCIES = ("p50_ns", "p99_ns", "lag_p99_ns", "half_p50_ns", "half_p99_ns")


def _rates(table: TrafficTable) -> Table:
    header = (
        "System",
        "Limited by",
        "In",
        "Out",
        "In all",
        "Out, ratio",
        "p50",
        "p99",
        "Sent late, p99",
        "p50 at half",
        "p99 at half",
    )
    rows: list[tuple[Cell, ...]] = []
    for row in table.rows:
        found = row.figures
        name = Cell(row.name, _of_runs(row))
        if row.phase is None:
            why = "; ".join(row.failed) or "no rate was sustained"
            rows.append((name, limit(row.limits), Cell("none", why, "bad"), *(Cell(figures.NONE),) * 8))
            continue
        rows.append(
            (
                name,
                limit(row.limits),
                *(cell(found[key], figures.rate) for key in ("in_per_s", "out_per_s", "all_per_s")),
                _ratio(row, table.baseline, "out_per_s"),
                *(cell(found[key], figures.duration) for key in _LATENCIES),
            )
        )
    note = "Latency is measured from the time at which a message was due. “Sent late” is the part of the latency "
    note += (
        "before the message reached the client library. A message is sent late if the generator was behind schedule, "
    )
    note += "or if the system accepted no more messages."
    return Table("Greatest sustained rate, with its latency, and latency at half that rate", header, tuple(rows), note)


def _of_runs(row: TrafficRow) -> str:
    parts = [figures.counted(len(row.runs), "run")] if len(row.runs) > 1 else []
    parts += [f"{len(row.failed)} ended early"] if row.failed else []
    return ", ".join(parts)


def _cost(table: TrafficTable) -> Table:
    header = (
        "System",
        "Server CPU per delivered",
        "Ratio",
        "Layer CPU per delivered",
        "Memory per connection",
        "Memory per subscription",
        "Store operations per delivered",
    )
    rows = [
        (
            Cell(row.name),
            cell(row.figures["server_cpu_us"], figures.micros),
            _ratio(row, table.baseline, "server_cpu_us"),
            cell(row.figures["layer_cpu_us"], figures.micros),
            cell(row.figures["bytes_per_connection"], figures.size),
            cell(row.figures["bytes_per_subscription"], figures.size),
            cell(row.figures["store_operations"], figures.number),
        )
        for row in table.rows
    ]
    note = "CPU is the CPU time of all processes of the server, or of the deduplication layer, at the sustained rate. "
    note += "Memory is the growth of the servers' memory while the connections and subscriptions were made, divided by "
    note += "their number. A dash means that the value was not recorded."
    return Table("The cost of a delivered message", header, tuple(rows), note)


def _commands(table: TrafficTable) -> Table:
    conflated = [row.figures["conflated"] for row in table.rows]
    has_bounds = any(figure is not None and figure.high for figure in conflated)
    header = (
        "System",
        "Subscribe",
        "Ratio",
        "Unsubscribe",
        "Lost",
        *(["Conflated"] if has_bounds else []),
        "Twice",
        "Reordered",
        "Errors",
        "Repeats offered",
    )
    counts = ("lost", *(["conflated"] if has_bounds else []), "duplicated", "reordered", "errors")
    rows = [
        (
            Cell(row.name),
            cell(row.figures["subscribe_per_s"], figures.rate),
            _ratio(row, table.baseline, "subscribe_per_s"),
            cell(row.figures["unsubscribe_per_s"], figures.rate),
            *(count(row.figures[key]) for key in counts),
            cell(row.figures["repeats"], lambda value: figures.share(value, 1)),
        )
        for row in table.rows
    ]
    note = "The counts cover the measured phases. Repeats are publishes of a payload that another connection had "
    note += "already published. They are sent only if the system, or a deduplication layer in front of it, drops them."
    if has_bounds:
        note += " Conflated deliveries are those that a later message replaced, as the subscriber's bounds allow."
    return Table("Subscribing, and what went wrong", header, tuple(rows), note)


def _ratio(row: TrafficRow, baseline: TrafficRow, key: str) -> Cell:
    return Cell("1" if row is baseline else figures.ratio(ratio(row.figures[key], baseline.figures[key])))


TOPICS_PLOTTED: tuple[tuple[str, str, Format], ...] = (
    ("subscribe_s", "Time to subscribe to N topics", figures.seconds),
    ("produce_per_s", "Produce rate over N topics", figures.rate),
    ("consume_per_s", "Consume rate over N topics", figures.rate),
)
"""The plots of thesis figure 6.4. Each has the figure's key, the title, and the format."""


def topics(table: TopicsTable) -> list[Table]:
    """Return a table with the end of each series and its ratios. For each plot of the thesis, also return a table of
    the figure by number of topics and series."""
    return [_ended(table), *(_by_number(table, *plotted) for plotted in TOPICS_PLOTTED)]


def _ended(table: TopicsTable) -> Table:
    header = (
        "System",
        "Topics",
        "Ended by",
        "Compared at",
        "Subscribe time",
        "Produce",
        "Consume",
        "Server CPU per delivered",
        "Server memory per topic",
    )
    rows = []
    for series in table.series:
        at = table.common(series)
        points = (series.at(at), table.baseline.at(at)) if at is not None else (None, None)
        keys = ("subscribe_s", "produce_per_s", "consume_per_s", "server_cpu_us")
        rows.append(
            (
                Cell(series.name),
                Cell(figures.count(series.finished)),
                ending(series),
                Cell(figures.NONE if at is None else figures.count(at)),
                *(_ratio_at(points, key, series is table.baseline) for key in keys),
                Cell(figures.size(series.bytes_per_topic)),
            )
        )
    note = "Each ratio compares a system with the first one, at the greatest number of topics that both finished. "
    note += "Memory per topic is the growth of the servers' memory per additional topic, measured from "
    note += f"{SLOPE_TOPICS_MIN:,} topics upwards."
    return Table("How far each system came, and ratios", header, tuple(rows), note)


def ending(series: TopicsSeries) -> Cell:
    """Return the number of topics that the series reached. An interrupted series has not failed."""
    failure = series.failure
    if failure is None:
        return Cell("finished", mark="good")
    topics = figures.count(failure.topics)
    if failure.failed == CUT_SHORT:
        return Cell(f"{CUT_SHORT} at {topics}", "by Ctrl-C, or a time limit", "warn")
    return Cell(f"failed at {topics}", failure.failed or "", "bad")


def _ratio_at(points: tuple[TopicsPoint | None, TopicsPoint | None], key: str, is_baseline: bool) -> Cell:
    own, baseline = points
    if own is None or baseline is None:
        return Cell(figures.NONE)
    return Cell("1" if is_baseline else figures.ratio(ratio(own.figures[key], baseline.figures[key])))


def _by_number(table: TopicsTable, key: str, title: str, text: Format) -> Table:
    seen: dict[str, str] = {}
    rows = []
    for number in table.numbers:
        row = [Cell(figures.count(number))]
        for series in table.series:
            point = series.at(number)
            if point is None:
                row.append(Cell(figures.NONE))
                continue
            if point.figures[key] is None and point.failed is not None:
                row.append(Cell("failed", mark="bad"))
                continue
            signs = {one.part: FOOTNOTES[one.part] for one in point.limits_of(key) if one.part in FOOTNOTES}
            seen |= signs
            row.append(cell(point.figures[key], text)._replace(sign="".join(signs.values())))
        rows.append(tuple(row))
    return Table(title, ("Topics", *(series.name for series in table.series)), tuple(rows), _footnotes(seen))


def _footnotes(signs: Mapping[str, str]) -> str:
    return " ".join(
        f"{sign} The {part} was at its limit, so the system itself may be faster." for part, sign in signs.items()
    )


def series(one: TopicsSeries) -> Table:
    """Return all figures of one series, with a row per number of topics."""
    header = (
        "Topics",
        "Subscribe time",
        "Subscribe",
        "Produce",
        "Consume",
        "End to end",
        "Server CPU per delivered",
        "Server memory",
        "More, per topic",
        "Lost",
        "At its limit",
    )
    rows = []
    before: TopicsPoint | None = None
    for point in one.points:
        found = point.figures
        rows.append(
            (
                Cell(figures.count(point.topics)),
                cell(found["subscribe_s"], figures.seconds),
                *(
                    cell(found[key], figures.rate)
                    for key in ("subscribe_per_s", "produce_per_s", "consume_per_s", "end_to_end_per_s")
                ),
                cell(found["server_cpu_us"], figures.micros),
                cell(found["server_bytes"], figures.size),
                Cell(figures.size(_per_topic(before, point))),
                count(found["lost"]),
                limit(point.limits) if point.failed is None else Cell("failed", point.failed, "bad"),
            )
        )
        before = point
    note = "“More, per topic” is the growth of memory per additional topic since the previous number of topics. It is "
    note += f"shown if the previous number is at least {SLOPE_TOPICS_MIN:,}."
    return Table(f"Topics: {one.name}", header, tuple(rows), note)


def _per_topic(before: TopicsPoint | None, point: TopicsPoint) -> float | None:
    if before is None or before.topics < SLOPE_TOPICS_MIN:
        return None
    first, last = before.figures["server_bytes"], point.figures["server_bytes"]
    return slope((before.topics, first.value), (point.topics, last.value)) if first and last else None
