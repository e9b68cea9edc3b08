"""The journal of retained messages, in the embedded store: whole after all endpoints of a machine have ended. SPEC
section 8.10, ADR 36.

Owns: what is to be written of a turn, the slots whose messages are being read, and the floors by which the journal says
what it has. Must never: have a message dispatched before it is written, or say that a slot is whole before all that is
written of it has been read.

There is one write under way at a time; what comes meanwhile goes into the next. Where a home comes to slots without
what belongs to them, it reads that here.

While the cluster's setting changes some endpoints write to the journal and others keep messages in memory only. So each
slot says itself whether the journal has its messages. A home in memory writes the floor ``VOID`` before it keeps the
first message of a slot. A home that writes replaces it by the stamp from which on it has written all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of

from ..cluster.membership import Membership
from ..cluster.observers import ClusterObservers
from ..desk import Desk
from ..dispatch import Dispatch
from ..entries import Entry
from ..metrics import Metric
from ..model import VOID, RetainedMessage
from ..part import Part
from .clock import Clock
from .log import Log
from .watermarks import Watermarks

#: Messages in one page that is read: some 2 ms.
RETAINED_PER_PAGE: Final = 500

#: Slots that are read together.
SLOTS_PER_READ: Final = 64

#: Of a payload that is written: a store's record has no more than 3 MiB, its topic and names included.
WRITTEN_BYTES_MAX: Final = (3 << 20) - (4 << 10)

#: Entries written at once at the most; the rest goes into the next write.
RETAINED_PER_WRITE: Final = 2_000

#: After the store could not do something that no message waits for, it is asked again after so many seconds.
AGAIN_S: Final = 1.0

#: What is forgotten while the store fails is known of so many entries: 10 MB. Those beyond stay in it until they are
#: read, where they are over, or come once more.
FORGOTTEN_MAX: Final = 100_000


class Unread(NamedTuple):
    """The key of how far the journal may have more of a slot than its home has read; 0: that is all. Two keys, since
    what was read goes between them."""

    slot: int
    stamp: int


class Journal(Part):
    """One endpoint's. ``observers``: learn that this endpoint may act, as far as the journal is concerned. ``writes``:
    it writes what it keeps. ``voids``: it keeps messages in memory, and says so here."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        observers: ClusterObservers,
        log: Log,
        clock: Clock,
        watermarks: Watermarks,
        *,
        writes: bool,
        voids: bool,
    ) -> None:
        self._desk = desk
        self._me = members.me.incarnation
        self._members = members
        self._observers = observers
        self._log = log
        self._clock = clock
        self._watermarks = watermarks
        self.writes = writes
        self._voids = voids
        members.informed = not writes
        if writes:
            log.lost, watermarks.proven = [], -1
        #: What became of messages' entries: ``Retention`` takes it.
        self.written: list[tuple[Dispatch, Exception | None]] = []
        self._rows: dict[tuple[int, int], tuple[Entry, Dispatch]] = {}  # by slot and stamp
        self._forgotten: list[tuple[int, int]] = []
        self._floors: dict[int, int] = {}
        self._whole: set[int] = set()  # slots that the journal has from the floor on that is to be written
        self._writing = False
        self._reaching = False
        self._again_at = 0.0  # a write has failed: what no message waits for is not tried before
        self._asked_at = -AGAIN_S
        #: Slots that are being read, each with the number of its read: who lets go of one and gets it again reads anew.
        self.loading: dict[int, int] = {}
        self._reads: deque[tuple[int, list[int]]] = deque()
        self._numbers = 0
        #: What has been read, by slot: entries, slots, and what says that all of a slot is there. ``RetentionPart`` has
        #: it replicated to where the slot's replicas are, too.
        self.has_read: list[tuple[int, Any]] = []
        self._reading = False

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "retained_not_erased",
                "Retained messages that the journal still has though they are forgotten: it could not be written",
            ),
            self._desk.counted(
                "retained_reads_failed",
                "Reads of the journal that failed: of their slots what was missed before is lacking",
            ),
        ]

    # Writing

    @property
    def holds(self) -> bool:
        """Has a message to wait for this journal before it is dispatched?"""
        return self.writes or bool(self._floors) or self._writing

    def taken(self, slots: Sequence[int]) -> None:
        """Slots have come with what there is of them in memory."""
        written = self._log.written
        if self.writes and not written.issuperset(slots):
            stamp = self._clock.step()
            for slot in slots:
                if slot not in written:
                    self._begin(slot, stamp)
            written.update(slots)
        elif self._voids:
            self._floors.update(dict.fromkeys(slots, VOID))
            written.difference_update(slots)

    def keep(self, slot: int, entry: Entry, dispatch: Dispatch) -> None:
        """The entry has to be written; ``written`` gets what becomes of it."""
        self._rows[slot, entry.stamp] = entry, dispatch

    def forget(self, slot: int, stamp: int) -> None:
        """There is no such entry any more."""
        row = self._rows.pop((slot, stamp), None)
        if row is None:
            self._forgotten.append((slot, stamp))
        else:
            self.written.append((row[1], None))

    def floor(self, slot: int, stamp: int) -> None:
        """What the slot had up to this stamp may be lacking."""
        self._floors[slot] = max(stamp, self._floors.get(slot, 0))

    def _begin(self, slot: int, stamp: int) -> None:
        """From here on the journal has the slot."""
        self.floor(slot, stamp)
        self._whole.add(slot)

    def write(self) -> None:
        """The turn ends: write what there is. First the store has to end the earlier lives of the cluster, because each
        ends at the greatest stamp that the journal has."""
        if not (self.writes or self._voids):
            return
        watermarks = self._watermarks
        if self.writes and watermarks.unproven >= 0 and not self._reaching and self._desk.now >= self._again_at:
            self._desk.store(
                "reach", (list(watermarks.epochs), watermarks.unproven), self._reached, watermarks.unproven
            )
            self._reaching, watermarks.unproven = True, -1
        if self._writing or self._watermarks.proven < 0:
            return
        if self._log.lost:
            self._forget_lost(self._log.lost)
        is_due = self._desk.now >= self._again_at and (self._forgotten or self._floors)
        if not self._rows and not is_due:
            return
        if not self.holds:
            rows_, self._rows = self._rows, {}
            for _, dispatch in rows_.values():
                self.written.append((dispatch, None))
            return
        names = list(self._rows)[:RETAINED_PER_WRITE]
        rows: list[tuple[int, tuple[Entry, Dispatch]]] = []
        for name in names:
            entry, dispatch = self._rows.pop(name)
            if self.writes and len(entry.payload) > WRITTEN_BYTES_MAX:
                text = f"A message of {len(entry.payload)} bytes is not kept in the store; {WRITTEN_BYTES_MAX} at most"
                self.written.append((dispatch, ProtocolError("store_unavailable", text)))
            else:
                rows.append((name[0], (entry, dispatch)))
        unix_s, now = self._desk.unix_s, self._desk.now
        retained = [
            RetainedMessage(
                slot, entry.stamp, entry.topic, entry.payload, entry.origin, entry.number, unix_s + entry.expires - now
            )
            for slot, (entry, _) in rows
            if self.writes and not entry.gone
        ]
        # A forgotten row may be the old one of a message with a new stamp: delete it after the new row is written.
        forgotten: list[tuple[int, int]] = []
        if not self._rows:
            forgotten, self._forgotten = self._forgotten, []
        whole, later = self._whole, dict[int, int]()
        if whole and not self._members.joined:
            # Another endpoint may be home of these by now, and keep them in memory.
            later = {slot: self._floors.pop(slot) for slot in whole}
            whole = set()
        arguments = (retained, forgotten, list(self._floors.items()), sorted(whole))
        self._floors = later
        if not rows and not any(arguments):
            return
        self._whole -= whole
        self._writing = True
        self._desk.store("keep", arguments, self._done, ([dispatch for _, (_, dispatch) in rows], arguments))

    def _forget_lost(self, lost: list[Entry]) -> None:
        """Entries that have gone by themselves."""
        table, me = self._members.table, self._me
        for entry in lost:
            slot = slot_of(entry.topic)
            if table[slot] == me and slot not in self.loading:
                self.forget(slot, entry.stamp)
                self.floor(slot, entry.stamp)
        lost.clear()

    def _done(self, context: Any, result: Any, error: Exception | None) -> None:
        dispatches, arguments = context
        self._writing = False
        if error is not None:
            self._desk.drops["not_retained"] += len(dispatches)
            self._again_at = self._desk.now + AGAIN_S
            self._forgotten = arguments[1] + self._forgotten
            beyond = len(self._forgotten) - FORGOTTEN_MAX
            if beyond > 0:
                self._desk.counts["retained_not_erased"] += beyond
                del self._forgotten[:beyond]
            table = self._members.table
            for slot, stamp in arguments[2]:
                if stamp != VOID or table[slot] == self._me:  # else its present home has to say what the journal has
                    self.floor(slot, stamp)
            self._whole.update([slot for slot in arguments[3] if table[slot] == self._me])
        for dispatch in dispatches:
            self.written.append((dispatch, error))

    def _reached(self, stamp: int, result: Any, error: Exception | None) -> None:
        self._reaching = False
        if error is not None:
            self._again_at = self._desk.now + AGAIN_S
            self._watermarks.prove(stamp)
        else:
            past, top = result
            self._watermarks.reached(dict(past), top)

    # Reading

    def tick(self) -> None:
        """Ask how far those of before had come. This endpoint does not act before it knows that."""
        if not self._members.informed and self._desk.now >= self._asked_at + AGAIN_S:
            self._asked_at = self._desk.now
            self._desk.store("retained_top", (), self._top, None)

    def _top(self, context: Any, result: Any, error: Exception | None) -> None:
        if error is None:
            self._clock.see(result)
            self._members.inform()
            self._observers.informed()

    def lacking(self, slots: Sequence[int]) -> bool:
        """Slots have come without what belongs to them. True: it is read here."""
        if not self.writes:
            return False
        self._log.written.update(slots)
        stamp = self._clock.leap(self._desk.unix_s)  # so that no two entries of a slot have one stamp
        # Who comes after this one begins behind it, whatever this one has stamped and not written.
        self._forgotten.append((slots[0], self._clock.value))
        for start in range(0, len(slots), SLOTS_PER_READ):
            part = list(slots[start : start + SLOTS_PER_READ])
            self._numbers += 1
            self._reads.append((self._numbers, part))
            for slot in part:
                self.loading[slot] = self._numbers
                self._log.mark_unread(slot, stamp)
                self.has_read.append((slot, Unread(slot, stamp)))
        self._read_next()
        return True

    def let_go(self, slots: Sequence[int]) -> None:
        """They are not ours any more. Their new home says what the journal has of them, and reads what is unread."""
        for slot in slots:
            self.loading.pop(slot, None)
            if slot in self._whole or self._floors.get(slot) == VOID:
                self._whole.discard(slot)
                del self._floors[slot]

    def _loaded(self, number: int, slots: Sequence[int]) -> None:
        """All that there is of these has been read. Said behind all that was."""
        for slot in slots:
            if self.loading.get(slot) == number:
                del self.loading[slot]
                self._log.mark_unread(slot, 0)
                self.has_read += [(slot, slot), (slot, Unread(slot, 0))]

    def _read_next(self) -> None:
        if self._reads and not self._reading:
            self._reading = True
            read = self._reads.popleft()
            self._desk.store("retained", (read[1], None, RETAINED_PER_PAGE), self._read, read)

    def _read(self, read: tuple[int, list[int]], result: Any, error: Exception | None) -> None:
        self._reading = False
        number, slots = read
        loading = self.loading
        if error is not None:
            self._desk.counts["retained_reads_failed"] += 1
            stamp = self._clock.step()
            for slot in slots:
                if loading.get(slot) == number:
                    self._log.raise_floor(slot, stamp)
            self._loaded(number, slots)
            self._read_next()
            return
        retained: list[RetainedMessage] = result[0]
        unix_s, now = self._desk.unix_s, self._desk.now
        for one in retained:
            self._clock.see(one.stamp)
            if loading.get(one.slot) != number:
                continue
            if one.expires_at > unix_s:
                expires = now + one.expires_at - unix_s
                entry = Entry(one.topic, one.payload, one.origin, one.number, one.stamp, expires)
                self._log.add(one.slot, entry, now)
                self.has_read.append((one.slot, entry))
            else:
                self._log.forget_to(one.slot, one.topic, one.stamp)
                self.has_read.append((one.slot, self._log.get(one.slot, one.topic)))
                self._forgotten.append((one.slot, one.stamp))
                self.floor(one.slot, one.stamp)
        floors: list[tuple[int, int]] = result[1]
        for slot, stamp in floors:
            if loading.get(slot) != number:
                continue
            if stamp == VOID:
                stamp = self._clock.step()
                self._begin(slot, stamp)
            self._clock.see(stamp)
            self._log.raise_floor(slot, stamp)
        cursor: str | None = result[2]
        if cursor is not None:
            self._reading = True
            self._desk.store("retained", (slots, cursor, RETAINED_PER_PAGE), self._read, read)
            return
        self._loaded(number, slots)
        self._read_next()
