"""The two forms of a digest on disk, a folder and one file: which of them a path is, and one made of the other.

Owns how a form is told: a folder is `files`, a file is `kept`. It never computes a figure; asked to, it keeps fewer
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

KEPT_DIGITS: Final = 6
"""Of a figure in a set that is kept: as many as a page prints. Two runs of one system differ in the third."""


def read(path: Path) -> tuple[Json, dict[str, list[Json]]]:
    """The document and the tables of the digest at `path`. Raises BenchError, naming the file."""
    return kept.read(path) if _is_file(path) else files.read(path)


def read_document(path: Path) -> Json:
    """The document alone. Raises BenchError, naming the file."""
    return kept.read_document(path) if _is_file(path) else files.read_document(path)


def convert(source: Path, target: Path, digits: int | None = None) -> None:
    """Write the digest at `source` to `target`: to one file if its name ends in `.parquet`, else to a folder, which is
    made if it is not there. `digits`: so many significant ones of every figure that is no whole number; None: all.
    Raises BenchError."""
    document, tables = read(source)
    if digits is not None:
        document, tables = shortened(document, digits), shortened(tables, digits)
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


def shortened(value: Any, digits: int) -> Any:
    """The same with so many significant digits of each number that is not whole. Counts are whole, and stay: their
    growth is what is looked at."""
    if isinstance(value, float) and not value.is_integer():
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {name: shortened(one, digits) for name, one in value.items()}
    return [shortened(one, digits) for one in value] if isinstance(value, list) else value


def _is_file(path: Path) -> bool:
    """What is not there is of the form that its name says."""
    return path.is_file() or (path.suffix == kept.SUFFIX and not path.is_dir())
