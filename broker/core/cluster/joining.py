"""Joining, staying and leaving: the endpoint's signs of life, and its reactions when the cluster changes.

Owns: the timing of heartbeats, registry reads and pings, the claim of this endpoint's name, and the handshakes for
``membership``. Must never: decide which peers are alive (``membership`` does).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ..desk import Desk
from ..effects import Gone, Joined, Stop
from ..links.calls import Call
from ..links.requests import JoinRequest, LeaveRequest, PrepareRequest, Request
from ..metrics import Metric, gauge, gauges
from ..model import Endpoint, Introduction, StoreLost, Superseded
from ..part import Part, RequestHandler
from .membership import DEAD_AFTER_S, Membership
from .mesh import Mesh
from .observers import ClusterObservers
from .replicas import Replicas
from .underway import UnderWay

#: Interval of heartbeats, registry reads and pings, in seconds. It gives five signs of life in each lease.
PERIOD_S: Final = 0.5

#: How long peers can take to replicate a newcomer's future slots to it, in seconds. After that, the newcomer joins
#: without these replicas.
PREPARE_S: Final = 30.0

#: A newcomer asks a prepared peer again after this many seconds.
AGAIN_S: Final = 1.0

#: If two endpoints begin to shut down at the same time, each learns within this many seconds that the other leaves,
#: too.
TOGETHER_S: Final = 0.5

#: The endpoint registered under our name counts as alive if its heartbeat changes within this many seconds. The name
#: becomes free when every endpoint would consider that endpoint dead (ADR 15).
NAME_QUIET_S: Final = DEAD_AFTER_S

#: The heartbeat must change this many times before that endpoint counts as alive, because a dead endpoint's last write
#: can take effect late and change the heartbeat once.
NAME_MOVES: Final = 2


class Joining(Part):
    """One endpoint's part in the cluster."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        mesh: Mesh,
        replicas: Replicas,
        writes: UnderWay,
        transfers: UnderWay,
        observers: ClusterObservers,
        idle: Callable[[], bool],
        *,
        alone_at_url: bool,
    ) -> None:
        """Make the part.

        Args:
            desk: The services of the endpoint.
            members: This endpoint's knowledge of the cluster.
            mesh: The links to the peers.
            replicas: The replicas that this endpoint sends.
            writes: Writes that must end before a newcomer acts for slots that were ours.
            transfers: Slot transfers that must also end before a newcomer acts.
            observers: The observers of changes in the cluster.
            idle: Returns whether no work is in progress here.
            alone_at_url: Whether an endpoint that is registered at our URL, under our name, is certainly dead.
        """
        self._desk = desk
        self._me = members.me
        self._members = members
        self._mesh = mesh
        self._replicas = replicas
        self._writes = writes
        self._transfers = transfers
        self._observers = observers
        self._idle = idle
        self._alone_at_url = alone_at_url
        self._version = 0  # the version of the homes last reported to the observers
        self.stopping: str | None = None  # the reason why this process must end
        self._named = False  # we may register the name
        self._looking = False
        self._holder: Endpoint | None = None  # the endpoint that last had the name
        self._holder_seen_at = desk.now  # when its registry entry was first seen in its present form
        self._holder_moves = 0
        self._beat = 0
        self._due = desk.now
        self._registered = False
        self._writing = False
        self._reading = False
        self._asked: dict[str, int] = {}  # peer -> the round in which we asked it for a welcome
        self._preparing_round = 0
        self._prepare_until = desk.now
        self._preparing: dict[str, float] = {}  # peers asked to prepare -> when they answered (infinity if not yet)
        self._prepared_peers: set[str] = set()  # peers that have prepared in this round
        self._joined = False
        self._told: set[str] = set()  # peers that we have told that we leave
        self._announced = False  # whether we have told all peers
        self._departing = False
        self._leaving_since = math.inf
        self._deregistering = self._deregistered = False
        self._cleaning: set[str] = set()

    def requests(self) -> dict[type[Request], RequestHandler]:
        """The requests of peers that join or leave."""
        return {JoinRequest: self.join_requested, LeaveRequest: self.leave_announced}

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted("joins", "Times that all other endpoints accepted this endpoint"),
            self._desk.counted(
                "leases_lapsed",
                "Times that this endpoint stopped acting as home because its heartbeats and pings failed",
            ),
            self._desk.counted("endpoints_gone", "Peers that died, left, or were superseded"),
            gauge("joined", "1 while this endpoint acts as home of its slots", self._members.joined),
            gauge(
                "settings_differ",
                "Other endpoints whose cluster settings differ from ours",
                len(self._members.differing()),
            ),
            gauges(
                "peer_up",
                "For each other endpoint: 1 if it has a link to this endpoint and is in the view, else 0",
                ("name", "url"),
                [
                    ((peer.endpoint.name, peer.endpoint.url), float(peer.in_view and peer.connected))
                    for peer in self._members.peers.values()
                    if peer.dead_since is None
                ],
            ),
        ]

    @property
    def left(self) -> bool:
        """Return whether the process can end: all peers know that we leave, and no work is in progress."""
        return self._announced and self._deregistered and self._idle()

    @property
    def name_awaited(self) -> bool:
        """Return whether another endpoint held our name until recently, and may still be alive."""
        return not self._named and self._holder is not None

    @property
    def half_in(self) -> bool:
        """Return whether this endpoint has asked to join and still lacks a welcome. If so, no other endpoint acts for
        its slots."""
        members = self._members
        return not members.joined and members.round in self._asked.values()

    @property
    def transferred(self) -> bool:
        """Return whether all peers know that we leave, and have received the state of our slots."""
        return self._announced and not self._transfers

    def tick(self) -> None:
        """Send the heartbeats and pings that are due."""
        if self._desk.now >= self._due:
            self._due = self._desk.now + PERIOD_S
            self._heartbeat()
            self._mesh.ping()
        if self._members.leaving:
            self.go_on_leaving()
        self.join()

    def lease_lapsed(self) -> None:
        """Stop acting as home until all peers have welcomed us again."""
        self._desk.counts["leases_lapsed"] += 1
        self._observers.lapsed()

    def _tell_view(self) -> None:
        if self._members.version != self._version:
            self._version = self._members.version
            self._observers.view_changed()
            self._mesh.ask_again()

    def _stop(self, why: str) -> None:
        self.stopping = why
        self._desk.emit(Stop(why))

    def _heartbeat(self) -> None:
        if self._departing:
            return
        if not self._named:
            if not self._looking and self.stopping is None:
                self._looking = True
                self._desk.store("endpoints", (), self._looked, self._desk.now)
            return
        if not self._writing:
            self._writing = True
            self._beat += 1
            me = self._me._replace(heartbeat=self._beat)
            operation = "heartbeat" if self._registered else "register"
            self._desk.store(operation, (me,), self._written, self._desk.now)
        if self._registered and not self._reading:
            self._reading = True
            self._desk.store("endpoints", (), self._read, self._desk.now)

    def _written(self, begun_at: float, result: Any, error: Exception | None) -> None:
        self._writing = False
        if error is None:
            self._members.heartbeat_written(begun_at)
            if not self._registered:
                # From now on, our registry reads return every endpoint that registered before us, and endpoints that
                # register later will see us.
                self._registered = True
                self._due = self._desk.now
        elif isinstance(error, Superseded | StoreLost):
            self._stop(str(error))

    def _looked(self, begun_at: float, result: Any, error: Exception | None) -> None:
        """Claim our name. If a live endpoint holds it, end this process, because otherwise the two endpoints would take
        the name from each other forever."""
        me = self._me
        self._looking = False
        if error is not None:
            return
        holder = next((entry for entry in result if entry.name == me.name), None)
        if holder is not None:
            self._members.departed += 1
        if holder is None or (self._alone_at_url and holder.url == me.url):
            self._named = True
        elif holder == self._holder:
            self._named = begun_at - self._holder_seen_at >= NAME_QUIET_S
        else:
            self._holder_moves += self._holder is not None
            self._holder, self._holder_seen_at = holder, self._desk.now
            if self._holder_moves >= NAME_MOVES:
                self._stop(
                    f"endpoint {me.name!r} is already running at {holder.url}; give every endpoint its own --name"
                )
        if self._named:
            self._heartbeat()

    def _read(self, begun_at: float, result: Any, error: Exception | None) -> None:
        self._reading = False
        if error is not None:
            return
        self._gone(self._members.registry(result, begun_at, self._desk.now))
        for endpoint in self._members.forgotten(self._desk.now):
            if endpoint.incarnation not in self._cleaning:
                self._cleaning.add(endpoint.incarnation)
                self._desk.store("deregister", (endpoint,), self._cleaned, endpoint.incarnation)
        self.join()

    def _cleaned(self, incarnation: str, result: Any, error: Exception | None) -> None:
        self._cleaning.discard(incarnation)

    def link_up(self, endpoint: Endpoint, introduction: Introduction) -> None:
        """Handle a new authenticated link to the peer. ``introduction``: the peer's grace time and settings."""
        self._gone(self._members.connected(endpoint, self._desk.now, introduction))
        if self._announced:  # we announced our leave before this peer existed
            self._tell_of_leaving(endpoint.incarnation)
        self._observers.linked()
        self.join()

    def _gone(self, endpoints: list[Endpoint]) -> None:
        """Remove these endpoints from the view, and redirect the calls to them.

        The view changes first, because a call to a dead home may be redirected to this endpoint, which knows what that
        home did with the call."""
        for endpoint in endpoints:
            self._desk.counts["endpoints_gone"] += 1
            self._desk.emit(Gone(endpoint))
            self._asked.pop(endpoint.incarnation, None)
        if endpoints:
            self._tell_view()
        for endpoint in endpoints:
            self._mesh.gone(endpoint.incarnation)

    def join(self) -> None:
        """Ask each peer for a welcome, unless it has welcomed us in this round already."""
        members = self._members
        members.consider()
        if members.joined != self._joined:
            self._joined = members.joined
            if members.joined:
                self._desk.counts["joins"] += 1
                self._observers.joined()
                self._desk.emit(Joined())
            self._tell_view()
        unwelcomed = members.unwelcomed()
        if unwelcomed and not self._prepared(unwelcomed):
            return
        for peer in unwelcomed:
            if self._asked.get(peer) != members.round and members.peers[peer].connected:
                self._asked[peer] = members.round
                members.peers[peer].asked_at = self._desk.now
                self._desk.ask(peer, JoinRequest(members.round), self, members.round)

    def _prepared(self, peers: list[str]) -> bool:
        """Return whether these peers have replicated to us the slots that they will release.

        The peers act for these slots meanwhile. As soon as we ask to join, no endpoint acts for them until all peers
        have welcomed us. So we first wait until all peers have prepared, up to ``PREPARE_S``."""
        members = self._members
        if self._preparing_round != members.round:
            self._preparing_round = members.round
            self._prepared_peers.clear()
            self._preparing.clear()
            self._prepare_until = self._desk.now + PREPARE_S
        if self._desk.now >= self._prepare_until:
            return True
        everyone = True
        for peer in peers:
            if self._asked.get(peer) == members.round:
                continue
            is_prepared = peer in self._prepared_peers
            everyone = everyone and is_prepared
            # Keep asking a prepared peer while other peers are not ready, because that peer keeps its replica up to
            # date only while we ask.
            again_at = self._preparing.get(peer, -math.inf) + (AGAIN_S if is_prepared else 0.0)
            if members.peers[peer].settings is not None and self._desk.now >= again_at:
                self._preparing[peer] = math.inf
                self._desk.ask(peer, PrepareRequest(), self, (peer, members.round))
        return everyone

    def join_requested(self, peer: str, number: int, request: JoinRequest) -> None:
        """Handle a peer's request to join. The peer owns its slots from here on. Welcome the peer as soon as no write
        for these slots is in progress."""
        if peer not in self._members.peers:
            self._desk.decline(peer, number, "peer_unavailable", "This endpoint does not know yours yet; ask again")
            return
        missed = self._members.joined_by(peer, request.round, self._replicas.first_to(peer))
        self._tell_view()
        welcome = partial(self._welcome, peer, number, missed)
        # If we are leaving, we gave some of the newcomer's slots to other endpoints, which pass these slots on to the
        # newcomer.
        to = None if self._members.leaving else peer
        self._writes.after(partial(self._transfers.after, welcome, to))

    def _welcome(self, peer: str, number: int, missed: int) -> None:
        self._observers.greet(peer)
        self._desk.answer(peer, number, missed)
        if missed:
            self._observers.peer_reset(peer)

    def answered(self, call: Call, value: Any) -> None:
        """Handle an answer: the peer has welcomed us, has prepared for us, or knows that we leave."""
        if isinstance(call.request, JoinRequest):
            if value:
                self._observers.peer_missed(call.target, value)
            self._members.welcomed_by(call.target, call.context)
            self.join()
        elif isinstance(call.request, PrepareRequest):
            peer, round = call.context
            self._preparing[peer] = self._desk.now
            if not value:
                self._prepared_peers.discard(peer)
            if value and round == self._members.round:
                self._prepared_peers.add(peer)
                self.join()

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Handle a refusal or a missing answer: ask again while the peer is alive."""
        if isinstance(call.request, LeaveRequest) and not self._deregistering:
            self._desk.ask(call.target, LeaveRequest(), self)
        elif isinstance(call.request, PrepareRequest):
            self._preparing.pop(call.context[0], None)
            self._prepared_peers.discard(call.context[0])
        elif isinstance(call.request, JoinRequest):
            self._asked.pop(call.target, None)
            self._observers.peer_missed(call.target, None)  # a lost answer may have said that we missed something

    def lost(self, call: Call) -> str | None:
        """Stop waiting for a peer that is gone. It gets no more requests."""
        if isinstance(call.request, PrepareRequest):
            self._preparing.pop(call.context[0], None)
        return None

    # Leaving

    def leave(self) -> None:
        """Begin to leave: stop being a home, transfer our state, and tell all peers. Continue to serve the clients
        here."""
        self._leaving_since = self._desk.now
        self._members.leave()
        self._tell_view()

    def depart(self) -> None:
        """Handle the departure of the last clients. Finish all work, then leave the registry."""
        self._departing = True

    def go_on_leaving(self) -> None:
        """When our writes have ended, announce that we leave. When our clients are gone, leave the registry."""
        # Our writes end first, because the next home must not read a set of subscribers that our writes have yet to
        # change. Then the slots are transferred, and each new home gets our announcement when it has its replicas.
        # During the first ``TOGETHER_S`` seconds we wait for all replicas, because a peer that is leaving as well
        # declines its replica, and another peer gets that replica.
        if not self._writes and (not self._transfers or self._desk.now >= self._leaving_since + TOGETHER_S):
            for peer, known in self._members.peers.items():
                # Tell newcomers as well, because otherwise they would pass their slots on to us.
                if (known.in_view or known.connected) and not self._transfers.waits(peer):
                    self._tell_of_leaving(peer)
            self._announced = self._told.issuperset(self._members.view())
        if self._announced and self._departing and not self._deregistering and not self._writing and not self._writes:
            self._deregistering = True
            self._retire()
            self._desk.store("deregister", (self._me,), self._out, None)

    def _retire(self) -> None:
        """Stop acting as a home. An endpoint that starts from now on does not know us. If we are the only endpoint, we
        were home of all slots until this point."""
        if self._members.joined:
            self._members.joined = self._joined = False
            self._observers.lapsed()

    def _tell_of_leaving(self, peer: str) -> None:
        if peer not in self._told:
            self._told.add(peer)
            self._desk.ask(peer, LeaveRequest(), self)

    def _out(self, context: Any, result: Any, error: Exception | None) -> None:
        self._deregistered = True  # if this failed, our registry entry stays, and the others will consider us dead

    def leave_announced(self, peer: str, number: int, request: LeaveRequest) -> None:
        """Handle a peer's announcement that it leaves. The peer is no longer a home, but still answers calls and serves
        its clients to the end."""
        self.peer_leaving(peer)
        self._desk.answer(peer, number)

    def informed(self) -> None:
        """Try to join, because this endpoint may be able to act now."""
        self.join()

    def peer_leaving(self, peer: str) -> None:
        """Handle a peer that leaves. It has announced its leave, or has declined a request because it is leaving."""
        self._members.leaves(peer)
        self._tell_view()

    def link_down(self, incarnation: str) -> None:
        """Handle the end of the peer's connection. If the peer was leaving, it has left now."""
        members = self._members
        members.disconnected(incarnation)
        peer = members.peers.get(incarnation)
        if peer is not None and peer.yields:
            endpoint = members.left(incarnation)
            self._gone([endpoint] if endpoint is not None else [])
