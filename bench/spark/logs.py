"""Run logs, read through Spark from wherever Spark can read, and checked line by line.

Owns what is accepted as a log. Whatever it hands on is complete and typed; what it refuses it names by file and line
(`BenchError`), and what it leaves out (the torn last line of a file, an empty part) it counts. It never repairs a row
and never computes a figure.

The rule for torn lines: a writer that is killed leaves a last line without its line end. So exactly that line is
skipped, whether or not it parses (`…,12` may have been `…,1234`), and a bad line anywhere else is an error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from bench.errors import BenchError
from bench.spark.schema import EVENT_FILE, EVENTS, RAW_CHARS_MAX, RUN_COLUMNS, RUN_FILE, SCHEMA_VERSION, TABLES, Table
from bench.spark.transforms import POSITION, checked

RUN_FILE_BYTES_MAX = 1 << 20
"""A run.json is some kilobytes of configuration; a megabyte of it is some other file."""

_DOES_NOT_FIT = "does not fit the log's schema (bench/SCHEMA.md)"


@dataclass
class RunLog:
    """One run's directory: what its run.json says, and what was left out of its tables on reading."""

    directory: str
    facts: dict[str, Any]
    files: int
    size_bytes: int
    lines: int = 0
    torn: list[str] = field(default_factory=list)
    """Files whose last line was skipped."""
    empty: list[str] = field(default_factory=list)
    """Files without even a whole header."""

    @property
    def run(self) -> str:
        return str(self.facts["run"])


@dataclass(frozen=True)
class Logs:
    """Every run asked for. The frames have the columns of their tables, and `run` and `started_ns` of their run."""

    runs: list[RunLog]
    events: DataFrame
    phases: DataFrame
    machine: DataFrame
    counters: DataFrame


def read(spark: SparkSession, paths: Sequence[str]) -> Logs:
    """Read the runs at `paths` (directories, in order given; duplicates are an error). Raises BenchError."""
    files = _inventory(spark, paths)
    runs = _runs(spark, files)
    by_directory = {run.directory: run for run in runs}
    # The tables are small jobs that wait for one another's planning: side by side they take half the time.
    with ThreadPoolExecutor(len(TABLES)) as pool:
        tables = pool.map(lambda table: _table(spark, table, files, by_directory), TABLES)
        return Logs(runs, *tables)


def shown(path: str) -> str:
    """A path as a person writes it: local files without their URI dress."""
    return unquote(re.sub(r"^file:/+", "/", path))


