"""A retained message, and the retained messages of a topic.

Owns: the data of both records, and their sizes. Must never: decide which message stays.
"""

from __future__ import annotations

import math
from typing import Final

from .caches.policy import Entry as Rank

#: The bytes of an entry without its topic's name and its payload: the object, its numbers, and its places in two queues
#: take about 300 bytes.
ENTRY_BYTES: Final = 300

#: The bytes of a topic with entries, without its name. This includes the rank that its first entry gets when that entry
#: is old.
TOPIC_BYTES: Final = 500

#: Why the log no longer has an entry. Either the message was not dispatched, or the log has forgotten the entry because
#: of a limit or its expiry, or another home has the slot now.
REMOVED: Final = 1
FORGOTTEN: Final = 2
MOVED: Final = 3


class Entry:
    """A retained message.

    ``expires``: the time of expiry, in this endpoint's monotonic seconds. ``gone``: 0, or the reason why the log no
    longer has the entry. ``pending_readers``: the number of subscribers that have not received the message, or 1 if
    nothing has counted them. ``is_old``: see ``room``.
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
        """The entry's size in bytes."""
        return ENTRY_BYTES + len(self.payload)


class TopicLog:
    """One topic's entries, in the order of their stamps.

    ``forgotten``: the greatest stamp that the log has dropped. ``last``: the greatest stamp that the log has ever had.
    ``expires``: no entry expires before this time. ``rank``: the rank of its first entry; ``None`` until that entry is
    old.
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
