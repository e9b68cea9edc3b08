"""Presence: determines which clients join and leave a topic. SPEC section 2.5.

Owns: the choice of topics that have presence, the decision of whether a change is a join or a leave, and the queue of
joins and leaves to announce. Must never: announce joins and leaves (``messages.announcing`` does this), report a change
that is not in the store and in the routing cache, or make a change wait for its announcement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from ingeborg.protocol.topics import PRESENCE, TOPIC_BYTES_MAX

from ..dedup.inflight import InFlight
from ..desk import Desk
from ..limits import SIZES
from ..model import Subscription

#: The largest number of ids in one message. They take at most about 130 KB, while a payload may have a megabyte.
IDS_PER_MESSAGE: Final = 1_000

#: The largest number of joins and leaves of all topics that wait to be announced, at about 300 bytes each. Further
#: joins and leaves are dropped.
WAITING_MAX: Final = 10_000

#: The number of topics in one store call for a client's subscriptions.
TOPICS_PER_READ: Final = SIZES.topics_per_read

Looked = Callable[[Any, list[str]], None]
"""A callback that gets the context and the topics that the client joins or leaves through the change."""


class Look:
    """A change, and the topics found so far that the client joins or leaves through it."""

    __slots__ = ("added", "changed", "client", "context", "filter", "then", "unread")

    def __init__(
        self, client: str, topics: list[str], added: bool, filter: str | None, then: Looked, context: Any
    ) -> None:
        self.client = client
        self.added = added
        self.filter = filter
        self.then = then
        self.context = context
        self.changed: list[str] = []
        self.unread = topics  # topics at which the client's subscriptions have not been read yet

    def is_changed(self, held: list[Subscription]) -> bool:
        """Return whether the change adds the client's first subscription at the topic, or removes the last
        subscription."""
        if self.added:
            return not held
        return bool(held) and (self.filter is None or all(one.filter == self.filter for one in held))


class News:
    """The joins and leaves to announce at one topic: a queue of runs, where each run has only joins or only leaves."""

    __slots__ = ("runs", "topic", "under_way")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.runs: deque[tuple[bool, list[str]]] = deque()
        self.under_way = 0  # the number of ids in the message that is being sent


class Presence:
    """One endpoint's presence. A topic has presence if it begins with one of ``prefixes``."""

    def __init__(self, desk: Desk, inflight: InFlight, prefixes: Iterable[str]) -> None:
        self._desk = desk
        self._inflight = inflight
        self._prefixes = tuple(prefixes)
        #: Prefixes of the topics at which joins and leaves are announced.
        self.told_of = tuple(PRESENCE + prefix for prefix in self._prefixes)
        self._news: dict[str, News] = {}  # indexed by topic
        #: Topics whose next message can be sent. ``Announcing`` empties this tray.
        self.due: deque[News] = deque()
        self.waiting = 0  # the number of joins and leaves to announce, including those being sent

    # Topics with presence

    def of(self, topics: Iterable[str]) -> list[str]:
        """Return the given topics that have presence."""
        found: list[str] = []
        for topic in topics:
            if topic.startswith(self._prefixes) and not topic.startswith(PRESENCE):
                if len(PRESENCE) + len(topic.encode()) > TOPIC_BYTES_MAX:
                    self._desk.counts["presence_lost"] += 1
                else:
                    found.append(topic)
        return found

    # The effect of a change

    def look(self, client: str, topics: list[str], added: bool, filter: str | None, then: Looked, context: Any) -> None:
        """Find the topics that the client joins or leaves through a change.

        If the store cannot read a topic, the join or leave counts as lost.

        Args:
            client: The client's id.
            topics: The topics to examine. All have presence.
            added: Whether the change adds a subscription; otherwise it removes some.
            filter: The filter of that subscription. In an addition ``None`` means the subscription without a filter,
                and in a removal all subscriptions.
            then: Called with the result.
            context: The first argument of ``then``.
        """
        self._read_on(Look(client, topics, added, filter, then, context))

    def _read_on(self, look: Look) -> None:
        if not look.unread:
            look.then(look.context, look.changed)
            return
        part, look.unread = look.unread[:TOPICS_PER_READ], look.unread[TOPICS_PER_READ:]
        pairs = [(look.client, topic) for topic in part]
        self._desk.store("subscriptions_of", (pairs,), self._read, (look, part))

    def _read(self, context: tuple[Look, list[str]], result: Any, error: Exception | None) -> None:
        look, part = context
        if error is not None:  # further reads would probably fail as well, after the same time
            self.lose(len(part) + len(look.unread))
            look.unread = []
        else:
            look.changed += [topic for topic, held in zip(part, result, strict=True) if look.is_changed(held)]
        self._read_on(look)

    # Announcements

    def lose(self, count: int) -> None:
        """Count changes as lost joins and leaves, because they are not announced. Some of these changes may be neither
        joins nor leaves."""
        self._desk.counts["presence_lost"] += count

    def tell(self, client: str, topics: Iterable[str], joined: bool) -> None:
        """Queue announcements that the client has joined or left these topics. The store and the cache already have the
        change."""
        for topic in topics:
            if self.waiting >= WAITING_MAX:
                self.lose(1)
                continue
            self.waiting += 1
            news = self._news.get(topic)
            if news is None:
                news = self._news[topic] = News(topic)
                self._inflight.begin(0)  # a shutdown waits for the announcement, and a backlog slows publishers
                self.due.append(news)
            runs = news.runs
            if runs and runs[-1][0] == joined and len(runs[-1][1]) < IDS_PER_MESSAGE:
                runs[-1][1].append(client)
            else:
                runs.append((joined, [client]))

    def next_of(self, news: News) -> tuple[bool, list[str]]:
        """Return the content of the topic's next message: whether the clients have joined, and their ids. The message
        counts as being sent until ``told`` is called."""
        joined, clients = news.runs.popleft()
        news.under_way = len(clients)
        return joined, clients

    def told(self, news: News, is_lost: bool) -> None:
        """Handle the end of the topic's message, which was dispatched or is lost."""
        count, news.under_way = news.under_way, 0
        self.waiting -= count
        if is_lost:
            self.lose(count)
        else:
            self._desk.counts["presence_told"] += count
        if news.runs:
            self.due.append(news)
        else:
            del self._news[news.topic]
            self._inflight.end(0)
