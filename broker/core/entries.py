"""A retained message, and the retained messages of a topic.

Owns: the facts about each, and their size. Must never: decide which one stays.
"""

from __future__ import annotations

import math
from typing import Final

from .caches.policy import Entry as Rank

#: The bytes of an entry besides its topic's name and payload: for the object, its numbers, and its place in two rows;
#: some 300 B.
ENTRY_BYTES: Final = 300

#: The bytes of a topic with entries besides its name, including the rank of its first entry once that is old.
TOPIC_BYTES: Final = 500

#: Why the log no longer has an entry: it was not dispatched; it was forgotten; it belongs to another home.
REMOVED: Final = 1
FORGOTTEN: Final = 2
MOVED: Final = 3


class Entry:
    """A retained message.

    ``expires``: monotonic seconds of this endpoint. ``gone``: 0, or why the log no longer has it. ``pending_readers``:
    the number of subscribers that have not received it; one if nothing has counted them. ``is_old``: see ``room``.
    """

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
        """Its size in bytes."""
        return ENTRY_BYTES + len(self.payload)


class TopicLog:
    """One topic's entries, by their stamps.

    ``forgotten``: the greatest stamp that the log has dropped. ``last``: the greatest stamp that the log has ever had.
    ``expires``: no entry expires before this time. ``rank``: the rank of its first entry, once that is old.
    """

    __slots__ = ("entries", "expires", "forgotten", "last", "rank", "slot", "topic")

    def __init__(self, topic: str, slot: int) -> None:
        self.topic = topic
        self.slot = slot
        self.entries: list[Entry] = []
        self.expires = math.inf
        self.forgotten = 0
        self.last = 0
        self.rank: Rank | None = None
