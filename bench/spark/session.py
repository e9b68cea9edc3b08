"""The local Spark session: lean, on loopback, and quiet.

Owns starting and stopping it, the settings that a job needs, and the Java it needs. A job leaves a session that
spark-submit configured as it was. This module never lets Spark write to the user's terminal: the Java process's output
goes to a log file.
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
"""`java -version` answers in a tenth of a second; a machine that needs this long has another problem."""

SPARK_ERRORS = (PySparkException, Py4JError)
"""The errors that Spark raises when a job fails, or when its Java process is gone."""

PARTITION_BYTES = 24 << 20
"""Text of the log per shuffle partition, some 400,000 events: a task sorts them well within its share of a gigabyte,
and is long against the tenth of a second that starting it costs."""

SPLIT_BYTES = 32 << 20
"""Text of the log per task of reading: about a part of the generator's, so that no core waits long for the last one."""

BATCH_BYTES = 16 << 20
"""Bytes of rows that Python gets at once: in most logs more than the ten thousand rows that Spark sends anyway."""

PARTITIONS_MAX = 10_000
"""Reached by a log of 240 GB; beyond it partitions grow, for their number would burden the driver."""

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
    # For a small log, the two hundred shuffle partitions of the default cost more than the work; the job raises the
    # number as the log grows.
    "spark.sql.shuffle.partitions": "2",
    # Small stages: re-planning each costs more than it can win.
    "spark.sql.adaptive.enabled": "false",
    # Broadcast tables are small, but computed from everything: for a hundred million events that takes longer than the
    # five minutes of the default.
    "spark.sql.broadcastTimeout": "14400",
    "spark.sql.session.timeZone": "UTC",
    # Otherwise PySpark notes the Python line of every expression, and prints them with a Java stack trace on an error.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}


def java_version(answer: str) -> int | None:
    """Parse the major version from the output of `java -version`: 17 for 17.0.15, 8 for 1.8.0_402; None if it has
    none."""
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else None


def require_java(environment: dict[str, str]) -> None:
    """Raise BenchError, saying what to install, unless the Java that Spark would start exists and is new enough."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    where = f"the one of JAVA_HOME={home}" if home else "the one found on the PATH"
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
    """End the Java that PySpark was just starting: PySpark abandons it, and it would stay for good."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("pyspark-shell" in word for word in child.cmdline()):
                child.kill()


@contextlib.contextmanager
def local_session(master: str, driver_memory: str, log: Path) -> Iterator[SparkSession]:
    """Start our own session on `master`. `log` gets all of Java's output. Raises BenchError if it does not start."""
    require_java(dict(os.environ))
    builder = SparkSession.builder.master(master).config("spark.driver.memory", driver_memory)
    for name, value in _LEAN.items():
        builder = builder.config(name, value)
    # For a machine whose own host name does not resolve; also, nothing binds to an outward address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Python on the executors finds the packages installed here.
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
    """Configure the session for a job that reads a log of this size; restore it afterwards."""
    partitions = min(PARTITIONS_MAX, math.ceil(size_bytes / PARTITION_BYTES))
    now = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    wanted = {
        "spark.sql.shuffle.partitions": str(max(now, partitions)),
        # One shuffle by run and topic is enough for all that is computed within a topic (transforms).
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # Rows with long clocks for Python: by bytes, not ten thousand at once.
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

    The Java process starts inside it, keeps for life what it inherited, and so never writes to the terminal.
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
