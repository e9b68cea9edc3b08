"""A retained message, and the retained messages of a topic.

Owns: what is known of each, and what they take. Must never: decide which stays.
"""

from __future__ import annotations

import math
from typing import Final

from .caches.policy import Entry as Rank

#: What an entry takes beside its topic's name and payload: the object, its numbers, its place in two rows; some 300 B.
ENTRY_BYTES: Final = 300

#: And a topic with entries, beside its name, and what its first one is worth once that is old.
TOPIC_BYTES: Final = 500

#: What has become of an entry that the log does not have any more: it was not dispatched; it was forgotten; it is
#: another home's.
REMOVED: Final = 1
FORGOTTEN: Final = 2
MOVED: Final = 3


class Entry:
    """A retained message. ``expires``: monotonic seconds of this endpoint. ``gone``: 0, or why the log does not have it
    any more. ``pending_readers``: how many subscribers have not had it; one, where nobody has counted. ``is_old``: see
    ``room``."""

    __slots__ = ("expires", "gone", "is_old", "number", "origin", "payload", "pending_readers", "stamp", "topic")

    def __init__(self, topic: str, payload: bytes, origin: str, number: int, stamp: int, expires: float) -> None:
        self.topic = topic
        self.payload = payload
        self.origin = origin
        self.number = number
        self.stamp = stamp
        self.expires = expires
        self.gone = 0
        self.pending_readers = 1
        self.is_old = False

    @property
    def size(self) -> int:
        """What it takes, in bytes."""
        return ENTRY_BYTES + len(self.payload)


class TopicLog:
    """One topic's entries, by their stamps. ``forgotten``: the greatest stamp that is not among them any more;
    ``last``: the greatest that was; ``expires``: none of them is over before; ``rank``: what its first entry is worth,
    once that is old."""

    __slots__ = ("entries", "expires", "forgotten", "last", "rank", "slot", "topic")

    def __init__(self, topic: str, slot: int) -> None:
        self.topic = topic
        self.slot = slot
        self.entries: list[Entry] = []
        self.expires = math.inf
        self.forgotten = 0
        self.last = 0
        self.rank: Rank | None = None
