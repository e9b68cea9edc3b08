"""The state of a slot's retained messages that goes with the slot to its next home and its replica. ADR 21, 23, 36.

Owns: the format in which entries, forgotten stamps and floors are sent. Must never: decide which messages are retained.

The keys of a replica are objects of the log and the journal: an entry, a topic's log (for its forgotten stamp), a
slot's number (for its floor), or an ``Unread``. ``pack`` reads the current state of each key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import ormsgpack

from ingeborg.protocol.hashes import SLOTS, slot_of

from ..cluster.slots import SlotState
from ..desk import Desk
from ..entries import Entry, TopicLog
from .clock import STAMPS_END, Clock
from .journal import Journal, Unread
from .log import Log

#: The largest numbers of keys and of payload bytes in one chunk.
KEYS_PER_CHUNK: Final = 200
CHUNK_BYTES: Final = 64 << 10

#: The kinds of rows: a retained message, a name whose message is no longer retained, a topic's forgotten stamp, a
#: slot's floor, and a slot that its home is still reading from the journal.
ENTRY: Final = 0
NONE: Final = 1
FORGOTTEN: Final = 2
FLOOR: Final = 3
UNREAD: Final = 4


class History(SlotState):
    """One endpoint's retained messages, as state that belongs to slots.

    A chunk is an array of rows: ``[ENTRY, topic, payload, origin, number, stamp, seconds left]``, ``[NONE, topic,
    origin, number]``, ``[FORGOTTEN, topic, stamp]``, ``[FLOOR, slot, stamp, written]``, ``[UNREAD, slot, stamp]`` (with
    stamp 0 if the home has read the slot completely).
    """

    def __init__(self, desk: Desk, log: Log, clock: Clock, journal: Journal) -> None:
        super().__init__("history", KEYS_PER_CHUNK)
        self.failover_form = self
        self.is_certain = True
        self._desk = desk
        self._log = log
        self._clock = clock
        self._journal = journal

    def departing(self, slots: frozenset[int]) -> Iterator[list[Any]]:
        """See ``SlotState``."""
        log = self._log
        keys: list[Any] = [Unread(slot, log.unread(slot)) for slot in slots if log.unread(slot)]
        size = 0
        for slot in slots:
            for topic in log.topics_of(slot):
                if topic.forgotten:
                    keys.append(topic)
                for entry in list(topic.entries):
                    keys.append(entry)
                    size += entry.size
                    if size >= CHUNK_BYTES or len(keys) >= KEYS_PER_CHUNK:
                        yield keys
                        keys, size = [], 0
            if log.floor(slot) or slot in log.written:
                keys.append(slot)  # after the topics, because a topic's forgotten stamp may have moved to the floor
            if len(keys) >= KEYS_PER_CHUNK:
                yield keys
                keys, size = [], 0
        yield keys

    def chunk(self, keys: Iterable[Any]) -> list[Any]:
        """See ``SlotState``."""
        found: list[Any] = []
        size = 0
        for key in keys:
            found.append(key)
            if isinstance(key, Entry):
                size += key.size
            if size >= CHUNK_BYTES or len(found) >= KEYS_PER_CHUNK:
                break
        return found

    def pack(self, keys: Sequence[Any]) -> bytes:
        """See ``SlotState``."""
        rows: list[tuple[Any, ...]] = []
        now = self._desk.now
        for key in keys:
            if isinstance(key, Entry):
                if key.gone:
                    rows.append(self._gone(key))
                else:
                    left = key.expires - now
                    rows.append((ENTRY, key.topic, key.payload, key.origin, key.number, key.stamp, left))
            elif isinstance(key, TopicLog):
                rows.append((FORGOTTEN, key.topic, key.forgotten))
            elif isinstance(key, Unread):
                rows.append((UNREAD, key.slot, key.stamp))
            else:
                rows.append(self._floor(key))
        return ormsgpack.packb(rows)

    def _gone(self, entry: Entry) -> tuple[Any, ...]:
        log = self._log.get(slot_of(entry.topic), entry.topic)
        if log is not None and log.forgotten >= entry.stamp:
            return (FORGOTTEN, entry.topic, log.forgotten)
        slot = slot_of(entry.topic)
        if self._log.floor(slot) >= entry.stamp:
            return self._floor(slot)
        return (NONE, entry.topic, entry.origin, entry.number)

    def _floor(self, slot: int) -> tuple[Any, ...]:
        return (FLOOR, slot, self._log.floor(slot), slot in self._log.written)

    def absorb(self, data: bytes) -> int:
        """See ``SlotState``."""
        rows = _unpacked(data)
        log, now = self._log, self._desk.now
        for row in rows:
            kind = row[0]
            if kind == ENTRY:
                topic, payload, origin, number, stamp, left = row[1:]
                self._clock.see(stamp)
                slot = slot_of(topic)
                if left > 0:
                    log.add(slot, Entry(topic, payload, origin, number, stamp, now + left), now)
                else:
                    log.forget_to(slot, topic, stamp)
            elif kind == NONE:
                topic, origin, number = row[1:]
                slot = slot_of(topic)
                known = log.find(slot, topic, origin, number)
                if known is not None:
                    log.remove(slot, known)
            elif kind == FORGOTTEN:
                topic, stamp = row[1:]
                self._clock.see(stamp)
                log.forget_to(slot_of(topic), topic, stamp)
            elif kind == UNREAD:
                slot, stamp = row[1:]
                self._clock.see(stamp)
                log.mark_unread(slot, stamp)
            else:
                slot, stamp, written = row[1:]
                self._clock.see(stamp)
                log.raise_floor(slot, stamp)
                if written:
                    log.written.add(slot)
                else:
                    log.written.discard(slot)
        return len(rows)

    def arrived(self, slots: Sequence[int], whole: bool) -> None:
        """See ``SlotState``."""
        if whole:
            self._journal.taken([slot for slot in slots if not self._log.unread(slot)])
            # The former home may have gone before it had read these slots completely, so this endpoint reads the rest.
            slots = [slot for slot in slots if self._log.unread(slot)]
        if slots and not self._journal.lacking(slots):
            # Messages of these slots may be missing. The floor must therefore be greater than any position that a
            # client has now. The clock leaps, because the former home may have considered this endpoint dead and sent
            # positions that this endpoint does not know.
            stamp = self._clock.leap(self._desk.unix_s)
            for slot in slots:
                self._log.raise_floor(slot, stamp)
                self._log.mark_unread(slot, 0)
            self._journal.taken(slots)

    def begun(self, slots: Sequence[int]) -> None:
        """See ``SlotState``. If there is a journal, it has all retained messages of these slots that have ended."""
        if not self._journal.lacking(slots):
            self._journal.taken(slots)

    def gone(self, slots: Sequence[int]) -> None:
        """See ``SlotState``."""
        self._journal.let_go(slots)
        for slot in slots:
            self._log.drop(slot)

    def dropped(self, slots: Sequence[int]) -> None:
        """See ``SlotState``."""
        for slot in slots:
            self._log.drop(slot)


#: The types of a row's fields, by its kind.
_FORMS: Final[dict[int, tuple[tuple[type, ...], ...]]] = {
    ENTRY: ((str,), (bytes,), (str,), (int,), (int,), (float, int)),
    NONE: ((str,), (str,), (int,)),
    FORGOTTEN: ((str,), (int,)),
    FLOOR: ((int,), (int,), (bool,)),
    UNREAD: ((int,), (int,)),
}


def _unpacked(data: bytes) -> list[list[Any]]:
    """Return the rows of a chunk. Raise ``ValueError`` if the chunk is malformed."""
    try:
        rows = ormsgpack.unpackb(data)
    except ormsgpack.MsgpackDecodeError as error:
        raise ValueError(str(error)) from None
    if type(rows) is not list:
        raise ValueError("no rows")
    for row in rows:
        form = _FORMS.get(row[0]) if type(row) is list and row and type(row[0]) is int else None
        if form is None or len(row) != len(form) + 1:
            raise ValueError("a row of unknown kind")
        for field, kinds in zip(row[1:], form, strict=True):
            if type(field) not in kinds:
                raise ValueError(f"a row of kind {row[0]} with a {type(field).__name__}")
            if type(field) is int and field >= STAMPS_END:
                raise ValueError(f"a row of kind {row[0]} with the number {field}")
        if row[0] in (FLOOR, UNREAD) and not 0 <= row[1] < SLOTS:
            raise ValueError("a floor for an unknown slot")
    return rows
