"""Assembles the parts for topics: subscriptions, at the client's endpoint and at the home, and the locations of
clients.

Owns: the choice of parts and of their arguments. Must never: do anything except make these parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base import Base
from ..cluster.assembly import Cluster
from ..cluster.homes import Homes
from ..metrics import EVICTIONS, Metric, counter, counters, counters_by, gauge
from ..outgoing.assembly import Outgoing
from ..part import Part
from .expiry import Expiry
from .filtering import Filtering
from .locations import LocationGroups, Locations
from .moved import MovedAway
from .presence import Presence
from .routes import Routes
from .subscribing import Subscribing
from .terms import Terms
from .writing import Writing


class Topics:
    """One endpoint's topics.

    Args:
        base: The objects that all parts share.
        cluster: The assembly of the cluster's parts.
        outgoing: The assembly of the parts that write to clients.
        homes: Says which endpoint is the home of each slot.
        presence: Prefixes of topics with presence.
        locations_max: The largest number of cached locations of clients, or ``None`` for the number in the limits.
    """

    def __init__(
        self,
        base: Base,
        cluster: Cluster,
        outgoing: Outgoing,
        homes: Homes,
        presence: Sequence[str] = (),
        locations_max: int | None = None,
    ) -> None:
        self._desk = desk = base.desk
        limits, sizes, shape = base.limits, base.sizes, base.shape
        members, me = cluster.members, base.me.incarnation
        self.routes = routes = Routes(
            limits.routes_topics, limits.routes_ids, filter_bytes_max=limits.filter_bytes, choosy=shape.reads_memory
        )
        self.locations = Locations(limits.locations_clients if locations_max is None else locations_max)
        self.location_groups = LocationGroups(self.locations, members, desk.drops)
        self.moved_away = MovedAway(sizes)
        self.filtering = filtering = Filtering(desk, routes)
        self.terms = terms = Terms(desk, members)
        self.presence = Presence(desk, base.inflight, presence) if presence else None
        self.writing = Writing(
            desk, me, homes, routes, base.calls.links, cluster.writes, terms, self.presence, filtering, sizes
        )
        self.expiry = Expiry(
            desk,
            members,
            terms,
            self.writing,
            self.presence,
            outgoing.hub,
            routes,
            filtering,
            self.locations,
            cluster.writes,
            shape.reads_memory,
        )
        self.subscribing = Subscribing(
            desk,
            me,
            homes,
            self.writing,
            terms,
            outgoing.replies,
            outgoing.memory,
            shape,
            limits.subscriptions,
            sizes,
        )

    @property
    def parts(self) -> list[Part]:
        """The parts that change subscriptions, in their order. ``expiry`` is not among them, because it comes after the
        parts of clients."""
        return [self.writing, self.subscribing]

    def metrics(self) -> list[Metric]:
        """Return the metrics of these parts."""
        routes, locations = self.routes, self.locations
        left = {**routes.evicted_for, "dropped": routes.dropped}
        asked = {"routes": (routes.asked, routes.misses), "locations": (locations.asked, locations.misses)}
        requests = [((name, "hit"), float(looks - misses)) for name, (looks, misses) in asked.items()]
        requests += [((name, "miss"), float(misses)) for name, (_, misses) in asked.items()]
        evicted = [(("routes",), float(routes.evicted)), (("locations",), float(locations.evicted))]
        why = "Topics removed from the routing cache, by exceeded limit; outdated topics count as dropped"
        looks_up = "Look-ups in the caches of topics (routes) and of clients' locations"
        lost = "Joins and leaves that this endpoint could not detect, or could not announce to all subscribers"
        return [
            self._desk.counted(
                "presence_told", "Joins and leaves of topics with presence that this endpoint, as home, announced"
            ),
            self._desk.counted("presence_lost", lost),
            gauge("routes", "Topics in the routing cache", len(routes)),
            gauge("routes_filter_bytes", "Memory of the filters in the routing cache, in bytes", routes.filter_bytes),
            gauge("locations", "Clients in the location cache", len(locations)),
            counters("evictions", EVICTIONS, ("cache",), evicted),
            counters_by("routes_evicted", why, "why", left),
            counter(
                "routes_admitted",
                "Topics that entered the routing cache while it was full",
                routes.admitted,
            ),
            counters("cache_requests", looks_up, ("cache", "result"), requests),
        ]
