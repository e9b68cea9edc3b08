"""Assembles the stages of a message. It makes the last stage first, because each stage needs the next one as an
argument.

Owns: the choice of parts and of their arguments. Must never: do anything except make these parts.
"""

from __future__ import annotations

from ..base import Base
from ..cluster.assembly import Cluster
from ..cluster.homes import Homes
from ..outgoing.assembly import Outgoing
from ..part import Part
from ..replication.assembly import Replication
from ..retained.assembly import Retained
from ..topics.assembly import Topics
from .announcing import Announcing
from .delivery import Delivery
from .failover import Failover
from .fanout import Fanout
from .home import Home
from .in_flight_dedup import InFlightDedup
from .origin import Origin
from .outcomes import Outcomes


class Messages:
    """One endpoint's message layer.

    Args:
        base: the desk and the limits.
        cluster: the assembly of the cluster's parts. The next four arguments are assemblies of other layers.
        outgoing: see ``cluster``.
        replication: see ``cluster``.
        topics: see ``cluster``.
        retained: see ``cluster``.
        homes: the cluster's members if routing is by homes, otherwise an object that names this endpoint as the home of
            all slots.
        kind: the class of the home.
    """

    def __init__(
        self,
        base: Base,
        cluster: Cluster,
        outgoing: Outgoing,
        replication: Replication,
        topics: Topics,
        retained: Retained,
        homes: Homes,
        kind: type[Home] = Home,
    ) -> None:
        desk, sizes, counters, links = base.desk, base.sizes, base.counters, base.calls.links
        members, me, retention = cluster.members, base.me.incarnation, retained.retention
        dedup, barrier, replies = replication.dedup, replication.barrier, outgoing.replies
        keys, seen = replication.keys, replication.seen
        routes, locations, location_groups = topics.routes, topics.locations, topics.location_groups
        self.delivery = delivery = Delivery(
            desk, outgoing.hub, outgoing.sending, topics.moved_away, links, counters, sizes
        )
        self.fanout = fanout = Fanout(
            desk, members, links, locations, location_groups, delivery, retention, kind.keeps_lists, sizes
        )
        self.outcomes = outcomes = Outcomes(desk, base.inflight)
        self.in_flight_dedup = in_flight = InFlightDedup(
            desk, me, homes, dedup, keys, cluster.replicas, seen, barrier, retention, outcomes, sizes
        )
        self.home = home = kind(
            desk,
            me,
            homes,
            routes,
            locations,
            location_groups,
            outcomes,
            fanout,
            in_flight,
            barrier,
            topics.filtering,
            sizes,
        )
        self.failover = Failover(desk, members, dedup, replication.replicated, outcomes, retention, home)
        self.origin = origin = Origin(
            desk,
            me,
            homes,
            home,
            outcomes,
            replication.origin_dedup,
            base.inflight,
            replies,
            counters,
            retention,
            dedup.ttl_s > 0,
        )
        self.parts: list[Part] = [origin, home, delivery]
        if topics.presence is not None:
            announcing = Announcing(desk, me, homes, topics.presence, home, outcomes, replies, origin)
            self.parts.insert(1, announcing)
