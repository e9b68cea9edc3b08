"""Caches the endpoints where clients listen, and groups a set of clients by endpoint.

Owns: the cache of locations. Must never: read a store, or announce a location.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection
from typing import Final

from ..cluster.membership import Membership
from ..model import Location

#: The location to use for a client that has no location in the store.
NEVER_LISTENED: Final = Location(0, "", False)

Found = dict[str, Location | None]
"""Locations, indexed by client, as the store has returned them or as this endpoint has learnt later."""

Places = tuple[list[str], dict[str, list[str]], list[str]]
"""The clients at this endpoint, the clients at each peer, and the clients with an unknown location."""


def placed(local: list[str], remote: dict[str, list[str]]) -> int:
    """Return the number of clients in these two groups."""
    return len(local) + sum(map(len, remote.values()))


def add(places: Places, more: Places) -> None:
    """Add the places of some more clients to ``places``."""
    places[0].extend(more[0])
    for endpoint, there in more[1].items():
        places[1].setdefault(endpoint, []).extend(there)
    places[2].extend(more[2])


class Locations:
    """Maps at most ``clients_max`` clients to their locations (about 400 bytes each). The locations that have not
    changed for the longest time are dropped first.

    Only a greater location (``Location.rank``) replaces another, so that a late read cannot restore an old location.
    Lookup routing uses a cache for 0 clients, which stays empty, because it asks the store for each message.
    """

    def __init__(self, clients_max: int) -> None:
        self.clients_max = clients_max
        self.evicted = 0
        self.asked = self.misses = 0  # the number of look-ups, and how many had to ask the store
        self._known: OrderedDict[str, Location] = OrderedDict()
        self.get = self._known.get  # for the hot path, without a further call

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, client: str, location: Location) -> bool:
        """Store the location if it is newer, and return whether it was newer."""
        known = self._known.get(client)
        if known is not None:
            if known.rank >= location.rank:
                return False
            self._known.move_to_end(client)
        elif not self.clients_max:
            return False
        self._known[client] = location
        if len(self._known) > self.clients_max:
            self._known.popitem(last=False)
            self.evicted += 1
        return True

    def learn_offline(self, client: str, location: Location) -> None:
        """Record that the client no longer listens at the location."""
        self.learn(client, location._replace(online=False))

    def forget(self, client: str) -> None:
        """Forget a client that no message will need soon. The store still has its location."""
        self._known.pop(client, None)

    def clear(self) -> None:
        """Forget all locations."""
        self._known.clear()


class LocationGroups:
    """Groups clients by the endpoints where they listen."""

    def __init__(self, locations: Locations, members: Membership, drops: Counter[str]) -> None:
        self._me = members.me.incarnation
        self._locations = locations
        self._members = members
        self._drops = drops

    def places(self, clients: Collection[str], found: Found) -> Places:
        """Group the clients by the endpoint where they listen. ``found`` has the store's earlier answers for some of
        the clients."""
        known = self._locations.get
        in_view = self._members.in_view
        local: list[str] = []
        remote: dict[str, list[str]] = {}
        missing: list[str] = []
        for client in clients:
            location = known(client)
            if location is None:
                if client not in found:
                    missing.append(client)
                    continue
                location = found[client]
            if location is None or not location.online:
                continue
            incarnation = location.incarnation
            if incarnation == self._me:
                local.append(client)
            elif incarnation in remote:
                remote[incarnation].append(client)
            elif in_view(incarnation):
                remote[incarnation] = [client]
            else:
                self._drops["endpoint_gone"] += 1
        self._locations.asked += len(clients) - len(found)  # an earlier call has counted the clients in ``found``
        if missing:
            self._locations.misses += len(missing)
        return local, remote, missing

    def leave_out_the_gone(self, remote: dict[str, list[str]]) -> None:
        """Remove from ``remote`` the peers that have left the view. A search takes several turns, so peers can leave
        meanwhile."""
        for endpoint in [endpoint for endpoint in remote if not self._members.in_view(endpoint)]:
            self._drops["endpoint_gone"] += len(remote.pop(endpoint))
