"""Do answers overtake their questions? `loadgen causal` against an endpoint. (Against other servers: `backends`. With
slow links: tests/bench/spark.)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..cluster.processes import cluster_of
from .overtaking import causal, kinds, of_one_publisher
from .plain_broker import PlainBroker


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_run_says_all_of_its_plan_and_marks_what_replies(tmp_path: Path, processes: str) -> None:
    async with PlainBroker() as broker:
        goal = ("--violations", "0", "--partial", "0")
        events, late = await causal(tmp_path / "log", *goal, "--processes", processes, urls=[broker.url])
    counted = kinds(events)
    # Each question gets 2 answers, each answer 1 comment; 8 members hear all.
    assert (counted["sent"], counted["causal"], counted["news"], counted["received"]) == (80, 320, 400, 3200)
    facts = json.loads((tmp_path / "log" / "run.json").read_text())
    assert (facts["workload"], facts["goals"], facts["config"]["think_ms"]) == ("causal", {"causal_violations": 0}, 5.0)
    assert {row[7] for row in events if row[0] == "news"} == {8}
    assert {row[1] for row in events} == {"run"}
    assert late == {}  # one broker handles one message after the other
    assert not any(broker.subscribers.values())


@pytest.mark.cluster
async def test_where_one_connection_orders_all_nothing_overtakes(tmp_path: Path) -> None:
    async with cluster_of(["a"], tmp_path) as cluster:
        assert await of_one_publisher(tmp_path / "log", "ingeborg", cluster["a"].url) == {}
