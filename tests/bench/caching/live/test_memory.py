"""Payloads stay in memory as long as their entries, and the counts are those of the pure replay."""

from __future__ import annotations

import random

import pytest

from ingeborg.bench.caching.live.memory import Memory
from ingeborg.bench.caching.policies.named import OURS, OWED, PLAIN, RULES, policy_of
from ingeborg.bench.caching.reads import Stream
from ingeborg.bench.caching.replay import Ways, replay

ROOM, ENTRIES = 900, 30


def events(seed: int) -> Stream:
    """Return records of different sizes, with some reads each, in any order after the publication."""
    chance = random.Random(seed)
    stream = Stream()
    owed: list[int] = []
    for number in range(400):
        readers = chance.randrange(6)
        stream.sizes.append(chance.randrange(1, 60))
        stream.readers.append(readers)
        stream.events.append(number)
        owed += [number] * readers
        for _ in range(min(len(owed), chance.randrange(5))):
            stream.events.append(~owed.pop(chance.randrange(len(owed))))
    return stream


@pytest.mark.parametrize("strategy", [*RULES, OWED, *PLAIN])
def test_a_record_is_read_from_memory_exactly_where_the_pure_policy_has_a_hit(strategy: str) -> None:
    stream = events(1)
    memory = Memory(policy_of(strategy, {}, ROOM, ENTRIES), ROOM, told=strategy in OURS)
    payloads = [bytes([number % 256]) * size for number, size in enumerate(stream.sizes)]
    for event in stream.events:
        if event >= 0:
            memory.publish(event, payloads[event], stream.readers[event])
        else:
            assert memory.read(~event) in (None, payloads[~event])
    pure = replay(stream, policy_of(strategy, {}, ROOM, ENTRIES), ROOM, Ways(told=strategy in OURS))
    counters = memory.counters()
    assert (counters["caching_hits_total"], counters["caching_reads_total"]) == (pure.hits, pure.reads)
    assert (counters["caching_admitted_total"], counters["caching_admitted_utility_total"]) == (
        pure.cached,
        pure.copies,
    )
    assert counters["caching_memory_bytes"] <= ROOM
    held = sum(len(payload) for payload in memory._payloads.values())
    assert held == counters["caching_memory_bytes"]
    assert len(memory._payloads) == counters["caching_memory_records"]


def test_what_all_have_had_goes_where_the_policy_is_told() -> None:
    for strategy in RULES.keys() - {"none"} | {"owed"}:
        memory = Memory(policy_of(strategy, {}, None, 1), None, told=strategy in OURS)
        memory.publish(0, b"x", 1)
        assert memory.read(0) == b"x"
        assert memory.counters()["caching_memory_records"] == (0 if strategy == "owed" else 1)
