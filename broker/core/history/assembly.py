"""Assembles the parts for history: a client's endpoint requests missed messages from the homes, and the homes answer.

Owns: the choice of parts and of their arguments. Must never: do anything except make these parts.
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
from .attempts import Attempts
from .history_server import HistoryServer
from .positions import Positions
from .replaying import Replaying


class HistoryParts:
    """One endpoint's history layer."""

    def __init__(
        self, base: Base, cluster: Cluster, outgoing: Outgoing, topics: Topics, retained: Retained, clients: Clients
    ) -> None:
        desk, members, me = base.desk, cluster.members, base.me.incarnation
        watermarks, retention, sending = retained.watermarks, retained.retention, outgoing.sending
        self.history_server = history_server = HistoryServer(
            desk, me, members, retained.log, retained.clock, retained.journal, topics.routes
        )
        self.attempts = attempts = Attempts(desk, members, watermarks, history_server, sending)
        self.positions = positions = Positions(desk, watermarks, sending)
        self.replaying = replaying = Replaying(
            desk, outgoing.hub, watermarks, attempts, positions, sending, outgoing.memory
        )
        asking = Asking(desk, me, members, retention, history_server, outgoing.replies)
        self.admitting = Admitting(desk, retention, outgoing.replies, replaying, clients.listening, topics.subscribing)
        #: The parts, in the order in which they handle events. ``watermarks`` and the journal handle changes of the
        #: cluster after all parts that keep state for slots.
        self.parts: list[Part] = [
            *(watermarks, history_server, attempts, replaying, positions, asking),
            *(self.admitting, retained.journal),
        ]
