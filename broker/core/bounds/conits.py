"""The messages of one topic that an endpoint holds for one client.

Owns: the order, the weight and the age of these messages, and the rule by which newer messages replace older ones. Must
never: send a message, or read a clock.

In TACT (Yu and Vahdat, 2000), a *conit* is the unit to which bounds on inconsistency apply.
"""

from __future__ import annotations

import heapq
from typing import Final

from ..connections.hub import Connection
from ..message import Message
from .rules import Bound

#: Bytes that a held message takes in addition to its topic and payload.
ENTRY_BYTES: Final = 64

#: An ``Urgent`` keeps up to half this number of entries of discarded conits before it removes them.
STALE_MAX: Final = 128


class Held:
    """A held message, and the messages that it replaces."""

    __slots__ = ("message", "named", "since", "size", "skipped", "weight")

    def __init__(self, message: Message, named: bool, since: float, weight: float, size: int) -> None:
        self.message = message
        self.named = named  # its client recovers, so the notification has the message's `mid`
        self.since = since  # when the oldest of these messages came, in monotonic seconds
        self.skipped = 0
        self.weight = weight
        self.size = size


class Conit:
    """The state of one client's topic. It exists while the endpoint holds messages of the topic for the client, or
    until the topic's interval has passed."""

    __slots__ = (
        "bound",
        "client",
        "connection",
        "entry",
        "floor",
        "held",
        "is_late",
        "newest",
        "next_at",
        "number",
        "since",
        "slot",
        "topic",
        "weight",
    )

    def __init__(self, connection: Connection, client: str, topic: str, bound: Bound) -> None:
        self.connection = connection
        self.client = client
        self.topic = topic
        self.bound = bound
        self.held: dict[str | int | None, Held] = {}  # in the order of release, by item or number
        self.newest: Held | None = None  # the last message in ``held``
        self.number = 0  # the latest key of a message that no newer one can replace
        self.weight = 0.0  # the weight of the held messages and the messages they replace
        self.since = 0.0  # when the oldest of all these came, in monotonic seconds
        self.floor = 0  # while messages are held, the client gets no position beyond this stamp
        self.next_at = 0.0  # when its interval ends, in monotonic seconds
        self.slot = 0  # its slot in the agenda; 0 if it has none
        self.is_late = False  # it came due while its client accepted no messages
        self.entry = 0  # its number in an ``Urgent``; 0 if it is in no ``Urgent``

    @property
    def urgent_at(self) -> float:
        """Return the conit's urgency: among the conits that are due, the one with the smallest value leaves first."""
        return self.since + self.bound.staleness_s * (1.0 - self.bound.priority)

    def put(self, message: Message, named: bool, now: float) -> int:
        """Hold the message, perhaps in place of an older one.

        Args:
            message: the message.
            named: whether the client recovers, so that the notification has the message's ``mid``.
            now: monotonic seconds.

        Returns:
            The change in the number of held bytes.
        """
        about, held = message.about, self.held
        weight = 1.0 if about is None else about.weight
        size = ENTRY_BYTES + len(message.topic) + len(message.payload)
        self.weight += weight
        key: str | int | None
        if self.bound.latest and not (named and message.is_kept):
            key = None if about is None else about.item
            former = held.get(key)
            if former is not None:
                if former is not self.newest:
                    del held[key]  # so that the new message goes to the end
                    held[key] = self.newest = former
                growth = size - former.size
                former.message, former.named, former.size = message, named, size
                former.skipped += 1
                former.weight += weight
                return growth
        else:
            self.number += 1
            key = self.number
        if not held:
            self.since = now
        held[key] = self.newest = Held(message, named, now, weight, size)
        return size

    def take(self) -> Held:
        """Take out the message that leaves first."""
        held = self.held.pop(next(iter(self.held)))
        self.weight -= held.weight
        if held is self.newest:
            self.newest = None
        return held

    def take_all(self) -> list[Held]:
        """Take out all messages, in the order of release."""
        leaving = list(self.held.values())
        self.held.clear()
        self.newest = None
        self.weight = 0.0
        return leaving

    def partly_released(self) -> None:
        """Update ``since``, because some of the held messages have left."""
        self.since = min(held.since for held in self.held.values())


class Urgent:
    """Conits in the order of their urgency. Equally urgent conits keep the order in which they were added.

    A conit is in at most one ``Urgent`` at a time. The entry of a discarded conit stays until it is popped, or until
    such entries are the majority.
    """

    __slots__ = ("_entries", "_number", "_stale")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Conit]] = []  # a heap
        self._number = 0  # the latest number of an entry
        self._stale = 0  # entries of discarded conits

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, conit: Conit) -> None:
        """Add the conit, unless it is in an ``Urgent`` already."""
        if not conit.entry:
            self._number += 1
            conit.entry = self._number
            heapq.heappush(self._entries, (conit.urgent_at, self._number, conit))

    def pop(self) -> Conit | None:
        """Remove and return the most urgent conit. Return ``None`` if there is none."""
        while self._entries:
            _, number, conit = heapq.heappop(self._entries)
            if conit.entry == number:
                conit.entry = 0
                return conit
        self._stale = 0
        return None

    def discard(self, conit: Conit) -> None:
        """Remove the conit, if it is here."""
        if conit.entry:
            conit.entry = 0
            self._stale += 1
            if 2 * self._stale > max(len(self._entries), STALE_MAX):
                self._entries = [entry for entry in self._entries if entry[2].entry == entry[1]]
                heapq.heapify(self._entries)
                self._stale = 0
