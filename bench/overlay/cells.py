"""Look up the rows of all cells for the report.

Owns: the choice of the cell for a figure. Must never: judge a figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ingeborg.bench.overlay.cases import (
    ALL,
    COLD,
    INTERVALS_MS,
    KB,
    LOADS,
    NAMED_MS,
    PAYLOADS,
    THESIS,
    TIMEOUT1_MS,
    TIMERS,
    TREES,
    WARM,
)

Json = Mapping[str, Any]


def share(value: float) -> str:
    """Format a share as a percentage. It has enough digits to distinguish, for example, 99.9983 % from 100 %."""
    return "100 %" if value == 1.0 else f"{100 * min(value, 0.999999):.4f} %"


@dataclass(frozen=True)
class Reading:
    """The two things that the document leaves open if all nodes send: the start, and TIMEOUT1."""

    start: str = COLD
    timeout1_ms: int = TIMEOUT1_MS


def start_of(row: Json) -> str:
    """Return whether a message came before the counted messages."""
    return str(row.get("start", WARM if row["senders"] != ALL else COLD))


def reading_of(row: Json) -> Reading:
    """Return the interpretation of a cell in which all nodes send."""
    return Reading(start_of(row), row["timeout1_ms"])


def load_of(row: Json) -> tuple[int, int]:
    """Return the payload and the interval of a cell."""
    return row["payload_bytes"], row["interval_ms"]


def of_several(row: Json) -> bool:
    """Return whether the figures of a row depend on the interpretation."""
    return row["senders"] == ALL and row["protocol"] in TREES


@dataclass(frozen=True)
class View:
    """The content of a grid: the number of nodes, the interpretation, one seed or all seeds, and all loads or only
    ``LOADS``. Values of TIMEOUT1 are compared with ``LOADS``."""

    nodes: int
    reading: Reading = Reading()
    seed: int | None = None
    few_loads: bool = False


class Grid:
    """The document's grid in one view. If a cell exists with several seeds, a figure is the mean over the seeds.
    ``rows``: all rows of this size and these seeds, of every experiment and interpretation."""

    def __init__(self, rows: Iterable[Json], view: View) -> None:
        self.rows = [row for row in rows if row["nodes"] == view.nodes and view.seed in (None, row["seed"])]
        self.view = view
        self.nodes = view.nodes
        self._found: dict[tuple[str, int, int, int], dict[int, Json]] = {}
        for row in self.rows:
            usual = view.reading if of_several(row) else Reading(start_of(row))
            fits = reading_of(row) == usual and (not view.few_loads or load_of(row) in LOADS)
            if row["experiment"] in (THESIS, TIMERS) and fits:
                key = (row["protocol"], row["senders"], row["payload_bytes"], row["interval_ms"])
                self._found.setdefault(key, {}).setdefault(row["seed"], row)

    def cells(self, protocol: str, senders: int, payload: int, interval: int) -> list[Json]:
        """Return a cell of the grid, once for each seed."""
        return list(self._found.get((protocol, senders, payload, interval), {}).values())

    def line(self, protocol: str, senders: int) -> list[Json]:
        """Return all cells of a line."""
        return [row for key, rows in self._found.items() if key[:2] == (protocol, senders) for row in rows.values()]

    def figure(self, protocol: str, senders: int, payload: int, interval: int, name: str) -> float | None:
        """Return a figure of the counted messages."""
        found = self.cells(protocol, senders, payload, interval)
        return fmean(row["phases"]["run"][name] for row in found) if found else None

    def by_interval(self, protocol: str, senders: int, payload: int, name: str = "mean_ms") -> dict[int, float]:
        """Return a figure by the interval. All means are over the same seeds, so an interval with fewer seeds than
        other intervals is left out."""
        cells = {each: self.cells(protocol, senders, payload, each) for each in INTERVALS_MS}
        most = max(map(len, cells.values()))
        return {
            interval: fmean(row["phases"]["run"][name] for row in rows)
            for interval, rows in cells.items()
            if len(rows) == most > 0
        }

    def ratios(self, one: tuple[str, int], other: tuple[str, int], name: str = "mean_ms") -> dict[int, float]:
        """Return the ratio of a figure of two lines (each a protocol and its senders) for each payload, over all
        intervals and seeds that both lines have."""
        found = {}
        for payload in PAYLOADS:
            mine, others = (
                {
                    (interval, row["seed"]): row["phases"]["run"][name]
                    for interval in INTERVALS_MS
                    for row in self.cells(*line, payload, interval)
                }
                for line in (one, other)
            )
            if both := mine.keys() & others.keys():
                found[payload] = sum(mine[key] for key in both) / sum(others[key] for key in both)
        return found


class Cells:
    """``rows``: the rows of all cells, as ``work`` stores them."""

    def __init__(self, rows: Sequence[Json]) -> None:
        self.rows = sorted(rows, key=lambda row: (row["experiment"], row["nodes"], row["seed"], row["cell"]))
        self._grids: dict[View, Grid] = {}

    def grid(self, view: View) -> Grid:
        """Return the grid of this view."""
        if view not in self._grids:
            self._grids[view] = Grid(self.rows, view)
        return self._grids[view]

    def seeds(self, nodes: int) -> list[int]:
        """Return the seeds of this size's cells."""
        return sorted({row["seed"] for row in self.rows if row["nodes"] == nodes})

    def sizes(self, *experiments: str) -> list[int]:
        """Return the different numbers of nodes in the worlds of these experiments, the greatest number first."""
        return sorted({row["nodes"] for row in self.rows if row["experiment"] in experiments}, reverse=True)

    def of_experiment(self, experiment: str) -> list[Json]:
        """Return all cells of an experiment."""
        return [row for row in self.rows if row["experiment"] == experiment]

    def of(self, experiment: str, nodes: int) -> list[Json]:
        """Return all cells of an experiment with this number of nodes."""
        return [row for row in self.of_experiment(experiment) if row["nodes"] == nodes]

    def timers(self, nodes: int) -> list[Json]:
        """Return the cells that compare values of TIMEOUT1. The cells with the usual value are part of the grid."""
        usual = [row for row in self.of(THESIS, nodes) if of_several(row) and load_of(row) in LOADS]
        timers = self.of(TIMERS, nodes)
        return [*usual, *timers] if timers else []

    def smallest(self, nodes: int, protocol: str, senders: int) -> Json | None:
        """Return the cell with the smallest payload and the shortest interval, of the first seed."""
        return next(iter(self.grid(View(nodes)).cells(protocol, senders, KB, NAMED_MS[0])), None)
