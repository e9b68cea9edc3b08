"""The end of a turn, when the effects of all its events leave in one batch.

Owns: the order in which the parts are called at the end of a turn. Must never: decide anything, or create a part.
"""

from __future__ import annotations

from ingeborg.protocol.native import mypyc_attr

from .effects import Effects, StoreCall
from .layers import Layers
from .part import Bound


@mypyc_attr(allow_interpreted_subclasses=True)
class Turns:
    """One endpoint's turns. ``bound``: the commands, requests and hooks of all parts."""

    def __init__(self, layers: Layers, bound: Bound) -> None:
        base, cluster, outgoing = layers.base, layers.cluster, layers.outgoing
        messages, clients = layers.messages, layers.clients
        self.counters, self.calls, self.stores = base.counters, base.calls, base.stores
        self.members, self.joining, self.mesh = cluster.members, cluster.joining, cluster.mesh
        self.hub, self.memory, self.sessions = outgoing.hub, outgoing.memory, clients.sessions
        self.inflight = base.inflight
        self._desk, self._jobs, self._acts = base.desk, base.jobs, base.acts
        self._sending, self._keepalive, self._leaving = outgoing.sending, clients.keepalive, clients.leaving
        self._delivery, self._fanout, self._home = messages.delivery, messages.fanout, messages.home
        self._outcomes, self._origin = messages.outcomes, messages.origin
        self._holding = layers.bounds.holding
        self._ticks, self._flushes, self._closed = bound.ticks, bound.flushes, bound.closed

    def _at(self, now: float) -> None:
        """Set the time to ``now``. Every event begins with this call, because an endpoint whose lease has lapsed must
        no longer act as a home."""
        self._desk.now = now
        if now >= self.members.holds_until and self.members.lapsed(now):
            self.joining.lease_lapsed()

    def asks(self, now: float) -> list[StoreCall]:
        """Return the store calls that this turn's messages need.

        A shell may call this method if its store answers some calls without waiting. The shell passes these answers to
        ``stored`` before it ends the turn, so that no further turn is needed, and calls ``asks`` again. The shell makes
        the remaining calls in the same way as those that ``flush`` returns. If it never calls ``asks``, ``flush``
        returns all calls.

        Args:
            now: monotonic seconds.
        """
        self._at(now)
        self._bring_back()
        self._home.ask()
        return self.stores.take() if self.stores.made else []

    def flush(self, now: float) -> Effects:
        """End the turn.

        Args:
            now: monotonic seconds.

        Returns:
            Everything decided since the last call, to be carried out now.
        """
        self._at(now)
        sessions, sending, mesh = self.sessions, self._sending, self.mesh
        self._bring_back()
        if self._leaving.under_way:
            self._leaving.go_on()
        if sessions.ready or sessions.holding:
            sessions.go_on()
            self._bring_back()
        if sending.closing:
            self._unbind_closed()
        for flush in self._flushes:
            flush()
        if self._home.has_waited:  # a part's flush has let messages continue, which can give the other parts more to do
            self._bring_back()
            for flush in self._flushes:
                flush()
        holding = self._holding
        if holding.receivers:
            holding.release_due()
        if self.memory.full:
            sessions.let_go()
        if sending.closing:  # connections whose outbox has just become too full
            self._unbind_closed()
        write = sending.write() if sending.dirty else []
        store = self.stores.take() if self.stores.made else []
        links = mesh.take() if self.calls.due or mesh.due else []
        acts, self._acts[:] = self._acts[:], []
        more = bool(self._jobs or sessions.ready or sending.dirty or self._home.has_waited)
        if holding.receivers:
            return Effects(store, links, write, acts, more or bool(holding.going), holding.wake_at)
        return Effects(store, links, write, acts, more)

    def _bring_back(self) -> None:
        """Give the outcomes of messages to the earlier stages of their path, beginning with the last stage."""
        delivery, fanout = self._delivery, self._fanout
        if delivery.delivered or delivery.broadcasts:
            delivery.take_delivered()
        if fanout.delivered or fanout.broadcasts:
            fanout.take_delivered()
        self._home.take_back()
        if self._outcomes.due:
            self._origin.take_outcomes()

    def _unbind_closed(self) -> None:
        closing, self._sending.closing = self._sending.closing, []
        for connection in closing:
            for closed in self._closed:
                closed(connection)
