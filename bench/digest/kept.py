"""Write and read a digest as a single compressed Parquet file, for long-term storage. The file contains everything that
the folder contains, in a fourteenth of the size.

Owns the file's layout and version. This module never computes a figure, and never reads or writes CSV.

Each row is a run. Its columns are `run`, the run's id; `document`, the document's part about the run, as JSON; and one
column for each table, with the run's rows as a list of records without the run's id. Because every row of a table
belongs to a run, one file can hold all tables without columns that are empty in most rows. The document can be read
without the tables. Any program that reads Parquet can unfold a table. In DuckDB: `SELECT run, unnest(machine, recursive
:= true) FROM 'digest.parquet'`.

Whole numbers are 64-bit integers, other numbers are 64-bit floats that are not rounded, and a missing value is null.
Every page of the file has a checksum. pyarrow is imported only when a file is read or written, so that other commands
start faster.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from ingeborg.bench.digest.document import DIGEST_VERSION, Json
from ingeborg.bench.digest.files import whole
from ingeborg.bench.digest.tables import REAL, TABLES, TEXT, Digest
from ingeborg.bench.errors import BenchError, ExtraMissing

NAME = "digest.parquet"
"""The file's name in a result set."""

SUFFIX = ".parquet"

LAYOUT = b"1"
"""The version of the layout. A reader of any other version rejects the file."""

_LAYOUT_KEY, _DIGEST_KEY = b"ingeborg.layout", b"ingeborg.digest"

_LEVEL = 11
"""The highest level of brotli. The file is 5 % smaller than with zstd at level 19, and a large set takes five
seconds."""

_PAGE_BYTES = 1 << 26
"""Size limit of a page. It is so large that each column of a result set is one page, which is compressed as a whole.
With pages of a megabyte, files were 10 % larger."""

_SPLIT = frozenset({"deliveries"})
"""Columns that are stored as one stream for each byte position, because neighbouring values of these counts have little
in common."""


def require() -> None:
    """Raise ExtraMissing if pyarrow is not installed. Commands that run long before they write the file call this
    first."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        raise ExtraMissing(f"pyarrow is not installed ({error}): pip install 'ingeborg[bench]'") from error


def write(path: Path, document: Json, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write a digest to the file `path`, either the whole file or nothing.

    Raises BenchError if a row belongs to no run of the document, if a value does not have its column's type, or if the
    file cannot be written. Raises ExtraMissing if pyarrow is not installed.
    """
    require()
    import pyarrow as pa
    import pyarrow.parquet as pq

    digest = Digest.of(document, tables)
    columns: dict[str, list[Any]] = {
        "run": list(digest.runs),
        "document": [_text(run) for run in digest.runs.values()],
    }
    for name in TABLES:
        columns[name] = _by_run(digest, name)
    try:
        table = pa.table(columns, schema=_schema())
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise BenchError(f"{path}: a value of the digest does not fit its column: {error}") from error
    try:
        with (
            whole(path) as temporary,
            pq.ParquetWriter(
                temporary,
                table.schema,
                compression="brotli",
                compression_level=_LEVEL,
                data_page_size=_PAGE_BYTES,
                use_dictionary=False,
                column_encoding={
                    f"{name}.list.element.{column}": "BYTE_STREAM_SPLIT" if column in _SPLIT else "PLAIN"
                    for name in TABLES
                    for column in TABLES[name][1:]
                },
                # The file has no minimum and maximum values, because they only help to find a row among millions. This
                # file has a few hundred rows, and readers read every row.
                write_statistics=False,
                write_page_checksum=True,
                store_schema=False,
            ) as file,
        ):
            file.write_table(table, row_group_size=max(1, len(table)))
            file.add_key_value_metadata({_LAYOUT_KEY: LAYOUT, _DIGEST_KEY: str(document["digest"])})
    except OSError as error:
        raise BenchError(f"cannot write {path}: {error.strerror or error}") from error


def read(path: Path) -> tuple[Json, dict[str, list[Json]]]:
    """Return the document and the tables of the file `path`. Raises BenchError, which says what is wrong and what to
    do, or ExtraMissing if pyarrow is not installed."""
    columns = _read(path, ["run", "document", *TABLES])
    tables: dict[str, list[Json]] = {}
    for name in TABLES:
        of_runs = zip(columns["run"], columns[name], strict=True)
        rows = [{"run": run, **row} for run, listed in of_runs for row in listed]
        # Within a run the rows are sorted already, and a stable sort keeps their order.
        tables[name] = sorted(rows, key=itemgetter("run"))
    return _document(path, columns), tables


