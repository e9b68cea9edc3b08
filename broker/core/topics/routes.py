"""The routing cache: the subscriber sets of topics that this endpoint is home of.

Owns: a bounded cache, and the messages of each topic that wait in it. Must never: read a store, or decide who gets
a message.
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

#: A set this small is kept as a tuple: a set object takes four times the memory of its one id.
SMALL: Final = 8


#: The *stage* of a topic: what its first message waits for. In this order: nothing; the store's subscribers; the
#: store's locations of some of these; slices of work, or another turn; fewer recipients being served; the replica; the
#: topic's filters.
READY: Final = 0
READING: Final = 1
LOCATING: Final = 2
RESOLVING: Final = 3
CROWDED: Final = 4
BARRIER: Final = 5
LOADING: Final = 6


class LocationSearch:
    """The search for the locations of a topic's first message's subscribers."""

    __slots__ = ("clients", "found", "places", "route", "topic", "unfound")

    def __init__(self, topic: str, route: Route) -> None:
        self.topic = topic
        self.route = route
        #: The recipients, from when the search began. Later subscribers are not among them: a stream of new ones would
        #: keep the search from ending.
        self.clients: list[str] | None = None
        self.found: Found = {}  # the store's answers
        self.unfound = 0  # clients that the store has yet to find
        self.places: Places | None = None  # the places of many clients, once a job has gone through them


class Route(Entry):
    """A topic's entry; its key is the topic. While the set is being read (``subscribers`` is None), changes and
    messages wait in it.

    The cache holds as many as fit, most of these idle: fields that only a busy route needs are None.
    """

    __slots__ = ("behind", "changes", "filters", "first", "ids", "passing", "search", "stage", "subscribers")

    def __init__(self, topic: str = "", passing: bool = False) -> None:
        super().__init__(topic, 1, 0)
        self.passing = passing  # it is removed once no message waits in it
        self.subscribers: Subscribers | None = None
        self.ids = 0  # number of ids in the set, as its owner has counted them
        self.filters: TopicFilters | None = None  # None: no client has one
        self.changes: list[tuple[str, bool]] | None = None  # (client, added?) confirmed while the set was being read
        # The topic's messages, in order. The first waits for its stage, the others wait behind it.
        self.first: Dispatch | None = None
        self.behind: deque[Dispatch] | None = None
        self.stage = READY
        self.search: LocationSearch | None = None  # for the first message

    def put(self, dispatch: Dispatch) -> None:
        """Add a message behind those that wait."""
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
        """All waiting messages, in order."""
        if self.first is None:
            return []
        return [self.first, *(self.behind or ())]

    def filled(self, subscribers: Subscribers) -> None:
        """Use the set that was read. Apply the changes confirmed meanwhile again: it may or may not include them."""
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


#: When the cache is full and the store reads memory, one in this many missing topics gets in.
CHOSEN: Final = 8


#: Searches for an evictable topic in one tick; each examines eight.
TRIMMED: Final = 100


class Routes:
    """Topic -> route; at most ``topics_max`` topics, about ``ids_max`` ids and about ``filter_bytes_max`` bytes of
    filters. SIEVE chooses the evicted topics (``core.caches``).

    A route with waiting messages stays. An entry takes about 360 bytes, a subscriber's id in it 80 to 180.

    ``choosy``: asking the store again costs microseconds, as admitting a topic that evicts another does. So most new
    topics only pass through: their route is removed once their messages are on their way. A topic with many messages
    soon gets in, and a round over all topics does not evict those in use (bimodal insertion: Qureshi and others,
    Adaptive insertion policies, ISCA 2007).
    """

    def __init__(
        self, topics_max: int, ids_max: int, *, filter_bytes_max: int = FILTER_BYTES, choosy: bool = False
    ) -> None:
        self.topics_max = topics_max
        self.ids_max = ids_max
        self.filter_bytes_max = filter_bytes_max
        self._choosy = choosy
        self._choice = 1  # a pseudo-random number below 2^31
        #: Routes outside the cache. They are few: entries that come and go all the time stay in the CPU's caches.
        self._passing: dict[str, Route] = {}
        self.ids = 0  # in all sets
        self.filter_bytes = 0  # all filters' bytes
        self.admitted = 0
        self.evicted_for = {"topics": 0, "ids": 0, "filters": 0}  # by the exceeded limit
        self.dropped = 0  # those removed for another reason
        self.asked = self.misses = 0  # look-ups, and those that had to ask the store
        self._routes: dict[str, Route] = {}
        self._policy = Sieve()
        #: Topics whose first message no longer waits, or fails with this error. The home takes them.
        self.ready: list[tuple[str, Route, Exception | None]] = []
        #: Routes whose messages wait longer than their senders expect. The home takes them, and tells the senders.
        self.slow: list[Route] = []

    def __len__(self) -> int:
        return len(self._routes)

    @property
    def evicted(self) -> int:
        """How many were evicted for lack of room."""
        return sum(self.evicted_for.values())

    def use(self, topic: str) -> Route | None:
        """The topic's route, marked as just used."""
        route = self._routes.get(topic)
        if route is None:
            return self._passing.get(topic)
        self._policy.used(route)
        return route

    def get(self, topic: str) -> Route | None:
        """The topic's route, without marking it as used."""
        route = self._passing.get(topic)
        return self._routes.get(topic) if route is None else route

    def subscribed(self, client: str, topics: Iterable[str]) -> tuple[list[int], list[int]]:
        """Find the topics that the client has subscribed to, as positions in ``topics``.

        Args:
            client: The client's id.
            topics: Topics of this home.

        Returns:
            The positions that the cache confirms, then those that it does not know or where the client may have a
            filter.
        """
        routes = self._routes
        found: list[int] = []
        unknown: list[int] = []
        for place, topic in enumerate(topics):
            route = routes.get(topic)
            if route is None or route.subscribers is None or route.passing:
                unknown.append(place)  # a route that passes through may have to be read again
            elif client in route.subscribers:
                found.append(place)
            elif route.filters is not None:
                unknown.append(place)
        return found, unknown

    def add(self, topic: str) -> Route:
        """Add an empty route. The one for ``""``, which is no topic, passes."""
        passing = not topic or (self._choosy and len(self._routes) >= self.topics_max and not self._chosen())
        route = Route(topic, passing)
        if passing:
            self._passing[topic] = route
        else:
            self._evict()  # first: the new route is not in use yet, and must not be evicted
            self._admit(topic, route)
        return route

    def _chosen(self) -> bool:
        # Not every eighth: a round over the topics would choose the same ones each time. Lehmer's numbers, 16807 modulo
        # 2^31 - 1 (Park and Miller, 1988).
        self._choice = self._choice * 16807 % 0x7FFFFFFF
        return self._choice % CHOSEN == 0

    def filled(self, topic: str, route: Route, subscribers: Subscribers) -> None:
        """Fill the route with the topic's set, which was read."""
        route.filled(subscribers)
        if len(subscribers) > SMALL and topic in self._passing:
            self._keep(topic, route)
        self._count(route, len(subscribers))

    def _keep(self, topic: str, route: Route) -> None:
        route.passing = False  # reading a set this large takes longer
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
        """Apply the client's written or reverted subscriptions to these topics, in the cache and in reads under way."""
        for topic in topics:
            route = self.get(topic)
            if route is None:
                continue
            route.change(client, added)
            if route.subscribers is not None:
                self._count(route, len(route.subscribers))

    def doubt(self, topics: Iterable[str]) -> list[str]:
        """Have these topics read again before their next use: a failed write may yet take effect.

        Return those currently in use, which remain."""
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
        """Forget the topic. Return its route, in which messages may wait."""
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
        """Have the topic's next message read the subscribers again."""
        self._dropped(route)
        route.subscribers = route.filters = None

    def _dropped(self, route: Route) -> None:
        self.ids -= route.ids
        route.ids = 0
        if route.filters is not None:
            self.filter_bytes -= route.filters.counted
            route.filters.counted = 0

    def topics(self) -> list[str]:
        """All topics that have a route."""
        return [*self._routes, *self._passing]

    def trim(self) -> None:
        """Evict routes that stayed because they were in use. Call this periodically, since no further topic may
        come."""
        for _ in range(TRIMMED):
            if not self._too_much():
                return
            self._evict()

    def _evict(self) -> None:
        # Busy routes stay: the limit on messages in flight bounds their number, and this loop bounds the search for an
        # idle one.
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
