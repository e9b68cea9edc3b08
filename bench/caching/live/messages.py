"""What the broker and those who load it say to each other: text messages over WebSockets.

Owns: their form. Must never: wait, or know what is in a record.

A message's first byte says what it is. To the broker: a subscription (JSON), a record (its payload), a poll, a question
for the counters, for the report. From it: the same byte and what was asked for. An answer to a poll is a line of
numbers, and a line for each record: its number, a space, and its payload, which has no line feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

SUBSCRIBE: Final = b"s"
RECORD: Final = b"r"
POLL: Final = b"p"
COUNTERS: Final = b"c"
REPORT: Final = b"t"

MESSAGE_BYTES_MAX: Final = 256 << 20
"""A report with the order of all events of the largest run, in JSON, has some megabytes."""


class Answer(NamedTuple):
    """To a poll, before it is read from the database: what is not in memory is ``None``. ``more``: waits for the next
    poll. ``asked_ns``: when it was begun; ``looked_ns``: when memory had been looked through."""

    numbers: Sequence[int]
    payloads: Sequence[bytes | None]
    hits: int
    more: bool
    asked_ns: int
    looked_ns: int


def answer(made: Answer, missed: Sequence[bytes], read_ns: int) -> bytes:
    """The message. ``missed``: payloads of those that were not in memory, in their order; ``read_ns``: when they had
    been read."""
    head = b"%b%d %d %d %d %d %d" % (
        POLL,
        made.asked_ns,
        made.looked_ns,
        read_ns,
        len(made.numbers),
        made.hits,
        made.more,
    )
    others = iter(missed)
    lines = [head]
    for number, payload in zip(made.numbers, made.payloads, strict=True):
        lines.append(b"%d %b" % (number, next(others) if payload is None else payload))
    return b"\n".join(lines)


class Head(NamedTuple):
    """The first line of an answer."""

    asked_ns: int
    looked_ns: int
    read_ns: int
    records: int
    hits: int
    more: bool


def head_of(message: bytes) -> Head:
    """Of an answer."""
    end = message.find(b"\n")
    line = message[1:] if end < 0 else message[1:end]
    asked_ns, looked_ns, read_ns, records, hits, more = map(int, line.split())
    return Head(asked_ns, looked_ns, read_ns, records, hits, more == 1)


def records_of(message: bytes) -> list[tuple[int, bytes]]:
    """The records of an answer: numbers and payloads."""
    found = []
    for line in message.split(b"\n")[1:]:
        number, _, payload = line.partition(b" ")
        found.append((int(number), payload))
    return found
