"""The inventory of runs. A run is a directory with a run.json, at any depth below the given paths.

Owns the search for runs, the required fields of their run.json, and the check that all their files exist. The inventory
reads no table. It lists files through Spark, so that it finds runs wherever Spark can read. An error (`BenchError`)
names the rejected file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingeborg.bench.errors import BenchError
from ingeborg.bench.spark.schema import EVENT_FILE, EVENTS, RUN_FILE, SCHEMA_VERSION, STARTED_NS_MAX, TABLES

RUN_FILE_BYTES_MAX = 1 << 20
"""Size limit of a run.json, which has a few kilobytes of configuration. A larger file is something else."""

RUNS_MAX = 1_000
"""Maximum number of runs in one digest. With a thousand runs of a few minutes each, the tables of seconds and
histograms take some gigabytes in the process that writes them, and no page shows more runs."""

REASON_CHARS_MAX = 400
"""Maximum number of characters that are shown of an error from Spark, which wraps a sentence in three class names."""

HASHES_AT_ONCE = 4
"""Number of files that are read in parallel for their checksums. A disk can serve this number well."""

# Fields of run.json: name, permitted types, the types in words, and whether the field may be missing.
_FIELDS: tuple[tuple[str, tuple[type, ...], str, bool], ...] = (
    ("run", (str,), "a string", False),
    ("system", (str,), "a string", False),
    ("variant", (str,), "a string", False),
    ("workload", (str,), "a string", False),
    ("series", (str, type(None)), "a string or null", True),
    ("started_ns", (int,), "an integer", False),
    ("started_unix_ms", (int,), "an integer", True),
    ("complete", (bool,), "true or false", False),
    ("goals", (dict,), "an object", False),
    ("command", (str,), "a string", True),
    ("config", (dict,), "an object", True),
    ("machine", (dict,), "an object", True),
    ("form", (dict,), "an object", True),
    ("failed", (str, type(None)), "a string or null", True),
    ("files", (dict,), "an object", True),
)

COPY = "copy the run again, with all of its files and no others"
"""The advice for a log that is not as its run left it."""

_PART_LIKE = re.compile(r"events-.*")
"""Names that look like a part of the events. A file that has such a name but is not a part (a packed part, or a second
copy) is an error. If it was ignored, its messages would count as lost."""


@dataclass(frozen=True)
class File:
    """A file of a run: its size, and the time of its last change."""

    size_bytes: int
    modified_ms: int | None
    """Unix time, or None for an empty file, for which Spark reports no time."""


@dataclass
class RunLog:
    """One run's directory, with its files by name, its run.json, and a record of what was left out when its tables were
    read."""

    directory: str
    """The directory as an escaped URI, in Spark's spelling."""
    facts: dict[str, Any]
    files: dict[str, File]
    lines: int = 0
    deliveries: int = 0
    """Rows of kind `received`."""
    torn: list[str] = field(default_factory=list)
    """Files whose last line was skipped."""
    empty: list[str] = field(default_factory=list)
    """Files that lack even a complete header."""

    @property
    def run(self) -> str:
        return str(self.facts["run"])

    @property
    def shown(self) -> str:
        return shown(self.directory)

    @property
    def named(self) -> dict[str, dict[str, Any]] | None:
        """Return what run.json records about each file (`bytes` and `sha256`), or None if the run was not closed."""
        return self.facts.get("files")

    def may_be_torn(self, name: str) -> bool:
        """Return whether a killed writer can have left this file without its end. In a finished run, no writer was
        killed. Only the last part of a process's events can be torn."""
        match = EVENT_FILE.fullmatch(name)
        return not self.whole and (match is None or int(match[2]) == max(_parts(self.files)[match[1]]))

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    @property
    def whole(self) -> bool:
        """Return whether the run finished. Then nothing may be missing from its log."""
        return bool(self.facts["complete"]) and not self.facts.get("failed")


