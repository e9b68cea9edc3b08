"""Fixtures of the bench tests: one Spark session for all tests in one process.

Small data and many plans: most of the time would go into compiling code that runs once, and into planning. So the JVMs
do without their second compiler, and the session without generated code and other features that cost more than they win
here. `bench digest` tests the product's own session in a separate process (`test_cli.py`), as its users have it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ingeborg.bench.errors import BenchError
from tests import wants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Options of the JVM of this process's session and of all others: no second compiler (and enough room for the code of
#: the first one, or it is swept again and again), and no verification of classes.
BRIEF = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
os.environ.setdefault("JDK_JAVA_OPTIONS", " ".join(BRIEF))


@pytest.fixture(scope="session")
def java() -> None:
    """Java and Spark; skips if they are missing."""
    wants.module("pyspark", "bench")
    from ingeborg.bench.spark import session

    try:
        session.require_java(dict(os.environ))
    except BenchError:
        wants.skip(wants.JAVA, wants.BY_MAKE_JAVA)


#: Settings of the tests' session that replace or extend the product's. (`several` makes it two partitions.)
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    # Otherwise each file is a task, and listing more than thirty is a job with as many tasks.
    "spark.sql.files.openCostInBytes": "1",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Planning: rules that look for more filters, the check after each rule, and the plan as text for a page not shown.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    # Also planning: rules that could only shorten tasks that take no time.
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.exchange.reuse": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in ("PruneFilters", "FoldablePropagation", "RemoveRedundantAliases", "OptimizeCsvJsonExprs")
    ),
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from ingeborg.bench.spark import session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK.items():
            patch.setitem(session._LEAN, name, value)
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with session.local_session("local[1]", "1g", log, quiet=True) as started:
            # Other tests in this process interrupt themselves, and must not end Java.
            for number, handler in before.items():
                signal.signal(number, handler)
            yield started


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the tests' session in place of each session that an evaluation starts."""
    from ingeborg.bench.experiments import digesting

    monkeypatch.setattr(digesting, "local_session", lambda *_: contextlib.nullcontext(spark))


@pytest.fixture
def several(spark: SparkSession) -> Iterator[SparkSession]:
    """Return the session with several tasks to read a log, and two partitions for the computation: rows that belong
    together may be apart."""
    wanted = {"spark.sql.shuffle.partitions": "2", "spark.sql.files.openCostInBytes": str(4 << 20)}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)
