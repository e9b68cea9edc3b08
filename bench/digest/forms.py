"""The two forms of a digest on disk, a folder and a single file: find out which form a path has, and convert between
them.

Owns the distinction between them: `files` handles a folder, and `kept` a single file. This module never computes a
figure. On request it rounds each figure to fewer digits.
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
"""Digits of a figure in a short digest: the number that a page prints. Even two runs of the same system differ in the
third digit."""

DRAWN_DIGITS: Final = 3
"""Digits of values that a page only draws: percentile curves, and the resources that each process uses in each second.
Three are enough because a plot has 500 pixels."""


def read(path: Path) -> tuple[Json, dict[str, list[Json]]]:
    """Return the document and the tables of the digest at `path`. Raises BenchError, which names the file."""
    return kept.read(path) if _is_file(path) else files.read(path)


def read_document(path: Path) -> Json:
    """Return the document without the tables. Raises BenchError, which names the file."""
    return kept.read_document(path) if _is_file(path) else files.read_document(path)


def convert(source: Path, target: Path, *, short: bool = False) -> None:
    """Write the digest at `source` to `target`: to a single file if the name of `target` ends in `.parquet`, else to a
    folder, which is created if it is missing. With `short`, figures have no more digits than a page shows. Raises
    BenchError."""
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
    """Return the same digest with fewer digits. Counts stay exact, because readers compare how they grow."""
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
    """Return whether a digest at this path is a single file. If the path does not exist, its name decides."""
    return path.is_file() or (path.suffix == kept.SUFFIX and not path.is_dir())
