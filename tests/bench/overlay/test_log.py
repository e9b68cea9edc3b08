"""The log of a simulated run has the right rows, and the digest finds the simulator's counts in it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ingeborg.bench.overlay import log
from ingeborg.bench.overlay.drawn import overlay
from ingeborg.bench.overlay.log import COUNTERS, Phase
from ingeborg.bench.overlay.metrics import Life, Traffic, figures
from ingeborg.bench.overlay.wheel import SLOT_NS
from ingeborg.bench.overlay.world import World
from tests.bench.synthetic import COUNTER_HEADER, EVENT_HEADER, PHASE_HEADER

from .nodes import Flooding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES, SIZE = 40, 1_000
FACTS = {"run": "r", "system": "flood", "variant": "", "workload": "overlay", "seed": 1, "config": {}, "goals": {}}


def made(seed: int = 1, crashed: int | None = None) -> tuple[World, list[Phase], list[Life]]:
    """Run two first messages and ten that count; one node can crash before all these."""
    world = World(NODES, Flooding, seed)
    world.connect(overlay(NODES, 3, Random(seed)))
    phases = []
    for name, count in (("first", 2), ("run", 10)):
        world.record.phase = name
        start, before = world.wheel.now, traffic(world)
        if crashed is not None and name == "run":
            world.crash(crashed)
        for number in range(count):
            world.at(world.now_s + 0.02 * number, world.broadcast, number, SIZE)
        world.run(world.now_s + 0.02 * count)
        phases.append(Phase(name, "run", start, world.wheel.now, name == "run", before, traffic(world), 50.0))
        start, before = world.wheel.now, traffic(world)
        world.run(world.now_s + 2)
        phases.append(Phase(f"{name} drain", "drain", start, world.wheel.now, False, before, traffic(world)))
    return world, phases, [Life(place.linked_at, place.alive) for place in world.places]


def traffic(world: World) -> Traffic:
    return Traffic(world.messages, world.payload_bytes, world.control_bytes)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def written(directory: Path, **changes: Any) -> Path:
    world, phases, lives = made(**changes)
    log.write(directory, FACTS, world.record, phases, lives)
    return directory


def test_a_broadcast_is_news_and_a_sent_row_and_each_other_node_receives_it(tmp_path: Path) -> None:
    world, phases, lives = made()
    assert log.write(tmp_path / "log", FACTS, world.record, phases, lives) == 12 * (NODES + 1)
    events = rows(tmp_path / "log" / "events-000-0000.csv")
    assert [event["at_ns"] for event in events] == [str(at) for at in sorted(int(event["at_ns"]) for event in events)]
    for index, message in enumerate(world.record.messages):
        of = [event for event in events if (event["topic"], event["seq"]) == (str(message.root), str(message.number))]
        news, sent, *received = of
        at = str(message.at * SLOT_NS)
        assert (news["kind"], news["connection"], news["value"], news["at_ns"]) == ("news", "", str(NODES - 1), at)
        assert (sent["kind"], sent["connection"], sent["value"], sent["at_ns"]) == ("sent", str(message.root), "1", at)
        assert sent["detail"] == "causal"
        assert {event["kind"] for event in received} == {"received"}
        assert {int(event["connection"]) for event in received} == set(range(NODES)) - {message.root}
        assert all(int(event["value"]) == int(event["at_ns"]) - int(event["intended_ns"]) for event in received)
        assert {event["phase"] for event in of} == {"first" if index < 2 else "run"}


def test_a_node_that_is_not_owed_a_message_and_has_it_makes_up_for_nobody(tmp_path: Path) -> None:
    world, phases, lives = made()
    lives[30] = Life(10**6, True)  # its first link is later than the log: no message is due to it
    log.write(tmp_path / "log", FACTS, world.record, phases, lives)
    news = [event for event in rows(tmp_path / "log" / "events-000-0000.csv") if event["kind"] == "news"]
    assert {event["value"] for event in news} == {str(NODES - 1)}


def test_one_that_crashed_is_owed_nothing(tmp_path: Path) -> None:
    news = [
        event
        for event in rows(written(tmp_path / "log", crashed=30) / "events-000-0000.csv")
        if event["kind"] == "news" and event["phase"] == "run"
    ]
    assert {event["value"] for event in news} == {str(NODES - 2)}


def test_what_went_over_the_links_is_in_the_counters_and_files_are_named(tmp_path: Path) -> None:
    world, phases, lives = made()
    log.write(tmp_path / "log", FACTS, world.record, phases, lives)
    counters = rows(tmp_path / "log" / "counters.csv")
    assert len(counters) == 2 * len(COUNTERS) * len(phases)
    last = {row["name"]: int(row["value"]) for row in counters[-3:]}
    assert last == dict(zip(COUNTERS, (world.messages, world.payload_bytes, world.control_bytes), strict=True))
    facts = json.loads((tmp_path / "log" / "run.json").read_bytes())
    assert (facts["schema"], facts["complete"], facts["run"]) == (2, True, "r")
    assert set(facts["files"]) == {"events-000-0000.csv", "phases.csv", "counters.csv"}
    for name, header in (("events-000-0000", EVENT_HEADER), ("phases", PHASE_HEADER), ("counters", COUNTER_HEADER)):
        assert (tmp_path / "log" / f"{name}.csv").read_text(encoding="utf-8").partition("\n")[0] == header


def test_long_logs_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(written(tmp_path / "whole") / "events-000-0000.csv")
    monkeypatch.setattr(log, "PART_LINES", 100)
    parts = sorted(written(tmp_path / "parts").glob("events-*.csv"))
    assert [path.name for path in parts] == [f"events-000-{part:04d}.csv" for part in range(len(parts))]
    assert len(parts) > 3
    assert [row for path in parts for row in rows(path)] == whole


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = written(tmp_path / "one", seed=4), written(tmp_path / "other", seed=4)
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()


@pytest.mark.spark
def test_the_digest_finds_what_the_simulator_counted(tmp_path: Path, spark: SparkSession) -> None:
    from ingeborg.bench.overlay.job import differences, of_run
    from ingeborg.bench.spark import job

    world, phases, lives = made(crashed=5)
    log.write(tmp_path / "logs" / "log", FACTS, world.record, phases, lives)
    (tmp_path / "digest").mkdir()
    document = job.digest(spark, [str(tmp_path / "logs")], tmp_path / "digest", say=lambda _: None)
    (run,) = document["runs"]
    found = of_run(run)
    row: dict[str, Any] = {"doubles": world.record.doubles}
    row["phases"] = {name: figures(world.record, name, lives, Traffic(), SIZE) for name in ("first", "run")}
    assert row["phases"]["run"]["messages"] == 9  # 5 has crashed, and sends nothing
    assert differences(row, found) == []
    assert found["phases"]["run"]["p50_ms"] == row["phases"]["run"]["p50_ms"]
    row["phases"]["run"] |= {"p99_ms": 0.1, "deliveries": 7, "reliability": 0.9}
    del found["phases"]["first"]
    assert [text.partition(" ")[0] for text in differences(row, found)] == ["first:", "run:", "run:", "run:"]

    # If a root delivers its own message once more, the log has a first receipt.
    row["doubles"], delivered = 2, found["phases"]["run"]["delivered"]
    del row["phases"]["first"]
    for more, fits in ((-1, False), (0, True), (2, True), (3, False)):
        row["phases"]["run"]["deliveries"] = delivered - more
        assert (differences(row, found) == []) is fits