def find(spark: SparkSession, paths: Sequence[str]) -> list[RunLog]:
    """Find every run in or below `paths`, through Spark.

    Args:
        paths: directories of runs, or of many runs at any depth, anywhere that Spark can list.

    Returns:
        The runs in the order in which they began. Each run appears once, even if several paths or links lead to it.

    Raises:
        BenchError: a path has no run, there are more than ``RUNS_MAX`` runs, a run.json is damaged, or files are
            missing or do not belong to their run. The error message names the file.
    """
    found = _files(spark, paths)
    _every_path_has_one(paths, found)
    found = _once(found)
    if len(found) > RUNS_MAX:
        raise BenchError(f"{len(found):,} runs in {', '.join(paths)}: a digest has at most {RUNS_MAX:,}")
    texts = _run_files(spark, found)
    runs: dict[str, RunLog] = {}
    for directory, files in found.items():
        run = RunLog(directory, run_facts(texts.get(directory, ""), f"{shown(directory)}/{RUN_FILE}"), files)
        if run.run in runs:
            raise BenchError(f"{runs[run.run].shown} and {run.shown} are both run {run.run!r}")
        _complete(run)
        runs[run.run] = run
    return sorted(runs.values(), key=lambda run: (run.facts.get("started_unix_ms") or 0, run.run))


def local_bytes(paths: Sequence[str]) -> int | None:
    """Return the size of all files in and below these directories, or None if a directory is not on this machine. The
    function needs no session, so a session can be configured for this size."""
    if not all(map(os.path.isdir, paths)):
        return None
    folders = (folder for path in paths for folder in os.walk(path))
    return sum(os.stat(os.path.join(top, name)).st_size for top, _, names in folders for name in names)


def shown(path: str) -> str:
    """Return a path as a user would write it. A local path has no URI prefix."""
    return unquote(re.sub(r"^file:/+", "/", path))


def literal(path: str) -> str:
    """Return an unescaped path with its special characters escaped for Spark's readers. They interpret a path as a glob
    pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def made_of(run: RunLog) -> dict[str, Any]:
    """Return the identity of a run's log: `sizes` (bytes by file), and, for files on this machine, `sha256` by file.
    For files elsewhere, hashing would take as long as the digest. So `sha256` is null, and `modified_ms` has the time
    of each file's last change."""
    sizes = {name: file.size_bytes for name, file in sorted(run.files.items())}
    if not os.path.isdir(run.shown):
        changed = {name: file.modified_ms for name, file in sorted(run.files.items())}
        return {"sizes": sizes, "sha256": None, "modified_ms": changed}
    try:
        with ThreadPoolExecutor(HASHES_AT_ONCE) as pool:
            hashes = list(pool.map(_sha256, [os.path.join(run.shown, name) for name in sizes]))
    except OSError as error:
        raise BenchError(f"{error.filename} cannot be read: {error.strerror}") from error
    sha256 = dict(zip(sizes, hashes, strict=True))
    _unchanged(run, sha256)
    return {"sizes": sizes, "sha256": sha256, "modified_ms": None}


def _unchanged(run: RunLog, sha256: Mapping[str, str]) -> None:
    """Check that every file is as the run wrote it, and that no two parts of its events are the same."""
    for name, of_file in (run.named or {}).items():
        if sha256[name] != of_file["sha256"]:
            raise BenchError(f"{run.shown}/{name} is not what the run wrote (by the SHA-256 in {RUN_FILE}): {COPY}")
    seen: dict[str, str] = {}
    for name, digest in sorted(sha256.items()):
        if not EVENT_FILE.fullmatch(name) or run.files[name].size_bytes <= len(EVENTS.header) + 1:
            continue
        if digest in seen:
            raise BenchError(f"{run.shown}/{name} is the same, byte for byte, as {seen[digest]}: {COPY}")
        seen[digest] = name


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(spark: SparkSession, paths: Sequence[str]) -> dict[str, dict[str, File]]:
    """Return directory -> its log files by name, for every directory with a run.json. This only lists files and reads
    no content."""
    for path in paths:
        if os.path.isfile(path):
            raise BenchError(f"{path} is a file: give the directory of a run, or of many runs")
    reader = spark.read.format("binaryFile").option("pathGlobFilter", "{*.json,*.csv,events-*}")
    try:
        # Paths on this machine are literal. For other paths, the user may give a glob pattern.
        listed = reader.option("recursiveFileLookup", "true").load(
            [literal(path) if os.path.isdir(path) else path for path in paths]
        )
        # Spark lists an empty file, but has no row for the file. It spells the URI of a local file in two ways.
        files = {re.sub("^file:///", "file:/", file): File(0, None) for file in listed.inputFiles()}
        rows = listed.select("_metadata.file_path", "length", F.unix_millis("modificationTime").alias("at")).collect()
        files |= {row.file_path: File(row.length, row["at"]) for row in rows}
    except AnalysisException as error:
        raise BenchError(f"cannot read the run: {reason(error)}") from error
    directories: dict[str, dict[str, File]] = {}
    for path, file in files.items():
        directory, _, name = path.rpartition("/")
        if name == RUN_FILE or _PART_LIKE.fullmatch(name) or any(table.holds(name) for table in TABLES):
            directories.setdefault(directory, {})[name] = file
    for directory, named in directories.items():
        # A digest also has a machine.csv, but files of events show that there was a run.
        if RUN_FILE not in named and any(_PART_LIKE.fullmatch(name) for name in named):
            raise BenchError(f"{shown(directory)} is not a run: there is no {RUN_FILE} in it")
    return {directory: named for directory, named in directories.items() if RUN_FILE in named}


