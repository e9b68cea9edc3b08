"""A digest on disk: digest.json and the tables beside it, and what of an earlier one is still true.

Owns their names, columns and order. It never computes a figure; what it reads back is what was written, or a
BenchError.

| file | one row per | columns |
|---|---|---|
| seconds.csv | run and second | counts of what happened in it; latency of what was meant to be sent in it |
| histogram.csv | run, phase, second and latency bucket | deliveries (bounds of the bucket in ns) |
| machine.csv | run, process and sample | processor cores used, resident bytes, network and disk bytes a second |
| counters.csv | run, phase, server and counter | its first and last value in the phase |
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from ingeborg.bench.digest.document import DIGEST_VERSION, Json, Rows
from ingeborg.bench.errors import BenchError

DOCUMENT = "digest.json"

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

_ORDER = {
    "seconds": itemgetter("run", "second"),
    "histogram": itemgetter("run", "second", "phase", "high_ns"),
    # Several samples may fall into a second: they stay in the order given, which is that of time.
    "machine": itemgetter("run", "source", "second"),
    "counters": itemgetter("run", "phase", "source", "name"),
}

_TEXT = {"run", "phase", "source", "role", "name"}


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


def remembered(directory: Path, made_of: Mapping[str, Json], say: Callable[[str], None]) -> Digest:
    """What a digest in `directory` has of the runs in `made_of` (id -> what its log is made of, as in the document's
    `log`) that were made of the very same. A digest that cannot be read holds nothing, and `say` is told why."""
    if not (directory / DOCUMENT).exists():
        return Digest.empty()
    try:
        document, tables = read(directory)
    except BenchError as error:
        say(f"{error}; every run is computed")
        return Digest.empty()
    kept = {
        run["run"]: run
        for run in document["runs"]
        if run["run"] in made_of and made_of[run["run"]].items() <= run["log"].items()
    }
    return Digest(kept, {name: [row for row in rows if row["run"] in kept] for name, rows in tables.items()})


def write(directory: Path, digest: Digest, order: Sequence[str]) -> Json:
    """Write a digest, its runs in `order`; returns the document. Each file is complete or absent: written beside its
    name first, then renamed. The old document goes first and the new one comes last, so that no document ever stands
    beside tables of another. Raises BenchError."""
    document = {"digest": DIGEST_VERSION, "runs": [digest.runs[run] for run in order]}
    try:
        _write(directory, digest, document)
    except OSError as error:
        raise BenchError(f"cannot write the digest to {directory}: {error.strerror}") from error
    return document


def _write(directory: Path, digest: Digest, document: Json) -> None:
    (directory / DOCUMENT).unlink(missing_ok=True)
    for name, columns in TABLES.items():
        rows = sorted(digest.tables[name], key=_ORDER[name])
        with _whole(directory / f"{name}.csv") as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    with _whole(directory / DOCUMENT) as temporary:
        text = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


class _whole:
    """A temporary path that takes the place of `path` when the block ends well, and is removed when it does not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.part")

    def __enter__(self) -> Path:
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            os.replace(self.temporary, self.path)
        else:
            self.temporary.unlink(missing_ok=True)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value == int(value) else round(value, 6)
    return "" if value is None else value


def read(directory: Path) -> tuple[Json, dict[str, list[Json]]]:
    """The document and the tables of a digest. Raises BenchError, naming the file."""
    document = read_document(directory)
    return document, {name: _read_table(directory / f"{name}.csv", columns) for name, columns in TABLES.items()}


def read_document(directory: Path) -> Json:
    """The document alone. Raises BenchError, naming the file."""
    path = directory / DOCUMENT
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BenchError(
            f"{directory} is not a digest: there is no {DOCUMENT} in it (make one: bench digest)"
        ) from error
    except (OSError, ValueError) as error:
        raise BenchError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict) or document.get("digest") != DIGEST_VERSION or not document.get("runs"):
        raise BenchError(f"{path} is not a digest of version {DIGEST_VERSION}: make it again (bench digest)")
    return document


def _read_table(path: Path, columns: Sequence[str]) -> list[Json]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            if tuple(next(reader, ())) != tuple(columns):
                raise BenchError(f"{path}, line 1: the header must be {','.join(columns)}")
            return [_row(columns, cells, f"{path}, line {number}") for number, cells in enumerate(reader, start=2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BenchError(f"{path} cannot be read: {error}") from error


def _row(columns: Sequence[str], cells: Sequence[str], where: str) -> Json:
    if len(cells) != len(columns):
        raise BenchError(f"{where}: {len(cells)} columns instead of {len(columns)}")
    try:
        return {
            column: cell if column in _TEXT else float(cell) if cell else None
            for column, cell in zip(columns, cells, strict=True)
        }
    except ValueError as error:
        raise BenchError(f"{where}: {error}") from error
