"""Clocks, arrivals and trails against sets, and against the document's Algorithm 16 where it is correct."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.causality import clocks as causal_clocks
from ingeborg.bench.causality.arrivals import Arrivals
from ingeborg.bench.causality.clocks import NEVER, Clocked, Clocks
from ingeborg.bench.causality.trails import Link, Trail
from tests.bench.causality import plain
from tests.bench.causality.plain import Message, Told

SEEDS = st.integers(0, 2**64 - 1)


def until(rows: Sequence[Told]) -> dict[Message, int]:
    """Return until when each message can come too late, by the rule of bench.spark.happened."""
    sent: dict[Message, list[int]] = defaultdict(list)
    for row in rows:
        if row.originals > 0:
            sent[row.message].append(row.at_ns)
    latest: dict[int, int] = {}
    found: dict[Message, int] = {}
    for row in rows:
        if row.originals < 0 and row.message in sent:
            before = latest.get(row.connection, NEVER)
            if before >= min(sent[row.message]):
                found[row.message] = max(found.get(row.message, NEVER), before)
            if row.depends:
                latest[row.connection] = max(before, max(sent[row.message]))
    return found


def clocked(rows: Sequence[Told], ends: dict[Message, int] | None) -> tuple[Clocks, dict[Message, Clocked]]:
    made, found = Clocks(), {}
    for at_ns, connection, message, meant_ns, originals, depends in rows:
        if originals < 0:
            made.received(at_ns, connection, message)
            continue
        until_ns = 1 << 62 if ends is None else ends.get(message, NEVER)
        clock = made.sent(at_ns, meant_ns, connection, message, originals, depends, until_ns)
        if clock is not None:
            found[message] = clock
    return made, found


def too_late(rows: Sequence[Told], clocks: dict[Message, Clocked]) -> dict[tuple[int, Message], Message]:
    at_one: dict[int, Arrivals[Message]] = defaultdict(Arrivals)
    found = {}
    for row in rows:
        if row.originals < 0 and row.message in clocks:
            axis, number, clock = clocks[row.message]
            flat = [each for of_axis, entry in clock.items() for each in (of_axis, entry[0])]
            before = at_one[row.connection].came(row.message, axis, number, flat)
            if before is not None:
                found[row.connection, row.message] = before
    return found


def trail(rows: Sequence[Told], first: Message, last: Message) -> list[Link]:
    sent = {
        message: [row.at_ns for row in rows if row.message == message and row.originals > 0]
        for message in (first, last)
    }
    way = Trail(first, last)
    for at_ns, connection, message, meant_ns, originals, depends in rows:
        if min(sent[first]) <= at_ns <= max(sent[last]):
            if originals < 0:
                way.received(at_ns, connection, message)
            else:
                way.sent(at_ns, meant_ns, connection, message, originals, depends)
    return way.links


@settings(max_examples=400)
@given(SEEDS)
def test_random_logs_have_the_violations_that_sets_find(seed: int) -> None:
    rows = plain.told(plain.random_log("r", random.Random(seed)))
    expected, past = plain.violations(rows), plain.order(rows)
    made, everything = clocked(rows, None)
    for ends in (None, until(rows)):
        found = too_late(rows, clocked(rows, ends)[1])
        assert set(found) == set(expected), "with all that clocks can hold, and with what they need"
        assert all(before in expected[where] for where, before in found.items())
    assert made.entries == sum(len(clock.clock) for clock in everything.values())
    assert made.messages == len(everything) == len(past)
    for (_, first), last in found.items():
        links = trail(rows, first, last)
        assert (links[0].message, links[-1].message) == (first, last)
        for one, two in itertools.pairwise(links):
            assert two.cause == one.message
            assert first in past[two.message]


def test_random_logs_try_everything() -> None:
    seen: dict[str, int] = defaultdict(int)
    for seed in range(200):
        rows = plain.told(plain.random_log("r", random.Random(seed)))
        found = too_late(rows, clocked(rows, until(rows))[1])
        seen["violations"] += len(found)
        seen["clean"] += not found
        seen["shared originals"] += any(row.originals > 1 for row in rows)
        seen["late duplicates"] += any(row.originals == 0 for row in rows)
        seen["no mark"] += any(not row.depends for row in rows)
        seen["long trails"] += any(len(trail(rows, first, last)) > 2 for (_, first), last in found.items())
    assert min(seen.values()) >= 5, seen
    assert len(seen) == 6


def test_what_can_no_longer_come_too_late_is_forgotten() -> None:
    """Two connections talk without end, and all hear them at once."""
    made = Clocks()
    for number in range(30_000):
        made.sent(number * 10, number * 10, number % 2, (1, number), 1, True, number * 10 + 15)
        made.received(number * 10 + 5, 1 - number % 2, (1, number))
    assert made.entries_max <= 2
    assert len(made._known) <= causal_clocks.SWEEP_MIN


def test_so_is_what_only_a_sender_of_duplicates_knows() -> None:
    """Each message has its own axis, because two report it before any connection has it; the third is always late."""
    made = Clocks()
    for number in range(1_000):
        at_ns = number * 10
        for connection in (1, 2):
            made.sent(at_ns, at_ns, connection, (1, number), 2, True, at_ns + 25)
        made.received(at_ns + 3, 3, (1, number))
        made.sent(at_ns + 5, at_ns + 5, 3, (1, number), 0, True, NEVER)
    assert max(map(len, made._knows.values())) <= 4


Broadcasts = dict[int, list[Message]]


def broadcasts(rng: random.Random) -> Broadcasts:
    """Draw logs in which every process gets everything once: its own messages when it sends them, others in any order,
    so that some break causal order."""
    processes = range(rng.randint(2, 4))
    delivered: Broadcasts = {p: [] for p in processes}
    waiting: list[tuple[int, Message]] = []
    for _ in range(rng.randint(0, 7)):
        p = rng.choice(processes)
        message = p, len(delivered[p]) + 1
        delivered[p].append(message)
        waiting += [(q, message) for q in processes if q != p]
        for _ in range(rng.randint(0, 3)):
            if waiting:
                q, message = waiting.pop(rng.choice((0, 0, 0, rng.randrange(len(waiting)))))
                delivered[q].append(message)
    for q, message in waiting:
        delivered[q].append(message)
    return delivered


def as_told(logs: Broadcasts) -> list[Told]:
    """Return the events in an order that sends each message before its deliveries: always the oldest possible one."""
    rows: list[Told] = []
    places = dict.fromkeys(logs, 0)
    sent: set[Message] = set()
    while any(places[p] < len(logs[p]) for p in logs):
        for p in logs:
            while places[p] < len(logs[p]) and (logs[p][places[p]][0] == p or logs[p][places[p]] in sent):
                message = logs[p][places[p]]
                now = len(rows)
                if message[0] == p:
                    rows.append(Told(now, p, message, now, 1, True))
                    sent.add(message)
                else:
                    rows.append(Told(now, p, message, now, -1, True))
                places[p] += 1
    return rows


@settings(max_examples=400)
@given(SEEDS)
def test_of_full_broadcasts_algorithm_16_says_the_same(seed: int) -> None:
    logs = broadcasts(random.Random(seed))
    rows = as_told(logs)
    assert plain.algorithm_16(logs) == (not too_late(rows, clocked(rows, until(rows))[1]))


def test_algorithm_16_is_wrong_where_not_everybody_gets_everything() -> None:
    """It takes a message that never comes for a late one. Here 2 has not subscribed to a."""
    a, b, c = (0, 1), (1, 1), (2, 1)
    for third, expected in (([a, c], {}), ([c, a], {(3, a): c})):
        logs = {0: [a], 1: [a, b], 2: [b, c], 3: third}
        rows = as_told(logs)
        assert not plain.algorithm_16(logs)
        assert too_late(rows, clocked(rows, until(rows))[1]) == expected
