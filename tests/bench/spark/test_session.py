"""Java: found, missing, too old, broken, gone; its settings for small logs. And the silence of Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install -e '.[bench]'")

from ingeborg.bench.errors import BenchError
from ingeborg.bench.spark import session
from ingeborg.bench.spark.inventory import REASON_CHARS_MAX, local_bytes, reason
from ingeborg.bench.spark.session import java_version, require_java


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_java_version(answer: str, version: int | None) -> None:
    assert java_version(answer) == version


def fake_java(home: Path, script: str) -> dict[str, str]:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(home), "PATH": os.environ["PATH"]}


def test_java_that_is_missing_old_or_broken_is_named_with_what_to_install(tmp_path: Path) -> None:
    cases = {
        "There is no Java": {"PATH": str(tmp_path)},
        "Java 11": fake_java(tmp_path / "old", "echo 'openjdk version \"11.0.2\"' >&2"),
        "does not say its version": fake_java(tmp_path / "odd", "echo hello"),
        "does not start": {"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": os.environ["PATH"]},
    }
    for said, environment in cases.items():
        with pytest.raises(BenchError) as raised:
            require_java(environment)
        assert said in str(raised.value)
        assert "openjdk-17" in str(raised.value), "says what to install"
        if home := environment.get("JAVA_HOME"):
            assert home in str(raised.value), "says which Java was asked"


def test_new_enough_java_is_accepted(tmp_path: Path) -> None:
    require_java(fake_java(tmp_path, "echo 'openjdk version \"17.0.1\"' >&2"))


def test_of_an_error_that_java_or_python_raised_the_reason_is_said() -> None:
    python = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "cloudpickle.py", line 469, in subimport
    __import__(name)
ModuleNotFoundError: No module named 'pyarrow'"""
    java = """An error occurred while calling o65.collectToPython.
: java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)"""
    spark = "[PATH_NOT_FOUND] Path does not exist: file:/r. SQLSTATE: 42K03\n== SQL ==\nx: y"
    said = {
        python: "An exception was thrown from the Python worker: ModuleNotFoundError: No module named 'pyarrow'",
        java: "java.lang.OutOfMemoryError: Java heap space",
        spark: "Path does not exist: file:/r.",
        "x" * 999: "x" * REASON_CHARS_MAX,
        "": "",
    }
    assert {text: reason(Exception(text)) for text in said} == said
    assert reason(ConnectionRefusedError(111, "Connection refused")) == "its Java process has ended"


@pytest.mark.parametrize(
    ("size_bytes", "is_quick"),
    [(0, True), (session.QUICK_BYTES, True), (session.QUICK_BYTES + 1, False), (None, False)],
)
def test_java_does_without_its_second_compiler_for_small_logs_only(
    size_bytes: int | None, is_quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mapping[str, str]] = []

    def started(settings: Mapping[str, str], *_: object) -> object:
        seen.append(settings)
        raise BenchError("enough")

    monkeypatch.setattr(session, "_started", started)
    with (
        pytest.raises(BenchError, match="enough"),
        session.local_session("local[3]", "5g", tmp_path, size_bytes=size_bytes, quiet=True),
    ):
        pass
    [settings] = seen
    assert (settings["spark.master"], settings["spark.driver.memory"]) == ("local[3]", "5g")
    assert ("-XX:TieredStopAtLevel=1" in settings["spark.driver.extraJavaOptions"]) == is_quick
    assert ("spark.buffer.pageSize" in settings) == is_quick


def test_the_size_of_logs_is_known_only_of_folders_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "events").write_bytes(b"12345")
    (tmp_path / "a" / "run.json").write_bytes(b"12")
    assert local_bytes([str(tmp_path / "a"), str(tmp_path / "a" / "b")]) == 12
    assert local_bytes([str(tmp_path / "a"), "s3a://bucket/runs"]) is None
