"""The end of a turn: everything that its events have decided leaves in one batch.

Owns: the order in which the parts are asked. Must never: decide anything; ``Router`` has the parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ingeborg.protocol.native import mypyc_attr

from .clients.leaving import Leaving
from .clients.sessions import Sessions
from .cluster.joining import Joining
from .cluster.membership import Membership
from .cluster.mesh import Mesh
from .connections.hub import Connection
from .desk import Desk, Job
from .effects import Act, Effects, StoreCall
from .links.calls import Calls
from .messages.delivery import Delivery
from .messages.fanout import Fanout
from .messages.home import Home
from .messages.origin import Origin
from .messages.outcomes import Outcomes
from .outgoing.memory import Memory
from .outgoing.sending import Sending
from .stores import StoreCalls


@mypyc_attr(allow_interpreted_subclasses=True)
class Turns:
    """One endpoint's."""

    members: Membership
    joining: Joining
    sessions: Sessions
    mesh: Mesh
    memory: Memory
    calls: Calls
    stores: StoreCalls
    _desk: Desk
    _sending: Sending
    _leaving: Leaving
    _delivery: Delivery
    _fanout: Fanout
    _home: Home
    _outcomes: Outcomes
    _origin: Origin
    _flushes: list[Callable[[], None]]
    _closed: list[Callable[[Connection], None]]
    _jobs: deque[Job]
    _acts: list[Act]

    def _at(self, now: float) -> None:
        """It is ``now``. Comes before everything else: a home whose lease has lapsed is none any more."""
        self._desk.now = now
        if now >= self.members.holds_until and self.members.lapsed(now):
            self.joining.lease_lapsed()

    def asks(self, now: float) -> list[StoreCall]:
        """What the messages of this turn have to ask the store. A shell whose store answers some of it without
        waiting tells these answers (``stored``) before it ends the turn, so that they cost no turn of their own, and
        asks again; the other calls are to be made as those of ``flush``, which has all where this is not called."""
        self._at(now)
        self._bring_back()
        self._home.ask()
        return self.stores.take() if self.stores.made else []

    def flush(self, now: float) -> Effects:
        """End the turn: everything decided since the last call, to be done now."""
        self._at(now)
        sessions, sending, mesh = self.sessions, self._sending, self.mesh
        self._bring_back()
        if self._leaving.under_way:
            self._leaving.go_on()
        if sessions.ready or sessions.holding:
            sessions.go_on()
        if sending.closing:
            self._unbind_closed()
        for flush in self._flushes:
            flush()
        if self.memory.full:
            sessions.let_go()
            self._unbind_closed()
        write = sending.write() if sending.dirty else []
        store = self.stores.take() if self.stores.made else []
        links = mesh.take() if self.calls.due or mesh.due else []
        acts, self._acts[:] = self._acts[:], []
        return Effects(store, links, write, acts, bool(self._jobs or sessions.ready or sending.dirty))

    def _bring_back(self) -> None:
        """What has become of messages since the last turn, from the end of their way to its beginning."""
        delivery, fanout = self._delivery, self._fanout
        if delivery.delivered or delivery.broadcasts:
            delivery.take_delivered()
        if fanout.delivered or fanout.broadcasts:
            fanout.take_delivered()
        if fanout.handed_over:
            self._home.take_handed_over()
        if self._outcomes.due:
            self._origin.take_outcomes()

    def _unbind_closed(self) -> None:
        closing, self._sending.closing = self._sending.closing, []
        for connection in closing:
            for closed in self._closed:
                closed(connection)
