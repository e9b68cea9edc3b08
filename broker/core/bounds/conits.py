"""The messages of one topic that an endpoint holds for one client.

Owns: the order, the weight and the age of these messages, and the rule by which newer messages replace older messages.
Must never: send a message, or read a clock.

In TACT (Yu and Vahdat, 2000), a *conit* is the unit to which bounds on inconsistency apply.
"""

from __future__ import annotations

import heapq
from typing import Final

from ..connections.hub import Connection
from ..message import Message
from .rules import Bound

#: Bytes that a held message takes in addition to its topic and payload, including its share of the conit.
ENTRY_BYTES: Final = 320

#: An ``Urgent`` removes the entries of discarded conits when these entries are the majority and more than half this
#: number.
STALE_MAX: Final = 128


class Held:
    """A held message, and the messages that it replaces."""

    __slots__ = ("message", "named", "size", "skipped", "weight")

    def __init__(self, message: Message, named: bool, weight: float, size: int) -> None:
        self.message = message
        self.named = named  # true if its client recovers, so the notification has the message's `mid`
        self.skipped = 0
        self.weight = weight
        self.size = size


class Conit:
    """One topic of one client. It exists while the endpoint holds messages of the topic for the client, and at least
    until its interval has passed.

    ``leaving`` has the messages that leave first. When a message leaves and ``leaving`` is empty, all held messages
    move there. Newer messages cannot replace these messages. So each item is sent, even if a publisher keeps updating
    another item.
    """

    __slots__ = (
        "bound",
        "client",
        "connection",
        "entry",
        "floor",
        "held",
        "held_floor",
        "held_since",
        "is_late",
        "leaving",
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
        self.leaving: list[Held] = []  # the first one is last in the list
        self.held: dict[str | int | None, Held] = {}  # the other messages, by item or number, in the order of release
        self.newest: Held | None = None  # the last message in ``held``
        self.number = 0  # the latest key of a message that no newer message can replace
        self.weight = 0.0  # the weight of all these messages and of the messages that they replace
        self.since = 0.0  # when the oldest message came, in monotonic seconds
        self.held_since = 0.0  # when the oldest message in ``held`` came
        self.floor = 0  # while messages are held, the client gets no position beyond this stamp
        self.held_floor = 0  # the value of ``floor`` once ``leaving`` is empty
        self.next_at = 0.0  # when its interval ends, in monotonic seconds
        self.slot = 0  # its slot in the agenda; 0 if it is not in the agenda
        self.is_late = False  # it came due while its client accepted no messages
        self.entry = 0  # its number in an ``Urgent``; 0 if it is in no ``Urgent``

    def __len__(self) -> int:
        return len(self.leaving) + len(self.held)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is held."""
        return not self.held and not self.leaving

    @property
    def urgent_at(self) -> float:
        """Return the conit's urgency. Among the conits that are due, the conit with the smallest value leaves first."""
        return self.since + self.bound.staleness_s * (1.0 - self.bound.priority)

    def put(self, message: Message, named: bool, now: float, floor: int = 0) -> int:
        """Hold the message, perhaps in place of an older message.

        Args:
            message: the message.
            named: whether the client recovers.
            now: monotonic seconds.
            floor: a stamp that is smaller than the stamps of all later messages.

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
            self.held_since, self.held_floor = now, floor
            if not self.leaving:
                self.since, self.floor = now, floor
        held[key] = self.newest = Held(message, named, weight, size)
        return size

    def take(self) -> Held:
        """Take out the message that leaves first."""
        if not self.leaving:
            self.leaving = list(self.held.values())[::-1]
            self.held.clear()
            self.newest = None
        held = self.leaving.pop()
        self.weight -= held.weight
        if not self.leaving:
            self.since, self.floor = self.held_since, self.held_floor
        return held


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
