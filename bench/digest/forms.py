"""The two forms of a digest on disk, a folder and one file: which one a path has, and conversion between them.

Owns the distinction: a folder is `files`, a file is `kept`. It never computes a figure; on request it keeps fewer
digits of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ingeborg.bench.digest import files, kept
from ingeborg.bench.digest.document import Json
from ingeborg.bench.digest.tables import Digest
from ingeborg.bench.errors import BenchError

FIGURE_DIGITS: Final = 6
"""Digits of a figure in a short digest: as many as a page prints. Two runs of one system differ in the third."""

DRAWN_DIGITS: Final = 3
"""Digits of values that a page only draws: percentile curves, and each process's use in each second. A plot has 500
pixels."""


def read(path: Path) -> tuple[Json, dict[str, list[Json]]]:
    """Return the document and the tables of the digest at `path`. Raises BenchError, naming the file."""
    return kept.read(path) if _is_file(path) else files.read(path)


def read_document(path: Path) -> Json:
    """Return the document alone. Raises BenchError, naming the file."""
    return kept.read_document(path) if _is_file(path) else files.read_document(path)


def convert(source: Path, target: Path, *, short: bool = False) -> None:
    """Write the digest at `source` to `target`: to one file if its name ends in `.parquet`, else to a folder, which is
    made if missing. `short`: with no more digits than a page shows. Raises BenchError."""
    document, tables = read(source)
    if short:
        document, tables = shortened(document, tables)
    to_file = target.suffix == kept.SUFFIX
    folder = target.parent if to_file else target
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"cannot make the directory {folder}: {error.strerror}") from error
    if to_file:
        kept.write(target, document, tables)
    else:
        digest = Digest.of(document, tables)
        files.write(target, digest, list(digest.runs))


def shortened(document: Json, tables: Mapping[str, list[Json]]) -> tuple[Json, dict[str, list[Json]]]:
    """Return the same digest with fewer digits. Counts stay: their growth matters."""
    short = {name: _figures(rows) for name, rows in tables.items()}
    short["machine"] = [
        {name: value if name == "second" else _rounded(value) for name, value in row.items()}
        for row in tables["machine"]
    ]
    return _figures(document), short


def _figures(value: Any, name: str = "") -> Any:
    if isinstance(value, float) and not value.is_integer():
        return float(f"{value:.{FIGURE_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _figures(one, key) for key, one in value.items()}
    if isinstance(value, list):
        if name == "curve":
            return [[ppm, _rounded(latency_ns)] for ppm, latency_ns in value]
        return [_figures(one) for one in value]
    return value


def _rounded(value: Any) -> Any:
    """Round a value that is only drawn."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return type(value)(float(f"{value:.{DRAWN_DIGITS}g}"))
    return value


def _is_file(path: Path) -> bool:
    """Say whether a path is a file; the form of a missing one follows from its name."""
    return path.is_file() or (path.suffix == kept.SUFFIX and not path.is_dir())
