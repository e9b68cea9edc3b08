"""Releases and their years: every server whose release we choose has one, and no year is guessed."""

from __future__ import annotations

import pytest

from ingeborg.bench import rivals
from ingeborg.bench.rivals import go_programs, kafka_jars, releases


def test_a_release_that_is_pinned_here_has_its_year() -> None:
    assert releases.year("kafka", kafka_jars.release()) is not None
    assert releases.year("nats-current", go_programs.NATS.release()) is not None
    assert releases.year("centrifuge", go_programs.CENTRIFUGE.release()) is not None


def test_the_table_has_the_names_of_bench_rivals() -> None:
    assert set(releases.YEARS) == set(rivals.RIVALS) - {"nats-current"}


@pytest.mark.parametrize(
    ("server", "version", "written"),
    [
        ("nats", "2.9.10", "2.9.10 (2022)"),
        ("nats-current", "2.15.2", "2.15.2 (2026)"),
        ("redis", "7.0.15", "7.0.15 (2024)"),
        ("redis", "7.0.99", "7.0.99"),
        ("carrier-pigeon", "1.0", "1.0"),
        ("mosquitto", "", ""),
    ],
)
def test_a_release_is_written_with_its_year_where_that_is_known(server: str, version: str, written: str) -> None:
    assert releases.written(version, releases.year(server, version)) == written
