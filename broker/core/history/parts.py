"""The parts of history, as one endpoint has them: made here, for the router to put among its others.

Owns: which there are, and what each is given. Must never: do more than make them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingeborg.protocol.errors import ProtocolError

from ..clients.hub import Hub
from ..clients.keepalive import Keepalive
from ..clients.memory import Memory
from ..clients.replies import Replies
from ..clients.sending import Sending
from ..cluster.copies import Copies
from ..cluster.features import Features, Switch
from ..cluster.membership import Membership
from ..cluster.standby import Standbys
from ..desk import Desk
from ..limits import Limits
from ..links.capabilities import HISTORY, JOURNAL
from ..messages.delivery import Delivery
from ..messages.guard import Guard
from ..part import Part
from .admitting import Admitting
from .asking import Asking
from .clock import Clock
from .journal import Journal
from .keeping import Keeping
from .log import Log
from .marks import Marks
from .missed import Missed
from .positions import Positions
from .recovering import Recovering
from .rounds import Rounds
from .state import History


class Sweeper(Part):
    """Has the log forget what is over, and tells ``keeping``, which is no part of the router's, of a lapse."""

    def __init__(self, desk: Desk, log: Log, keeping: Keeping) -> None:
        self._desk = desk
        self._log = log
        self._keeping = keeping

    def tick(self) -> None:
        """Some topics each time."""
        if self._log.topics:
            self._log.sweep(self._desk.now)

    def lapsed(self) -> None:
        """Others may act for this endpoint's slots."""
        self._keeping.lapsed()


class HistoryParts:
    """One endpoint's. What belongs to slots (``state``) is there from the start, the rest in the order in which the
    router can give what it needs."""

    def __init__(self, desk: Desk, members: Membership, limits: Limits) -> None:
        self._desk = desk
        self._members = members
        self._topics = limits.history_topics
        self.parts: list[Part] = []
        self.switch = Switch()
        self.log = Log(limits.history_bytes, limits.history_size)
        self.log.is_own = lambda slot: members.table[slot] == members.me.incarnation
        self.clock = Clock()
        self.state = History(desk, self.log, self.clock)
        self.marks = Marks(desk, members, self.clock, self.switch)
        self.journal = Journal(desk, members.me.incarnation, members, self.log, self.clock, self.marks, Switch())
        self.state.lacking = self.journal.lacking
        self.state.let_go = self.journal.let_go
        self.marks.prove = self.journal.reach

    def keep(self, copies: Copies, standbys: Standbys, guard: Guard) -> Keeping:
        """The home's part of a message's way."""
        parts = (self.log, self.clock, self.state, self.marks, copies, standbys, guard, self.journal)
        self.keeping = Keeping(self._desk, self.switch, self._topics, *parts)
        state = self.state

        def has_read(slot: int, key: Any) -> None:
            if copies.watching:
                copies.changed(state, slot, key)

        self.journal.has_read = has_read
        self.parts.append(Sweeper(self._desk, self.log, self.keeping))
        return self.keeping

    def recover(
        self,
        hub: Hub,
        delivery: Delivery,
        sending: Sending,
        memory: Memory,
        replies: Replies,
        ending: Switch,
        filters: Switch,
        wrap: Callable[[bytes], bytes],
    ) -> Recovering:
        """What asks and answers."""
        desk, members, me = self._desk, self._members, self._members.me.incarnation
        missed = Missed(desk, me, members, self.log, self.clock, self.journal, ending, filters)
        self.missed = missed
        self.rounds = rounds = Rounds(desk, members, self.marks, missed, sending, ending, filters, wrap)
        positions = Positions(desk, self.marks, sending, wrap)
        recovering = Recovering(desk, hub, self.marks, rounds, self.keeping, positions, sending, memory, wrap)
        delivery.take_for_follower = recovering.take
        self.admitting = Admitting(desk, self.keeping, replies)
        asking = Asking(desk, me, members, self.keeping, missed, replies)
        self.recovering = recovering
        self.parts += [self.marks, missed, rounds, recovering, positions, asking, self.admitting, self.journal]
        return recovering

    def follow(self, features: Features | None, keepalive: Keepalive) -> None:
        """``features``: ``None``: there is no history here."""
        self.keeping.refusal = lambda: _refusal(features, self.marks)
        self.journal.unix_s = self.state.unix_s = lambda: keepalive.unix_s
        if features is not None:
            features.ready = self.journal.known

    @property
    def switches(self) -> dict[str, Callable[[bool], None]]:
        """By feature, told whether it is on."""
        return {HISTORY: self.switch.turn, JOURNAL: self.journal.turn}


def _refusal(features: Features | None, marks: Marks) -> ProtocolError | None:
    """Why there is no history just now; ``None``: there is. A home keeps what it is asked to, whether it has heard of
    the feature or not; that all are able to is enough."""
    if features is None:
        return ProtocolError("bad_state", "With lookup routing no message is kept")
    if HISTORY in features.on:
        if marks.proven >= 0:
            return None
        return ProtocolError("peer_unavailable", "The journal has not said yet how far positions go: try again")
    if not features.is_meant(HISTORY):
        return ProtocolError("bad_state", "No message is kept here: no endpoint has been given history-bytes")
    why = features.want(HISTORY) or "it is being switched on"
    return ProtocolError("peer_unavailable", f"No message is kept yet: {why}")
