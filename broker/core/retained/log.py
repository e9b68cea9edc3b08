"""The retained messages of the topics that this endpoint is home of, or can become the home of. SPEC section 8.10, ADR
36.

Owns: the entries of each topic in the order of their stamps, the record of forgotten messages, and the size limit of
the whole log. Must never: read a clock, or know the recipients.

A log *forgets* an entry when it drops the entry for lack of room or because the entry has expired. For each topic the
log records the greatest forgotten stamp (``forgotten``). If the log has no room for more such records, or a slot came
here without its state, it records one stamp for the whole slot (the *floor*). The topics of a slot are complete after
the floor. The log can thus say for each position whether messages after it may be missing.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from ingeborg.protocol.hashes import slot_of

from ..cluster.homes import Homes
from ..entries import ENTRY_BYTES, FORGOTTEN, MOVED, REMOVED, TOPIC_BYTES, Entry, TopicLog
from .room import AGED_AT_ONCE, Room

#: The largest number of topics without entries whose forgotten stamp the log records. Beyond this number, it raises the
#: floor of a topic's slot instead.
HOLES_MAX: Final = 50_000

#: One step of a sweep checks 1/``SWEEP_STEPS`` of the topics for expired entries, but at least ``SWEPT_PER_STEP_LEAST``
#: and at most ``SWEPT_PER_STEP`` topics. No client gets an expired entry that a sweep has not reached yet. Such an
#: entry only takes up room.
SWEEP_STEPS: Final = 600
SWEPT_PER_STEP_LEAST: Final = 100
SWEPT_PER_STEP: Final = 1_000


class Log:
    """One endpoint's log. ``bytes_max`` limits the bytes of all entries and topics, and ``size_max`` the entries of one
    topic. ``homes`` says which slots have this endpoint as home. The log has replicas of the other slots."""

    def __init__(self, bytes_max: int, size_max: int, homes: Homes) -> None:
        self.bytes_max = bytes_max
        self._size_max = size_max
        self.bytes = 0
        self.entries = 0
        self.topics = 0  # the number of topics with entries
        #: The number of entries forgotten in this endpoint's own slots, by reason.
        self.forgotten = {"expired": 0, "size": 0, "read": 0, "bytes": 0}
        self._homes = homes
        self._slots: dict[int, dict[str, TopicLog]] = {}
        self._floors: dict[int, int] = {}
        self._unread: dict[int, int] = {}  # slots that are being read from the journal, with the last stamp to read
        self._holes: OrderedDict[str, TopicLog] = OrderedDict()  # topics without entries
        self._room = Room(bytes_max)
        self._ageing_from = bytes_max // 2
        self._sweep: Iterator[TopicLog] | None = None
        #: Entries that the log has forgotten. The journal deletes them too. ``None`` if there is no journal that
        #: writes.
        self.lost: list[Entry] | None = None
        #: Slots of which the journal has all messages after the floor.
        self.written: set[int] = set()

    def has_room(self, topic: str, size: int) -> bool:
        """Return whether the log could hold a message with a payload of ``size`` bytes if it dropped all other
        messages."""
        return size + ENTRY_BYTES + TOPIC_BYTES + len(topic) <= self.bytes_max

    # Writing

    def add(self, slot: int, entry: Entry, now: float, *, is_new: bool = False) -> None:
        """Insert an entry in the order of the stamps. It replaces an older entry for the same message. ``is_new`` says
        that there is no such entry."""
        topics = self._slots.get(slot)
        log = None if topics is None else topics.get(entry.topic)
        if log is None:
            log = self._topic(slot, entry.topic)
        # Each message arrives with its own copies of strings that many messages share.
        entry.topic, entry.origin = log.topic, sys.intern(entry.origin)
        entries = log.entries
        if entries and not is_new:
            # A message that was dispatched again can have an earlier entry with a smaller stamp.
            former = self._find(log, entry.origin, entry.number)
            if former is not None:
                if former.stamp >= entry.stamp:
                    return
                self._take(log, former, REMOVED)
        size = ENTRY_BYTES + len(entry.payload)  # the same as ``entry.size``, but without a call
        if size + TOPIC_BYTES + len(log.topic) > self.bytes_max:  # the entry comes from a home with more room
            self._pass_over(log, entry)
            return
        if not entries or entry.stamp > entries[-1].stamp:
            entries.append(entry)
        else:
            place = next(index for index, other in enumerate(entries) if other.stamp > entry.stamp)
            entries.insert(place, entry)
            if not place:
                self._room.first_changed(log)
        if entry.stamp > log.last:
            log.last = entry.stamp
        if entry.expires < log.expires:
            log.expires = entry.expires
        if len(entries) == 1:
            self.topics += 1
            self.bytes += TOPIC_BYTES + len(log.topic)
            self._holes.pop(log.topic, None)
        self.entries += 1
        self.bytes += size
        if self._room.put(entry, size):
            self._room.aged(log, entry)
        if len(entries) > self._size_max:
            self._forget(log, entries[0], now, "size")
        if self.bytes > self._ageing_from:
            self._make_room(now)

    def _topic(self, slot: int, topic: str) -> TopicLog:
        topics = self._slots.get(slot)
        if topics is None:
            topics = self._slots[slot] = {}
        log = topics.get(topic)
        if log is None:
            log = topics[topic] = TopicLog(topic, slot)
        return log

    def stamp_anew(self, slot: int, entry: Entry, stamp: int) -> None:
        """Give a new stamp to an entry whose message is dispatched again. The entry becomes the latest entry of its
        topic."""
        log = self._topic(slot, entry.topic)
        was_first = log.entries[0] is entry
        log.entries.remove(entry)
        log.entries.append(entry)
        entry.stamp = log.last = stamp
        if was_first:
            self._room.first_changed(log)

    def remove(self, slot: int, entry: Entry) -> None:
        """Remove an entry, because its message was not dispatched."""
        log = self._slots.get(slot, {}).get(entry.topic)
        if log is not None and not entry.gone:
            self._take(log, entry, REMOVED)
            self._emptied(log)

    def _take(self, log: TopicLog, entry: Entry, gone: int) -> None:
        entries = log.entries
        was_first = entries[0] is entry
        if entries[-1] is entry:
            entries.pop()
        else:
            entries.remove(entry)
        self.entries -= 1
        size = ENTRY_BYTES + len(entry.payload)
        self.bytes -= size
        entry.gone = gone
        entry.payload = b""
        self._room.taken(log, entry, size, was_first)
        if not log.entries:
            self.topics -= 1
            self.bytes -= TOPIC_BYTES + len(log.topic)

    def _forget(self, log: TopicLog, entry: Entry, now: float, why: str) -> None:
        if entry.expires <= now:
            why = "expired"
        if self._homes.is_mine(log.slot):
            self.forgotten[why] += 1
        if entry.stamp > log.forgotten:
            log.forgotten = entry.stamp
        self._take(log, entry, FORGOTTEN)
        if self.lost is not None:
            self.lost.append(entry)
        if not log.entries:
            self._emptied(log)

    def _pass_over(self, log: TopicLog, entry: Entry) -> None:
        """Forget this new entry immediately, because it would not fit into the log even if the log had no other
        entries."""
        if self._homes.is_mine(log.slot):
            self.forgotten["bytes"] += 1
        log.forgotten = max(log.forgotten, entry.stamp)
        log.last = max(log.last, entry.stamp)
        entry.gone = FORGOTTEN
        entry.payload = b""
        if self.lost is not None:
            self.lost.append(entry)
        self._emptied(log)

    def _emptied(self, log: TopicLog) -> None:
        if log.entries:
            return
        if not log.forgotten:
            del self._slots[log.slot][log.topic]
            return
        holes = self._holes
        holes[log.topic] = log
        holes.move_to_end(log.topic)
        while len(holes) > HOLES_MAX:
            _, oldest = holes.popitem(last=False)
            del self._slots[oldest.slot][oldest.topic]
            self.raise_floor(oldest.slot, oldest.forgotten)

    def _make_room(self, now: float) -> None:
        room = self._room
        for _ in range(AGED_AT_ONCE):
            aged = room.next_aged()
            if aged is None:
                break
            room.aged(self._of(aged), aged)
        while self.bytes > self.bytes_max:
            log = room.victim()
            if log is None:
                aged = room.first_aged()
                room.aged(self._of(aged), aged)
            else:
                entry = log.entries[0]
                self._forget(log, entry, now, "bytes" if entry.pending_readers else "read")

    def served(self, entry: Entry) -> None:
        """Record that a subscriber that did not have the entry gets it now."""
        if not entry.gone:
            self._room.served(self._of(entry), entry)

    def _of(self, entry: Entry) -> TopicLog:
        return self._slots[slot_of(entry.topic)][entry.topic]

    def forget_to(self, slot: int, topic: str, stamp: int) -> None:
        """Record that another endpoint has forgotten messages of the topic with stamps up to this stamp. Entries here
        stay."""
        log = self._topic(slot, topic)
        log.forgotten = max(log.forgotten, stamp)
        log.last = max(log.last, stamp)
        self._emptied(log)

    def sweep(self, now: float) -> None:
        """Drop the expired entries of some topics. Later calls continue with the other topics."""
        if self._sweep is None:
            self._sweep = self._each_topic()
        all_of = self.topics + len(self._holes)
        most = min(SWEPT_PER_STEP, max(SWEPT_PER_STEP_LEAST, all_of // SWEEP_STEPS))
        for seen, log in enumerate(self._sweep, 1):
            if log.expires <= now:
                for entry in [entry for entry in log.entries if entry.expires <= now]:
                    self._forget(log, entry, now, "expired")
                log.expires = min([entry.expires for entry in log.entries], default=math.inf)
            if seen >= most:
                return
        self._sweep = None
        self._room.tidy(self.entries)

    def _each_topic(self) -> Iterator[TopicLog]:
        for slot in list(self._slots):
            yield from list(self._slots.get(slot, {}).values())

    # Slots

    def floor(self, slot: int) -> int:
        """Return the slot's floor. After this stamp, only messages that a topic's own ``forgotten`` covers may be
        missing."""
        return self._floors.get(slot, 0)

    def unread(self, slot: int) -> int:
        """Return the stamp up to which the journal may have messages of the slot that this log lacks, or 0 if the log
        has all messages."""
        return self._unread.get(slot, 0)

    def mark_unread(self, slot: int, stamp: int) -> None:
        """Set the stamp that ``unread`` returns."""
        if stamp:
            self._unread[slot] = stamp
        else:
            self._unread.pop(slot, None)

    def raise_floor(self, slot: int, stamp: int) -> None:
        """Record that messages of the slot up to this stamp may be missing."""
        if stamp > self._floors.get(slot, 0):
            self._floors[slot] = stamp

    def topics_of(self, slot: int) -> list[TopicLog]:
        """Return the logs of the slot's topics, including topics without entries."""
        topics = self._slots.get(slot)
        return list(topics.values()) if topics else []

    def drop(self, slot: int) -> None:
        """Drop all state of the slot."""
        for log in self._slots.pop(slot, {}).values():
            while log.entries:  # one by one, because a sweep may be using the topic's log
                self._take(log, log.entries[-1], MOVED)
            self._holes.pop(log.topic, None)
        self._floors.pop(slot, None)
        self._unread.pop(slot, None)
        self.written.discard(slot)

    # Reading

    def find(self, slot: int, topic: str, origin: str, number: int) -> Entry | None:
        """Return the topic's entry for the message with this origin and number, or ``None``."""
        log = self._slots.get(slot, {}).get(topic)
        return None if log is None else self._find(log, origin, number)

    @staticmethod
    def _find(log: TopicLog, origin: str, number: int) -> Entry | None:
        for entry in reversed(log.entries):
            if entry.number == number and entry.origin == origin:
                return entry
        return None

    def get(self, slot: int, topic: str) -> TopicLog | None:
        """Return the topic's log, or ``None`` if there is none."""
        return self._slots.get(slot, {}).get(topic)

    @staticmethod
    def since(log: TopicLog, stamp: int, now: float) -> tuple[list[Entry], bool]:
        """Return the topic's entries with greater stamps than ``stamp``, and whether these entries are complete. The
        caller must also compare ``stamp`` with the slot's ``floor``."""
        whole = stamp >= log.forgotten
        found: list[Entry] = []
        if log.last <= stamp:
            return found, whole
        for entry in reversed(log.entries):
            if entry.stamp <= stamp:
                break
            if entry.expires > now:
                found.append(entry)
            else:
                whole = False
        found.reverse()
        return found, whole

    @staticmethod
    def latest(log: TopicLog, count: int, now: float) -> list[Entry]:
        """Return the topic's ``count`` latest entries, oldest first."""
        return list(islice((entry for entry in reversed(log.entries) if entry.expires > now), count))[::-1]
