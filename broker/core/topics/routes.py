"""The routing cache, which has the sets of subscribers of the topics whose home is this endpoint.

Owns: a bounded cache, and the waiting messages of each topic. Must never: read a store, or decide who gets a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, cast

from ..caches.policy import Entry
from ..caches.sieve import Sieve
from ..dispatch import Dispatch
from ..limits import FILTER_BYTES
from ..model import Subscribers
from .locations import Found, Places
from .topic_filters import TopicFilters

#: A set with at most this many ids is stored as a tuple. A set object with one id takes four times the memory of the
#: id.
SMALL: Final = 8


#: The *stage* of a topic says why its first message waits.
READY: Final = 0  # the message does not wait
READING: Final = 1  # the store reads the topic's subscribers
LOCATING: Final = 2  # the store locates some of these subscribers
RESOLVING: Final = 3  # the message needs several slices of work, or a later turn
CROWDED: Final = 4  # other messages to many recipients must end first
BARRIER: Final = 5  # the replica or the journal must have the message first
LOADING: Final = 6  # the store reads the topic's filters


class LocationSearch:
    """The search for the locations of the recipients of a topic's first message."""

    __slots__ = ("clients", "found", "places", "route", "topic", "unfound")

    def __init__(self, topic: str, route: Route) -> None:
        self.topic = topic
        self.route = route
        #: The recipients, as they were when the search began. Later subscribers are not included, because a stream of
        #: new subscribers would keep the search from ending.
        self.clients: list[str] | None = None
        self.found: Found = {}  # the store's answers
        self.unfound = 0  # the number of clients that the store has not located yet
        self.places: Places | None = None  # the places of many clients, after a job has found them


class Route(Entry):
    """The entry of a topic in the cache, with the topic as key. While the store reads the set of subscribers
    (``subscribers`` is ``None``), changes and messages wait in the entry.

    The cache is usually full, and most of its entries are idle. Fields that only a busy route needs are therefore
    ``None``.
    """

    __slots__ = ("behind", "changes", "filters", "first", "ids", "passing", "search", "stage", "subscribers")

    def __init__(self, topic: str = "", passing: bool = False) -> None:
        super().__init__(topic, 1, 0)
        self.passing = passing  # whether the route is removed when no message waits in it
        self.subscribers: Subscribers | None = None
        self.ids = 0  # the number of ids in the set, as ``Routes`` has counted them
        self.filters: TopicFilters | None = None  # None if no client has a filter
        self.changes: list[tuple[str, bool]] | None = None  # (client, added?) confirmed while the set was being read
        # The topic's messages, in order. The stage says why the first message waits. The other messages wait behind it.
        self.first: Dispatch | None = None
        self.behind: deque[Dispatch] | None = None
        self.stage = READY
        self.search: LocationSearch | None = None  # the search for the first message's recipients

    def put(self, dispatch: Dispatch) -> None:
        """Add a message behind the waiting messages."""
        if self.first is None:
            self.first = dispatch
        elif self.behind is None:
            self.behind = deque((dispatch,))
        else:
            self.behind.append(dispatch)

    def take(self) -> Dispatch:
        """Remove and return the first message, whose turn has come."""
        dispatch = self.first
        assert dispatch is not None
        behind = self.behind
        if behind is None:
            self.first = None
        else:
            self.first = behind.popleft()
            if not behind:
                self.behind = None
        return dispatch

    def waiting(self) -> list[Dispatch]:
        """Return all waiting messages, in order."""
        if self.first is None:
            return []
        return [self.first, *(self.behind or ())]

    def filled(self, subscribers: Subscribers) -> None:
        """Use the set that the store has read. Apply the changes confirmed during the read again, because the set may
        or may not include them."""
        self.stage = READY
        changes = self.changes
        if changes is None:
            self._set(subscribers)
            return
        self.changes = None
        changed = set(subscribers)
        for client, added in changes:
            if added:
                changed.add(client)
            else:
                changed.discard(client)
        self._set(changed)

    def change(self, client: str, added: bool) -> None:
        """Apply a confirmed or reverted subscription."""
        if self.subscribers is None:
            if self.changes is None:
                self.changes = []
            self.changes.append((client, added))
            return
        if added == (client in self.subscribers):
            return
        changed = self.subscribers if isinstance(self.subscribers, set) else set(self.subscribers)
        if added:
            changed.add(client)
        else:
            changed.discard(client)
        self._set(changed)

    def _set(self, subscribers: Subscribers) -> None:
        if isinstance(subscribers, tuple) or len(subscribers) > SMALL:
            self.subscribers = subscribers
        else:
            self.subscribers = tuple(subscribers)


