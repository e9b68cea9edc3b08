"""The limits of the machine, both real and reduced."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingeborg.broker.command.doctor import machine


@pytest.fixture
def files_limit() -> Iterator[int]:
    """A soft limit of 1,024 open files, for the test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_open_files(files_limit: int) -> None:
    (enough,) = machine.open_files(800)
    assert (enough.level, "824 connections" in enough.seen) == ("ok", True)
    (few,) = machine.open_files(825)
    assert (few.level, "you want 825" in few.seen, "1025" in few.todo) == ("error", True, True)
    (unsaid,) = machine.open_files(None)
    assert (unsaid.level, "10000" in unsaid.todo) == ("warning", True)


def test_waiting_connections(tmp_path: Path) -> None:
    file = tmp_path / "somaxconn"
    file.write_text("4096\n")
    assert machine.backlog(file)[0].level == "ok"
    file.write_text("128\n")
    (finding,) = machine.backlog(file)
    assert finding.level == "warning"
    assert "sysctl -w net.core.somaxconn=4096" in finding.todo
    assert machine.backlog(tmp_path / "none")[0].level == "ok"
