"""Fixtures of the bench tests: one Spark session for all tests in a process.

The data are small and the plans many, so most of the time would go into planning, and into compiling code that runs
once. Therefore the JVMs run without their second compiler, and the session without generated code and other options
that cost more than they save here. `test_cli.py` tests the product's own session with `bench digest` in a separate
process, as users run it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ingeborg.bench.errors import BenchError
from tests import wants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Options of all JVMs, including this process's: no second compiler, enough room for the first one's code (otherwise
#: the JVM sweeps it again and again), and no verification of classes.
BRIEF = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
os.environ.setdefault("JDK_JAVA_OPTIONS", " ".join(BRIEF))


@pytest.fixture(scope="session")
def java() -> None:
    """Require Java and Spark; skip without them."""
    wants.module("pyspark", "bench")
    from ingeborg.bench.spark import session

    try:
        session.require_java(dict(os.environ))
    except BenchError:
        wants.skip(wants.JAVA, wants.BY_MAKE_JAVA)


#: Settings of the tests' session that replace or extend the product's. (`several` sets two partitions.)
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    # Otherwise each file is a task, and listing more than thirty is a job with as many tasks.
    "spark.sql.files.openCostInBytes": "1",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Planning: rules that search for more filters, the check after each rule, and the plan's text for a page that is
    # off.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    # Planning as well: optimizations of tasks that take no time anyway.
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
        with session.local_session("local[1]", "1g", log) as started:
            yield started


@pytest.fixture
def several(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session with several tasks to read a log, and two partitions to compute it, so that related rows can
    lie apart."""
    wanted = {"spark.sql.shuffle.partitions": "2", "spark.sql.files.openCostInBytes": str(4 << 20)}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)
