"""The tables of runs, read through Spark from wherever Spark can read, and checked line by line.

Owns the decision which files are accepted as a log. All returned rows are complete and typed. An error (`BenchError`)
names the rejected file and line. The module leaves out the torn last line of a file, or an empty part, and counts what
it leaves out. Must never: repair a row, or compute a figure.

The rule for torn lines: A killed writer leaves a last line without a line end. If a killed writer can have left the
file in this state (`RunLog.may_be_torn`), the reader skips exactly this line, even if it parses (`…,12` may be the
beginning of `…,1234`). Any other bad or torn line is an error.

Each table is read and parsed once. Its typed columns are cached, in memory or on disk, together with the data that the
check of its files needs. The raw text is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from ingeborg.bench.errors import BenchError
from ingeborg.bench.spark import progress
from ingeborg.bench.spark.checks import checked
from ingeborg.bench.spark.inventory import COPY, RunLog, literal, reason
from ingeborg.bench.spark.schema import (
    CLOSING_S_MAX,
    EVENTS,
    KEPT,
    NS_PER_S,
    PHASES,
    PLACED,
    POSITION,
    RAW_CHARS_MAX,
    RUN_COLUMNS,
    TABLES,
    Table,
)

__all__ = ["Logs", "read", "reason"]

_DOES_NOT_FIT = "does not fit the log's schema (bench/SCHEMA.md)"

_FILE_COLUMNS = StructType([StructField("path", StringType()), *RUN_COLUMNS, StructField("file", IntegerType())])


@dataclass(frozen=True)
class Logs:
    """The tables of every requested run. The frames have the columns of their tables, the columns of POSITION, `run`
    (the run's index in `runs`), and the run's `started_ns`."""

    runs: list[RunLog]
    events: DataFrame
    phases: DataFrame
    machine: DataFrame
    counters: DataFrame


@dataclass
class _Block:
    """The data that the check has about one block of a file. `first` and `last` are values of the column `line`, which
    numbers the lines of a block without gaps."""

    start: int
    first: int
    last: int
    lines: int
    size_bytes: int
    headers: int
    first_header: int | None
    bad: int
    first_bad: int | None
    last_bad: int | None
    received: int
    first_ns: int | None
    last_ns: int | None


@dataclass
class _File:
    """One file and the verdict on it, with its run, the number of its lines, and what was left out."""

    run: int
    name: str
    lines: int = 0
    events: int = 0
    received: int = 0
    empty: bool = False
    torn: int | None = None
    """The value of `line` for the torn last line."""
    first_ns: int | None = None
    last_ns: int | None = None
    """The times of the first and the last event."""


def read(spark: SparkSession, runs: list[RunLog]) -> Logs:
    """Read and check the tables of runs, and note in each run what was left out.

    Args:
        spark: a session that ``session.sized`` has configured. runs: the runs, as ``inventory.find`` returns them.
        Their `received`, `torn` and `empty` are filled in.

    Returns:
        The tables as frames, cached. Times are in ns of the generator's monotonic clock, sizes in bytes.

    Raises:
        BenchError: a file is not as bench/SCHEMA.md defines it. The error message names the file and the
            line, and says what to do.
    """
    # Each table is a small job. One after another, each would wait until the others are planned. In parallel, they take
    # half the time.
    tables = progress.run("reading the logs", [partial(_table, spark, table, runs) for table in TABLES], len(TABLES))
    events = [0] * len(runs)
    for file in (file for _, files in tables for file in files):
        run = runs[file.run]
        run.lines += file.lines
        run.deliveries += file.received
        events[file.run] += file.events
        if file.empty:
            run.empty.append(file.name)
        elif file.torn is not None:
            run.torn.append(file.name)
    for run, found in zip(runs, events, strict=True):
        if run.whole and not found:
            raise BenchError(f"{run.shown}: there is no event in {EVENTS.glob}, so nothing was measured")
    frames = [frame for frame, _ in tables]
    _within_phases(runs, tables[TABLES.index(EVENTS)][1], frames[TABLES.index(PHASES)])
    return Logs(runs, *frames)


def _within_phases(runs: Sequence[RunLog], files: Iterable[_File], phases: DataFrame) -> None:
    """Check that the events of a finished run lie within its phases. Otherwise they belong to another run."""
    ends = phases.groupBy("run").agg(F.min("start_ns").alias("first_ns"), F.max("end_ns").alias("last_ns"))
    spans = {row.run: (row.first_ns, row.last_ns) for row in ends.collect()}
    for file in files:
        run = runs[file.run]
        if not run.whole or file.run not in spans or file.first_ns is None or file.last_ns is None:
            continue
        first_ns, last_ns = spans[file.run]
        if min(first_ns, run.facts["started_ns"]) > file.first_ns or last_ns + CLOSING_S_MAX * NS_PER_S < file.last_ns:
            raise BenchError(f"{run.shown}/{file.name} has events from outside the run's phases: {COPY}")


def _table(spark: SparkSession, table: Table, runs: Sequence[RunLog]) -> tuple[DataFrame, list[_File]]:
    """Return one table of every run and the table's files. The table is checked and cached, and has no headers or torn
    lines."""
    named = [(run, name) for run, log in enumerate(runs) for name in sorted(log.files) if table.holds(name)]
    empty = [_File(run, name, empty=True) for run, name in named if not runs[run].files[name].size_bytes]
    for empties in empty:
        if not runs[empties.run].may_be_torn(empties.name):
            shown = f"{runs[empties.run].shown}/{empties.name}"
            raise BenchError(f"{shown} is empty, although no writer was killed while writing it: {COPY}")
    files = [(run, name) for run, name in named if runs[run].files[name].size_bytes]
    if not files:
        return _frame(spark, [], StructType([*RUN_COLUMNS, *table.columns, *PLACED])), empty
    rows = _rows(spark, table, runs, files).persist(KEPT)
    judged = _judge(rows, table, runs, files)
    whole = rows.where(~F.col("is_header"))
    torn = [file.torn for file in judged if file.torn is not None]
    if torn:
        whole = whole.where(~F.col("line").isin(torn))
    frame = whole.select(*(each.name for each in RUN_COLUMNS), *table.columns.names, *POSITION)
    return frame, empty + judged


def _rows(spark: SparkSession, table: Table, runs: Sequence[RunLog], files: Sequence[tuple[int, str]]) -> DataFrame:
    """Check every line of `files` (run, name), and return the lines. A row has the line's place and run, the typed
    columns, `problem` (and, if there is a problem, the beginning of the line as `raw`), `is_header`, and `size` (the
    length in bytes, including the line end)."""
    paths = [f"{runs[run].directory}/{name}" for run, name in files]
    # A map of paths in the plan would be slower, because Spark would plan, send and compile all its entries for every
    # job.
    known = _frame(
        spark,
        [
            {"path": paths[file], "run": run, "started_ns": runs[run].facts["started_ns"], "file": file}
            for file, (run, _) in enumerate(files)
        ],
        _FILE_COLUMNS,
    )
    lines = (
        spark.read.option("lineSep", "\n")
        # Otherwise Spark turns directories whose names look like `rate=100` into columns.
        .option("recursiveFileLookup", "true")
        .text([literal(unquote(path)) for path in paths])
        .select(
            F.col("_metadata.file_path").alias("path"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("line"),
            F.col("value").alias("raw"),
        )
        .join(F.broadcast(known), "path")
        .drop("path")
    )
    excerpt = F.substring("raw", 1, RAW_CHARS_MAX + len(table.header))
    return (
        checked(lines, table)
        .withColumn("is_header", F.col("raw") == table.header)
        .withColumn("size", F.octet_length("raw") + 1)
        .withColumn("raw", F.when(F.col("problem").isNotNull(), excerpt))
    )


def _frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], columns: StructType) -> DataFrame:
    """Return these few rows as a frame. Spark parses them itself, whereas `createDataFrame` would start Python on the
    executors."""
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(json.dumps(rows)), ArrayType(columns))))


def _judge(rows: DataFrame, table: Table, runs: Sequence[RunLog], files: Sequence[tuple[int, str]]) -> list[_File]:
    """Judge each of `files` (run, name) by its lines. Raises BenchError if a file is not acceptable."""
    blocks = _blocks(rows, table)
    judged: list[_File] = []
    for number, (index, name) in enumerate(files):
        of_file = blocks.get(number)
        shown = f"{runs[index].shown}/{name}"
        if of_file is None:
            raise BenchError(f"{shown} changed while it was read: digest it again when it is complete")
        last = of_file[-1]
        file = _File(index, name, sum(block.lines for block in of_file))
        file.received = sum(block.received for block in of_file)
        # The size of each line includes a line end, but a torn line has none.
        beyond = sum(block.size_bytes for block in of_file) - runs[index].files[name].size_bytes
        is_torn = beyond == 1
        file.torn = last.last if is_torn else None
        file.empty = is_torn and file.lines == 1 and _begins_header(rows, table, last)
        judged.append(file)
        if not file.empty:
            _check_header(rows, table, of_file, shown)
        if beyond not in (0, 1):
            raise BenchError(
                f"{shown}, line 1: begins with bytes that are not text (a byte order mark): it {_DOES_NOT_FIT}"
            )
        if is_torn and not runs[index].may_be_torn(name):
            where = f"{shown}, line {file.lines}"
            raise BenchError(f"{where}: torn, although no writer was killed while writing it: {COPY}")
        if file.empty:
            continue
        bad = sum(block.bad for block in of_file)
        if bad - (is_torn and last.last_bad == last.last) > 0:
            raise BenchError(_complaint(rows, of_file, bad, shown))
        file.events = file.lines - 1 - is_torn if table is EVENTS else 0
        file.first_ns = min((block.first_ns for block in of_file if block.first_ns is not None), default=None)
        file.last_ns = max((block.last_ns for block in of_file if block.last_ns is not None), default=None)
    return judged


def _blocks(rows: DataFrame, table: Table) -> dict[int, list[_Block]]:
    """Return file -> its blocks in order. All aggregates are numbers, so that Spark computes them without a sort."""
    line = F.col("line")
    bad = F.col("problem").isNotNull() & ~F.col("is_header")
    received = F.count_if(F.col("kind") == "received") if table is EVENTS else F.lit(0)
    at_ns = F.col("at_ns") if table is EVENTS else F.lit(None).cast("long")
    collected = (
        rows.groupBy("file", "block")
        .agg(
            F.min(line).alias("first"),
            F.max(line).alias("last"),
            F.count("*").alias("lines"),
            F.sum("size").alias("size_bytes"),
            F.count_if("is_header").alias("headers"),
            F.min(F.when(F.col("is_header"), line)).alias("first_header"),
            F.count_if(bad).alias("bad"),
            F.min(F.when(bad, line)).alias("first_bad"),
            F.max(F.when(bad, line)).alias("last_bad"),
            received.alias("received"),
            F.min(at_ns).alias("first_ns"),
            F.max(at_ns).alias("last_ns"),
        )
        .collect()
    )
    found: dict[int, list[_Block]] = {}
    for row in sorted(collected, key=lambda row: (row.file, row.block)):
        found.setdefault(row.file, []).append(_Block(*row[1:]))
    return found


def _begins_header(rows: DataFrame, table: Table, block: _Block) -> bool:
    """Return whether the only line of a file, which is torn, is the beginning of the header."""
    row = _row_at(rows, block.first)
    return row.raw is not None and table.header.startswith(row.raw)


def _check_header(rows: DataFrame, table: Table, blocks: Iterable[_Block], file: str) -> None:
    first, *_ = blocks = list(blocks)
    if first.first_header != first.first:
        found = _row_at(rows, first.first).raw
        what = "a data row" if found is None else repr(found[:RAW_CHARS_MAX])
        raise BenchError(
            f"{file}, line 1: the header of {table.name} must be {table.header!r}, not {what}: it {_DOES_NOT_FIT}"
        )
    headers = sum(block.headers for block in blocks)
    if headers > 1:
        raise BenchError(f"{file}: the header comes {headers} times, so files were joined: {COPY}")


def _complaint(rows: DataFrame, blocks: Iterable[_Block], bad: int, file: str) -> str:
    """Return the error for a file's first bad line, with the line's number in the file."""
    before = 0
    for block in blocks:
        if block.first_bad is not None:
            row = _row_at(rows, block.first_bad)
            more = f" ({bad - 1} more bad lines in this file)" if bad > 1 else ""
            number = before + block.first_bad - block.first + 1
            return f"{file}, line {number}: {row.problem}: {row.raw[:RAW_CHARS_MAX]!r}{more}: it {_DOES_NOT_FIT}"
        before += block.lines
    raise AssertionError(f"{bad} bad lines in {file}, but none of its blocks has one")


def _row_at(rows: DataFrame, line: int) -> Row:
    row = rows.where(F.col("line") == line).select("raw", "problem").first()
    assert row is not None, "a line that was counted is there"
    return row
