"""Every strategy, over real sockets and a real database: each subscriber gets all due records, once and in order, and
memory has the same records as the pure policy, event by event."""

from __future__ import annotations

import asyncio
import time
from itertools import product
from pathlib import Path
from typing import cast

import pytest

from ingeborg.bench.caching.live import drawing, server, subscribing
from ingeborg.bench.caching.live.broker import Broker
from ingeborg.bench.caching.live.cases import CAPACITY, UNBOUNDED
from ingeborg.bench.caching.live.database import Database, Items
from ingeborg.bench.caching.live.memory import Memory
from ingeborg.bench.caching.live.messages import records_of
from ingeborg.bench.caching.policies.named import OURS, OWED, PLAIN, RULES, policy_of
from ingeborg.bench.caching.policies.ruled import Ruled
from ingeborg.bench.caching.policies.rules import Rule
from ingeborg.bench.caching.replay import Ways, replay, unbounded
from ingeborg.protocol.filters import canonical_filter

from .inside import Played, played

RECORDS = 120
SUBSCRIBERS = 40


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make subscribers poll often, so that reads and publications interleave."""
    monkeypatch.setattr(subscribing, "POLL_S", 0.02)


@pytest.fixture(scope="module")
def drawn() -> drawing.Drawn:
    return drawing.drawn(RECORDS, SUBSCRIBERS, seed=3)


def counted(found: Played) -> dict[str, int]:
    names = ("records", "records_utility", "admitted", "admitted_utility", "evicted", "dropped", "reads", "hits")
    return {name: found.counters[f"caching_{name}_total"] for name in names}


def replayed(found: Played, strategy: str, share: float | None) -> dict[str, int]:
    """Replay the same events through the pure policy."""
    stream = found.stream
    room = None if share is None else stream.room(share)
    policy = policy_of(strategy, {}, room, round(RECORDS * (share or 1.0)))
    pure = replay(stream, policy, room, Ways(told=strategy in OURS))
    assert pure.counts is not None
    return {
        "records": RECORDS,
        "records_utility": sum(stream.readers),
        "admitted": pure.cached,
        "admitted_utility": pure.copies,
        "evicted": pure.counts.evicted,
        "dropped": pure.counts.dropped,
        "reads": pure.reads,
        "hits": pure.hits,
    }


@pytest.mark.parametrize(
    ("strategy", "share"),
    [
        each for each in product((*RULES, OWED, *PLAIN), (UNBOUNDED, 0.1, CAPACITY)) if each != ("tinylfu", UNBOUNDED)
    ],  # it needs to know the room
)
async def test_everybody_gets_everything_and_memory_is_the_pure_policys(
    strategy: str, share: float | None, drawn: drawing.Drawn, tmp_path: Path
) -> None:
    found = await played(drawn, tmp_path, strategy, share, rate_per_s=2_000)
    assert found.faults == []
    assert counted(found) == replayed(found, strategy, share)
    misses = found.counters["caching_reads_total"] - found.counters["caching_hits_total"]
    assert found.counters["caching_database_reads_total"] == misses
    assert found.counters["caching_memory_bytes"] <= (found.stream.room(share) if share else drawn.bytes)


@pytest.mark.parametrize("strategy", RULES)
async def test_without_a_limit_the_pure_experiment_with_the_same_seed_has_the_same_figures(
    strategy: str, drawn: drawing.Drawn, tmp_path: Path
) -> None:
    found = await played(drawn, tmp_path, strategy)
    pure = unbounded(drawn.world.utilities, RULES[strategy]())
    assert found.faults == []
    assert found.counters["caching_admitted_total"] == pure.cached
    assert found.counters["caching_admitted_utility_total"] == pure.copies
    assert found.counters["caching_hits_total"] == pure.hits
    assert found.counters["caching_reads_total"] == pure.reads


@pytest.mark.parametrize(
    ("strategy", "parameters"),
    [("threshold", {"rise": "0.1", "fall": "0.9"}), ("mean", {"batch": "10"}), ("buffer", {"own": "0.9"})],
)
async def test_parameters_are_those_of_the_rules(
    strategy: str, parameters: dict[str, str], drawn: drawing.Drawn, tmp_path: Path
) -> None:
    found = await played(drawn, tmp_path, strategy, parameters=parameters)
    pure = unbounded(drawn.world.utilities, RULES[strategy](**parameters))
    plain = unbounded(drawn.world.utilities, RULES[strategy]())
    assert found.counters["caching_admitted_total"] == pure.cached != plain.cached


@pytest.mark.parametrize("strategy", ["all", "mean", "buffer"])
@pytest.mark.parametrize("rate_per_s", [None, 2_000.0])
async def test_a_record_in_memory_is_not_written_and_everybody_gets_everything_in_order(
    strategy: str, rate_per_s: float | None, drawn: drawing.Drawn, tmp_path: Path
) -> None:
    found = await played(drawn, tmp_path, strategy, rate_per_s=rate_per_s, either=True)
    assert found.faults == []
    assert counted(found) == replayed(found, strategy, None)
    counters = found.counters
    assert counters["caching_written_total"] == RECORDS - counters["caching_admitted_total"]
    assert (counters["caching_commits_total"] == 0) == (strategy == "all")
    assert counters["caching_database_reads_total"] == counters["caching_reads_total"] - counters["caching_hits_total"]


class Listed(Rule):
    """Admits the records that a list names."""

    def __init__(self, *admitted: bool) -> None:
        self._admitted = iter(admitted)

    def admits(self, utility: int) -> bool:
        return next(self._admitted)


class Stuck:
    """A database that never finishes a write."""

    async def write(self, items: Items) -> None:
        await asyncio.Event().wait()


async def test_a_record_in_memory_waits_only_for_earlier_records_of_its_subscribers() -> None:
    memory = Memory(Ruled(Listed(True, False, True, True)), None)
    broker = Broker(memory, cast(Database, Stuck()), time.monotonic_ns, waits=True, either=True)
    answers: list[tuple[str, int]] = []

    def poll(name: str) -> None:
        def send(message: bytes) -> None:
            answers.extend((name, number) for number, _ in records_of(message))

        broker.poll(name, send)

    for name, kind in (("one", 0), ("other", 1)):
        broker.subscribe(name, canonical_filter(drawing.wish(kind)))
        poll(name)
    writing = asyncio.ensure_future(broker.write())
    broker.publish([drawing.payload(0, 0)])
    assert answers == [("one", 0)]  # at once, in the same turn
    poll("one")
    broker.publish([drawing.payload(number, kind) for number, kind in ((1, 0), (2, 1), (3, 0))])
    for _ in range(5):
        await asyncio.sleep(0)
    # The database has not confirmed record 1. Record 3 of the same subscriber is in memory, and must not overtake it.
    assert answers == [("one", 0), ("other", 2)]
    assert memory.admitted == 3
    writing.cancel()
    await asyncio.wait([writing])


async def test_by_the_other_reading_each_record_is_written(drawn: drawing.Drawn, tmp_path: Path) -> None:
    found = await played(drawn, tmp_path, "all")
    assert found.counters["caching_written_total"] == RECORDS
    assert found.counters["caching_bytes_written_total"] == drawn.bytes


async def test_a_round_begins_when_all_deliveries_of_the_last_round_have_arrived(
    drawn: drawing.Drawn, tmp_path: Path
) -> None:
    rounds, of_round = 4, RECORDS // 4
    found = await played(drawn, tmp_path, "mean", rounds=rounds)
    assert found.faults == []
    arrived = [0] * rounds
    for batch in found.batches:
        for number in batch.numbers:
            arrived[number // of_round] = max(arrived[number // of_round], batch.at_ns)
    begun = [found.intended_ns[number * of_round] for number in range(rounds)]
    assert all(before <= after for before, after in zip(arrived, begun[1:], strict=False))


async def test_answers_are_cut_where_more_waits_than_is_given_at_a_time(
    drawn: drawing.Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingeborg.bench.caching.live.broker.POLLED_MAX", 3)
    found = await played(drawn, tmp_path, "mean", rate_per_s=5_000)
    assert found.faults == []
    assert max(len(batch.numbers) for batch in found.batches) == 3


async def test_publishers_wait_while_the_database_is_behind(
    drawn: drawing.Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WRITTEN_MAX": 5, "QUEUED_MAX": 20}.items():
        monkeypatch.setattr(f"ingeborg.bench.caching.live.broker.{name}", value)
    told: list[bool] = []
    really = server._Accepted.pause_if

    def pause_if(accepted: server._Accepted, full: bool) -> None:
        told.append(full)
        really(accepted, full)

    monkeypatch.setattr(server._Accepted, "pause_if", pause_if)
    found = await played(drawn, tmp_path, "all")
    assert found.faults == []
    assert True in told
    assert told[-1] is False
    assert found.counters["caching_commits_total"] >= RECORDS / 5
