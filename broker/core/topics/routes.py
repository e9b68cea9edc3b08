"""The routing cache: the subscriber sets of topics this endpoint is home of.

Owns: a bounded cache, and the messages of each topic that wait in it. Must never: read a store, or decide who is told
what.
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

#: A set of so few is kept as a tuple: a set object takes four times the memory of its one id.
SMALL: Final = 8


#: What the first message of a topic waits for, its *stage*: nothing; the store's answer who subscribes; the store's
#: answer where some of these are; slices of work, or another turn; that fewer recipients are being served; the replica;
#: that the topic's filters have been read.
READY: Final = 0
READING: Final = 1
LOCATING: Final = 2
RESOLVING: Final = 3
CROWDED: Final = 4
BARRIER: Final = 5
LOADING: Final = 6


class LocationSearch:
    """Where the subscribers are that a topic's first message is for, as it is being found out."""

    __slots__ = ("clients", "found", "places", "route", "topic", "unfound")

    def __init__(self, topic: str, route: Route) -> None:
        self.topic = topic
        self.route = route
        #: Whom it is for, from when somebody had to be looked for. Who subscribes after that is not among them: with
        #: new ones coming all the time the search would never end.
        self.clients: list[str] | None = None
        self.found: Found = {}  # as the store has said
        self.unfound = 0  # clients that it has yet to say it of
        self.places: Places | None = None  # of many, once a job has gone through them


class Route(Entry):
    """A topic's entry, its key. While the set is being read (``subscribers`` is None), changes and messages wait in it.

    There are as many as there is room for, most of them idle: what only a busy one needs is None.
    """

    __slots__ = ("behind", "changes", "filters", "first", "ids", "passing", "search", "stage", "subscribers")

    def __init__(self, topic: str = "", passing: bool = False) -> None:
        super().__init__(topic, 1, 0)
        self.passing = passing  # it goes when nothing waits in it
        self.subscribers: Subscribers | None = None
        self.ids = 0  # in it, as its owner has counted them
        self.filters: TopicFilters | None = None  # None: nobody has one
        self.changes: list[tuple[str, bool]] | None = None  # (client, added?) confirmed while the set was being read
        # Messages of this topic, which go in their order; the first waits for what the stage says, the others for it.
        self.first: Dispatch | None = None
        self.behind: deque[Dispatch] | None = None
        self.stage = READY
        self.search: LocationSearch | None = None  # of the first message

    def put(self, dispatch: Dispatch) -> None:
        """It waits, behind those that do."""
        if self.first is None:
            self.first = dispatch
        elif self.behind is None:
            self.behind = deque((dispatch,))
        else:
            self.behind.append(dispatch)

    def take(self) -> Dispatch:
        """The first, whose turn has come."""
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
        """All of them, in their order."""
        if self.first is None:
            return []
        return [self.first, *(self.behind or ())]

    def filled(self, subscribers: Subscribers) -> None:
        """The read returned. What was confirmed meanwhile may or may not be in it, so it is applied again."""
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
        """A subscription was confirmed, or taken back."""
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


#: When the cache is full, one in so many topics that are not in it comes in, where the store is read from memory.
CHOSEN: Final = 8


#: Times eight looks for a topic that may go, in one tick.
TRIMMED: Final = 100


