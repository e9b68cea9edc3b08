"""Which endpoints are alive, which endpoint is home of each slot, and whether this endpoint can act as a home right
now.

Owns: the known peers, the view (which determines the home of each slot), the join round and the lease. Must never: read
a clock, or talk to a peer or a store (callers report events and their times).

The invariant, and why it holds (ADR 0004): **no two endpoints act as home of one slot at the same time.**

* An endpoint enters the view of an acting endpoint only by joining. The newcomer asks every endpoint that it knows, and
  acts when all have welcomed it. An endpoint welcomes the newcomer only after releasing the slots that move to it. So
  the newcomer acts only after the old home has stopped.
* A peer leaves the view when it announces that it leaves, when a newer incarnation registers its name, or when it is
  dead. A peer is dead if its link has been silent *and* its heartbeat has not changed for ``DEAD_AFTER_S``. The peer
  has stopped acting before that, because its lease is shorter. An endpoint acts only if, within the last ``LEASE_S``,
  its own heartbeat was written or every known peer confirmed a message from it. An endpoint whose lease has lapsed
  drops its caches and joins again.

While an endpoint cannot read the registry, it declares no peer dead. The view then stays as it is, and the
confirmations on the links keep the lease alive. So endpoints can route messages of cached topics while the whole store
is down.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..limits import PATIENCE, Patience
from ..model import NO_INTRODUCTION, NO_SETTINGS, Endpoint, Introduction, Settings
from .homes import Homes, home_table
from .peer import Peer

DEAD_AFTER_S: Final = PATIENCE.dead_after_s

LEASE_S: Final = PATIENCE.lease_s

#: Seconds after a peer's death until its registry entry is removed. A peer may still wake up from any shorter stall.
FORGET_AFTER_S: Final = 15.0

#: Maximum number of incarnations to remember as gone for good. A late registry read or a late connection may still name
#: these incarnations.
WRITTEN_OFF_MAX: Final = 1_000


class Membership(Homes):
    """One endpoint's knowledge of the cluster. This class does not update ``me.heartbeat``.

    Args:
        me: This endpoint.
        now: The time, in monotonic seconds.
        patience: The lease, and the silence after which a peer counts as dead.
        grace_s: This endpoint's own grace period for subscriptions that end at disconnect, in seconds.
        settings: The cluster settings that this endpoint follows.
    """

    def __init__(
        self,
        me: Endpoint,
        now: float,
        patience: Patience = PATIENCE,
        grace_s: float = 60.0,
        settings: Settings = NO_SETTINGS,
    ) -> None:
        super().__init__(me.incarnation)
        self.me = me
        self.patience = patience
        self.introduction = Introduction(grace_s, settings)
        self._lease_s = patience.lease_s
        self.peers: dict[str, Peer] = {}  # indexed by incarnation, without this endpoint
        self.leaving = False
        #: The number of endpoints that were in the view and no longer act, whether they announced that or not. An
        #: earlier incarnation of this endpoint is included.
        self.departed = 0
        #: The number of times that this process has stalled for longer than a lease.
        self.stalls = 0
        self._round_began = now
        #: The replicas that peers are passing on to this endpoint, by peer and number. Each value is the time until
        #: which this endpoint waits for that replica before it acts.
        self.awaited: dict[tuple[str, int], float] = {}
        #: Whether the journal has reported its greatest stamp. True from the start if this endpoint writes no journal.
        self.informed = True
        self._read = False  # the registry was read after this round began, within the time of a lease
        self._read_at = float("-inf")  # when the last registry read began
        self._written_at = float("-inf")  # when the write of the last successful heartbeat began
        self._ticked_at = now
        #: The lease cannot lapse before this time, so callers need not call ``lapsed`` earlier.
        self.holds_until = float("-inf")
        self._unheard: dict[str, None] = {}  # superseded incarnations that kept running after their link fell silent
        self._written_off: dict[str, None] = {}  # superseded incarnations, and those that announced their leave
        self._members: frozenset[tuple[str, str]] = frozenset()  # the basis of ``table``
        #: The peers that, since they last joined, have been in the view whenever this endpoint acted. ``None`` if this
        #: endpoint has never acted.
        self._present: set[str] | None = None

    # Events

    def registry(self, entries: Iterable[Endpoint], begun_at: float, now: float) -> list[Endpoint]:
        """Decide which peers are alive, from the result of a registry read.

        Args:
            entries: The registry's entries.
            begun_at: When the read began, in monotonic seconds.
            now: When the read returned.

        Returns:
            The endpoints that this read removed from the view, because they are dead or superseded.
        """
        gone: list[Endpoint] = []
        self._read_at = begun_at
        self._read = begun_at >= self._round_began and now - begun_at < self._lease_s
        for peer in self.peers.values():
            peer.in_registry = False
        for entry in entries:
            if entry.name == self.me.name or entry.incarnation in self._written_off:
                continue
            gone += self._supersede(entry)
            peer_or_none = self.peers.get(entry.incarnation)
            if peer_or_none is None:
                self.peers[entry.incarnation] = peer_or_none = Peer(entry, now)
            elif peer_or_none.endpoint.heartbeat != entry.heartbeat:
                peer_or_none.moved_at = now
                peer_or_none.endpoint = entry
            peer_or_none.in_registry = True
        for peer in list(self.peers.values()):
            peer.judge(begun_at, now, self.patience.dead_after_s)
            if peer.dead_since is not None:
                if peer.in_view:
                    gone.append(peer.endpoint)
                    self.departed += not peer.yields
                peer.in_view = False
                if not peer.in_registry:
                    del self.peers[peer.endpoint.incarnation]
            elif not (self.joined or self.leaving):
                peer.in_view = True
        self._changed()
        return gone

    def heartbeat_written(self, begun_at: float) -> None:
        """Record that our heartbeat is in the store. ``begun_at``: when its write began."""
        self._written_at = max(self._written_at, begun_at)

    def inform(self) -> None:
        """Record that the journal has reported its greatest stamp."""
        self.informed = True
        self._changed()

    def connected(self, endpoint: Endpoint, now: float, introduction: Introduction = NO_INTRODUCTION) -> list[Endpoint]:
        """Record an authenticated link to the peer, and the peer's introduction. Return the endpoints that the peer
        supersedes."""
        if endpoint.incarnation in self._written_off:
            return []
        gone = self._supersede(endpoint)
        peer = self.peers.get(endpoint.incarnation)
        if peer is None:
            self.peers[endpoint.incarnation] = peer = Peer(endpoint, now)
        peer.connected = True
        peer.grace_s, peer.settings = introduction
        peer.heard_at = now
        if not (self.joined or self.leaving):
            peer.in_view = True
        self._changed()
        return gone

    def disconnected(self, incarnation: str) -> None:
        """Record that the link to the peer is down."""
        peer = self.peers.get(incarnation)
        if peer is not None:
            peer.connected = False

    def heard(self, incarnation: str, now: float) -> None:
        """Record that something came over the peer's link."""
        peer = self.peers.get(incarnation)
        if peer is not None:
            peer.heard_at = now

    def confirmed(self, incarnation: str, sent_at: float) -> None:
        """Record that the peer confirmed the receipt of a frame that we sent at ``sent_at``."""
        peer = self.peers.get(incarnation)
        if peer is not None:
            peer.confirmed_at = max(peer.confirmed_at, sent_at)

    def joined_by(self, incarnation: str, round: int, replica: int) -> int:
        """Take the peer into our view as it joins.

        This endpoint may have acted without the peer since the peer last joined. If so, the peer's state of slots may
        be outdated. All requests from the same round of the peer get the same answer, because an answer may be lost. In
        its first round a peer has no state that could be outdated.

        Args:
            incarnation: The joining peer.
            round: The peer's round of joining.
            replica: The number of our first replica to the peer that is not outdated.

        Returns:
            ``replica`` if the peer has missed something, else 0.
        """
        peer = self.peers.get(incarnation)
        if peer is None:
            return 0
        if self._present is not None and incarnation not in self._present:
            peer.missed_round, peer.void_before = round if round > 1 else 0, replica
            self._present.add(incarnation)
        peer.in_view = True
        self._changed()
        return peer.void_before if peer.missed_round == round else 0

    def welcomed_by(self, incarnation: str, round: int) -> None:
        """Record that the peer has us in its view and has released our slots."""
        peer = self.peers.get(incarnation)
        if peer is not None:
            peer.welcomed = max(peer.welcomed, round)
            self._changed()

    def leaves(self, incarnation: str) -> None:
        """Record that the peer is leaving. It has released its slots, but its link still works."""
        peer = self.peers.get(incarnation)
        if peer is not None:
            self.departed += peer.in_view and not peer.yields
            peer.yields = True
            self._changed()

    def left(self, incarnation: str) -> Endpoint | None:
        """Remove the peer that left. Return it if it was in the view."""
        self._write_off(incarnation)
        peer = self.peers.pop(incarnation, None)
        if peer is None:
            return None
        self._changed()
        return peer.endpoint if peer.in_view else None

    def leave(self) -> None:
        """Give our slots to the other endpoints. If no other endpoint stays, we remain the home of all slots to the
        end."""
        self.leaving = True
        self.joined = self.joined and not any(peer.in_view and not peer.yields for peer in self.peers.values())
        self._changed()

    def tick(self, now: float) -> None:
        """Count this process's stalls. Callers call this method at least four times in each lease, after ``lapsed``."""
        self.stalls += now - self._ticked_at > self._lease_s
        self._ticked_at = now

    def lapsed(self, now: float) -> bool:
        """Return whether the lease has just lapsed. If so, begin a new round. Callers check this before all other work
        at ``now``.

        While this endpoint joins, each welcome is a separate lease, because the peer that gave the welcome may
        consider us dead later.
        """
        if self.joined:
            if self._lease(now):
                self.holds_until = min(self._ticked_at, self._written_at) + self._lease_s
                return False
        elif all(peer.welcomed < self.round or self._welcome_holds(peer, now) for peer in self.peers.values()):
            if now - self._read_at >= self._lease_s:
                self._read = False  # an endpoint that has registered meanwhile may consider us dead
            return False
        self.joined = False
        self.holds_until = float("-inf")
        self.round += 1
        self._round_began = now
        self._read = False
        return True

    # Conclusions

    @property
    def grace_s(self) -> float:
        """How long subscriptions that end at disconnect stay after their client has disconnected, in seconds. This is
        the shortest grace period in the view.

        So all homes of a topic use the same time, and a crash never shortens it."""
        return min([self.introduction.grace_s, *(peer.grace_s for peer in self.peers.values() if peer.in_view)])

    def store_fresh(self, now: float, age_s: float) -> bool:
        """Return whether a heartbeat was written within the last ``age_s`` seconds."""
        return now - self._written_at < age_s

    def view(self) -> list[str]:
        """The incarnations of all participating peers, without this endpoint."""
        return [incarnation for incarnation, peer in self.peers.items() if peer.in_view]

    def yields(self, incarnation: str) -> bool:
        """Return whether this peer has announced that it leaves."""
        peer = self.peers.get(incarnation)
        return peer is not None and peer.yields

    def stays(self, incarnation: str) -> bool:
        """Return whether this peer participates and has not announced that it leaves."""
        peer = self.peers.get(incarnation)
        return peer is not None and peer.in_view and not peer.yields

    def linked(self) -> set[str]:
        """The peers that have had a link to us."""
        return {incarnation for incarnation, peer in self.peers.items() if peer.settings is not None}

    def in_view(self, incarnation: str) -> bool:
        """Return whether the endpoint participates. This is true for this endpoint itself."""
        peer = self.peers.get(incarnation)
        return peer.in_view if peer is not None else incarnation == self.me.incarnation

    def unwelcomed(self) -> list[str]:
        """The peers that have not welcomed us in this round of joining yet."""
        if self.joined or self.leaving:
            return []
        return [incarnation for incarnation, peer in self.peers.items() if peer.in_view and peer.welcomed < self.round]

    @property
    def keep_messages(self) -> bool:
        """Return whether any live endpoint keeps messages."""
        return self.introduction.settings.history != "off" or any(
            peer.dead_since is None and peer.settings is not None and peer.settings.history != "off"
            for peer in self.peers.values()
        )

    def differing(self) -> list[str]:
        """Names of the other live endpoints whose cluster settings differ from ours, for example because they have not
        been restarted yet. Until all settings are equal, the weaker promise applies."""
        own = self.introduction.settings
        return sorted(
            peer.endpoint.name
            for peer in self.peers.values()
            if peer.dead_since is None and peer.settings is not None and peer.settings != own
        )

    def went_on_unheard(self, incarnation: str) -> bool:
        """Return whether this peer, now gone, was alive for a while after we last heard from it."""
        peer = self.peers.get(incarnation)
        return incarnation in self._unheard if peer is None else peer.went_on_unheard

    def table_with(self, newcomers: Iterable[str]) -> list[str]:
        """Return the table of homes as it would be if these known peers were in the view as well."""
        known = {(p.endpoint.name, p.endpoint.incarnation) for i in newcomers if (p := self.peers.get(i)) is not None}
        return home_table(self._members | known)

    def table_without(self, incarnation: str) -> list[str]:
        """Return the table of homes as it would be without this one endpoint of the view. If the view has no other
        endpoint, the table stays as it is."""
        others = {member for member in self._members if member[1] != incarnation}
        return home_table(others or self._members)

    def table_without_me(self) -> list[str]:
        """Return the table of homes as it would be without this endpoint itself."""
        return self.table_without(self.me.incarnation)

    def forgotten(self, now: float) -> list[Endpoint]:
        """The registry entries of peers that have been dead long enough for removal."""
        return [
            peer.endpoint
            for peer in self.peers.values()
            if peer.in_registry and peer.dead_since is not None and now - peer.dead_since >= FORGET_AFTER_S
        ]

    def _supersede(self, newer: Endpoint) -> list[Endpoint]:
        older = [
            peer
            for peer in self.peers.values()
            if peer.endpoint.name == newer.name and peer.endpoint.incarnation != newer.incarnation
        ]
        for peer in older:
            if peer.went_on_unheard:
                self._unheard[peer.endpoint.incarnation] = None
                if len(self._unheard) > WRITTEN_OFF_MAX:
                    del self._unheard[next(iter(self._unheard))]
            self._write_off(peer.endpoint.incarnation)
            del self.peers[peer.endpoint.incarnation]
        self.departed += sum(peer.in_view and not peer.yields for peer in older)
        return [peer.endpoint for peer in older if peer.in_view]

    def _write_off(self, incarnation: str) -> None:
        self._written_off[incarnation] = None
        if len(self._written_off) > WRITTEN_OFF_MAX:
            del self._written_off[next(iter(self._written_off))]

    def _welcome_holds(self, peer: Peer, now: float) -> bool:
        sign_of_life = max(peer.asked_at, peer.confirmed_at, self._written_at)
        return now - sign_of_life < self._lease_s and now - self._ticked_at <= self._lease_s

    def _lease(self, now: float) -> bool:
        if now - self._ticked_at > self._lease_s:  # this process was stalled, so all its knowledge is outdated
            return False
        return now - self._written_at < self._lease_s or all(
            now - peer.confirmed_at < self._lease_s for peer in self.peers.values()
        )

    def consider(self) -> None:
        """Check again whether this endpoint can act."""
        if not self.joined:
            self._changed()

    def _awaits(self) -> bool:
        """Return whether a peer is currently passing on slots to this endpoint. No other endpoint acts for these slots
        meanwhile."""
        return any(until > self._ticked_at and self.in_view(peer) for (peer, _), until in self.awaited.items())

    def _changed(self) -> None:
        if not self.joined and not self.leaving and self._read and self.informed and not self.unwelcomed():
            self.joined = not self._awaits()
        if self.joined:
            view = self.view()
            self._present = set(view) if self._present is None else self._present.intersection(view)
        members = [(p.endpoint.name, p.endpoint.incarnation) for p in self.peers.values() if p.in_view and not p.yields]
        if not self.leaving or not members:
            members.append((self.me.name, self.me.incarnation))
        key = frozenset(members)
        if key != self._members:
            self._members = key
            self.table = home_table(members)
            self.only_home = self.table[0] if len(set(self.table)) == 1 else None
            self.version += 1
