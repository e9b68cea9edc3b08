"""Causal violations in the log of a small run, found by going through everything.

Owns: what `loadgen causal` is tried with in these tests. Must never: be fast. ``bench check causal`` is for real logs.

A message has in its past what its connection had sent before it, what that had received until the message was meant to
be sent (what came later may have come after the write), and the pasts of these. It is a violation where a connection
gets a message that replies to something (``causal``) before it first gets one of the message's past.
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
    """``connection`` got ``chain[-1]`` before ``chain[0]``. Each of the chain is in the direct past of the next."""

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
    """Of all connections, in the order received."""
    direct: dict[Message, list[Message]] = {}
    received: defaultdict[int, dict[Message, int]] = defaultdict(dict)
    causal = set()
    latest: dict[int, tuple[Message, int]] = {}  # of a connection: what it sent last, and when
    for row in sorted((row for row in events if row["kind"] in ("sent", "received")), key=_at_ns):
        message, connection = message_of(row), int(row["connection"])
        if row["kind"] == "received":
            received[connection].setdefault(message, _at_ns(row))
            continue
        before, from_ns = latest.get(connection, (None, -1))
        until_ns = int(row["intended_ns"])
        heard = [other for other, at_ns in received[connection].items() if from_ns < at_ns <= until_ns]
        direct[message] = heard if before is None else [*heard, before]
        latest[connection] = message, max(from_ns, until_ns)
        if row["detail"] == "causal":
            causal.add(message)
    found = []
    for connection, firsts in received.items():
        got: set[Message] = set()
        for message in firsts:
            if message in causal:
                towards = _past(message, direct)
                found += [
                    Violation(connection, _chain(earlier, towards))
                    for earlier in towards
                    if earlier != message and earlier in firsts and earlier not in got
                ]
            got.add(message)
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


def _at_ns(row: Row) -> int:
    return int(row["at_ns"])
