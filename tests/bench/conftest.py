"""Fixtures of the bench tests: one Spark session for all of them that run in one process.

Small data and many plans: most of the time went into compiling what runs once. So the JVMs do without their second
compiler, and the session without generated code; `bench digest` in a process of its own has it, as its users have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ingeborg.bench.errors import BenchError
from tests import wants

os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # of this process's session and all others


@pytest.fixture(scope="session")
def java() -> None:
    """What Spark runs on, and Spark; skips where they are not there."""
    wants.module("pyspark", "bench")
    from ingeborg.bench.spark import session

    try:
        session.require_java(dict(os.environ))
    except BenchError:
        wants.skip(wants.JAVA, wants.BY_MAKE_JAVA)


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from ingeborg.bench.spark import session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with session.local_session("local[2]", "1g", log) as started:
        started.conf.set("spark.sql.codegen.wholeStage", "false")
        started.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        yield started
