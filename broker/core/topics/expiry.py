"""Ends subscriptions whose term has expired, at the home of their topics. SPEC section 2.2, ADR 32.

Owns: the walk over the subscriptions with a term in this endpoint's slots, and the record of when their clients went
away. Must never: end a subscription whose client listens, or whose client this endpoint has seen away for less than the
grace time.

This endpoint measures the time for which a client is away, beginning when it first finds the client away. No store
keeps that time. So the endpoints do not compare clocks of different machines, and a new home starts to measure again.
If a client has come back meanwhile, it has another location, and then the store does not remove its subscriptions
(``Store.end``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ingeborg.protocol.hashes import SLOTS

from ..cluster.membership import Membership
from ..cluster.underway import UnderWay
from ..connections.hub import Hub
from ..desk import Desk
from ..metrics import Metric, gauge
from ..model import Location, Subscription
from ..part import Part
from .filtering import Filtering
from .locations import Locations
from .presence import Presence
from .routes import Routes
from .terms import Terms
from .writing import Writing

#: The largest number of subscriptions to read in one tick. The first number is for a store that reads from memory, and
#: takes 2 ms. The second number is for other stores, where each lookup of a client is a request.
RECORDS_PER_TICK: Final = 500
REQUESTS_PER_TICK: Final = 25

#: The largest number of slots to examine in one tick, for the same two kinds of stores.
SLOTS_PER_TICK: Final = 64
SLOT_REQUESTS_PER_TICK: Final = 16

#: The pause between two walks is a sixth of the grace time, but within these bounds, in seconds.
WALK_S_MIN: Final = 0.5
WALK_S_MAX: Final = 10.0

#: The pause after a failed call to the store, in seconds.
PAUSE_S: Final = 1.0

#: The pause after a walk that found no subscriptions, in seconds. It ends early if this endpoint writes a term. If the
#: store cannot tell which slots have terms, this endpoint also skips an empty slot for this time.
EMPTY_S: Final = 600.0

#: The largest number of absent clients to track at a time, at about 300 bytes each. This endpoint tracks further
#: clients when it no longer tracks the earlier clients.
AWAY_MAX: Final = 200_000

#: The time for which the store remembers ended subscriptions, and locations of clients that do not listen, in seconds.
KEPT_S: Final = 600.0

#: The pause between two steps of tidying the store, in seconds. The first value applies after a step that removed
#: something, and the second value after a step that removed nothing.
TIDY_S: Final = 0.1
TIDY_IDLE_S: Final = 1.0

_NEVER: Final = float("-inf")

End = tuple[list[Subscription], Location | None, bool]
"""The subscriptions of one client to end (see ``Store.end``)."""

Held = dict[tuple[str, str], list[Subscription]]
"""By client and topic: the client's subscriptions at a topic with presence, before some of these end."""

Away = tuple[Location | None, float, float]
"""The last location of an absent client, and when this endpoint first and last found that it does not listen (monotonic
seconds)."""


class Expiration:
    """A store call that ends subscriptions. ``Writing`` holds back the writes of ``clients`` until the call has ended
    (``hold``)."""

    __slots__ = ("clients", "ends", "held", "round")

    def __init__(self, ends: list[End], clients: set[str], round: int) -> None:
        self.ends = ends
        self.clients = clients
        self.held: Held = {}
        self.round = round  # the membership round


