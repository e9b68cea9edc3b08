"""The messages between the broker and its load generators: text over WebSockets.

Owns: the form of the messages. Must never: wait, or interpret a record.

A message's first byte is its type. The broker receives subscriptions (as JSON), records (as payloads), polls, and
requests for the counters and for the report. The broker's answer begins with the request's byte, followed by the
requested data. An answer to a poll is a line of numbers, and a line for each record: its number, a space, and its
payload, which has no line feed.
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
"""Maximum size of a message. A report with the order of all events of the largest run has a few megabytes of JSON."""


class Answer(NamedTuple):
    """The state of a poll's answer before the database is read. A payload that is not in memory is ``None``. ``more``
    says whether records wait for the next poll. ``asked_ns`` is the start of the poll, and ``looked_ns`` the end of the
    search in memory."""

    numbers: Sequence[int]
    payloads: Sequence[bytes | None]
    hits: int
    more: bool
    asked_ns: int
    looked_ns: int


def answer(made: Answer, missed: Sequence[bytes], read_ns: int) -> bytes:
    """Return the message for an answer. ``missed`` has the payloads that were not in memory, in order, and ``read_ns``
    is the time when the database had been read."""
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
    """Return the head of an answer."""
    end = message.find(b"\n")
    line = message[1:] if end < 0 else message[1:end]
    asked_ns, looked_ns, read_ns, records, hits, more = map(int, line.split())
    return Head(asked_ns, looked_ns, read_ns, records, hits, more == 1)


def records_of(message: bytes) -> list[tuple[int, bytes]]:
    """Return the numbers and the payloads of an answer's records."""
    found = []
    for line in message.split(b"\n")[1:]:
        number, _, payload = line.partition(b" ")
        found.append((int(number), payload))
    return found
