"""Writes tables of a result set into pages of the documentation. `make pages` runs it, and a test compares the tables.

    python -m ingeborg.bench.text.page docs/comparison.md …

A comment in the page names the table and the result set (a folder of `bench/results`). The program writes the text
between this comment and the next one:

    <!-- table: traffic of 2026-11-25-2-cores -->
    <!-- end of table -->

Owns: the choice of figures in these tables. Must never: change other parts of a page, or compute a figure. The ratios
come from ``comparison``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ingeborg.bench import comparison
from ingeborg.bench.comparison import Figure, TopicsTable, TrafficTable, ratio
from ingeborg.bench.digest import forms, kept
from ingeborg.bench.digest.document import Json
from ingeborg.bench.errors import BenchError
from ingeborg.bench.text import figures, tables
from ingeborg.bench.text.blocks import Cell, Table
from ingeborg.bench.text.summary import table_lines

RESULTS = Path(__file__).parents[1] / "results"

_PLACE = re.compile(
    r"(?P<begin><!-- table: (?P<table>\S+) of (?P<set>\S+) -->\n).*?(?P<end><!-- end of table -->)", re.DOTALL
)


def traffic(table: TrafficTable) -> Table:
    """Return the table of the rate that each system sustains, and of the cost of a delivery."""
    header = ("", "In and out", "p99", "p99 at half that rate", "Server CPU per delivered", "Layer's")
    rows: list[tuple[Cell, ...]] = []
    for row in table.rows:
        found = row.figures
        if row.phase is None:
            rows.append((Cell(row.name), Cell("no rate was sustained"), *(Cell(figures.NONE),) * 4))
            continue
        own = row is table.baseline
        rows.append(
            (
                Cell(row.name),
                _beside(found["all_per_s"], table.baseline.figures["all_per_s"], figures.rate, own=own),
                *(tables.cell(found[key], figures.duration) for key in ("p99_ns", "half_p99_ns")),
                _beside(found["server_cpu_us"], table.baseline.figures["server_cpu_us"], figures.micros, own=own),
                tables.cell(found["layer_cpu_us"], figures.micros),
            )
        )
    return Table("", header, tuple(rows))


def topics(table: TopicsTable) -> Table:
    """Return the table of the number of topics that each system reached. The other columns are measured at the greatest
    number of topics that both this system and ours finished."""
    header = (
        "",
        "Came to",
        "Compared at",
        "Subscribing",
        "End to end",
        "Server CPU per delivered",
        "Server memory per topic",
    )
    rows = []
    for series in table.series:
        at = table.common(series)
        own, other = (None, None) if at is None else (table.baseline.at(at), series.at(at))
        compared: tuple[Cell, ...] = (Cell(figures.NONE),) * 3
        if own is not None and other is not None:
            compared = tuple(
                _beside(other.figures[key], own.figures[key], text, own=series is table.baseline)
                for key, text in (
                    ("subscribe_per_s", figures.rate),
                    ("end_to_end_per_s", figures.rate),
                    ("server_cpu_us", figures.micros),
                )
            )
        rows.append(
            (
                Cell(series.name),
                Cell(figures.count(series.finished), "" if series.failure is None else tables.ending(series).more),
                Cell(figures.count(at)),
                *compared,
                Cell(figures.size(series.bytes_per_topic)),
            )
        )
    return Table("", header, tuple(rows))


def _beside(of: Figure | None, to: Figure | None, text: tables.Format, *, own: bool) -> Cell:
    if of is None:
        return Cell(figures.NONE)
    return Cell(text(of.value), "" if own else figures.ratio(ratio(of, to)))


TABLES: Mapping[str, Callable[[Json], list[Table]]] = {
    "traffic": lambda document: [traffic(table) for table in comparison.traffic(document)],
    "topics": lambda document: [topics(table) for table in comparison.topics(document)],
}


def made(text: str, results: Path = RESULTS) -> str:
    """Return the page's text with its tables made again. Raises ``BenchError`` if a table or a result set does not
    exist."""

    def table(place: re.Match[str]) -> str:
        if place["table"] not in TABLES:
            raise BenchError(f"table {place['table']!r} is not one of {', '.join(TABLES)}")
        found = TABLES[place["table"]](forms.read_document(results / place["set"] / kept.NAME))
        if len(found) != 1:
            raise BenchError(f"{place['set']} has {len(found)} loads of {place['table']} instead of one")
        (one,) = found
        return place["begin"] + "".join(f"{line}\n" for line in table_lines(one.header, one.rows)) + place["end"]

    return _PLACE.sub(table, text)


def main() -> None:
    """Run the command."""
    for name in sys.argv[1:]:
        page = Path(name)
        before = page.read_text(encoding="utf-8")
        after = made(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{page}: tables made again")


if __name__ == "__main__":
    main()
