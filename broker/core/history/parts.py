"""The parts of history, as one endpoint has them: made here, for the router to put among its others.

Owns: which there are, and what each is given. Must never: do more than make them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingeborg.protocol.errors import ProtocolError

from ..clients.keepalive import Keepalive
from ..cluster.copies import Copies
from ..cluster.membership import Membership
from ..cluster.standby import Standbys
from ..connections.hub import Hub
from ..desk import Desk
from ..limits import Limits
from ..messages.delivery import Delivery
from ..model import Settings
from ..outgoing.memory import Memory
from ..outgoing.replies import Replies
from ..outgoing.sending import Sending
from ..part import Part
from ..replication.guard import Guard
from ..retained.clock import Clock
from ..retained.journal import Journal
from ..retained.keeping import Keeping
from ..retained.log import Log
from ..retained.marks import Marks
from ..retained.state import History
from .admitting import Admitting
from .asking import Asking
from .missed import Missed
from .positions import Positions
from .recovering import Recovering
from .rounds import Rounds


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

    def __init__(self, desk: Desk, members: Membership, limits: Limits, settings: Settings, has_journal: bool) -> None:
        """``has_journal``: the store has one."""
        self._desk = desk
        self._members = members
        self._topics = limits.history_topics
        self.parts: list[Part] = []
        self.on = settings.history != "off"
        self.log = Log(limits.history_bytes if self.on else 0, limits.history_size)
        self.log.is_own = lambda slot: members.table[slot] == members.me.incarnation
        self.clock = Clock()
        self.state = History(desk, self.log, self.clock)
        self.marks = Marks(desk, members, self.clock)
        writes, voids = settings.history == "store", settings.history == "memory" and has_journal
        self.journal = Journal(desk, members, self.log, self.clock, self.marks, writes=writes, voids=voids)
        self.state.lacking, self.state.taken = self.journal.lacking, self.journal.taken
        self.state.let_go = self.journal.let_go
        self.marks.prove = self.journal.reach

    def keep(self, copies: Copies, standbys: Standbys, guard: Guard) -> Keeping:
        """The home's part of a message's way."""
        parts = (self.log, self.clock, self.state, self.marks, copies, standbys, guard, self.journal)
        self.keeping = Keeping(self._desk, self.on, self._topics, *parts)
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
        wrap: Callable[[bytes], bytes],
    ) -> Recovering:
        """What asks and answers."""
        desk, members, me = self._desk, self._members, self._members.me.incarnation
        missed = Missed(desk, me, members, self.log, self.clock, self.journal)
        self.missed = missed
        self.rounds = rounds = Rounds(desk, members, self.marks, missed, sending, wrap)
        positions = Positions(desk, self.marks, sending, wrap)
        recovering = Recovering(desk, hub, self.marks, rounds, self.keeping, positions, sending, memory, wrap)
        delivery.take_for_follower = recovering.take
        self.admitting = Admitting(desk, self.keeping, replies)
        asking = Asking(desk, me, members, self.keeping, missed, replies)
        self.recovering = recovering
        self.parts += [self.marks, missed, rounds, recovering, positions, asking, self.admitting, self.journal]
        return recovering

    def follow(self, keepalive: Keepalive) -> None:
        """``keepalive`` has the Unix time."""
        self.keeping.refusal = lambda: _refusal(self.on, self.marks)
        self.journal.unix_s = self.state.unix_s = lambda: keepalive.unix_s


def _refusal(on: bool, marks: Marks) -> ProtocolError | None:
    """Why there is no history just now; ``None``: there is."""
    if not on:
        return ProtocolError("bad_state", "No message is kept here: this endpoint's setting 'history' is off")
    if marks.proven < 0:
        return ProtocolError("peer_unavailable", "The journal has not said yet how far positions go: try again")
    return None
