"""Format the figures of all cells as Markdown tables, for the terminal and the documentation.

Owns: the columns, and the number of their digits. Must never: compute a figure, except a mean over cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

_COLUMNS: tuple[tuple[str, Callable[[Json, Json], str]], ...] = (
    ("reliability", lambda _, phase: share(phase["reliability"])),
    ("violations", lambda row, _: f"{row['violations']:,}"),
    ("mean, ms", lambda _, phase: f"{phase['mean_ms']:.1f}"),
    ("p50", lambda _, phase: f"{phase['p50_ms']:.1f}"),
    ("p99", lambda _, phase: f"{phase['p99_ms']:.1f}"),
    ("LDH", lambda _, phase: f"{phase['last_hop']:.1f}"),
    ("RMR", lambda _, phase: f"{phase['redundancy']:.3f}"),
    ("RMR of all", lambda row, _: f"{row['redundancy']:.3f}"),
    ("control, B", lambda _, phase: f"{phase['control_bytes']:.0f}"),
)
"""Columns of a table, computed from a cell and one of its phases. ``RMR of all``: the RMR of all counted messages
together, because under a fault some copies are sent in the next phase. ``control, B``: control bytes per node and
message."""


def share(value: float) -> str:
    """Format a share as a percentage, with enough digits to distinguish, for example, 99.9983 % from 100 %."""
    return "100 %" if value == 1.0 else f"{100 * min(value, 0.999999):.4f} %"


def markdown(rows: Sequence[Json]) -> str:
    """Return the tables of all cells, by experiment. A cell has a row for each phase with messages, and its name is
    only in the first row. If a cell has several seeds, only the first is included."""
    lines = ["# Broadcast among simulated nodes"]
    first: dict[str, Json] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        first.setdefault(f"{row['experiment']} {what(row)}", row)
    for experiment in dict.fromkeys(row["experiment"] for row in rows):
        chosen = [row for row in first.values() if row["experiment"] == experiment]
        table = [["cell", "messages", *(name for name, _ in _COLUMNS)]]
        for row in sorted(chosen, key=_place):
            title = what(row)
            for name, phase in row["phases"].items():
                if phase["messages"]:
                    cells = [text(row, phase) for _, text in _COLUMNS]
                    table.append([title, f"{name}: {phase['messages']}", *cells])
                    title = ""
        lines += ["", f"## {experiment}", "", *_table(table)]
    return "\n".join(lines) + "\n"


def what(row: Json) -> str:
    """Describe a cell in a few words."""
    words = [row["protocol"], f"{row['nodes']:,} nodes", f"{row['senders'] or 'all'} senders"]
    if row["experiment"] in ("thesis", "timers", "long", "printed"):
        words += [f"{row['payload_bytes'] // 1000} KB", f"{row['interval_ms']} ms"]
    if row["share"]:
        words.append(f"{100 * row['share']:g} %")
    if row.get("start") == "warm":
        words.append("warm")
    if row["experiment"] == "printed":
        words += [
            *([row["fault"]] if row["fault"] else []),
            f"without {row['without']}" if row["without"] else "repaired",
        ]
    if row["experiment"] == "timers":
        words.append(f"requests after {row['timeout1_ms']} ms")
    return ", ".join(words)


def speed(times: Sequence[Json]) -> str:
    """Return a line with the speed of the simulation."""
    seconds = sum(row["cpu_seconds"] for row in times)
    events = sum(row["cpu_seconds"] * row["events_per_cpu_second"] for row in times)
    each = events / seconds if seconds else 0.0
    return f"{events:,.0f} events in {seconds:,.0f} s of CPU time: {each:,.0f} events/s"


def _place(row: Json) -> tuple[Any, ...]:
    senders = row["senders"] or row["nodes"] + 1
    return (
        row["protocol"],
        row["nodes"],
        senders,
        row["payload_bytes"],
        row["interval_ms"],
        row["share"],
        -row["timeout1_ms"],
    )


def _table(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows without aligning columns, because a third of a table of hundreds of rows would be spaces."""
    rows = [table[0], ["---"] * len(table[0]), *table[1:]]
    return [f"| {' | '.join(row)} |" for row in rows]
