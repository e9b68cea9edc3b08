"""The assembly of history: what clients have missed, asked for by their endpoint and answered by the homes.

Owns: which parts there are, and what each is given. Must never: do more than make them.
"""

from __future__ import annotations

from ..base import Base
from ..clients.assembly import Clients
from ..cluster.assembly import Cluster
from ..outgoing.assembly import Outgoing
from ..part import Part
from ..retained.assembly import Retained
from ..topics.assembly import Topics
from .admitting import Admitting
from .asking import Asking
from .missed import Missed
from .positions import Positions
from .recovering import Recovering
from .rounds import Rounds


class HistoryParts:
    """One endpoint's."""

    def __init__(
        self, base: Base, cluster: Cluster, outgoing: Outgoing, topics: Topics, retained: Retained, clients: Clients
    ) -> None:
        desk, members, me = base.desk, cluster.members, base.me.incarnation
        marks, retention, sending = retained.marks, retained.retention, outgoing.sending
        self.missed = missed = Missed(desk, me, members, retained.log, retained.clock, retained.journal, topics.routes)
        self.rounds = rounds = Rounds(desk, members, marks, missed, sending)
        self.positions = positions = Positions(desk, marks, sending)
        self.recovering = recovering = Recovering(
            desk, outgoing.hub, marks, rounds, positions, sending, outgoing.memory
        )
        asking = Asking(desk, me, members, retention, missed, outgoing.replies)
        self.admitting = Admitting(desk, retention, outgoing.replies, recovering, clients.listening, topics.subscribing)
        #: The parts, in their order. ``marks`` and the journal are told of the cluster's changes behind all that
        #: belongs to slots.
        self.parts: list[Part] = [
            *(marks, missed, rounds, recovering, positions, asking),
            *(self.admitting, retained.journal),
        ]
