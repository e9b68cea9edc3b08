"""The tables of a digest: their names, the columns of each table with their meaning, and the order of the rows.

Owns everything that the two forms of a digest on disk have in common. This module never touches a file.

| table | one row per | columns |
|---|---|---|
| seconds | run and second | counts of the events in that second; latency of the messages that were scheduled for it |
| histogram | run, phase, second and latency bucket | number of deliveries, and the bucket's bounds in ns |
| machine | run, process and sample | processor cores used, resident bytes, network and disk bytes per second |
| counters | run, phase, server and counter | the counter's first and last value in the phase |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ingeborg.bench.digest.document import Json, Rows

TABLES = {
    "seconds": (
        "run",
        "second",
        "news",
        "reports",
        "duplicates_offered",
        "delivered",
        "errors",
        "p50_ns",
        "p99_ns",
        "max_ns",
    ),
    "histogram": ("run", "phase", "second", "low_ns", "high_ns", "deliveries"),
    "machine": (
        "run",
        "source",
        "role",
        "second",
        "cpu_cores",
        "rss_bytes",
        "anon_bytes",
        "net_rx_bytes_s",
        "net_tx_bytes_s",
        "disk_read_bytes_s",
        "disk_write_bytes_s",
    ),
    "counters": ("run", "phase", "source", "name", "first", "last"),
}
"""The columns of each table, by the table's name."""

TEXT = frozenset({"run", "phase", "source", "role", "name"})
"""Columns that hold text."""

REAL = frozenset(
    {"cpu_cores", "net_rx_bytes_s", "net_tx_bytes_s", "disk_read_bytes_s", "disk_write_bytes_s", "first", "last"}
)
"""Columns that hold floating-point numbers, because they are measured or computed. All other columns hold whole
numbers: counts, bytes, seconds and nanoseconds."""

ORDER = {
    "seconds": itemgetter("run", "second"),
    "histogram": itemgetter("run", "second", "phase", "high_ns"),
    # A second may have several samples. They stay in the given order, which is chronological.
    "machine": itemgetter("run", "source", "second"),
    "counters": itemgetter("run", "phase", "source", "name"),
}
"""The sort keys of each table's rows."""


@dataclass(frozen=True)
class Digest:
    """The runs of a digest by their id, in the document's form, and the rows of its tables."""

    runs: Mapping[str, Json]
    tables: Mapping[str, Rows]

    @classmethod
    def of(cls, document: Json, tables: Mapping[str, Rows]) -> Digest:
        return cls({run["run"]: run for run in document["runs"]}, tables)

    @classmethod
    def empty(cls) -> Digest:
        return cls({}, {name: [] for name in TABLES})

    def joined(self, other: Digest) -> Digest:
        """Return a digest with the runs of both digests, which have no run in common."""
        tables = {name: [*self.tables[name], *other.tables[name]] for name in TABLES}
        return Digest({**self.runs, **other.runs}, tables)

    def sorted(self, name: str) -> list[Mapping[str, Any]]:
        """Return the rows of a table, sorted by its key in `ORDER`."""
        return sorted(self.tables[name], key=ORDER[name])