def read_document(path: Path) -> Json:
    """Return the document without the tables. Raises the same errors as `read`."""
    return _document(path, _read(path, ["run", "document"]))


def _text(run: Json) -> str:
    return json.dumps(run, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _by_run(digest: Digest, name: str) -> list[list[Json]]:
    """Return the sorted rows of a table as one list for each run, without the run's id."""
    try:
        rows = digest.sorted(name)
    except TypeError as error:
        raise BenchError(f"table {name}: its rows cannot be sorted: {error}") from error
    columns = TABLES[name][1:]
    found: dict[str, list[Json]] = {run: [] for run in digest.runs}
    for run, of_run in itertools.groupby(rows, itemgetter("run")):
        if run not in found:
            raise BenchError(f"table {name} has rows of run {run!r}, which the document does not list")
        found[run] = [{column: _cell(name, column, row.get(column)) for column in columns} for row in of_run]
    return list(found.values())


def _cell(name: str, column: str, value: Any) -> Any:
    """Return the value in its column's type, or raise BenchError if it does not fit. pyarrow would silently truncate
    1.5 to 1."""
    if value is None:
        return None
    kind = str if column in TEXT else float if column in REAL else int
    try:
        made = kind(value)
    except (ValueError, TypeError, OverflowError):
        made = None
    if made != value or isinstance(value, bool):
        raise BenchError(f"table {name}: {value!r} does not have the type of column {column}")
    return made


def _schema() -> Any:
    import pyarrow as pa

    def kind(column: str) -> Any:
        return pa.string() if column in TEXT else pa.float64() if column in REAL else pa.int64()

    def rows(name: str) -> Any:
        record = pa.struct([pa.field(column, kind(column)) for column in TABLES[name][1:]])
        return pa.list_(pa.field("element", record, nullable=False))

    return pa.schema(
        [
            pa.field("run", pa.string(), nullable=False),
            pa.field("document", pa.string(), nullable=False),
            *(pa.field(name, rows(name), nullable=False) for name in TABLES),
        ]
    )


def _read(path: Path, columns: list[str]) -> dict[str, list[Any]]:
    require()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check(path, file.schema_arrow, file.metadata.metadata or {})
            return dict(file.read(columns, use_threads=False).to_pydict())
    except FileNotFoundError as error:
        raise BenchError(f"there is no file {path}") from error
    # For damaged bytes, pyarrow usually raises one of these errors. MemoryError can come from a wrong length field.
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise BenchError(
            f"{path} cannot be read: it is truncated, damaged or not a Parquet file ({reason}). Fetch it again, or "
            f"make it again from the digest folder: bench convert DIGEST_DIR --out {path.name}"
        ) from error


def _check(path: Path, schema: Any, metadata: Mapping[bytes, bytes]) -> None:
    """Raise BenchError if the file is not a digest, or if its version is not the one that this module reads."""
    layout, version = metadata.get(_LAYOUT_KEY), metadata.get(_DIGEST_KEY)
    if layout is None or version is None:
        raise BenchError(
            f"{path} is a Parquet file, but holds no digest: `bench compare` and `bench convert` write files with a "
            "digest"
        )
    if layout != LAYOUT:
        raise BenchError(
            f"{path} has layout {_word(layout)}, but this version of bench reads layout {_word(LAYOUT)}: read it with "
            "the version that wrote it"
        )
    if version != str(DIGEST_VERSION).encode():
        raise BenchError(
            f"{path} holds a digest of version {_word(version)}, but this version of bench reads {DIGEST_VERSION}: "
            "read it with the version that wrote it, or digest the logs again (bench digest)"
        )
    if not schema.remove_metadata().equals(_schema()):
        raise BenchError(f"{path} does not have the columns of a digest: make it again (bench convert)")


def _word(text: bytes) -> str:
    return repr(text[:20].decode("utf-8", "replace")).strip("'")


def _document(path: Path, columns: Mapping[str, list[Any]]) -> Json:
    try:
        runs = [json.loads(text) for text in columns["document"]]
        named = [run["run"] for run in runs]
    except (ValueError, TypeError, KeyError) as error:
        raise BenchError(f"{path} cannot be read: the column `document` is not as expected: {error}") from error
    if not runs or named != columns["run"]:
        raise BenchError(f"{path} is not a digest: its columns `run` and `document` name different runs, or no run")
    return {"digest": DIGEST_VERSION, "runs": runs}
