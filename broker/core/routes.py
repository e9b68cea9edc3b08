"""The routing cache: subscriber sets of topics this endpoint is home of, and where clients listen.

Owns: two bounded caches, and the publishes that wait for one of them to be filled. Must never: read a store, or decide
who is told what.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from .model import Location

#: A set of so few is kept as a tuple: a set object takes four times the memory of its one id.
SMALL = 8


class Route:
    """A topic's entry. While the set is being read (``subscribers`` is None), changes and publishes wait in it.

    There are as many as there is room for, most of them idle: what only a busy one needs is None.
    """

    __slots__ = ("changes", "found", "ids", "places", "placing", "queue", "reading", "subscribers")

    def __init__(self) -> None:
        self.subscribers: tuple[str, ...] | set[str] | None = None
        self.ids = 0  # in it, as its owner has counted them
        self.reading = False  # the store has been asked for the set
        self.changes: list[tuple[str, bool]] | None = None  # (client, added?) confirmed while the set was being read
        # Publishes of this topic in their order; the head waits for the store, the others wait for the head.
        self.queue: deque[Any] | None = None
        self.found: dict[str, Location | None] | None = None  # locations read for the head
        self.placing = (
            False  # the head's many subscribers are being looked for, slice by slice, or it rests until another turn
        )
        self.places: Any = None  # of them, once they have been

    def filled(self, subscribers: set[str]) -> None:
        """The read returned. What was confirmed meanwhile may or may not be in it, so it is applied again."""
        for client, added in self.changes or ():
            if added:
                subscribers.add(client)
            else:
                subscribers.discard(client)
        self.changes = None
        self.reading = False
        self._set(subscribers)

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

    def _set(self, subscribers: set[str]) -> None:
        self.subscribers = tuple(subscribers) if len(subscribers) <= SMALL else subscribers


class Routes:
    """Topic -> route, the least recently used go first; at most ``topics_max`` topics and about ``ids_max`` ids.

    A route that something waits in does not go. An entry takes about 330 bytes, a subscriber's id in it 80 to 180.
    """

    def __init__(self, topics_max: int, ids_max: int) -> None:
        self.topics_max = topics_max
        self.ids_max = ids_max
        self.ids = 0  # in all sets
        self.evicted = 0
        self.asked = self.misses = 0  # look-ups, and those that had to ask the store
        self._routes: OrderedDict[str, Route] = OrderedDict()

    def __len__(self) -> int:
        return len(self._routes)

    def use(self, topic: str) -> Route | None:
        """The topic's route, marked as just used."""
        route = self._routes.get(topic)
        if route is not None:
            self._routes.move_to_end(topic)
        return route

    def get(self, topic: str) -> Route | None:
        """The topic's route, for a look."""
        return self._routes.get(topic)

    def add(self, topic: str) -> Route:
        """A new, empty route."""
        self._evict()  # before: the new one is not in use yet, and must not be the one to go
        route = self._routes[topic] = Route()
        return route

    def filled(self, topic: str, route: Route, subscribers: set[str]) -> None:
        """The topic's set was read."""
        route.filled(subscribers)
        self._count(route, len(subscribers))

    def change(self, topic: str, client: str, added: bool) -> None:
        """A subscription to the topic was confirmed, or taken back."""
        route = self._routes.get(topic)
        if route is None:
            return
        route.change(client, added)
        if route.subscribers is not None:
            self._count(route, len(route.subscribers))

    def _count(self, route: Route, ids: int) -> None:
        self.ids += ids - route.ids
        route.ids = ids
        self._evict()

    def drop(self, topic: str) -> Route | None:
        """Forget the topic; returns its route, in whose queue publishes may wait."""
        route = self._routes.pop(topic, None)
        if route is not None:
            self.ids -= route.ids
            route.ids = 0
        return route

    def topics(self) -> list[str]:
        """All topics in the cache."""
        return list(self._routes)

    def _evict(self) -> None:
        # Busy routes stay; they are bounded by the limit on messages in flight, and looking for an idle one is by this.
        for _ in range(8):
            if len(self._routes) <= self.topics_max and self.ids <= self.ids_max:
                return
            topic, route = next(iter(self._routes.items()))
            if route.queue or route.reading or len(self._routes) == 1:
                self._routes.move_to_end(topic)
            else:
                self.drop(topic)
                self.evicted += 1


class Locations:
    """Client -> location, ``clients_max`` at most (about 400 bytes each), the longest unchanged go first.

    Only ever replaced by a greater one (``Location.rank``), so that a late read cannot bring an old one back.
    """

    def __init__(self, clients_max: int) -> None:
        self.clients_max = clients_max
        self.evicted = 0
        self.asked = self.misses = 0  # look-ups, and those that had to ask the store
        self._known: OrderedDict[str, Location] = OrderedDict()
        self.get = self._known.get  # the hot path's: no frame for it

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, client: str, location: Location) -> bool:
        """Take it if it is news; returns whether it was."""
        known = self._known.get(client)
        if known is not None:
            if known.rank >= location.rank:
                return False
            self._known.move_to_end(client)
        self._known[client] = location
        if len(self._known) > self.clients_max:
            self._known.popitem(last=False)
            self.evicted += 1
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
