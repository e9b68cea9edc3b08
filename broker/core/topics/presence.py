"""Presence: who comes to a topic, and who leaves it. SPEC section 2.5.

Owns: which topics have presence, whether a change is a join or a leave, and what has yet to be told of it. Must never:
tell it (``messages.announcing`` does), take for a change what is not in the store and in the routing cache, or have a
change wait until it is told.
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

#: Ids in one message: some 130 KB at most, where a payload may have a megabyte.
IDS_PER_MESSAGE: Final = 1_000

#: Joins and leaves that have yet to be told, of all topics, some 300 bytes each; beyond that they are dropped.
WAITING_MAX: Final = 10_000

#: Topics at which one call to the store asks for a client's subscriptions, as homes ask for topics.
TOPICS_PER_READ: Final = SIZES.topics_per_read

Looked = Callable[[Any, list[str]], None]
"""Told (context, the topics that the client joins or leaves by the change)."""


class Look:
    """A change, and which topics its client joins or leaves by it, as far as that is known."""

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
        self.unread = topics  # at which the client's subscriptions have yet to be read

    def is_changed(self, held: list[Subscription]) -> bool:
        """Is it the first subscription at the topic that is added, or the last one that goes?"""
        if self.added:
            return not held
        return bool(held) and (self.filter is None or all(one.filter == self.filter for one in held))


class News:
    """What has yet to be told of one topic: runs of joins, or of leaves, in their order."""

    __slots__ = ("runs", "topic", "under_way")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.runs: deque[tuple[bool, list[str]]] = deque()
        self.under_way = 0  # ids of the message that is


class Presence:
    """One endpoint's. ``prefixes``: what topics with presence begin with."""

    def __init__(self, desk: Desk, inflight: InFlight, prefixes: Iterable[str]) -> None:
        self._desk = desk
        self._inflight = inflight
        self._prefixes = tuple(prefixes)
        #: What the topics begin with on which it is told.
        self.told_of = tuple(PRESENCE + prefix for prefix in self._prefixes)
        self._news: dict[str, News] = {}  # by topic
        #: Of which the next message may go: ``Announcing`` takes them.
        self.due: deque[News] = deque()
        self.waiting = 0  # joins and leaves that have yet to be told, those under way included

    # What has presence

    def of(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that have presence."""
        found: list[str] = []
        for topic in topics:
            if topic.startswith(self._prefixes) and not topic.startswith(PRESENCE):
                if len(PRESENCE) + len(topic.encode()) > TOPIC_BYTES_MAX:
                    self._desk.counts["presence_lost"] += 1
                else:
                    found.append(topic)
        return found

    # What a change does

    def look(self, client: str, topics: list[str], added: bool, filter: str | None, then: Looked, context: Any) -> None:
        """Find out which of these topics the client joins or leaves; all have presence. ``filter``: of the subscription
        that the change adds or removes; ``None`` adds the one without a filter, or removes all. Topics that the store
        cannot read are counted as lost."""
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
        if error is not None:  # the next would take as long to fail
            self.lose(len(part) + len(look.unread))
            look.unread = []
        else:
            look.changed += [topic for topic, held in zip(part, result, strict=True) if look.is_changed(held)]
        self._read_on(look)

    # Telling

    def lose(self, count: int) -> None:
        """So many joins and leaves, if they are any, are not told."""
        self._desk.counts["presence_lost"] += count

    def tell(self, client: str, topics: Iterable[str], joined: bool) -> None:
        """The client has joined these topics, or has left them: the store and the cache say so. It is told at the end
        of the turn."""
        for topic in topics:
            if self.waiting >= WAITING_MAX:
                self.lose(1)
                continue
            self.waiting += 1
            news = self._news.get(topic)
            if news is None:
                news = self._news[topic] = News(topic)
                self._inflight.begin(0)  # so that an end in order waits for it, and publishers are slowed by many
                self.due.append(news)
            runs = news.runs
            if runs and runs[-1][0] == joined and len(runs[-1][1]) < IDS_PER_MESSAGE:
                runs[-1][1].append(client)
            else:
                runs.append((joined, [client]))

    def next_of(self, news: News) -> tuple[bool, list[str]]:
        """What the topic's next message tells: have these clients joined? It is under way until ``told``."""
        joined, clients = news.runs.popleft()
        news.under_way = len(clients)
        return joined, clients

    def told(self, news: News, is_lost: bool) -> None:
        """The topic's message has been dispatched, or is lost."""
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