#: When the cache is full and the store reads from memory, one in this many new topics enters the cache.
CHOSEN: Final = 8


#: The largest number of searches for a topic to evict in one tick. Each search examines eight topics.
TRIMMED: Final = 100


class Routes:
    """Maps topics to routes. It has at most ``topics_max`` topics, about ``ids_max`` ids and about ``filter_bytes_max``
    bytes of filters. The SIEVE algorithm chooses the topics to evict (``core.caches``).

    A route with waiting messages is not evicted. An entry takes about 360 bytes, and each subscriber's id in it 80 to
    180 bytes.

    ``choosy`` is true for a store where reading a set again costs only microseconds, about as much as admitting a topic
    and evicting another. With such a store, most new topics only pass through a full cache. Their route is removed when
    their messages are on their way. A topic with many messages soon enters the cache, and a publisher that cycles
    through all topics does not evict the topics in use (bimodal insertion: Qureshi and others, Adaptive insertion
    policies, ISCA 2007).
    """

    def __init__(
        self, topics_max: int, ids_max: int, *, filter_bytes_max: int = FILTER_BYTES, choosy: bool = False
    ) -> None:
        self.topics_max = topics_max
        self.ids_max = ids_max
        self.filter_bytes_max = filter_bytes_max
        self._choosy = choosy
        self._choice = 1  # a pseudo-random number below 2^31
        #: Routes that only pass through. They are not in the cache. They are so few that they stay in the CPU's caches.
        self._passing: dict[str, Route] = {}
        self.ids = 0  # the number of ids in all sets
        self.filter_bytes = 0  # the bytes of all filters
        self.admitted = 0
        self.evicted_for = {"topics": 0, "ids": 0, "filters": 0}  # evictions, by the limit that was exceeded
        self.dropped = 0  # the number of routes removed for other reasons
        self.asked = self.misses = 0  # the number of look-ups, and how many had to ask the store
        self._routes: dict[str, Route] = {}
        self._policy = Sieve()
        #: Topics whose first message no longer waits, or whose messages fail with the given error. The home empties
        #: this tray.
        self.ready: list[tuple[str, Route, Exception | None]] = []
        #: Routes whose messages wait longer than usual. The home empties this tray and notifies the senders of the
        #: messages.
        self.slow: list[Route] = []

    def __len__(self) -> int:
        return len(self._routes)

    @property
    def evicted(self) -> int:
        """The number of routes evicted for lack of room."""
        return sum(self.evicted_for.values())

    def use(self, topic: str) -> Route | None:
        """Return the topic's route, and mark it as just used."""
        route = self._routes.get(topic)
        if route is None:
            return self._passing.get(topic)
        self._policy.used(route)
        return route

    def get(self, topic: str) -> Route | None:
        """Return the topic's route without marking it as used."""
        route = self._passing.get(topic)
        return self._routes.get(topic) if route is None else route

    def subscribed(self, client: str, topics: Iterable[str]) -> tuple[list[int], list[int]]:
        """Find the topics that the client has subscribed to, as positions in ``topics``.

        Args:
            client: The client's id.
            topics: Topics whose home is this endpoint.

        Returns:
            Two lists of positions. The first list has the topics to which the client is subscribed according to the
            cache. Only the store can decide about the topics in the second list, because the cache lacks them or they
            have filters.
        """
        routes = self._routes
        found: list[int] = []
        unknown: list[int] = []
        for place, topic in enumerate(topics):
            route = routes.get(topic)
            if route is None or route.subscribers is None or route.passing:
                unknown.append(place)  # a passing route may be outdated
            elif client in route.subscribers:
                found.append(place)
            elif route.filters is not None:
                unknown.append(place)
        return found, unknown

    def add(self, topic: str) -> Route:
        """Add an empty route. The route for ``""``, which is for broadcasts, only passes through."""
        passing = not topic or (self._choosy and len(self._routes) >= self.topics_max and not self._chosen())
        route = Route(topic, passing)
        if passing:
            self._passing[topic] = route
        else:
            self._evict()  # before ``_admit``, because the new route is not in use yet and could be evicted
            self._admit(topic, route)
        return route

    def _chosen(self) -> bool:
        # A random choice. If every eighth topic were chosen instead, repeated cycles over the topics could always
        # choose the same topics. Lehmer's generator: 16807 modulo 2^31 - 1 (Park and Miller, 1988).
        self._choice = self._choice * 16807 % 0x7FFFFFFF
        return self._choice % CHOSEN == 0

    def filled(self, topic: str, route: Route, subscribers: Subscribers) -> None:
        """Fill the route with the topic's set of subscribers, which the store has read."""
        route.filled(subscribers)
        if len(subscribers) > SMALL and topic in self._passing:
            self._keep(topic, route)
        self._count(route, len(subscribers))

    def _keep(self, topic: str, route: Route) -> None:
        route.passing = False  # reading a set this large again would take longer
        self._admit(topic, self._passing.pop(topic))

    def _admit(self, topic: str, route: Route) -> None:
        self._routes[topic] = route
        self.admitted += 1
        self._policy.admit(route)

    def count_filters(self, topic: str, route: Route) -> None:
        """Count the topic's filters, which were read or have changed."""
        filters = route.filters
        assert filters is not None
        if topic in self._passing and len(filters.index) > SMALL:
            self._keep(topic, route)
        size = filters.index.bytes if len(filters.index) else 0
        self.filter_bytes += size - filters.counted
        filters.counted = size
        self._evict()

    def change(self, client: str, topics: Iterable[str], added: bool) -> None:
        """Apply a change of the client's subscriptions to these topics, in the cache and to the results of reads in
        progress."""
        for topic in topics:
            route = self.get(topic)
            if route is None:
                continue
            route.change(client, added)
            if route.subscribers is not None:
                self._count(route, len(route.subscribers))

    def doubt(self, topics: Iterable[str]) -> list[str]:
        """Make the home read these topics again before their next use, because a failed write may still take effect.

        Return the topics that are in use now. They stay in the cache."""
        used: list[str] = []
        for topic in topics:
            route = self.get(topic)
            if route is None:
                continue
            if route.first is None and route.stage != READING:
                self.drop(topic)
            else:
                used.append(topic)
        return used

    def _count(self, route: Route, ids: int) -> None:
        self.ids += ids - route.ids
        route.ids = ids
        self._evict()

    def drop(self, topic: str) -> Route | None:
        """Forget the topic. Return its route, which may have waiting messages."""
        route = self._passing.pop(topic, None)
        if route is None:
            route = self._routes.pop(topic, None)
            if route is not None:
                self._policy.forget(route)
                self.dropped += 1
        if route is not None:
            self._dropped(route)
        return route

    def unread(self, route: Route) -> None:
        """Make the topic's next message read the subscribers again."""
        self._dropped(route)
        route.subscribers = route.filters = None

    def _dropped(self, route: Route) -> None:
        self.ids -= route.ids
        route.ids = 0
        if route.filters is not None:
            self.filter_bytes -= route.filters.counted
            route.filters.counted = 0

    def topics(self) -> list[str]:
        """Return all topics that have a route."""
        return [*self._routes, *self._passing]

    def trim(self) -> None:
        """Evict routes that stayed over the limits because they were in use. The home calls this periodically, because
        evictions otherwise happen only when a new topic comes."""
        for _ in range(TRIMMED):
            if not self._too_much():
                return
            self._evict()

    def _evict(self) -> None:
        # Busy routes stay. The limit on messages in flight bounds the number of busy routes, and this loop bounds the
        # search for an idle route.
        for _ in range(8):
            why = self._too_much()
            if not why or not self._routes:
                return
            route = cast(Route, self._policy.victim())
            if route.first is not None or route.stage == READING or len(self._routes) == 1:
                self._policy.admit(route)
            else:
                del self._routes[route.key]
                self._dropped(route)
                self.evicted_for[why] += 1

    def _too_much(self) -> str:
        if len(self._routes) > self.topics_max:
            return "topics"
        if self.ids > self.ids_max:
            return "ids"
        return "filters" if self.filter_bytes > self.filter_bytes_max else ""
