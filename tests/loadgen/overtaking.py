"""Causal violations in the log of a small run, found by going through everything.

Owns: what `loadgen causal` is tried with here. Must never: be clever; ``bench check causal`` is for large logs.

A ``causal`` message has in its past what its connection had sent before it, what had come there by the time it was
meant to be sent (later may be after the write), and the pasts of these. No other message depends on anything.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

Row = Mapping[str, str]
#: Topic and sequence number.
Message = tuple[int, int]


class Violation(NamedTuple):
    """``connection`` got ``chain[0]`` after ``chain[-1]``. Each of the chain is in the direct past of the next."""

    connection: int
    chain: tuple[Message, ...]


def rows(log: Path) -> list[Row]:
    """All events of a run."""
    found: list[Row] = []
    for part in sorted(log.glob("events-*.csv")):
        with part.open(newline="") as file:
            found += csv.DictReader(file, strict=True)
    return found


def message_of(row: Row) -> Message:
    """Which message it is about."""
    return int(row["topic"]), int(row["seq"])


def violations(events: Iterable[Row]) -> list[Violation]:
    """Of each connection in the order received."""
    direct: dict[Message, list[Message]] = {}
    received: defaultdict[int, dict[Message, int]] = defaultdict(dict)
    # Of a connection: what it has sent from its latest reply on, and up to when that one covers what it has received.
    own: defaultdict[int, list[Message]] = defaultdict(list)
    covered_ns: defaultdict[int, int] = defaultdict(int)
    told = [row for row in events if row["kind"] in ("sent", "received")]
    for row in sorted(told, key=lambda row: int(row["at_ns"])):
        message, connection = message_of(row), int(row["connection"])
        if row["kind"] == "received":
            received[connection].setdefault(message, int(row["at_ns"]))
        elif row["detail"] != "causal":
            own[connection].append(message)
        else:
            from_ns, until_ns = covered_ns[connection], int(row["intended_ns"])
            heard = [other for other, at_ns in received[connection].items() if from_ns < at_ns <= until_ns]
            direct[message] = heard + own[connection]
            own[connection] = [message]
            covered_ns[connection] = max(from_ns, until_ns)
    found = []
    for connection, firsts in received.items():
        depended_on: dict[Message, Mapping[Message, Message]] = {}
        for message in firsts:
            if message in depended_on:
                found.append(Violation(connection, _chain(message, depended_on[message])))
            if message in direct:
                towards = _past(message, direct)
                for earlier in towards:
                    depended_on.setdefault(earlier, towards)
    return found


def _past(message: Message, direct: Mapping[Message, list[Message]]) -> dict[Message, Message]:
    """All of its past, and itself: each with the next on the shortest way to the message."""
    towards = {message: message}
    ahead = [message]
    for later in ahead:
        for earlier in direct.get(later, ()):
            if earlier not in towards:
                towards[earlier] = later
                ahead.append(earlier)
    return towards


def _chain(message: Message, towards: Mapping[Message, Message]) -> tuple[Message, ...]:
    chain = [message]
    while (later := towards[chain[-1]]) != chain[-1]:
        chain.append(later)
    return tuple(chain)