class Expiry(Part):
    """One endpoint's expiry of subscriptions.

    Args:
        desk: The services of the endpoint.
        members: The endpoints of the cluster.
        terms: Keeps track of the slots into which this endpoint has written terms.
        writing: Holds back a client's writes while the client's subscriptions end.
        presence: Announces clients that leave topics with presence. ``None`` if no topic has presence.
        hub: Knows the clients that listen at this endpoint.
        routes: The routing cache, which drops ended subscriptions.
        filtering: The filters in the routing cache, which drops the filters of ended subscriptions.
        locations: The cache of clients' locations.
        writes: Keeps track of the work that must end before another endpoint can become home.
        reads_memory: See ``Shape``.
    """

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        terms: Terms,
        writing: Writing,
        presence: Presence | None,
        hub: Hub,
        routes: Routes,
        filtering: Filtering,
        locations: Locations,
        writes: UnderWay,
        reads_memory: bool,
    ) -> None:
        self._desk = desk
        self._terms = terms
        self._writing = writing
        self._presence = presence
        self._members = members
        self._me = members.me.incarnation
        self._hub = hub
        self._routes = routes
        self._filtering = filtering
        self._locations = locations
        self._writes = writes
        self._records_per_tick = RECORDS_PER_TICK if reads_memory else REQUESTS_PER_TICK
        self._slots_per_tick = SLOTS_PER_TICK if reads_memory else SLOT_REQUESTS_PER_TICK
        #: The number of subscriptions with a term in this endpoint's slots, and of their absent clients, at the last
        #: walk.
        self.found = self.away = 0
        self._found = 0  # the number of subscriptions found in this walk
        self._version = self._round = -1  # the version of the table of homes that this walk uses
        self._slots: list[int] | None = None  # slots still to examine, the next one last; None between walks
        self._cursor: str | None = None
        self._walk_at = desk.now  # when the next walk begins, or this one continues
        self._busy = False  # whether a call to the store is in progress
        self._records_left = self._slots_left = 0  # how much this tick may still read
        self._empty: dict[int, float] = {}  # empty slots, and when to examine them again
        self._written: set[int] = set()  # slots into which a term was written since this walk began
        self._whole = False  # whether the last walk was complete
        self._since: dict[str, Away] = {}  # the absent clients found in this walk
        self._since_before: dict[str, Away] = {}  # the absent clients found in the previous walk
        #: Topics whose subscribers must be read again as soon as no message of the topic waits.
        self._doubtful: dict[str, None] = {}
        self._tidying = False
        self._tidy_at = desk.now

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "subscriptions_ended",
                "Subscriptions that this endpoint ended as their home",
            ),
            gauge(
                "expiring_subscriptions",
                "Expiring subscriptions to the topics whose home is this endpoint, as of its last check",
                self.found,
            ),
            gauge("expiring_clients_away", "Clients with an expiring subscription that listen nowhere", self.away),
        ]

    def view_changed(self) -> None:
        """Examine all slots again, because other endpoints may have written into slots that have come back."""
        self._empty.clear()
        self._walk_at = min(self._walk_at, self._desk.now)

    def lapsed(self) -> None:
        """Examine all slots again, because other endpoints may have acted in place of this endpoint and written into
        its slots."""
        self.view_changed()

    def tick(self) -> None:
        """Continue the walk."""
        members, now = self._members, self._desk.now
        if self._terms.written:
            self._see_written()
        if self._doubtful:
            self._doubtful = dict.fromkeys(self._routes.doubt(self._doubtful))
        if not members.joined or members.leaving:
            return
        if now >= self._tidy_at and not self._tidying and members.table[0] == self._me:
            self._tidying = True
            self._desk.store("tidy", (KEPT_S,), self._tidied)
        if self._busy or now < self._walk_at:
            return
        self._records_left, self._slots_left = self._records_per_tick, self._slots_per_tick
        if self._slots is None or self._version != members.version or self._round != members.round:
            self._version, self._round, self._slots = members.version, members.round, None
            self._written.clear()
            self._busy = True
            self._desk.store("expiring_slots", (), self._begin)
        else:
            self._go_on()

    def _see_written(self) -> None:
        """Handle the slots into which this endpoint has written terms. They are no longer empty."""
        written, self._terms.written = self._terms.written, set()
        self._written |= written
        for slot in written:
            self._empty.pop(slot, None)
        self._walk_at = min(self._walk_at, self._desk.now + WALK_S_MIN)

    def _tidied(self, context: Any, result: Any, error: Exception | None) -> None:
        self._tidying = False
        self._tidy_at = self._desk.now + (TIDY_S if result else TIDY_IDLE_S)

    def _begin(self, context: Any, result: list[int] | None, error: Exception | None) -> None:
        """Begin a walk over the slots that have subscriptions with a term. If the store cannot tell which slots these
        are, walk over all slots that were not empty recently."""
        if self._is_outdated():
            return
        table, now = self._members.table, self._desk.now
        if error is not None:
            self._walk_at = now + PAUSE_S
            return
        if result is None:
            result = [slot for slot in range(SLOTS) if self._empty.get(slot, _NEVER) <= now]
        self._slots = [slot for slot in reversed(result) if table[slot] == self._me]
        self._cursor = None
        self._found = 0
        if self._whole:  # a client that the walk did not find is not away, or has no subscription with a term
            self._since_before, self._since = self._since, {}
        self._whole = False
        self._go_on()

    def _go_on(self) -> None:
        """Read the next page, if this tick may read more. After the last page, end the walk."""
        if self._slots:
            if self._records_left > 0 and self._slots_left > 0:
                self._slots_left -= 1
                self._busy = True
                arguments = (self._slots[-1], self._cursor, self._records_left)
                self._desk.store("expiring", arguments, self._page, self._cursor is None)
            return
        self._slots = None
        self._whole = True
        self.found, self.away = self._found, len(self._since)
        idle = not self._found and not self._written
        pause_s = EMPTY_S if idle else min(max(self._members.grace_s / 6, WALK_S_MIN), WALK_S_MAX)
        self._walk_at = self._desk.now + pause_s

    def _is_outdated(self) -> bool:
        """Return whether the slots of this endpoint have changed meanwhile. If so, the next tick starts a new walk."""
        self._busy = False
        members = self._members
        return not members.joined or self._version != members.version or self._round != members.round

    def _page(self, first: bool, result: Any, error: Exception | None) -> None:
        if self._is_outdated():
            return
        if error is not None:
            self._cursor = None  # the cursor may be the cause
            self._walk_at = self._desk.now + PAUSE_S
            return
        records: list[Subscription]
        records, self._cursor = result
        if self._cursor is None:
            assert self._slots
            slot = self._slots.pop()
            if first and not records and slot not in self._written:
                self._empty[slot] = self._desk.now + EMPTY_S
        if not records:
            self._go_on()
            return
        self._records_left -= len(records)
        self._found += len(records)
        unix_s, bindings = self._desk.unix_s, self._hub.bindings
        overdue: dict[str, list[Subscription]] = {}
        until: dict[str, list[Subscription]] = {}
        for record in records:
            term = record.term
            if term is None:
                continue
            if term.ends_at and term.ends_at <= unix_s:
                overdue.setdefault(record.client, []).append(record)
            elif term.disconnect and record.client not in bindings:
                until.setdefault(record.client, []).append(record)
        ends: list[End] = [(of_client, None, False) for of_client in overdue.values()]
        if until:
            self._busy = True
            self._desk.store("locations", (list(until),), self._located, (ends, until))
        else:
            self._end(ends)

    def _located(
        self, context: tuple[list[End], dict[str, list[Subscription]]], result: Any, error: Exception | None
    ) -> None:
        if self._is_outdated():
            return
        ends, until = context
        if error is not None:
            self._walk_at = self._desk.now + PAUSE_S
            return  # the next walk reads the page again
        now, grace_s = self._desk.now, self._members.grace_s
        for client, location in zip(until, result, strict=True):
            if location is not None and location.online and location.incarnation == self._me:
                # The client is not here. Either it has just left, or the late write of a failed `listen` has replaced
                # its true location.
                self._hub.missed.append(client)
                continue
            if self._listens(client, location):
                self._since.pop(client, None)
                self._since_before.pop(client, None)
                continue
            known = self._since.get(client) or self._since_before.get(client)
            if known is None or _has_listened(known, location, now):
                known = (location, now, now)
            if now - known[1] >= grace_s:
                ends.append((until[client], location, True))
            if len(self._since) < AWAY_MAX:
                self._since[client] = (known[0], known[1], now)
        self._end(ends)

    def _listens(self, client: str, location: Location | None) -> bool:
        """Return whether the client listens, as far as this endpoint knows. A client at a peer that has only just
        appeared counts as listening there."""
        if client in self._hub.bindings:
            return True
        if location is None or not location.online:
            return False
        peer = self._members.peers.get(location.incarnation)
        return peer is not None and peer.dead_since is None

    def _end(self, ends: list[End]) -> None:
        """End these subscriptions. While a client's write is in progress, this endpoint does not know which changes the
        caches need, or whether the client leaves a topic. If such a client has subscriptions at topics with presence,
        they stay until the next walk."""
        presence = self._presence
        expiration = Expiration([], set(), self._round)
        pairs: list[tuple[str, str]] = []
        for end in ends:
            client = end[0][0].client
            is_held = client in expiration.clients or self._writing.hold(client)
            if is_held:
                expiration.clients.add(client)
            if presence is not None:
                watched = presence.of(dict.fromkeys(record.topic for record in end[0]))
                if watched and not is_held:
                    continue
                pairs += [(client, topic) for topic in watched]
            expiration.ends.append(end)
        if not expiration.ends:
            self._go_on()
            return
        self._busy = True
        if pairs:
            self._desk.store("subscriptions_of", (pairs,), self._looked, (expiration, pairs))
        else:
            self._take_out(expiration)

    def _looked(self, context: tuple[Expiration, list[tuple[str, str]]], result: Any, error: Exception | None) -> None:
        expiration, pairs = context
        outdated = self._is_outdated()
        if outdated or error is not None:
            for client in expiration.clients:
                self._writing.release(client)
            if not outdated:
                self._walk_at = self._desk.now + PAUSE_S
        else:
            self._busy = True
            expiration.held.update(zip(pairs, result, strict=True))
            self._take_out(expiration)

    def _take_out(self, expiration: Expiration) -> None:
        self._writes.begin(expiration)
        self._desk.store("end", (expiration.ends,), self._ended, expiration)

    def _ended(self, expiration: Expiration, result: Any, error: Exception | None) -> None:
        certain = error is None and self._members.round == expiration.round
        over: list[list[Subscription]] = result if error is None else [records for records, _, _ in expiration.ends]
        doubtful: dict[str, None] = {}
        for records in over:
            for topic, client, filter, *_ in records:
                if not certain or client not in expiration.clients:
                    doubtful[topic] = None  # the client may have subscribed again meanwhile, so ask the store
                elif filter is None:
                    self._routes.change(client, (topic,), False)
                else:
                    self._filtering.change(client, (topic,), filter, False, False)
        self._doubtful.update(dict.fromkeys(self._routes.doubt(doubtful)))
        if self._presence is not None:
            self._tell(self._presence, _left(expiration.held, over), certain)
        if error is None:
            self._desk.counts["subscriptions_ended"] += sum(map(len, over))
            for records, _, has_gone in expiration.ends:
                if has_gone:  # a client that uses a new id each time never comes back
                    self._locations.forget(records[0].client)
        for client in expiration.clients:
            self._writing.release(client)
        self._writes.end(expiration)
        if not self._is_outdated():
            self._go_on()

    @staticmethod
    def _tell(presence: Presence, left: list[tuple[str, str]], certain: bool) -> None:
        if not certain:
            presence.lose(len(left))
            return
        for client, topic in left:
            presence.tell(client, (topic,), False)


def _has_listened(known: Away, location: Location | None, now: float) -> bool:
    """Return whether an absent client has listened since this endpoint found it away. The store keeps a location for a
    while and then forgets it. If the location is missing soon after the client was last found away, this does not show
    that the client has listened."""
    if location is None and now - known[2] < KEPT_S:
        return False
    return location != known[0]


def _left(held: Held, over: Iterable[list[Subscription]]) -> list[tuple[str, str]]:
    """Return the pairs of a client and a topic where all of the client's subscriptions have ended."""
    gone = {(client, topic, filter) for records in over for topic, client, filter, *_ in records}
    return [
        (client, topic)
        for (client, topic), had in held.items()
        if had and all((client, topic, one.filter) in gone for one in had)
    ]
