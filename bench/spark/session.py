"""The local Spark session, which is small, uses only loopback, and prints nothing.

Owns the start and the stop of the session, the settings that a job needs, and the check of Java. A job restores the
settings of a session that spark-submit configured. Must never: let Spark write to the user's terminal. The output of
the Java process goes to a log file.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ingeborg.bench.errors import BenchError

JAVA_MIN = 17
"""The Java version that Spark 4 requires."""

JAVA_ANSWER_S_MAX = 30
"""Time limit of `java -version`, which normally takes a tenth of a second. A machine that needs longer has another
problem."""

SPARK_ERRORS = (PySparkException, Py4JError)
"""The errors that Spark raises when a job fails, or when its Java process is gone."""

PARTITION_BYTES = 24 << 20
"""Bytes of the log's text for each shuffle partition, which is about 400,000 events. A task can sort them well within
its share of a gigabyte, and runs much longer than the tenth of a second that its start takes."""

SPLIT_BYTES = 32 << 20
"""Bytes of the log's text for each task that reads. This is about the size of a part that the generator writes, so that
no core waits long for the last task."""

BATCH_BYTES = 16 << 20
"""Bytes of rows in one batch for Python. In most logs this is more than ten thousand rows, to which Spark limits a
batch anyway."""

PARTITIONS_MAX = 10_000
"""Maximum number of partitions, which a log of 240 GB reaches. Beyond it the partitions grow, because more partitions
would burden the driver."""

_INSTALL = (
    f"Spark needs Java {JAVA_MIN} or newer. Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    f"Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17), or set JAVA_HOME to one."
)

_LEAN = {
    "spark.app.name": "bench digest",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # For a small log, the default of two hundred shuffle partitions would cost more than the work. The job raises the
    # number for larger logs.
    "spark.sql.shuffle.partitions": "2",
    # The stages are small, so replanning a stage costs more than it can save.
    "spark.sql.adaptive.enabled": "false",
    # Broadcast tables are small, but are computed from all rows. For a hundred million events this takes longer than
    # the default of five minutes.
    "spark.sql.broadcastTimeout": "14400",
    "spark.sql.session.timeZone": "UTC",
    # Otherwise PySpark records the Python line of every expression, and on an error prints them with a Java stack
    # trace.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}


def java_version(answer: str) -> int | None:
    """Return the major version in the output of `java -version`: 17 for 17.0.15, 8 for 1.8.0_402, or None if there is
    no version."""
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else None


def require_java(environment: dict[str, str]) -> None:
    """Check that the Java that Spark would start exists and is new enough. Otherwise raise BenchError, which says what
    to install."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    where = f"the one in JAVA_HOME={home}" if home else "the one on the PATH"
    if java is None:
        raise BenchError(f"There is no Java on this machine. {_INSTALL}")
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"Java ({where}) does not start: {error}. {_INSTALL}") from error
    version = java_version(answer.stderr + answer.stdout)
    if version is None:
        raise BenchError(f"Java ({where}) does not say its version. {_INSTALL}")
    if version < JAVA_MIN:
        raise BenchError(f"Java {version} ({where}) is too old. {_INSTALL}")


def _end_java() -> None:
    """End the Java process that PySpark was starting. PySpark abandons it, and it would run forever."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("pyspark-shell" in word for word in child.cmdline()):
                child.kill()


@contextlib.contextmanager
def local_session(master: str, driver_memory: str, log: Path) -> Iterator[SparkSession]:
    """Start our own session on `master`. Java writes all of its output to the file `log`. Raises BenchError if the
    session does not start."""
    require_java(dict(os.environ))
    builder = SparkSession.builder.master(master).config("spark.driver.memory", driver_memory)
    for name, value in _LEAN.items():
        builder = builder.config(name, value)
    # Some machines cannot resolve their own host name. Also, other machines must not be able to connect to Spark.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # So Python on the executors finds the packages that are installed here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with _standard_streams_to(log):
            session = builder.getOrCreate()
    except (*SPARK_ERRORS, OSError, RuntimeError) as error:
        raise BenchError(f"Spark did not start on {master}: see its output in {log}") from error
    except KeyboardInterrupt:
        _end_java()
        raise
    session.sparkContext.setLogLevel("WARN")
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # These print each error from Spark as JSON with its Java stack trace, in addition to raising it.
        PySparkLogger.getLogger(name).disabled = True
    try:
        yield session
    finally:
        session.stop()


@contextlib.contextmanager
def sized(spark: SparkSession, size_bytes: int) -> Iterator[None]:
    """Configure the session during the block for a job that reads a log of this size, and restore the settings
    afterwards."""
    partitions = min(PARTITIONS_MAX, math.ceil(size_bytes / PARTITION_BYTES))
    now = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    wanted = {
        "spark.sql.shuffle.partitions": str(max(now, partitions)),
        # One shuffle by run and topic is enough for all figures that are computed within a topic (see transforms).
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # Rows for Python may have long clocks, so a batch is limited by bytes and not only by ten thousand rows.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    }
    before = {name: spark.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextlib.contextmanager
def _standard_streams_to(log: Path) -> Iterator[None]:
    """Point the process's stdout and stderr (the descriptors, which a child inherits) at `log` during the block.

    The Java process starts inside the block and keeps the descriptors that it inherited, so it never writes to the
    terminal.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (*saved, target):
            os.close(descriptor)
