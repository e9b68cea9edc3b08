"""Assembles the clients' layer: incoming commands, and the places where clients listen.

Owns: the choice of parts and of their arguments. Must never: do anything except make these parts.
"""

from __future__ import annotations

from ..base import Base
from ..cluster.assembly import Cluster
from ..cluster.homes import Homes
from ..outgoing.assembly import Outgoing
from ..part import Part
from ..topics.assembly import Topics
from .keepalive import Keepalive
from .lapsed_lease import LapsedLease
from .leaving import Leaving
from .listening import Listening
from .revoking import Revoking
from .sessions import Sessions


class Clients:
    """One endpoint's clients layer.

    Args:
        base: the desk and the limits.
        cluster: the layer of the cluster, below this layer.
        outgoing: the layer of outgoing frames, below this layer.
        topics: the layer of topics, below this layer.
        ping_s: seconds between two pings of a connection.
        homes: the cluster's members if routing is by homes, otherwise a table in which this endpoint is home of all
            slots.
    """

    def __init__(
        self, base: Base, cluster: Cluster, outgoing: Outgoing, topics: Topics, ping_s: float, homes: Homes
    ) -> None:
        desk, sizes, members = base.desk, base.sizes, cluster.members
        sending, replies, memory, hub = outgoing.sending, outgoing.replies, outgoing.memory, outgoing.hub
        self.sessions = sessions = Sessions(desk, base.limits, sending, replies, memory, base.inflight, sizes)
        self.keepalive = Keepalive(desk, sending, ping_s)
        self.revoking = Revoking(desk, members, sessions, sending, replies, sizes)
        self.listening = Listening(
            desk, members, homes, hub, topics.locations, topics.moved_away, replies, sending, memory, sizes
        )
        self.lapsed_lease = LapsedLease(desk, homes, members, hub, sending)
        self.parts: list[Part] = [self.revoking, self.listening, self.keepalive]
        self.leaving = Leaving(
            desk, cluster.joining, cluster.slot_transfer, sessions, sending, base.inflight, sizes, cluster.patience
        )
