"""The tables of a digest: their names, the columns of each and their meaning, and the order of their rows.

Owns everything that the forms of a digest on disk have in common. Pure: it never touches a file.

| table | one row per | columns |
|---|---|---|
| seconds | run and second | counts of the events in it; latency of the messages that were meant to be sent in it |
| histogram | run, phase, second and latency bucket | deliveries (bounds of the bucket in ns) |
| machine | run, process and sample | processor cores used, resident bytes, network and disk bytes per second |
| counters | run, phase, server and counter | its first and last value in the phase |
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
"""The columns of each table, by its name."""

TEXT = frozenset({"run", "phase", "source", "role", "name"})
"""Columns of text."""

REAL = frozenset(
    {"cpu_cores", "net_rx_bytes_s", "net_tx_bytes_s", "disk_read_bytes_s", "disk_write_bytes_s", "first", "last"}
)
"""Columns of measured or computed values. All others hold whole numbers: counts, bytes, seconds and nanoseconds."""

ORDER = {
    "seconds": itemgetter("run", "second"),
    "histogram": itemgetter("run", "second", "phase", "high_ns"),
    # A second may have several samples: they stay in the order given, which is that of time.
    "machine": itemgetter("run", "source", "second"),
    "counters": itemgetter("run", "phase", "source", "name"),
}
"""The sort keys of each table's rows."""


@dataclass(frozen=True)
class Digest:
    """Runs by id, as the document has them, and the tables' rows."""

    runs: Mapping[str, Json]
    tables: Mapping[str, Rows]

    @classmethod
    def of(cls, document: Json, tables: Mapping[str, Rows]) -> Digest:
        return cls({run["run"]: run for run in document["runs"]}, tables)

    @classmethod
    def empty(cls) -> Digest:
        return cls({}, {name: [] for name in TABLES})

    def joined(self, other: Digest) -> Digest:
        """Return both in one; they have no run in common."""
        tables = {name: [*self.tables[name], *other.tables[name]] for name in TABLES}
        return Digest({**self.runs, **other.runs}, tables)

    def sorted(self, name: str) -> list[Mapping[str, Any]]:
        """Return the rows of a table in their order."""
        return sorted(self.tables[name], key=ORDER[name])
