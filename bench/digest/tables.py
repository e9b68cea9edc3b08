"""The tables of a digest: their names, the columns of each and what stands in them, and the order of their rows.

Owns what every form of a digest on disk has in common. Pure: it never touches a file.

| table | one row per | columns |
|---|---|---|
| seconds | run and second | counts of what happened in it; latency of what was meant to be sent in it |
| histogram | run, phase, second and latency bucket | deliveries (bounds of the bucket in ns) |
| machine | run, process and sample | processor cores used, resident bytes, network and disk bytes a second |
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
    # Several samples may fall into a second: they stay in the order given, which is that of time.
    "machine": itemgetter("run", "source", "second"),
    "counters": itemgetter("run", "phase", "source", "name"),
}
"""By what the rows of each table are sorted."""


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
        """Both; they have no run in common."""
        tables = {name: [*self.tables[name], *other.tables[name]] for name in TABLES}
        return Digest({**self.runs, **other.runs}, tables)

    def sorted(self, name: str) -> list[Mapping[str, Any]]:
        """The rows of a table in their order."""
        return sorted(self.tables[name], key=ORDER[name])
