"""Joining, staying and leaving: the signs of life an endpoint gives, and what changes when the cluster does.

Owns: the rhythm of heartbeats, registry reads and pings, the taking of our name, and the handshakes of ``membership``.
Must never: decide who of the others is alive (``membership`` does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .calls import Call, Kind
from .membership import DEAD_AFTER_S
from .model import Endpoint, StoreLost, Superseded

if TYPE_CHECKING:
    from .router import Router
    from .subscribing import Write

#: Heartbeat, registry read and ping come this often, in seconds: five signs of life in a lease.
PERIOD_S = 0.5

#: Whoever is registered under our name is alive if its heartbeat moves within so many seconds: where everybody takes it
#: for dead its name is free (ADR 15).
NAME_QUIET_S = DEAD_AFTER_S

#: It has to move so often: once it also does by the last write of one that has died, which took effect late.
NAME_MOVES = 2


class Joining:
    """One endpoint's part in the cluster."""

    def __init__(self, router: Router, *, alone_at_url: bool) -> None:
        """``alone_at_url``: nobody else can be at our URL, so that who was registered there under our name is dead."""
        self._router = router
        self._me = router.me
        self._alone_at_url = alone_at_url
        self._named = False  # the name is ours to register
        self._looking = False
        self._holder: Endpoint | None = None  # who has the name, as last seen
        self._holder_seen_at = router.now  # first seen as it is
        self._holder_moves = 0
        self._beat = 0
        self._due = router.now
        self._registered = False
        self._writing = False
        self._reading = False
        self._asked: dict[str, int] = {}  # peer -> the round it was asked to welcome
        # Requests to answer (peer, number), each once these writes have ended and nothing is being handed on.
        self._welcomes: list[tuple[str, int, set[Write]]] = []
        self._pings: frozenset[str] = frozenset()
        self._joined = False
        self._announced = False
        self._departing = False
        self._deregistering = self._deregistered = False
        self._cleaning: set[str] = set()

    @property
    def left(self) -> bool:
        """Everybody has been told, and nothing is under way any more: the process may end."""
        router = self._router
        busy = router.busy or router.jobs or router.subscribing.under_way or len(router.calls)
        return self._announced and self._deregistered and not busy

    @property
    def name_awaited(self) -> bool:
        """Another endpoint has had our name until lately, and may still live."""
        return not self._named and self._holder is not None

    @property
    def handed_over(self) -> bool:
        """Everybody has been told that we leave, and has been given what was seen lately."""
        return self._announced and not self._router.publishing.handing.under_way

    def tick(self) -> None:
        """Signs of life when they are due."""
        router = self._router
        if router.now >= self._due:
            self._due = router.now + PERIOD_S
            self._heartbeat()
            self._pings = frozenset(router.calls.links)
        if router.members.leaving:
            self._leave()
        self._join()

    def lapsed(self) -> None:
        """The lease has lapsed: act for nobody until everybody has welcomed us again."""
        self._router.counts["leases_lapsed"] += 1
        self._router.publishing.lapsed()
        self._router.subscribing.lapsed()

    def pings(self) -> frozenset[str]:
        """The peers a ping is due to."""
        pings, self._pings = self._pings, frozenset()
        return pings

    def _heartbeat(self) -> None:
        router = self._router
        if self._departing:
            return
        if not self._named:
            if not self._looking and router.stopping is None:
                self._looking = True
                router.store("endpoints", (), self._looked, router.now)
            return
        if not self._writing:
            self._writing = True
            self._beat += 1
            me = self._me._replace(heartbeat=self._beat)
            operation = "heartbeat" if self._registered else "register"
            router.store(operation, (me,), self._written, router.now)
        if self._registered and not self._reading:
            self._reading = True
            router.store("endpoints", (), self._read, router.now)

    def _written(self, begun_at: float, result: Any, error: Exception | None) -> None:
        router = self._router
        self._writing = False
        if error is None:
            router.members.heartbeat_written(begun_at)
            if not self._registered:
                # Whoever registered before us is in what we read from now on, and reads us from now on.
                self._registered = True
                self._due = router.now
        elif isinstance(error, Superseded | StoreLost):
            router.stopping = str(error)

    def _looked(self, begun_at: float, result: Any, error: Exception | None) -> None:
        """Who has our name? One that lives keeps it, and we end: two that took it from each other would never stop."""
        router = self._router
        me = self._me
        self._looking = False
        if error is not None:
            return
        holder = next((entry for entry in result if entry.name == me.name), None)
        if holder is None or (self._alone_at_url and holder.url == me.url):
            self._named = True
        elif holder == self._holder:
            self._named = begun_at - self._holder_seen_at >= NAME_QUIET_S
        else:
            self._holder_moves += self._holder is not None
            self._holder, self._holder_seen_at = holder, router.now
            if self._holder_moves >= NAME_MOVES:
                router.stopping = (
                    f"endpoint {me.name!r} runs already, at {holder.url}; give every endpoint a --name of its own"
                )
        if self._named:
            self._heartbeat()

    def _read(self, begun_at: float, result: Any, error: Exception | None) -> None:
        router = self._router
        self._reading = False
        if error is not None:
            return
        self._gone(router.members.registry(result, begun_at, router.now))
        for endpoint in router.members.forgotten(router.now):
            if endpoint.incarnation not in self._cleaning:
                self._cleaning.add(endpoint.incarnation)
                router.store("deregister", (endpoint,), self._cleaned, endpoint.incarnation)
        self._join()

    def _cleaned(self, incarnation: str, result: Any, error: Exception | None) -> None:
        self._cleaning.discard(incarnation)

    def discovered(self) -> list[Endpoint]:
        """The peers there should be a link to."""
        return [peer.endpoint for peer in self._router.members.peers.values() if peer.dead_since is None]

    def link_up(self, endpoint: Endpoint) -> None:
        """An authenticated link to the peer."""
        self._gone(self._router.members.connected(endpoint, self._router.now))
        self._join()

    def _gone(self, endpoints: list[Endpoint]) -> None:
        """These are dead: whatever they were asked is asked elsewhere, in the view without them."""
        for endpoint in endpoints:
            self._router.counts["endpoints_gone"] += 1
            self._asked.pop(endpoint.incarnation, None)
            self._router.link_gone(endpoint.incarnation)
        if endpoints:
            self._router.publishing.view_changed()

    def _join(self) -> None:
        """Ask whoever has not welcomed us in this round."""
        router = self._router
        members = router.members
        if members.joined != self._joined:
            self._joined = members.joined
            if members.joined:
                router.counts["joins"] += 1
                router.publishing.joined()
                router.listening.joined()
            router.publishing.view_changed()
        for peer in members.unwelcomed():
            if self._asked.get(peer) != members.round and members.peers[peer].connected:
                self._asked[peer] = members.round
                members.peers[peer].asked_at = router.now
                router.ask(Kind.JOIN, peer, (members.round,), self, members.round)

    def join_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """The peer joins. Its slots are its own from here on; it is welcome once no write for them is under way."""
        router = self._router
        if peer not in router.members.peers:
            router.decline(peer, number, "peer_unavailable", "This endpoint does not know yours yet")
            return
        router.members.joined_by(peer)
        if self._announced:  # before it was there to hear it
            router.ask(Kind.LEAVE, peer, (), self, None)
        router.publishing.view_changed()
        self._welcomes.append((peer, number, set(router.subscribing.under_way)))
        self.welcome()

    def write_ended(self, write: Write) -> None:
        """A write to the store has ended; it may have been the last that a welcome waited for."""
        if self._welcomes:
            for _, _, writes in self._welcomes:
                writes.discard(write)
            self.welcome()

    def welcome(self) -> None:
        """Let those in whose slots we have let go of: no write for them under way, all that was seen handed on."""
        if self._router.publishing.handing.under_way:
            return
        for peer, number, _ in [welcome for welcome in self._welcomes if not welcome[2]]:
            self._router.answer(peer, number)
        self._welcomes = [welcome for welcome in self._welcomes if welcome[2]]

    def answered(self, call: Call, value: Any) -> None:
        """The peer welcomes us, or has taken note that we leave."""
        if call.kind == Kind.JOIN:
            self._router.members.welcomed_by(call.target, call.context)
            self._join()

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It did not answer; ask again while it is alive."""
        if call.kind == Kind.LEAVE:
            if not self._deregistering:
                self._router.ask(Kind.LEAVE, call.target, (), self, None)
        else:
            self._asked.pop(call.target, None)

    def lost(self, call: Call) -> None:
        """It is gone; nothing is wanted of it any more."""
        self._router.calls.settle(call)

    # Leaving

    def leave(self) -> None:
        """Begin to: be home of nothing any more, hand on what is known, tell everybody. Clients here are served on."""
        self._router.members.leave()
        self._router.publishing.view_changed()

    def depart(self) -> None:
        """Its clients are gone: finish what is under way, and be gone."""
        self._departing = True

    def _leave(self) -> None:
        router = self._router
        # Our writes first: who is home after us must not read a set that one of them is yet to change. Then the word,
        # before all else that is under way, since some of it is for the new homes, which know by it that they are.
        if not self._announced and not router.subscribing.under_way:
            self._announced = True
            for peer in router.members.view():
                router.ask(Kind.LEAVE, peer, (), self, None)
        if self._announced and self._departing and not self._deregistering and not self._writing:
            self._deregistering = True
            router.store("deregister", (self._me,), self._out, None)

    def _out(self, context: Any, result: Any, error: Exception | None) -> None:
        # Where it failed the entry stays, and the others find it dead.
        self._deregistered = True

    def leave_announced(self, peer: str, number: int, arguments: list[Any]) -> None:
        """The peer leaves. It is home of nothing from here on; its clients and its calls are there to the end."""
        self._router.members.leaves(peer)
        self._router.publishing.view_changed()
        self._router.answer(peer, number)

    def link_down(self, incarnation: str) -> None:
        """The peer's connection is gone; of one that leaves, that is the end."""
        members = self._router.members
        members.disconnected(incarnation)
        peer = members.peers.get(incarnation)
        if peer is not None and peer.yields:
            endpoint = members.left(incarnation)
            self._gone([endpoint] if endpoint is not None else [])
