"""The filters of topics at their home: read with the subscribers, kept in the routes, and asked for each message.

Owns: the reading of a topic's filters in slices, and of further pages of them, while its messages wait; and whom a
message is for by them. Must never: write a filter, or know where anybody is.

A message of a topic without filters costs one test of an attribute of its route.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from ..desk import Desk, Job
from ..dispatch import Dispatch
from ..model import FilterPage
from .routes import LOADING, READY, Route, Routes
from .topic_filters import Matched, TopicFilters

#: Filters of small topics that are put into their indexes in one turn: 1 to 2 ms.
PAIRS_PER_TURN: Final = 200

#: Filters in each page after the first, which comes with the subscribers.
PAIRS_PER_PAGE: Final = 1_000

#: How often those who wait are told so while a topic's filters are being read, in seconds.
TELL_S: Final = 2.0

NO_FILTERS: Final[FilterPage] = ([], None)


class Loading:
    """A topic whose filters are being read."""

    __slots__ = ("error", "filters", "job", "page", "parked", "route", "tell_at", "topic")

    def __init__(self, topic: str, route: Route, filters: TopicFilters, page: FilterPage) -> None:
        self.topic = topic
        self.route = route
        self.filters = filters
        self.page: FilterPage | None = page  # that has come, and is next
        self.error: Exception | None = None
        self.job: Job | None = None
        self.parked = False  # the job waits for the next page
        self.tell_at = 0.0  # when those who wait are told again


class Filtering:
    """One home's."""

    def __init__(self, desk: Desk, routes: Routes) -> None:
        self._desk = desk
        self._routes = routes
        #: The client, topics and filter of each `subscribe` with ``replace`` that the store is writing. ``Writing``
        #: adds them and takes them out; as many as writes are under way.
        self.replacing: dict[object, tuple[str, Sequence[str], str | None]] = {}

    # Reading

    def read(self, found: Sequence[tuple[str, Route, FilterPage]]) -> None:
        """The store has read the subscribers of these topics, and the first page of their filters. A topic is ready at
        once if that page is short and the only one."""
        here = 0
        for topic, route, page in found:
            if self._routes.get(topic) is not route:
                continue  # dropped meanwhile, with what waited in it
            filters = route.filters  # there, if some have been changed meanwhile
            if filters is None:
                filters = route.filters = TopicFilters()
            pairs, cursor = page
            here += len(pairs)
            fits = cursor is None and here <= PAIRS_PER_TURN
            if fits and filters.read(pairs, 0) == len(pairs) and filters.complete():
                self._complete(topic, route, filters)
                continue
            route.stage = LOADING
            loading = Loading(topic, route, filters, page)  # some may be read once more, which changes nothing
            loading.job = self._rest(loading)
            self._desk.job(loading.job)

    def _rest(self, loading: Loading) -> Iterator[bool]:
        """Page after page, the next one asked for before this one is put in."""
        topic, route, filters = loading.topic, loading.route, loading.filters
        while True:
            while loading.page is None:
                if loading.error is not None:
                    if self._routes.get(topic) is route:
                        self._routes.ready.append((topic, route, loading.error))
                    return
                loading.parked = True
                yield True
            pairs, cursor = loading.page
            loading.page = None
            if cursor is not None:
                self._desk.store("filtered", (topic, cursor, PAIRS_PER_PAGE), self._page, loading)
            self._have_wait(loading)
            done = 0
            while done < len(pairs):
                done = filters.read(pairs, done)
                yield False
                if self._routes.get(topic) is not route:
                    return
            if cursor is None:
                break
        while not filters.complete():  # what was confirmed while they were being read is done again
            yield False
            if self._routes.get(topic) is not route:
                return
        # The pages were read one after the other: a `replace` may have moved a client from a page still to come to one
        # that had been read.
        for client, topics, text in self.replacing.values():
            if topic in topics:
                if text is None:
                    self._routes.change(client, (topic,), True)
                else:
                    filters.change((client, text, True, False))
        self._complete(topic, route, filters)

    def _page(self, loading: Loading, result: Any, error: Exception | None) -> None:
        loading.error = error
        if error is None:
            loading.page = result
        if loading.parked and loading.job is not None:
            loading.parked = False
            self._desk.job(loading.job)

    def _complete(self, topic: str, route: Route, filters: TopicFilters) -> None:
        if len(filters.index):
            self._routes.count_filters(topic, route)
        else:
            route.filters = None
        route.stage = READY
        self._routes.ready.append((topic, route, None))

    def _have_wait(self, loading: Loading) -> None:
        """The peers that have asked have to wait longer than they would."""
        if self._desk.now >= loading.tell_at:
            loading.tell_at = self._desk.now + TELL_S
            self._routes.slow.append(loading.route)

    # Changes

    def change(self, client: str, topics: Sequence[str], text: str | None, added: bool, replace: bool) -> int:
        """The store has added or removed the client's subscriptions to these topics. ``text``: the filter; ``None``
        adds the one without a filter, or removes all. ``replace``: it removes all others. Returns how many filters
        changed, plus how many topics it looked at."""
        changed = 0
        for topic in topics:
            changed += 1
            route = self._routes.get(topic)
            if route is None:
                continue
            filters = route.filters
            if filters is None:
                is_read = route.subscribers is not None
                if is_read and (not added or text is None):
                    continue  # there is none to go
                filters = route.filters = TopicFilters(loading=not is_read)
            changed += filters.change((client, text, added, replace))
            if not filters.loading:
                if not len(filters.index) and route.first is None:
                    self._routes.count_filters(topic, route)
                    route.filters = None
                else:
                    self._routes.count_filters(topic, route)
        return changed

    # Messages

    @staticmethod
    def matched(route: Route, filters: TopicFilters, dispatch: Dispatch) -> Matched:
        """Whom the topic's first message is for by its filters alone, of the same moment as its plain subscribers: who
        changes from one to the other meanwhile gets it, and once. It is found out anew while those are not fixed."""
        matched, search = filters.matched, route.search
        if matched is not None and (matched.dispatch is not dispatch or matched.plain is None):
            fixed = matched.dispatch is dispatch and search is not None and search.clients is not None
            matched = matched if fixed else None
        if matched is None:
            clients, key = filters.index.match(dispatch.message.payload)
            plain: Collection[str] | None = route.subscribers
            if search is not None and search.clients is not None:
                plain = frozenset(search.clients)  # they are fixed; who was among them may have a filter by now
            if plain:
                clients = [client for client in clients if client not in plain]
            matched = filters.matched = Matched(dispatch, clients, key)
        return matched
