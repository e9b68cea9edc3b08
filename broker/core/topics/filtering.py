"""Handles the filters of topics at their home. It reads them with the subscribers, caches them in the routes, and
matches messages against them.

Owns: the reading of a topic's filters in pages and slices while the topic's messages wait, and the recipients that the
filters select for a message. Must never: write a filter, or know where a client listens.

For a message of a topic without filters, the only cost is one test of an attribute of the route.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from ..desk import Desk, Job
from ..dispatch import Dispatch
from ..model import FilterPage
from .routes import LOADING, READY, Route, Routes
from .topic_filters import Matched, TopicFilters

#: The largest number of filters of small topics to index in one turn. This takes 1 to 2 ms.
PAIRS_PER_TURN: Final = 200

#: The number of filters in each page except the first one, which the store returns with the subscribers.
PAIRS_PER_PAGE: Final = 1_000

#: While the home reads a topic's filters, it notifies the waiting senders at this interval, in seconds.
TELL_S: Final = 2.0

NO_FILTERS: Final[FilterPage] = ([], None)


class Loading:
    """A topic whose filters are being read."""

    __slots__ = ("error", "filters", "job", "page", "parked", "route", "tell_at", "topic")

    def __init__(self, topic: str, route: Route, filters: TopicFilters, page: FilterPage) -> None:
        self.topic = topic
        self.route = route
        self.filters = filters
        self.page: FilterPage | None = page  # the page that has arrived and is not indexed yet
        self.error: Exception | None = None
        self.job: Job | None = None
        self.parked = False  # whether the job waits for the next page
        self.tell_at = 0.0  # when waiting senders get the next notice


class Filtering:
    """The filters of one home."""

    def __init__(self, desk: Desk, routes: Routes) -> None:
        self._desk = desk
        self._routes = routes
        #: The client, topics and filter of each `subscribe` with ``replace`` that the store is writing. ``Writing``
        #: adds and removes them.
        self.replacing: dict[object, tuple[str, Sequence[str], str | None]] = {}

    # Reading

    def read(self, found: Sequence[tuple[str, Route, FilterPage]]) -> None:
        """Index the first page of these topics' filters, which the store has returned with the subscribers. A topic is
        ready immediately if this page is short and is the only page."""
        here = 0
        for topic, route, page in found:
            if self._routes.get(topic) is not route:
                continue  # the route was dropped meanwhile, with its waiting messages
            filters = route.filters  # it exists already if filters have changed meanwhile
            if filters is None:
                filters = route.filters = TopicFilters()
            pairs, cursor = page
            here += len(pairs)
            fits = cursor is None and here <= PAIRS_PER_TURN
            if fits and filters.read(pairs, 0) == len(pairs) and filters.complete():
                self._complete(topic, route, filters)
                continue
            route.stage = LOADING
            loading = Loading(topic, route, filters, page)  # indexing a filter twice has no further effect
            loading.job = self._rest(loading)
            self._desk.job(loading.job)

    def _rest(self, loading: Loading) -> Iterator[bool]:
        """Index page after page. Request the next page before indexing the present page."""
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
        while not filters.complete():  # apply the changes that were confirmed during the read
            yield False
            if self._routes.get(topic) is not route:
                return
        # The pages were read one after the other. A `replace` that the store is writing may have moved a client from a
        # later page to a page that had already been read, so add these subscriptions.
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
        """Report that the senders of the waiting messages must wait longer than usual."""
        if self._desk.now >= loading.tell_at:
            loading.tell_at = self._desk.now + TELL_S
            self._routes.slow.append(loading.route)

    # Changes

    def change(self, client: str, topics: Sequence[str], text: str | None, added: bool, replace: bool) -> int:
        """Apply a stored change of the client's subscriptions to the cached filters.

        Args:
            client: The client's id.
            topics: The changed topics.
            text: The filter. In an addition ``None`` means the subscription without a filter, and in a removal all
                subscriptions.
            added: Whether the store has added a subscription; otherwise it has removed a subscription.
            replace: Whether the subscription replaces the client's other subscriptions.

        Returns:
            The amount of work done: the number of filters changed, plus the number of topics examined.
        """
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
                    continue  # there is no filter to remove
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
        """Return the clients whose filters match the topic's first message, except those that are plain subscribers at
        the same moment.

        A client that gets or loses a filter meanwhile thus gets the message exactly once. Until the search has fixed
        the plain subscribers, each call matches again."""
        matched, search = filters.matched, route.search
        if matched is not None and (matched.dispatch is not dispatch or matched.plain is None):
            fixed = matched.dispatch is dispatch and search is not None and search.clients is not None
            matched = matched if fixed else None
        if matched is None:
            clients, key = filters.index.match(dispatch.message.payload)
            plain: Collection[str] | None = route.subscribers
            if search is not None and search.clients is not None:
                plain = frozenset(search.clients)  # the search has fixed these clients; some may have a filter now
            if plain:
                clients = [client for client in clients if client not in plain]
            matched = filters.matched = Matched(dispatch, clients, key)
        return matched
