"""`loadgen --lines` against a real endpoint, and one that does not speak in lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..cluster.processes import cluster_of
from .generator import Generator
from .plain_broker import PlainBroker

SHORT = ("causal", "--rooms", "2", "--duration-s", "1", "--rate", "40", "--check", "--lines", "--processes", "2")


@pytest.mark.cluster
async def test_a_run_in_lines_says_so_and_loses_nothing(tmp_path: Path) -> None:
    async with cluster_of(["a"], tmp_path) as cluster, Generator(cluster["a"].url, tmp_path / "log", *SHORT) as run:
        assert await run.ended() == (0, ""), run.said
    assert (run.facts["system"], run.facts["variant"], run.facts["complete"]) == ("ingeborg", "lines", True)


async def test_an_endpoint_that_does_not_speak_in_lines_is_refused(tmp_path: Path) -> None:
    async with PlainBroker() as broker, Generator(broker.url, tmp_path / "log", *SHORT) as run:
        code, complained = await run.ended()
    assert code == 1
    assert "does not support --lines: leave it out" in complained + run.said