def _once(found: Mapping[str, dict[str, File]]) -> dict[str, dict[str, File]]:
    """Drop the directories that are links to another directory in the list."""
    real: dict[str, str] = {}
    for directory in sorted(found, key=lambda each: (os.path.islink(shown(each)), len(each), each)):
        real.setdefault(os.path.realpath(shown(directory)), directory)
    kept = set(real.values())
    return {directory: files for directory, files in found.items() if directory in kept}


def _every_path_has_one(paths: Sequence[str], found: Mapping[str, object]) -> None:
    if not found:
        raise BenchError(f"no run in {', '.join(paths)}: a run is a directory with {RUN_FILE} in it")
    # Compare paths both as given and resolved, because a link may lead to the path, or lie in it and lead out.
    spelled = [follow(shown(directory)) for directory in found for follow in (os.path.abspath, os.path.realpath)]
    for path in paths:
        tops = (os.path.abspath(path), os.path.realpath(path))
        if os.path.isdir(path) and not any(
            f"{each}/".startswith(f"{top.rstrip('/')}/") for each in spelled for top in tops
        ):
            raise BenchError(f"{path} is not a run: there is no {RUN_FILE} in it, nor below it")


def _run_files(spark: SparkSession, found: Mapping[str, Mapping[str, File]]) -> dict[str, str]:
    """Return directory -> text of its run.json. An empty run.json has no entry."""
    for directory, files in found.items():
        if files[RUN_FILE].size_bytes > RUN_FILE_BYTES_MAX:
            size = files[RUN_FILE].size_bytes
            raise BenchError(f"{shown(directory)}/{RUN_FILE} is not from a run: it has {size:,} bytes")
    paths = [literal(unquote(f"{directory}/{RUN_FILE}")) for directory in found]
    reader = spark.read.option("recursiveFileLookup", "true")
    rows = reader.text(paths, wholetext=True).select("_metadata.file_path", "value").collect()
    return {row.file_path.rpartition("/")[0]: row.value for row in rows}


def run_facts(text: str, file: str) -> dict[str, Any]:
    """Parse the text of a run.json. The returned object has the fields that the digest needs, with the right types."""
    if not text.strip():
        raise BenchError(f"{file} is empty: the run died before it began, or the copy is torn")
    try:
        facts = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise BenchError(f"{file}, line {line}: not JSON ({error}): it is torn, or not from a run") from error
    if not isinstance(facts, dict) or "schema" not in facts:
        raise BenchError(f"{file} is not from a run: it has no schema version")
    if facts["schema"] != SCHEMA_VERSION:
        raise BenchError(f"{file}: schema version {facts['schema']!r}; this digest reads version {SCHEMA_VERSION}")
    for name, kinds, words, optional in _FIELDS:
        value = facts.get(name)
        known = name in facts or not optional
        # In Python, True is also an int.
        if known and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            raise BenchError(f"{file}: {name!r} must be {words}, not {value!r}")
    if abs(facts["started_ns"]) > STARTED_NS_MAX:
        raise BenchError(f"{file}: 'started_ns' must be a time in ns, not {facts['started_ns']}")
    for goal, limit in facts["goals"].items():
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise BenchError(f"{file}: goal {goal!r} must be a number, not {limit!r}")
    for name, of_file in (facts.get("files") or {}).items():
        fits = isinstance(of_file, dict) and type(of_file.get("bytes")) is int and type(of_file.get("sha256")) is str
        if not fits or not any(table.holds(name) for table in TABLES):
            raise BenchError(f"{file}: 'files' must name files of a log, each with bytes and sha256, not {name!r}")
    return facts


