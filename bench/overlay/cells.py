"""The rows of all cells, looked up by what a page asks for.

Owns: which cell a figure is of. Must never: judge it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ingeborg.bench.overlay.experiments import INTERVALS_MS, KB

Json = Mapping[str, Any]


class Cells:
    """``rows``: of all cells, as ``work`` keeps them. With several seeds of a cell, figures are of the first."""

    def __init__(self, rows: Sequence[Json]) -> None:
        self.rows = sorted(rows, key=lambda row: (row["experiment"], row["nodes"], row["cell"]))
        self._thesis: dict[tuple[int, str, int, int, int], Json] = {}
        for row in self.rows:
            if row["experiment"] == "thesis":
                key = (row["nodes"], row["protocol"], row["senders"], row["payload_bytes"], row["interval_ms"])
                self._thesis.setdefault(key, row)

    def sizes(self, experiment: str) -> list[int]:
        """How many nodes its worlds have."""
        return sorted({row["nodes"] for row in self.rows if row["experiment"] == experiment})

    def of(self, experiment: str, nodes: int) -> list[Json]:
        """All cells of an experiment and a size."""
        return [row for row in self.rows if (row["experiment"], row["nodes"]) == (experiment, nodes)]

    def cell(self, nodes: int, protocol: str, senders: int, payload: int, interval: int) -> Json | None:
        """A cell of the document's grid, if there is one."""
        return self._thesis.get((nodes, protocol, senders, payload, interval))

    def smallest(self, nodes: int, protocol: str, senders: int) -> Json | None:
        """That of the smallest payload and the shortest interval."""
        return self.cell(nodes, protocol, senders, KB, INTERVALS_MS[0])

    def figure(self, nodes: int, protocol: str, senders: int, payload: int, interval: int, name: str) -> float | None:
        """A figure of the messages that count."""
        row = self.cell(nodes, protocol, senders, payload, interval)
        return None if row is None else float(row["phases"]["run"][name])

    def mean_ms(self, nodes: int, protocol: str, senders: int, payload: int, interval: int) -> float | None:
        """Mean latency."""
        return self.figure(nodes, protocol, senders, payload, interval, "mean_ms")

    def redundancy(self, nodes: int, protocol: str, senders: int, payload: int) -> float | None:
        """RMR: a mean over the intervals, as figure 4.3 has it."""
        return self.over_intervals(nodes, protocol, senders, payload, "redundancy")

    def over_intervals(self, nodes: int, protocol: str, senders: int, payload: int, name: str) -> float | None:
        """A figure's mean over the intervals that there are."""
        found = [self.figure(nodes, protocol, senders, payload, interval, name) for interval in INTERVALS_MS]
        values = [value for value in found if value is not None]
        return fmean(values) if values else None
