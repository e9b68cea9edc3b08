"""Write and read a digest as a folder: digest.json, and its tables as CSV. Find the parts of an earlier digest that are
still valid.

Owns the names of the files and the form of a cell. A whole number has no decimal point, any other number has at most
six digits after the point, and the cell of a missing number is empty. This module never computes a figure. It reads a
digest exactly as it was written, or raises BenchError.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ingeborg.bench.digest.document import DIGEST_VERSION, Json
from ingeborg.bench.digest.tables import REAL, TABLES, TEXT, Digest
from ingeborg.bench.errors import BenchError

DOCUMENT = "digest.json"


def remembered(directory: Path, made_of: Mapping[str, Json], say: Callable[[str], None]) -> Digest:
    """Return the part of the digest in `directory` that is still valid: the runs in `made_of` whose logs have not
    changed. `made_of` maps the id of a run to the identity of its log, as in the document's `log`. If the digest cannot
    be read, the result is empty, and `say` gets the reason."""
    if not (directory / DOCUMENT).exists():
        return Digest.empty()
    try:
        document, tables = read(directory)
    except BenchError as error:
        say(f"{error}; every run is computed again")
        return Digest.empty()
    kept = {
        run["run"]: run
        for run in document["runs"]
        if run["run"] in made_of and made_of[run["run"]].items() <= run["log"].items()
    }
    return Digest(kept, {name: [row for row in rows if row["run"] in kept] for name, rows in tables.items()})


def write(directory: Path, digest: Digest, order: Sequence[str]) -> Json:
    """Write a digest with its runs in `order`, and return the document. All files are written under temporary names and
    then renamed together, so an interrupt before that leaves the old digest. The old document is deleted before the
    first file is renamed, so that no document ever describes the tables of another digest. Raises BenchError."""
    document = {"digest": DIGEST_VERSION, "runs": [digest.runs[run] for run in order]}
    try:
        _write(directory, digest, document)
    except OSError as error:
        raise BenchError(f"cannot write the digest to {directory}: {error.strerror}") from error
    return document


def _write(directory: Path, digest: Digest, document: Json) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=False, allow_nan=False)
    with ExitStack() as parts:
        # The stack renames the parts in reverse order, so the document is the last.
        parts.enter_context(whole(directory / DOCUMENT)).write_text(text + "\n", encoding="utf-8")
        for name, columns in TABLES.items():
            rows = digest.sorted(name)
            temporary = parts.enter_context(whole(directory / f"{name}.csv"))
            with temporary.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
        (directory / DOCUMENT).unlink(missing_ok=True)


class whole:
    """A temporary path. Its file replaces `path` if the block ends without an exception, and is deleted otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.part")

    def __enter__(self) -> Path:
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                os.replace(self.temporary, self.path)
        finally:
            self.temporary.unlink(missing_ok=True)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        value = round(value, 6)
        return int(value) if value == int(value) else value
    return "" if value is None else value


def read(directory: Path) -> tuple[Json, dict[str, list[Json]]]:
    """Return the document and the tables of a digest. Raises BenchError, which names the file."""
    document = read_document(directory)
    return document, {name: _read_table(directory / f"{name}.csv", columns) for name, columns in TABLES.items()}


def read_document(directory: Path) -> Json:
    """Return the document without the tables. Raises BenchError, which names the file."""
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
        return {column: _value(column, cell) for column, cell in zip(columns, cells, strict=True)}
    except ValueError as error:
        raise BenchError(f"{where}: {error}") from error


def _value(column: str, cell: str) -> str | float | None:
    if column in TEXT:
        return cell
    if not cell:
        return None
    return float(cell) if column in REAL else int(cell)