def _parts(names: Iterable[str]) -> dict[str, list[int]]:
    """Return process -> the numbers of its parts."""
    parts: dict[str, list[int]] = {}
    for name in names:
        if match := EVENT_FILE.fullmatch(name):
            parts.setdefault(match[1], []).append(int(match[2]))
    return parts


def _complete(run: RunLog) -> None:
    """Check that every file of the run exists, and that there is no foreign file. Without this check, a missing part
    would look like lost messages, and a part that exists twice would look like duplicated messages."""
    for name in sorted(run.files):
        if _PART_LIKE.fullmatch(name) and name != _canonical(name):
            raise BenchError(
                f"{run.shown}/{unquote(name)} is not a part of a log (events-PPP-NNNN.csv): unpack it, or remove it"
            )
    for table in TABLES:
        if table.required and run.whole and not any(table.holds(name) for name in run.files):
            raise BenchError(f"{run.shown}: {table.glob} is missing: {COPY}")
    if run.named is not None:
        _as_named(run, run.named)
    parts = _parts(run.files)
    for process, numbers in sorted(parts.items()):
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        if missing:
            raise BenchError(
                f"{run.shown}: events-{process}-{missing[0]:04d}.csv is missing, though events-{process}-"
                f"{max(numbers):04d}.csv is there: {COPY}"
            )
    _processes(run, sorted(int(process) for process in parts))


def _canonical(name: str) -> str | None:
    match = EVENT_FILE.fullmatch(name)
    return f"events-{match[1]}-{int(match[2]):04d}.csv" if match else None


def _as_named(run: RunLog, named: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that the files and their sizes are those that run.json names."""
    files = {name: file for name, file in run.files.items() if name != RUN_FILE}
    if missing := sorted(set(named) - set(files)):
        raise BenchError(f"{run.shown}/{missing[0]} is missing, though {RUN_FILE} names it: {COPY}")
    if more := sorted(set(files) - set(named)):
        raise BenchError(f"{run.shown}/{more[0]} is not one of the files that {RUN_FILE} names: {COPY}")
    for name, file in sorted(files.items()):
        wanted = named[name]["bytes"]
        if file.size_bytes != wanted:
            raise BenchError(f"{run.shown}/{name} has {file.size_bytes:,} bytes, not {wanted:,} ({RUN_FILE}): {COPY}")


def _processes(run: RunLog, found: Sequence[int]) -> None:
    """Check that there are files of events from each of the generator's processes, and from no other process."""
    wanted = (run.facts.get("config") or {}).get("processes")
    if type(wanted) is int and wanted > 0:
        more = [process for process in found if process >= wanted]
        if more:
            raise BenchError(
                f"{run.shown}/events-{more[0]:03d}-0000.csv is not of this run, which had {wanted} processes "
                f"({RUN_FILE}): {COPY}"
            )
    else:
        wanted = max(found, default=-1) + 1
    missing = sorted(set(range(wanted)) - set(found))
    if missing and run.whole:
        raise BenchError(
            f"{run.shown}/events-{missing[0]:03d}-0000.csv is missing: the run had {wanted} processes, and each left a "
            f"part: {COPY}"
        )


def reason(error: BaseException) -> str:
    """Return the first line of an error from Spark, which may have hundreds of lines. If the first line only says that
    Java or Python raised an exception, return the text of that exception."""
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return "its Java process has ended"
    first, *more = str(error).strip().splitlines() or [""]
    raised = [line for line in more if re.match(r"[A-Za-z_][\w.]*: ", line)]
    if more and more[0].startswith(": "):
        first = more[0][2:]
    elif first.endswith(":") and raised:
        first = f"{first} {raised[-1]}"
    return re.sub(r"^\[\w+\] | SQLSTATE: \w+$", "", first)[:REASON_CHARS_MAX]
