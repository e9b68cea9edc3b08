"""Finds the locations of the recipients of a topic's first message, in the caches or the store.

Owns: the searches in progress, and the limit on concurrent messages for many clients. One question about a client
serves all messages that wait for the client's location. Must never: know why a client gets a message (``home`` does),
or dispatch a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from ..desk import Desk
from ..dispatch import Dispatch
from ..limits import SIZES, Sizes
from ..model import Subscribers
from ..topics.locations import NEVER_LISTENED, Found, LocationGroups, Locations, Places, add
from ..topics.routes import CROWDED, LOCATING, READY, RESOLVING, LocationSearch, Route, Routes

#: A message for more clients than this may have to wait for a later turn (``Sizes.places_per_turn``).
FEW: Final = 20

NOBODY: Final[Found] = {}


class LocationResolver:
    """One home's resolver. It adds a topic to ``Routes.ready`` when the topic's messages can continue, and also when
    the store cannot locate their recipients."""

    def __init__(
        self,
        desk: Desk,
        routes: Routes,
        locations: Locations,
        location_groups: LocationGroups,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._routes = routes
        self._locations = locations
        self._location_groups = location_groups
        self._sizes = sizes
        self._many = sizes.delivery_slice
        self.recipients = 0  # the number of recipients of all messages in dispatch to many clients
        self._crowded: deque[tuple[str, Route]] = deque()  # topics whose first message waits for other messages to end
        self.placed = 0  # recipients of this turn's messages for more than ``FEW`` clients
        self.matching = 0  # the cost of comparing this turn's messages with filters
        self._wanted: list[str] = []  # clients to look up at the end of the turn
        self._waiting: dict[str, list[LocationSearch]] = {}  # client -> searches that wait for its location

    def places(self, topic: str, route: Route, clients: Subscribers | list[str]) -> Places | None:
        """Return the clients' places, or ``None`` if the topic has to wait. The route's stage then gives the
        reason, and the topic continues later."""
        search = route.search
        if search is not None and search.clients is not None:
            clients = search.clients
        if len(clients) <= FEW:
            places = self._location_groups.places(clients, NOBODY if search is None else search.found)
        else:
            of_many = self._of_many(topic, route, clients)
            if of_many is None:
                return None
            places = of_many
        if places[2]:
            self.search(topic, route, clients, places[2])
            return None
        route.search = None
        return places

    def search(self, topic: str, route: Route, clients: Subscribers | list[str], missing: list[str]) -> None:
        """Ask the store for the missing clients' locations at the end of the turn. The topic waits for them."""
        search = route.search
        if search is None:
            search = route.search = LocationSearch(topic, route)
        if search.clients is None:
            search.clients = list(clients)
        route.stage = LOCATING
        search.unfound += len(missing)
        for client in missing:
            waiting = self._waiting.get(client)
            if waiting is None:
                self._waiting[client] = [search]
                self._wanted.append(client)
            else:
                waiting.append(search)

    def _of_many(self, topic: str, route: Route, clients: Subscribers | list[str]) -> Places | None:
        """Return the places of many clients. Return ``None`` if the topic has to wait for a later turn, or for other
        messages with many recipients."""
        search, count = route.search, len(clients)
        if count > self._many and self.recipients >= self._sizes.recipients_max:
            route.stage = CROWDED
            self._crowded.append((topic, route))
            if search is not None:
                search.places = None  # the clients may move before the topic continues
            return None
        if self.placed >= self._sizes.places_per_turn:
            self.later(topic, route)
            return None
        self.placed += count
        if search is not None and search.places is not None:
            places, search.places = search.places, None
            self._location_groups.leave_out_the_gone(places[1])
            return places
        if count <= self._sizes.clients_per_slice:
            return self._location_groups.places(clients, NOBODY if search is None else search.found)
        route.stage = RESOLVING
        self._desk.job(self._in_slices(topic, route, list(clients)))
        return None

    def ask(self) -> None:
        """Ask the store for all locations that this turn's messages need."""
        if self._wanted:
            wanted, self._wanted = self._wanted, []
            per_slice = self._sizes.clients_per_slice
            for start in range(0, len(wanted), per_slice):
                part = wanted[start : start + per_slice]
                self._desk.store("locations", (part,), self._found, part)

    def _found(self, clients: list[str], result: Any, error: Exception | None) -> None:
        over: dict[LocationSearch, None] = {}
        for index, client in enumerate(clients):
            location = None if error is not None else result[index]
            if error is None:
                self._locations.learn(client, location or NEVER_LISTENED)
            for search in self._waiting.pop(client, ()):
                search.found[client] = location
                search.unfound -= 1
                if error is not None or not search.unfound:
                    over[search] = None
        for search in over:
            self._end(search, error)

    def _end(self, search: LocationSearch, error: Exception | None) -> None:
        """End a search, because the store has located all its clients or has failed."""
        route = search.route
        if self._routes.get(search.topic) is route and route.search is search:
            self._go_on(search.topic, route, error)

    def _go_on(self, topic: str, route: Route, error: Exception | None = None) -> None:
        route.stage = READY
        self._routes.ready.append((topic, route, error))

    def later(self, topic: str, route: Route) -> None:
        """Continue with the topic's messages in another turn."""
        route.stage = RESOLVING
        self._desk.job(self._rest(topic, route))

    def _rest(self, topic: str, route: Route) -> Iterator[bool]:
        if self._routes.get(topic) is route:
            self._go_on(topic, route)
        yield from ()

    def _in_slices(self, topic: str, route: Route, clients: list[str]) -> Iterator[bool]:
        """Find the places of the recipients of the topic's first message, in slices."""
        search = route.search
        if search is None:
            search = route.search = LocationSearch(topic, route)
        search.clients = clients
        places: Places = [], {}, []
        per_slice = self._sizes.clients_per_slice
        for start in range(0, len(clients), per_slice):
            add(places, self._location_groups.places(clients[start : start + per_slice], search.found))
            yield False
            if self._routes.get(topic) is not route:
                return  # the topic has another home now
        search.places = places
        self._go_on(topic, route)

    # Messages for many clients

    def begin(self, dispatch: Dispatch, count: int) -> None:
        """Count a message whose dispatch to ``count`` clients begins now."""
        if count > self._many:
            dispatch.recipients = count
            self.recipients += count

    def end(self, dispatch: Dispatch) -> None:
        """Stop counting a message whose dispatch has ended. Topics that waited for this can continue."""
        if dispatch.recipients:
            self.recipients -= dispatch.recipients
            dispatch.recipients = 0
            self._desk.job(self._let_go_on())

    def _let_go_on(self) -> Iterator[bool]:
        """Continue with waiting topics. This is a job, so that it runs in a later turn and not while the message
        ends."""
        while self._crowded and self.recipients < self._sizes.recipients_max:
            topic, route = self._crowded.popleft()
            if self._routes.get(topic) is route:
                self._go_on(topic, route)
                yield False
