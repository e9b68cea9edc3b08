"""Look up the rows of all cells for a page.

Owns: the choice of the cell for a figure. Must never: judge a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ingeborg.bench.overlay.experiments import DOCUMENT, INTERVALS_MS, KB

Json = Mapping[str, Any]


class Cells:
    """``rows``: the rows of all cells, as ``work`` stores them. If a cell exists with several seeds, a figure is the
    mean over the seeds."""

    def __init__(self, rows: Sequence[Json]) -> None:
        self.rows = sorted(rows, key=lambda row: (row["experiment"], row["nodes"], row["seed"], row["cell"]))
        self._thesis: dict[tuple[int, str, int, int, int], list[Json]] = {}
        for row in self.of_experiment("thesis"):
            key = (row["nodes"], row["protocol"], row["senders"], row["payload_bytes"], row["interval_ms"])
            self._thesis.setdefault(key, []).append(row)

    def by_seed(self, nodes: int) -> list[Cells]:
        """Return the document's cells, separately for each seed, for figures that can differ between seeds."""
        rows = [row for row in self.of("thesis", nodes) if row["protocol"] in DOCUMENT]
        return [Cells([row for row in rows if row["seed"] == seed]) for seed in sorted({row["seed"] for row in rows})]

    def sizes(self, experiment: str) -> list[int]:
        """Return the different numbers of nodes in an experiment's worlds."""
        return sorted({row["nodes"] for row in self.of_experiment(experiment)})

    def of_experiment(self, experiment: str) -> list[Json]:
        """Return all cells of an experiment."""
        return [row for row in self.rows if row["experiment"] == experiment]

    def of(self, experiment: str, nodes: int) -> list[Json]:
        """Return all cells of an experiment with this number of nodes."""
        return [row for row in self.of_experiment(experiment) if row["nodes"] == nodes]

    def cell(self, nodes: int, protocol: str, senders: int, payload: int, interval: int) -> Json | None:
        """Return a cell of the document's grid, or ``None`` if it does not exist. If it has several seeds, return the
        first."""
        found = self._thesis.get((nodes, protocol, senders, payload, interval))
        return found[0] if found else None

    def smallest(self, nodes: int, protocol: str, senders: int) -> Json | None:
        """Return the cell with the smallest payload and the shortest interval."""
        return self.cell(nodes, protocol, senders, KB, INTERVALS_MS[0])

    def figure(self, nodes: int, protocol: str, senders: int, payload: int, interval: int, name: str) -> float | None:
        """Return a figure of the counted messages, as the mean over all seeds."""
        found = self._thesis.get((nodes, protocol, senders, payload, interval))
        return fmean(row["phases"]["run"][name] for row in found) if found else None

    def mean_ms(self, nodes: int, protocol: str, senders: int, payload: int, interval: int) -> float | None:
        """Return the mean latency."""
        return self.figure(nodes, protocol, senders, payload, interval, "mean_ms")

    def redundancy(self, nodes: int, protocol: str, senders: int, payload: int) -> float | None:
        """Return the RMR, as the mean over the intervals, as in figure 4.3."""
        return self.over_intervals(nodes, protocol, senders, payload, "redundancy")

    def over_intervals(self, nodes: int, protocol: str, senders: int, payload: int, name: str) -> float | None:
        """Return a figure's mean over all intervals."""
        found = [self.figure(nodes, protocol, senders, payload, interval, name) for interval in INTERVALS_MS]
        values = [value for value in found if value is not None]
        return fmean(values) if values else None