def _spelled(path: str) -> str:
    """A path for Spark, which takes it for a glob pattern: what exists on this machine is meant literally."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path) if os.path.isdir(path) else path


def _inventory(spark: SparkSession, paths: Sequence[str]) -> dict[str, dict[str, int]]:
    """Directory -> {file name: size in bytes}, for the log files of every path. Lists; reads no content."""
    for path in paths:
        if os.path.isfile(path):
            raise BenchError(f"{path} is a file: give the directory of a run")
    reader = spark.read.format("binaryFile").option("pathGlobFilter", "*.{json,csv}")
    try:
        files = reader.load([_spelled(path) for path in paths])
        # Spark has no row for an empty file, but lists it; and spells a local file's URI in two ways.
        sizes = {re.sub("^file:///", "file:/", file): 0 for file in files.inputFiles()}
        sizes |= {row.file_path: row.length for row in files.select("_metadata.file_path", "length").collect()}
    except AnalysisException as error:
        raise BenchError(f"cannot read the run: {first_line(error)}") from error
    found: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        directory, _, name = path.rpartition("/")
        if name == RUN_FILE or any(_belongs(table, name) for table in TABLES):
            found.setdefault(directory, {})[name] = size
    if not found:
        raise BenchError(f"no run in {', '.join(paths)}: a run is a directory with {RUN_FILE} in it")
    for path in paths:
        local_path = os.path.realpath(path)
        if os.path.isdir(path) and not any(os.path.realpath(shown(directory)) == local_path for directory in found):
            raise BenchError(f"{path} is not a run: there is no {RUN_FILE} in it")
    for directory, names in found.items():
        _complete(directory, names)
    return found


def _belongs(table: Table, name: str) -> bool:
    return bool(EVENT_FILE.fullmatch(name)) if table.name == "events" else name == table.glob


def _complete(directory: str, names: dict[str, int]) -> None:
    """A run has run.json, phases, and every part of its events from 0000 on: a part that was not copied would look
    like lost messages."""
    where = shown(directory)
    if RUN_FILE not in names:
        raise BenchError(f"{where} is not a run: there is no {RUN_FILE} in it")
    for table in TABLES:
        if table.required and not any(_belongs(table, name) for name in names):
            raise BenchError(f"{where}: {table.glob} is missing")
    parts: dict[str, list[int]] = {}
    for name in names:
        match = EVENT_FILE.fullmatch(name)
        if match:
            parts.setdefault(match[1], []).append(int(match[2]))
    for process, numbers in parts.items():
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        if missing:
            raise BenchError(
                f"{where}: events-{process}-{missing[0]:04d}.csv is missing, though events-{process}-"
                f"{max(numbers):04d}.csv is there: copy the whole run"
            )


def _runs(spark: SparkSession, files: dict[str, dict[str, int]]) -> list[RunLog]:
    for directory, names in files.items():
        if names[RUN_FILE] > RUN_FILE_BYTES_MAX:
            raise BenchError(f"{shown(directory)}/{RUN_FILE} is not a run's: it has {names[RUN_FILE]:,} bytes")
    reader = spark.read.option("pathGlobFilter", RUN_FILE)
    rows = reader.text(_directories(files), wholetext=True).select("_metadata.file_path", "value").collect()
    texts = {row.file_path.rpartition("/")[0]: row.value for row in rows}
    runs: list[RunLog] = []
    for directory, names in files.items():
        facts = run_facts(texts.get(directory, ""), f"{shown(directory)}/{RUN_FILE}")
        same = next((run for run in runs if run.run == facts["run"]), None)
        if same is not None:
            raise BenchError(f"{shown(same.directory)} and {shown(directory)} are both run {facts['run']!r}")
        runs.append(RunLog(directory, facts, files=len(names), size_bytes=sum(names.values())))
    return sorted(runs, key=lambda run: (run.facts.get("started_unix_ms") or 0, run.run))


def run_facts(text: str, file: str) -> dict[str, Any]:
    """A run.json's text -> its object, with the fields the digest needs present and of the right type."""
    if not text.strip():
        raise BenchError(f"{file} is empty: the run died before it began, or the copy is torn")
    try:
        facts = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise BenchError(f"{file}, line {line}: not JSON ({error}): torn, or not a run's") from error
    if not isinstance(facts, dict) or "schema" not in facts:
        raise BenchError(f"{file} is not a run's: it has no schema version")
    if facts["schema"] != SCHEMA_VERSION:
        raise BenchError(f"{file}: schema version {facts['schema']!r}; this digest reads version {SCHEMA_VERSION}")
    for name, kind, word in (
        ("run", str, "a string"),
        ("system", str, "a string"),
        ("workload", str, "a string"),
        ("started_ns", int, "an integer"),
        ("complete", bool, "true or false"),
        ("goals", dict, "an object"),
    ):
        if not isinstance(facts.get(name), kind):
            raise BenchError(f"{file}: {name!r} must be {word}, not {facts.get(name)!r}")
    for goal, limit in facts["goals"].items():
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise BenchError(f"{file}: goal {goal!r} must be a number, not {limit!r}")
    return facts


def _directories(files: dict[str, dict[str, int]]) -> list[str]:
    """The directories as Spark's reader wants them: unescaped URIs, with the characters of glob patterns escaped."""
    return [re.sub(r"([\[\]{}*?\\])", r"\\\1", unquote(directory)) for directory in files]


