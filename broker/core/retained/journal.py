"""The journal of retained messages in the embedded store. With it, these messages survive the end of all endpoints of a
machine. SPEC section 8.10, ADR 36.

Owns: a turn's rows to write, the slots whose messages it is reading, and the floors that record which messages it has.
Must never: let a home dispatch a message before the store has it, or call a slot complete before it has read all rows
of the slot.

Only one write is in progress at a time, and rows that arrive meanwhile go into the next write. A home that gets slots
without their state reads the state from the journal.

While operators change the cluster's setting ``history``, some endpoints write to the journal and others keep messages
in memory only. The journal therefore records for each slot whether it has the slot's messages. A home that keeps
messages in memory writes the floor ``VOID`` before it keeps the first message of a slot. A home that writes to the
journal replaces this floor with a stamp. The journal has all messages of the slot after this stamp.
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

#: The number of messages in one page to read. A page takes about 2 ms.
RETAINED_PER_PAGE: Final = 500

#: The number of slots to read together.
SLOTS_PER_READ: Final = 64

#: The longest payload to write, in bytes. A record of the store can hold at most 3 MiB, including the topic and names.
WRITTEN_BYTES_MAX: Final = (3 << 20) - (4 << 10)

#: The largest number of entries in one write. Further entries go into the next write.
RETAINED_PER_WRITE: Final = 2_000

#: The time until the next attempt after a failed store call, in seconds, if no message waits for the call.
AGAIN_S: Final = 1.0

#: The largest number of forgotten entries to remember while the store fails. They take 10 MB. The store keeps further
#: entries until a home reads them. Entries that have not expired then reappear.
FORGOTTEN_MAX: Final = 100_000


class Unread(NamedTuple):
    """A key in a slot's replica. It says that the slot's home has not read all messages of the slot from the journal
    yet. The unread messages have stamps up to ``stamp``. If ``stamp`` is 0, the home has read all messages. A replica
    gets one such key before the messages that the home reads, and another such key after these messages."""

    slot: int
    stamp: int


class Journal(Part):
    """One endpoint's journal. This endpoint can act only after it has read the greatest stamp from the journal. This
    part then notifies ``observers``. If ``writes`` is true, this endpoint writes the messages that it keeps to the
    journal. If ``voids`` is true, it keeps messages only in memory, and the journal records that it lacks them."""

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
        #: Messages whose entries have been written or could not be written. ``Retention`` empties this tray.
        self.written: list[tuple[Dispatch, Exception | None]] = []
        self._rows: dict[tuple[int, int], tuple[Entry, Dispatch]] = {}  # rows to write, indexed by slot and stamp
        self._forgotten: list[tuple[int, int]] = []
        self._floors: dict[int, int] = {}
        # Slots of which the journal has all messages after a floor that is not written yet.
        self._whole: set[int] = set()
        self._writing = False
        self._reaching = False
        self._again_at = 0.0  # after a failed write: until this time, write only rows that messages wait for
        self._asked_at = -AGAIN_S
        #: The slots that are being read, each with the number of its read. A home that gives up a slot and gets it
        #: again starts another read.
        self.loading: dict[int, int] = {}
        self._reads: deque[tuple[int, list[int]]] = deque()
        self._numbers = 0
        #: The results of reads as (slot, key), where a key is an entry, a topic's log, a slot or an ``Unread``.
        #: ``RetentionPart`` empties this tray and passes the keys to the slot's replicas.
        self.has_read: list[tuple[int, Any]] = []
        self._reading = False

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "retained_not_erased",
                "Dropped messages that are still in the journal because its writes failed",
            ),
            self._desk.counted(
                "retained_reads_failed",
                "Failed reads of the journal, after which earlier messages of some slots cannot be replayed",
            ),
        ]

    # Writing

    @property
    def holds(self) -> bool:
        """Return whether a message must wait for this journal before its dispatch."""
        return self.writes or bool(self._floors) or self._writing

    def taken(self, slots: Sequence[int]) -> None:
        """Handle slots that have just arrived, and whose state the former home has transferred in memory."""
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
        """Write the entry at the end of the turn. ``written`` gets the outcome."""
        self._rows[slot, entry.stamp] = entry, dispatch

    def forget(self, slot: int, stamp: int) -> None:
        """Delete an entry from the journal."""
        row = self._rows.pop((slot, stamp), None)
        if row is None:
            self._forgotten.append((slot, stamp))
        else:
            self.written.append((row[1], None))

    def floor(self, slot: int, stamp: int) -> None:
        """Record that messages of the slot up to this stamp may be missing."""
        self._floors[slot] = max(stamp, self._floors.get(slot, 0))

    def _begin(self, slot: int, stamp: int) -> None:
        """Record that the journal has all messages of the slot from now on."""
        self.floor(slot, stamp)
        self._whole.add(slot)

    def write(self) -> None:
        """End the turn by writing all rows that are due. Before the first write, the store must record the end of the
        cluster's earlier lives. Each earlier life ends at the greatest stamp that the journal has at that moment."""
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
                text = (
                    f"The store keeps messages of at most {WRITTEN_BYTES_MAX} bytes; this one has {len(entry.payload)}"
                )
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
        # A forgotten row can be the old row of a message that has a new stamp. Delete it only after the new row is
        # written.
        forgotten: list[tuple[int, int]] = []
        if not self._rows:
            forgotten, self._forgotten = self._forgotten, []
        whole, later = self._whole, dict[int, int]()
        if whole and not self._members.joined:
            # Another endpoint may be home of these slots now, and keep their messages in memory.
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
        """Delete from the journal the entries that the log has dropped."""
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
                # Otherwise the slot's present home records which messages the journal has.
                if stamp != VOID or table[slot] == self._me:
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
        """Read the greatest stamp of earlier endpoints from the journal. This endpoint does not act before it knows
        this stamp."""
        if not self._members.informed and self._desk.now >= self._asked_at + AGAIN_S:
            self._asked_at = self._desk.now
            self._desk.store("retained_top", (), self._top, None)

    def _top(self, context: Any, result: Any, error: Exception | None) -> None:
        if error is None:
            self._clock.see(result)
            self._members.inform()
            self._observers.informed()

    def lacking(self, slots: Sequence[int]) -> bool:
        """Handle slots that have arrived without their state. Return true if this endpoint reads the state from the
        journal."""
        if not self.writes:
            return False
        self._log.written.update(slots)
        stamp = self._clock.leap(self._desk.unix_s)  # two entries of a slot must never get the same stamp
        # This delete records the stamp in the journal. A later home then begins after this stamp, and so after all
        # stamps that this home has not written.
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
        """Give up slots. Their new home records which messages the journal has, and reads the messages that this home
        has not read."""
        for slot in slots:
            self.loading.pop(slot, None)
            if slot in self._whole or self._floors.get(slot) == VOID:
                self._whole.discard(slot)
                del self._floors[slot]

    def _loaded(self, number: int, slots: Sequence[int]) -> None:
        """Record that slots have been read completely. The replicas get this mark after all messages of the slots."""
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
