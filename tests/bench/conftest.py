"""Fixtures of the bench tests: one Spark session for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bench.errors import BenchError


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from bench.spark import session

    try:
        session.require_java(dict(os.environ))
    except BenchError as error:
        pytest.skip(str(error))
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with session.local_session("local[2]", "1g", log) as started:
        yield started
