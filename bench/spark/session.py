"""The local Spark session, which is small, uses only loopback, and prints nothing.

Owns the start and the stop of the session, the settings that a job needs, the flags of its Java process, and the check
of Java. A job restores the settings of a session that spark-submit configured. Must never: let Spark write to the
user's terminal. The output of the Java process goes to a log file, and `progress` shows the user what Spark does.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ingeborg.bench.errors import BenchError
from ingeborg.bench.spark import progress

JAVA_MIN = 17
"""The Java version that Spark 4 requires."""

JAVA_ANSWER_S_MAX = 30
"""Time limit of `java -version`, which normally takes a tenth of a second. If the command takes longer, the machine has
another problem."""

JAVA_END_S_MAX = 10
"""Time limit for Java to delete its temporary files after an interrupt, which normally takes a second."""

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
"""The errors that Spark raises when a job fails, or when Spark's Java process is gone."""

PARTITION_BYTES = 24 << 20
"""Bytes of the log's text for each shuffle partition, which is about 400,000 events. A task can sort them well within
its share of a gigabyte. It runs much longer than the tenth of a second that its start takes."""

SPLIT_BYTES = 32 << 20
"""Bytes of the log's text for each task that reads. This is about the size of a part that the generator writes, so that
no core waits long for the last task."""

BATCH_BYTES = 16 << 20
"""Bytes of rows in one batch for Python. In most logs this is more than ten thousand rows, to which Spark limits a
batch anyway."""

PARTITIONS_MAX = 10_000
"""Maximum number of partitions. A log of 240 GB has this number. For larger logs, the partitions become larger, because
more partitions would burden the driver."""

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

QUICK_BYTES = 64 << 20
"""In our measurements, `_QUICK` saved time for logs of up to this number of bytes (about 1.1 million events)."""

_QUICK = {
    # Most of the time of a small job is Java's own: it loads and compiles code that then runs once. So Java does not
    # use its second, slow compiler, starts no threads for garbage collection, and does not collect garbage while it
    # loads classes.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=192m",
    # Otherwise each sort and each aggregation fills 64 MB with zeros before its first row.
    "spark.buffer.pageSize": "1m",
    # The job raises this number for larger logs.
    "spark.sql.shuffle.partitions": "1",
}
"""The settings for a small job that differ from `_LEAN`."""


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


class _Interrupts:
    """Ctrl-C and SIGTERM in a session end the Java process, and the block then ends with KeyboardInterrupt.

    If the exception itself interrupted the wait for an answer of Java, py4j would print a stack trace, and no later
    call would work. Here, Java ends instead, so all waiting calls fail, in this thread and in all others.
    """

    def __init__(self) -> None:
        self._came = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self.take()
        return self

    def take(self) -> None:
        """Set the handlers, also in place of the one that Spark has set for itself."""
        for number in self._before:
            signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._came:
            for process in psutil.wait_procs(_java(), timeout=JAVA_END_S_MAX)[1]:
                process.kill()
            raise KeyboardInterrupt from None

    def _on_signal(self, _: int, frame: FrameType | None) -> None:
        self._came = True
        for process in _java():
            process.terminate()
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith("py4j."):
                return
            frame = frame.f_back
        raise KeyboardInterrupt


def _java() -> list[psutil.Process]:
    """Return the Java process that PySpark has started, or is starting with a script."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("pyspark-shell" in word for word in child.cmdline()):
                found.append(child)
    return found


@contextlib.contextmanager
def local_session(
    master: str, driver_memory: str, log: Path, *, size_bytes: int | None = None, quiet: bool = False
) -> Iterator[SparkSession]:
    """Start our own session on `master`, and show its progress. Java writes all of its output to the file `log`. Raises
    BenchError if the session does not start.

    `size_bytes` is the size of all files that the session will read, if it is known. `quiet` shows no progress.
    """
    settings = _LEAN | {"spark.master": master, "spark.driver.memory": driver_memory}
    if size_bytes is not None and size_bytes <= QUICK_BYTES:
        settings |= _QUICK
    with contextlib.nullcontext() if quiet else progress.shown(), _Interrupts() as interrupts:
        progress.step("starting Spark")
        session = _started(settings, log, interrupts)
        try:
            progress.watch(session.sparkContext.statusTracker())
            progress.step("computing the figures")
            yield session
        finally:
            progress.watch(None)
            with contextlib.suppress(*SPARK_ERRORS):  # Java may be gone, which is then the error of the block
                session.stop()


def _started(settings: Mapping[str, str], log: Path, interrupts: _Interrupts) -> SparkSession:
    require_java(dict(os.environ))
    _silence()
    # Some machines cannot resolve their own host name. Also, other machines must not be able to connect to Spark.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # With this path, Python on the executors finds the packages that are installed here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAll([*settings.items()])
    try:
        with log.open("wb") as output:
            # Java outlives its first session. The next session in this process uses it again.
            streams = {"stdout": output, "stderr": output}
            gateway = SparkContext._gateway or launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
        interrupts.take()
        session = SparkSession.builder.getOrCreate()
    except (*SPARK_ERRORS, OSError, RuntimeError) as error:
        raise BenchError(f"Spark did not start on {settings['spark.master']}: see its output in {log}") from error
    session.sparkContext.setLogLevel("WARN")
    return session


def _silence() -> None:
    """Keep PySpark and py4j from printing the stack traces of errors, which they also raise."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    # py4j also uses the root logger.
    logging.getLogger().addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


@contextlib.contextmanager
def sized(spark: SparkSession, size_bytes: int) -> Iterator[None]:
    """Configure the session during the block for a job that reads a log of this size. When the block ends,
    restore the settings and drop the frames that the job has cached."""
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
        with contextlib.suppress(*SPARK_ERRORS):  # Java may be gone, which is then the error of the block
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
            spark.catalog.clearCache()