def _table(spark: SparkSession, table: Table, files: dict[str, dict[str, int]], runs: dict[str, RunLog]) -> DataFrame:
    """One table of every run, checked, cached, without its headers and torn lines."""
    present = {directory: names for directory, names in files.items() if any(_belongs(table, name) for name in names)}
    for directory, names in present.items():
        runs[directory].empty += sorted(name for name, size in names.items() if size == 0 and _belongs(table, name))
    if not present:
        return spark.createDataFrame([], StructType([*RUN_COLUMNS, *table.columns]))
    run_of = F.create_map(*(F.lit(text) for run in runs.values() for text in (run.directory, run.run)))
    start_of = F.create_map(
        *(F.lit(item) for run in runs.values() for item in (run.directory, run.facts["started_ns"]))
    )
    lines = (
        spark.read.option("lineSep", "\n")
        .option("pathGlobFilter", table.glob)
        .text(_directories(present))
        .select(
            F.regexp_extract("_metadata.file_path", r"^(.*)/[^/]*$", 1).alias("directory"),
            F.regexp_extract("_metadata.file_path", r"([^/]*)$", 1).alias("file"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("line"),
            F.col("_metadata.file_size").alias("size"),
            F.col("value").alias("raw"),
        )
        .withColumn("run", F.element_at(run_of, F.col("directory")))
        .withColumn("started_ns", F.element_at(start_of, F.col("directory")).cast("long"))
    )
    rows = checked(lines, table)
    if table is EVENTS:
        # Read by every figure; the others are small, and read once or twice.
        rows = rows.cache()
    torn = _check_files(rows, table, runs)
    whole = rows.where(F.col("raw") != table.header)
    for file in torn:
        whole = whole.where((F.col("directory") != file[0]) | (F.struct(*POSITION) != _place(*file[1:])))
    return whole.select("run", "started_ns", *table.columns.names, *POSITION)


def _check_files(rows: DataFrame, table: Table, runs: dict[str, RunLog]) -> list[tuple[str, str, int, int]]:
    """Judge each file by its lines: returns the places of torn last lines, and raises on what cannot be read."""
    position = F.struct(*POSITION)
    bad = F.col("problem").isNotNull() & (F.col("raw") != table.header)
    per_file = (
        rows.groupBy("directory", "file")
        .agg(
            F.count("*").alias("lines"),
            F.sum(F.octet_length("raw") + 1).alias("bytes"),
            F.max("size").alias("size"),
            F.min_by(F.substring("raw", 1, RAW_CHARS_MAX + len(table.header)), position).alias("first"),
            F.max(position).alias("last"),
            F.count_if(F.col("raw") == table.header).alias("headers"),
            F.count_if(bad).alias("bad"),
            F.max_by(bad, position).alias("last_is_bad"),
            F.min(F.when(bad, F.struct(position, "problem", F.substring("raw", 1, RAW_CHARS_MAX)))).alias("worst"),
        )
        .collect()
    )
    torn: list[tuple[str, str, int, int]] = []
    kept = dict.fromkeys(runs, 0)
    for row in sorted(per_file, key=lambda row: (row.directory, row.file)):
        run = runs[row.directory]
        run.lines += row.lines
        file = f"{shown(row.directory)}/{row.file}"
        is_torn = row.bytes != row.size
        if is_torn and row.lines == 1 and table.header.startswith(row["first"]):
            run.empty.append(row.file)
        elif row["first"] != table.header:
            raise BenchError(
                f"{file}, line 1: the header of {table.name} must be {table.header!r}, not "
                f"{row['first'][:RAW_CHARS_MAX]!r}: it {_DOES_NOT_FIT}"
            )
        elif row.headers > 1:
            raise BenchError(f"{file}: the header comes {row.headers} times, so files were joined: copy the run again")
        if row.bad - (is_torn and row.last_is_bad) > 0:
            raise BenchError(_complaint(rows, row, file))
        if is_torn:
            if row.lines > 1:
                run.torn.append(row.file)
            torn.append((row.directory, row.last.file, row.last.block, row.last.line))
        kept[row.directory] += row.lines - row.headers - (is_torn and row.lines > 1)
    if table is EVENTS and not all(kept.values()):
        directory = next(directory for directory, rows_kept in kept.items() if not rows_kept)
        raise BenchError(f"{shown(directory)}: not one event in {table.glob}: nothing was measured")
    return torn


def _place(file: str, block: int, line: int) -> Column:
    """A row's place as a value to compare POSITION with."""
    return F.struct(F.lit(file), F.lit(block).cast("long"), F.lit(line).cast("long"))


def _complaint(rows: DataFrame, row: Row, file: str) -> str:
    """The error for a file's first bad line, with its number in the file."""
    place = row.worst[0]
    before = rows.where(
        (F.col("directory") == row.directory)
        & (F.struct(*POSITION) < _place(place.file, place.block, place.line))
        & (F.col("file") == row.file)
    ).count()
    more = f" ({row.bad - 1} more bad lines in this file)" if row.bad > 1 else ""
    return f"{file}, line {before + 1}: {row.worst.problem}: {row.worst[2]!r}{more}: it {_DOES_NOT_FIT}"


def first_line(error: BaseException) -> str:
    """The first line of an error of Spark's, which may have a hundred."""
    return re.sub(r"^\[\w+\] | SQLSTATE: \w+$", "", str(error).strip().partition("\n")[0])[:300]