class Routes:
    """Topic -> route; at most ``topics_max`` topics and about ``ids_max`` ids and ``filter_bytes_max`` bytes of
    filters. SIEVE says which go (``core.caches``).

    A route that something waits in does not go. An entry takes about 360 bytes, a subscriber's id in it 80 to 180.

    ``choosy``: to ask the store again costs microseconds, as the entry of a topic that pushes another one out does.
    Then most topics pass: their route goes when their messages are on their way. A topic of many messages is soon
    chosen, and a round of all topics there are does not push out those that are used (bimodal insertion: Qureshi and
    others, Adaptive insertion policies, ISCA 2007).
    """

    def __init__(
        self, topics_max: int, ids_max: int, *, filter_bytes_max: int = FILTER_BYTES, choosy: bool = False
    ) -> None:
        self.topics_max = topics_max
        self.ids_max = ids_max
        self.filter_bytes_max = filter_bytes_max
        self._choosy = choosy
        self._choice = 1  # a pseudo-random number below 2^31
        #: Those that are no part of the cache. Few: what is added and taken out all the time stays in the CPU's caches.
        self._passing: dict[str, Route] = {}
        self.ids = 0  # in all sets
        self.filter_bytes = 0  # of all filters
        self.admitted = 0
        self.evicted_for = {"topics": 0, "ids": 0, "filters": 0}  # by what there was too much of
        self.dropped = 0  # that went for another reason
        self.asked = self.misses = 0  # look-ups, and those that had to ask the store
        self._routes: dict[str, Route] = {}
        self._policy = Sieve()
        #: Topics whose first message waits no longer, or cannot go on: an error says why. The home takes them.
        self.ready: list[tuple[str, Route, Exception | None]] = []
        #: Routes whose messages wait longer than whoever sent them expects. The home takes them, and says so.
        self.slow: list[Route] = []

    def __len__(self) -> int:
        return len(self._routes)

    @property
    def evicted(self) -> int:
        """How many went for want of room."""
        return sum(self.evicted_for.values())

    def use(self, topic: str) -> Route | None:
        """The topic's route, marked as just used."""
        route = self._routes.get(topic)
        if route is None:
            return self._passing.get(topic)
        self._policy.used(route)
        return route

    def get(self, topic: str) -> Route | None:
        """The topic's route, for a look."""
        route = self._passing.get(topic)
        return self._routes.get(topic) if route is None else route

    def subscribed(self, client: str, topics: Iterable[str]) -> tuple[list[int], list[int]]:
        """The places of those that the client has subscribed to; and of those of which that is not known here, or at
        which it may have a filter."""
        routes = self._routes
        found: list[int] = []
        unknown: list[int] = []
        for place, topic in enumerate(topics):
            route = routes.get(topic)
            if route is None or route.subscribers is None or route.passing:
                unknown.append(place)  # one that passes may have to be read again
            elif client in route.subscribers:
                found.append(place)
            elif route.filters is not None:
                unknown.append(place)
        return found, unknown

    def add(self, topic: str) -> Route:
        """A new, empty route. That of ``""``, which is no topic, passes."""
        passing = not topic or (self._choosy and len(self._routes) >= self.topics_max and not self._chosen())
        route = Route(topic, passing)
        if passing:
            self._passing[topic] = route
        else:
            self._evict()  # before: the new one is not in use yet, and must not be the one to go
            self._admit(topic, route)
        return route

    def _chosen(self) -> bool:
        # Not each eighth: a round of the topics would choose the same ones each time. Numbers by Lehmer, 16807 modulo
        # 2^31 - 1 (Park and Miller, 1988).
        self._choice = self._choice * 16807 % 0x7FFFFFFF
        return self._choice % CHOSEN == 0

    def filled(self, topic: str, route: Route, subscribers: Subscribers) -> None:
        """The topic's set was read."""
        route.filled(subscribers)
        if len(subscribers) > SMALL and topic in self._passing:
            self._keep(topic, route)
        self._count(route, len(subscribers))

    def _keep(self, topic: str, route: Route) -> None:
        route.passing = False  # to read so many takes longer
        self._admit(topic, self._passing.pop(topic))

    def _admit(self, topic: str, route: Route) -> None:
        self._routes[topic] = route
        self.admitted += 1
        self._policy.admit(route)

    def count_filters(self, topic: str, route: Route) -> None:
        """The topic's filters have been read, or have changed."""
        filters = route.filters
        assert filters is not None
        if topic in self._passing and len(filters.index) > SMALL:
            self._keep(topic, route)
        size = filters.index.bytes if len(filters.index) else 0
        self.filter_bytes += size - filters.counted
        filters.counted = size
        self._evict()

    def change(self, client: str, topics: Iterable[str], added: bool) -> None:
        """The client's subscriptions to these topics were written, or taken back: that holds from here on, in the cache
        and in reads under way."""
        for topic in topics:
            route = self.get(topic)
            if route is None:
                continue
            route.change(client, added)
            if route.subscribers is not None:
                self._count(route, len(route.subscribers))

    def doubt(self, topics: Iterable[str]) -> list[str]:
        """A write failed that may yet take effect: read these again before they are used again. Those that are in use
        just now are not; they are returned."""
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
        """Forget the topic; returns its route, in which publishes may wait."""
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
        """The topic's next message reads the subscribers again."""
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
        """What was in use when there was too much has stayed. Called now and then, as nothing more may come."""
        for _ in range(TRIMMED):
            if not self._too_much():
                return
            self._evict()

    def _evict(self) -> None:
        # Busy routes stay; they are bounded by the limit on messages in flight, and looking for an idle one is by this.
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
