"""A run of `loadgen causal` on real endpoints with one slow link: the findings of the check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.histories.bed import bed
from tests.loadgen.overtaking import causal, kinds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.cluster
async def test_on_a_slow_link_between_endpoints_an_answer_overtakes_its_question(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The broker promises an order per connection and topic (SPEC 8.5)."""
    from ingeborg.bench.spark import causal as check

    (tmp_path / "bed").mkdir()
    async with bed("lmdb", "proxy", tmp_path / "bed", "abcd") as on:
        await on.wires.slow(("a", "b"), 1.0)
        urls = [endpoint.url for endpoint in on.endpoints.values()]
        events, late = await causal(tmp_path / "log", urls=urls)
        await on.cluster.no_fault()
    publishers = {row[3:5]: row[2] for row in events if row[0] == "sent"}
    # A client at b got one connection's reply to another's message before that message.
    assert any(
        connection % 4 == 1 and any(publishers[message] != publishers[other] for other in before)
        for (connection, message), before in late.items()
    )
    (verdict,) = check.check(spark, [str(tmp_path / "log")], shown=10)
    assert (verdict["violations"], verdict["deliveries"]) == (len(late), kinds(events)["received"])
    assert verdict["marked"] == kinds(events)["causal"]
    for example in verdict["examples"]:
        overtaken, before = (example["topic"], example["seq"]), (example["before_topic"], example["before_seq"])
        assert before in late[example["connection"], overtaken]
        first, *_, last = ((link["topic"], link["seq"]) for link in example["trail"])
        assert (first, last) == (overtaken, before)
    assert json.loads((tmp_path / "log" / "run.json").read_text())["goals"] == {}
