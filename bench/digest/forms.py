"""The two forms of a digest on disk, a folder and one file: which of them a path is, and one made of the other.

Owns how a form is told: a folder is `files`, a file is `kept`. It never computes a figure.
"""

from __future__ import annotations

from pathlib import Path

from ingeborg.bench.digest import files, kept
from ingeborg.bench.digest.document import Json
from ingeborg.bench.digest.tables import Digest
from ingeborg.bench.errors import BenchError


def read(path: Path) -> tuple[Json, dict[str, list[Json]]]:
    """The document and the tables of the digest at `path`. Raises BenchError, naming the file."""
    return kept.read(path) if _is_file(path) else files.read(path)


def read_document(path: Path) -> Json:
    """The document alone. Raises BenchError, naming the file."""
    return kept.read_document(path) if _is_file(path) else files.read_document(path)


def convert(source: Path, target: Path) -> None:
    """Write the digest at `source` to `target`: to one file if its name ends in `.parquet`, else to a folder, which is
    made if it is not there. Raises BenchError."""
    document, tables = read(source)
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


def _is_file(path: Path) -> bool:
    """What is not there is of the form that its name says."""
    return path.is_file() or (path.suffix == kept.SUFFIX and not path.is_dir())
