"""The rules of docs/causal.md against the truth that no log has: when writes began, and which report arrived first.

Owns a made-up system that knows this truth: serial senders, slow writes, several reports of a message, whose first
arrival is the original, copies of any latency, and first reports that arrive but fail at their senders.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench import synthetic
from tests.bench.causality import plain
from tests.bench.causality.plain import Message
from tests.bench.synthetic import MS, Run

Violation = tuple[int, Message]


class Report(NamedTuple):
    meant: int
    begun: int
    done: int
    connection: int
    message: Message
    first: bool


def reports(rng: random.Random, connections: int) -> list[Report]:
    """Return reports in the order of their writes at each connection."""
    meant = [
        (base + index * rng.choice((0, 1, 3, 8)), (number, 1), not index)
        for number in range(rng.randint(3, 12))
        for base in (rng.randrange(40),)
        for index in range(rng.choice((1, 1, 2, 3)))
    ]
    free: dict[int, int] = defaultdict(int)
    made = []
    for at, message, first in sorted(meant):
        connection = rng.randrange(connections)
        begun = max(at, free[connection])
        free[connection] = done = begun + rng.choice((0, 0, 1, 2, 7))
        made.append(Report(at, begun, done, connection, message, first))
    return made


def run(rng: random.Random) -> tuple[Run, set[Violation]]:
    """Return a log and its true violations."""
    connections = rng.randint(3, 6)
    made = reports(rng, connections)
    arrived: dict[Message, tuple[float, int]] = {}
    for number, report in enumerate(made):
        arrival = rng.uniform(report.begun, report.done), number
        arrived[report.message] = min(arrival, arrived.get(report.message, arrival))
    # Order within one instant: copies arrive, then writes begin, then rows of writes appear.
    happened: list[tuple[int, int, int, int, Message]] = [
        (int(at_first) + 1 + rng.choice((0, 0, 1, 3, 10, 25)), 0, rng.randrange(1000), connection, message)
        for message, (at_first, _) in arrived.items()
        for connection in range(connections)
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    happened += [(each.begun, 1, number, each.connection, each.message) for number, each in enumerate(made)]
    happened += [(each.done, 2, number, each.connection, each.message) for number, each in enumerate(made)]
    knows: dict[int, set[Message]] = defaultdict(set)
    past: dict[Message, set[Message]] = {}
    got: list[Violation] = []
    rows = []
    for at, kind, number, connection, message in sorted(happened):
        if kind == 0:
            rows.append(synthetic.received("run", connection, *message, 0, at * MS))
            knows[connection].add(message)
            if (connection, message) not in got:
                got.append((connection, message))
        elif kind == 1:
            if arrived[message][1] == number:
                past[message] = set(knows[connection])
            knows[connection].add(message)
        elif not (made[number].first and rng.random() < 0.1):
            row = synthetic.sent("run", connection, *message, made[number].meant * MS, at * MS, made[number].first)
            rows.append(row)
    for _ in past:  # as long as the longest chain
        past = {message: known.union(*(past[each] for each in known)) for message, known in past.items()}
    wrong = {
        (connection, message)
        for place, (connection, message) in enumerate(got)
        if any(one == connection and message in past[before] for one, before in got[:place])
    }
    return Run({}, [rows], []), wrong


@settings(max_examples=400)
@given(st.integers(0, 2**64 - 1))
def test_what_is_claimed_is_true(seed: int) -> None:
    log, wrong = run(random.Random(seed))
    assert set(plain.violations(plain.told(log))) <= wrong


def test_most_of_what_is_true_is_found() -> None:
    claimed = true = 0
    for seed in range(200):
        log, wrong = run(random.Random(seed))
        claimed += len(plain.violations(plain.told(log)))
        true += len(wrong)
    assert true / 2 < claimed < true
