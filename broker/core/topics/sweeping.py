"""Subscriptions that end by themselves: which are over, at the home of their topics. SPEC section 2.2, ADR 32.

Owns: the walk over the ending subscriptions of this endpoint's slots, and since when their clients are away. Must
never: end one whose client listens, or has been away for less than the grace time as this endpoint has seen it.

How long a client is away is measured here, from when it was first found away, and no store keeps it: then no two clocks
are compared, and after a change of home it is measured anew. A client that has come back meanwhile has another
location; the store takes nothing out then (``Store.end``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ingeborg.protocol.hashes import SLOTS, slot_of

from ..clients.hub import Hub
from ..clients.keepalive import Keepalive
from ..cluster.membership import Membership
from ..cluster.underway import UnderWay
from ..desk import Desk
from ..messages.routes import Routes
from ..model import Ending, Location, Shape, Term
from ..part import Part
from ..stores import STORE_TIMEOUT_S
from .locations import Locations
from .presence import Presence

#: Subscriptions read in one tick, where the store reads memory: 2 ms. Else each client that is asked for is a request.
RECORDS_PER_TICK: Final = 500
REQUESTS_PER_TICK: Final = 25

#: Slots looked into in one tick.
SLOTS_PER_TICK: Final = 64
SLOT_REQUESTS_PER_TICK: Final = 16

#: From the end of one walk to the next, in seconds: a sixth of the grace time, but
WALK_S_MIN: Final = 0.5
WALK_S_MAX: Final = 10.0

#: After a call to the store that failed, in seconds.
PAUSE_S: Final = 1.0

#: For so long nobody looks again into a slot that had none, and into which this endpoint has written none since.
EMPTY_S: Final = 600.0

#: Clients of which it is kept since when they are away, some 300 bytes each. Further ones come when these have gone.
AWAY_MAX: Final = 200_000

#: What has ended is remembered for so long, in seconds; so are locations of clients that do not listen.
KEPT_S: Final = 600.0

#: Between two steps of clearing up in the store: where something was found, and where nothing was.
TIDY_S: Final = 0.1
TIDY_IDLE_S: Final = 1.0

_NEVER: Final = float("-inf")

End = tuple[list[Ending], Location | None, bool]
"""What is to end of one client: see ``Store.end``."""

Leavers = dict[str, list[str]]
"""Clients that would leave topics which have presence, and these topics. No write of theirs is under way (``hold``)."""

Away = tuple[Location | None, float]
"""Where the client was last, and since when it has been found not to listen (monotonic seconds)."""


class Sweeping(Part):
    """One endpoint's part. ``writes``: what has to end before another may be home. ``presence``: is told who leaves
    topics that have it; ``None``: none has."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        hub: Hub,
        routes: Routes,
        locations: Locations,
        writes: UnderWay,
        keepalive: Keepalive,
        shape: Shape,
    ) -> None:
        self._desk = desk
        self.presence: Presence | None = None
        # Of ``Writing``: whether nothing is being written of the client, nor will be until it is released.
        self.hold: Callable[[str], bool] = _nobody_writes
        self.release: Callable[[str], None] = _nobody_waits
        self._members = members
        self._me = members.me.incarnation
        self._hub = hub
        self._routes = routes
        self._locations = locations
        self._writes = writes
        self._renew_s = shape.renew_s
        self._keepalive = keepalive
        self._records_per_tick = RECORDS_PER_TICK if shape.reads_memory else REQUESTS_PER_TICK
        self._slots_per_tick = SLOTS_PER_TICK if shape.reads_memory else SLOT_REQUESTS_PER_TICK
        #: Ending subscriptions of this endpoint's slots, and clients of theirs that are away, as of the last walk.
        self.found = self.away = 0
        self._found = 0  # in this walk
        self._version = -1  # of the table of homes that this walk goes by
        self._round = 0
        self._slot = SLOTS  # where it is; at the end: it has ended
        self._cursor: str | None = None
        self._walk_at = desk.now  # when the next one begins, or this one goes on
        self._busy = False  # a call to the store is under way
        self._records = self._slots = 0  # that may still be read in this tick
        self._survey_at = desk.now  # when the store is asked which slots have any
        self._empty: dict[int, float] = {}  # slots, and when they are looked into again
        self._written: dict[int, float] = {}  # slots, and when a write to them was last begun
        self._whole = False  # the last walk has come to its end
        self._since: dict[str, Away] = {}  # by client, of this walk
        self._since_before: dict[str, Away] = {}  # of the walk before: who is in neither is not away any more
        self._renewed: dict[int, float] = {}  # slots, and when
        #: Topics whose sets are to be read again as soon as nothing waits in them.
        self._doubtful: dict[str, None] = {}
        self._tidying = False
        self._tidy_at = desk.now

    @property
    def grace_s(self) -> float:
        """How long those until disconnect stay when their client has gone, as it is told: 60, and not 60.0."""
        grace_s = self._members.grace_s
        return int(grace_s) if grace_s == int(grace_s) else grace_s

    def term(self, disconnect: bool, ttl_s: int) -> Term:
        """When a subscription ends that is made now. ``ttl_s``: 0: not by time."""
        return Term(disconnect, self._keepalive.unix_s + ttl_s if ttl_s else 0.0)

    def written(self, topics: Iterable[str]) -> None:
        """Ending subscriptions to these topics are being written."""
        now = self._desk.now
        for slot in set(map(slot_of, topics)):
            self._empty.pop(slot, None)
            self._written[slot] = now
        self._walk_at = min(self._walk_at, now + WALK_S_MIN)

    def view_changed(self) -> None:
        """Other endpoints have written into slots that come back."""
        self._empty.clear()
        self._renewed.clear()
        self._survey_at = self._desk.now
        self._walk_at = min(self._walk_at, self._desk.now)

    def lapsed(self) -> None:
        """So they have."""
        self.view_changed()

    def tick(self) -> None:
        """Go on where it stopped."""
        members, now = self._members, self._desk.now
        if self._doubtful:
            self._doubtful = dict.fromkeys(self._routes.doubt(self._doubtful))
        if not members.joined or members.leaving:
            return
        if now >= self._tidy_at and not self._tidying and members.table[0] == self._me:
            self._tidying = True
            self._desk.store("tidy", (KEPT_S,), self._tidied)
        if self._busy or now < self._walk_at:
            return
        if self._slot == SLOTS or self._version != members.version or self._round != members.round:
            self._begin()
        self._records, self._slots = self._records_per_tick, self._slots_per_tick
        if now < self._survey_at:
            self._go_on()
        else:
            self._busy = True
            self._desk.store("ending_slots", (), self._surveyed)

    def _surveyed(self, context: Any, result: list[int] | None, error: Exception | None) -> None:
        """The store has told which slots there is anything in, if it can."""
        if self._outdated():
            return
        now = self._desk.now
        if error is not None:
            self._walk_at = now + PAUSE_S
            return
        self._survey_at = now + EMPTY_S
        if result is not None:
            # A write may be on its way to a slot that has none yet.
            empty = set(range(SLOTS)).difference(result, self._written)
            self._empty.update(dict.fromkeys(empty, now + EMPTY_S))
        self._go_on()

    def _tidied(self, context: Any, result: Any, error: Exception | None) -> None:
        self._tidying = False
        self._tidy_at = self._desk.now + (TIDY_S if result else TIDY_IDLE_S)

    def _begin(self) -> None:
        self._version, self._round = self._members.version, self._members.round
        self._slot = 0
        self._cursor = None
        self._found = 0
        if self._whole:  # who was not found in it has come back, or has no such subscription any more
            self._since_before, self._since = self._since, {}
        self._whole = False

    def _go_on(self) -> None:
        """Read the next page, if more may be read in this tick."""
        table, now = self._members.table, self._desk.now
        while self._slot < SLOTS:
            slot = self._slot
            if table[slot] != self._me or self._empty.get(slot, _NEVER) > now:
                self._slot += 1
                continue
            if self._records <= 0 or self._slots <= 0:
                return
            self._slots -= 1
            self._busy = True
            self._desk.store("ending", (slot, self._cursor, self._records), self._page, self._cursor is None)
            return
        self._whole = True
        self.found, self.away = self._found, len(self._since)
        if self._found or self._written:
            self._walk_at = now + min(max(self._members.grace_s / 6, WALK_S_MIN), WALK_S_MAX)
        else:
            self._walk_at = now + EMPTY_S

    def _outdated(self) -> bool:
        """Has this endpoint become home of other slots meanwhile? The walk begins anew then, with the next tick."""
        self._busy = False
        members = self._members
        return not members.joined or self._version != members.version or self._round != members.round

    def _page(self, first: bool, result: Any, error: Exception | None) -> None:
        if self._outdated():
            return
        if error is not None:
            self._cursor = None  # perhaps it was that
            self._walk_at = self._desk.now + PAUSE_S
            return
        slot, now = self._slot, self._desk.now
        records, self._cursor = result
        if self._cursor is None:
            self._slot += 1
            # A write that was begun long ago is there by now.
            if first and not records and now - self._written.get(slot, _NEVER) > STORE_TIMEOUT_S:
                self._empty[slot] = now + EMPTY_S
                self._written.pop(slot, None)
        if not records:
            self._go_on()
            return
        self._records -= len(records)
        self._found += len(records)
        if self._renew_s and now - self._renewed.get(slot, _NEVER) >= self._renew_s:
            self._renewed[slot] = now
            self._desk.store("renew", (slot,), self._renewed_or_not, slot)
        unix_s, bindings = self._keepalive.unix_s, self._hub.bindings
        overdue: list[Ending] = []
        until: dict[str, list[Ending]] = {}
        for record in records:
            if record.term.ends_at and record.term.ends_at <= unix_s:
                overdue.append(record)
            elif record.term.disconnect and record.client not in bindings:
                until.setdefault(record.client, []).append(record)
        if until:
            clients = list(until)
            self._busy = True
            self._desk.store("locations", (clients,), self._located, (overdue, until))
        else:
            self._end([([record], None, False) for record in overdue])

    def _renewed_or_not(self, slot: int, result: Any, error: Exception | None) -> None:
        if error is not None:
            self._renewed.pop(slot, None)  # at the next walk
            self._desk.counts["renewals_failed"] += 1

    def _located(
        self, context: tuple[list[Ending], dict[str, list[Ending]]], result: Any, error: Exception | None
    ) -> None:
        if self._outdated():
            return
        overdue, until = context
        if error is not None:
            self._walk_at = self._desk.now + PAUSE_S
            return  # the page is looked at again with the next walk
        ends: list[End] = [([record], None, False) for record in overdue]
        now, grace_s = self._desk.now, self._members.grace_s
        for client, location in zip(until, result, strict=True):
            if location is not None and location.online and location.incarnation == self._me:
                # Not here: it has gone a moment ago, or a `listen` that failed was written late, over where it is.
                self._hub.missed.append(client)
                continue
            if self._listens(client, location):
                self._since.pop(client, None)
                self._since_before.pop(client, None)
                continue
            known = self._since.get(client) or self._since_before.get(client)
            if known is None or known[0] != location:
                known = (location, now)
            if now - known[1] >= grace_s:
                ends.append((until[client], location, True))
            if len(self._since) < AWAY_MAX:
                self._since[client] = known
        self._end(ends)

    def _tell(self, presence: Presence, leavers: Leavers, result: Any, error: Exception | None) -> None:
        """Who has gone. Nobody of them has subscribed anew meanwhile: they were held."""
        if error is not None:
            presence.lose(sum(map(len, leavers.values())))
        else:
            over = {(record.client, record.topic) for records in result for record in records}
            for client, topics in leavers.items():
                gone = [topic for topic in topics if (client, topic) in over]
                self._routes.change(client, gone, False)
                presence.tell(client, gone, False)
        self._release(leavers)

    def _listens(self, client: str, location: Location | None) -> bool:
        """Does the client listen, as far as anybody knows? Who is at a peer that has just come is there."""
        if client in self._hub.bindings:
            return True
        if location is None or not location.online:
            return False
        peer = self._members.peers.get(location.incarnation)
        return peer is not None and peer.dead_since is None

    def _end(self, ends: list[End]) -> None:
        leavers: Leavers = {}
        if self.presence is not None:
            ends = self._held(self.presence, ends, leavers)
        if not ends:
            self._go_on()
            return
        self._busy = True
        if leavers:
            # Some may have been taken back since the page was read: of these it has been told.
            pairs = [(client, topic) for client, topics in leavers.items() for topic in topics]
            self._desk.store("terms", (pairs,), self._looked, (ends, leavers, pairs))
        else:
            self._take_out(ends, leavers)

    def _held(self, presence: Presence, ends: list[End], leavers: Leavers) -> list[End]:
        """Of these, those that no write of the client is under way for, where somebody is told of it. The others are
        found again with the next walk."""
        may: list[End] = []
        for end in ends:
            client = end[0][0].client
            topics = presence.of([record.topic for record in end[0]])
            if topics and client not in leavers:
                if not self.hold(client):
                    continue
                leavers[client] = []
            if topics:
                leavers[client] += topics
            may.append(end)
        return may

    def _looked(
        self, context: tuple[list[End], Leavers, list[tuple[str, str]]], result: Any, error: Exception | None
    ) -> None:
        ends, leavers, pairs = context
        if self._outdated():
            self._release(leavers)
        elif error is not None:
            self._release(leavers)
            self._walk_at = self._desk.now + PAUSE_S
        else:
            self._busy = True
            for (client, topic), term in zip(pairs, result, strict=True):
                if term is None:
                    leavers[client].remove(topic)
            self._take_out(ends, leavers)

    def _release(self, leavers: Leavers) -> None:
        for client in leavers:
            self.release(client)

    def _take_out(self, ends: list[End], leavers: Leavers) -> None:
        write = object()
        self._writes.begin(write)
        self._desk.store("end", (ends,), self._ended, (write, ends, leavers))

    def _ended(self, context: tuple[object, list[End], Leavers], result: Any, error: Exception | None) -> None:
        write, ends, leavers = context
        if leavers and self.presence is not None:
            self._tell(self.presence, leavers, result, error)
        topics = dict.fromkeys(record.topic for records, _, _ in ends for record in records)
        if error is None:
            topics = dict.fromkeys(record.topic for records in result for record in records)
            self._desk.counts["subscriptions_ended"] += sum(map(len, result))
            for records, _, has_gone in ends:
                if has_gone:  # and with a fresh id each time it never comes back
                    self._locations.forget(records[0].client)
        # Read again: who has subscribed anew meanwhile is in the store.
        self._doubtful.update(dict.fromkeys(self._routes.doubt(topics)))
        self._writes.end(write)
        if not self._outdated():
            self._go_on()


def _nobody_writes(client: str) -> bool:
    return True


def _nobody_waits(client: str) -> None:
    pass
