"""A client's record of its expiring subscriptions: those that it has made, and those that it has to renew.

Owns: the list of the client's subscriptions with ``until="disconnect"``, and the choice of those to renew. Must never:
send anything, or read a clock. The caller passes the time by both clocks. SPEC sections 2.2 and 9.

The list has no size limit. It has an entry for each of the program's subscriptions with ``until="disconnect"``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Any, Final, NamedTuple

import orjson

from .errors import ProtocolError
from .listings import Subscription
from .messages import TTL_S_MAX
from .requests import neighbours
from .wire import canonical

#: Maximum number of topics that one command renews. After a crash many clients renew within seconds of each other, so
#: each client sends short commands, one at a time.
AGAIN_TOPICS_MAX: Final = 1_000

#: A share of the grace time. If a client was away for longer than this share, its subscriptions may already have ended
#: according to the endpoints' clocks.
_SURE: Final = 0.5

Key = tuple[str, str | None]
"""One subscription of a client: its topic, and the canonical text of its filter or ``None``."""


def term_fields(until: str | None, ttl_s: int | None) -> dict[str, Any]:
    """Return the fields of a subscribe that say when the subscription ends.

    Args:
        until: ``"disconnect"``, or ``None``.
        ttl_s: number of seconds, from 1 to 2,592,000 (30 days), or ``None``.

    Returns:
        The fields, or no fields if the subscription does not end on its own.

    Raises:
        ProtocolError: ``bad_state``; a value is not valid.
    """
    fields: dict[str, Any] = {}
    if until is not None:
        if until != "disconnect":
            raise ProtocolError("bad_state", "Key 'until' has to be \"disconnect\"; omit it if the subscription stays")
        fields["until"] = until
    if ttl_s is not None:
        if type(ttl_s) is not int or not 1 <= ttl_s <= TTL_S_MAX:
            raise ProtocolError("bad_state", f"Key 'ttl_s' has to be an integer from 1 to {TTL_S_MAX} (in seconds)")
        fields["ttl_s"] = ttl_s
    return fields


class Now(NamedTuple):
    """One moment by two clocks, in seconds: ``awake_s`` stops while the machine sleeps, ``all_s`` continues."""

    awake_s: float
    all_s: float


class Ended(NamedTuple):
    """Subscriptions that have ended: a list of the latest 1,000 at most, and the total number."""

    subscriptions: list[Subscription]
    total: int


class Again(NamedTuple):
    """One command that renews subscriptions: its topics, their filter, and the command's other fields."""

    topics: list[str]
    filter: str | None
    fields: dict[str, Any]

    @property
    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions that the command renews."""
        return [_subscription((topic, self.filter)) for topic in self.topics]


class Kept:
    """One client's list of subscriptions with ``until="disconnect"``."""

    def __init__(self) -> None:
        self.grace_s = inf  # in seconds, from the latest reply
        self.is_unsure = False  # the reply named only some ended subscriptions; the next reply names the rest
        self._ends_s: dict[Key, float] = {}  # when each subscription expires, by `all_s`, or infinity
        self._filters: dict[str, set[str]] = {}  # the filters of these subscriptions, by topic
        self._timed_max = 1_000  # with more entries than this, the list is searched for expired entries
        self._due: deque[Key] = deque()
        #: The position that the client sent with the `listen` whose reply named the first due subscriptions, or None.
        self._since: str | None = None
        self._all_taken = True  # no subscription is due or being renewed
        self._listens: Now | None = None  # when the client began to listen; None if it does not listen
        self._left_s = 0.0  # when the client stopped listening, by `all_s`

    def __len__(self) -> int:
        return len(self._ends_s)

    def __contains__(self, key: Key) -> bool:
        return key in self._ends_s

    @property
    def is_due(self) -> bool:
        """Return whether the client has a subscription to renew."""
        return bool(self._due)

    def subscribed(
        self, topics: Sequence[str], filter: str | None, ttl_s: int | None, now: Now, began: Now | None = None
    ) -> None:
        """Record topics that an endpoint has accepted with this filter. ``began`` is the time when the client sent the
        first of several commands."""
        first = began or now
        if not self._ends_s and self._listens is None:
            self._left_s = first.all_s  # SPEC 2.2: the grace time begins with the subscribe
        ends_s = inf if ttl_s is None else now.all_s + ttl_s
        keys = [(topic, filter) for topic in topics]
        self._ends_s |= dict.fromkeys(keys, ends_s)
        self._index(keys)
        if ttl_s is not None and len(self._ends_s) > self._timed_max:
            # A program may keep subscribing to new topics that expire. The list may double in size before the next
            # search.
            self._ends_s = {key: at_s for key, at_s in self._ends_s.items() if at_s > now.all_s}
            self._timed_max = max(2 * len(self._ends_s), 1_000)
            self._filters = {}
            self._index(self._ends_s)
        if self._listens is not None and self._listens.all_s > first.all_s:
            # The client was away between the commands, so subscriptions of the first commands may have ended already.
            self._due.extend(keys)

    def _index(self, keys: Iterable[Key]) -> None:
        for topic, filter in keys:
            if filter is not None:
                self._filters.setdefault(topic, set()).add(filter)

    def gone(self, topics: Iterable[str]) -> None:
        """Remove everything at these topics from the list."""
        if self._ends_s:
            for topic in topics:
                self.out((topic, filter) for filter in (None, *self._filters.get(topic, ())))

    def out(self, keys: Iterable[Key]) -> None:
        """Remove these subscriptions from the list. The client has unsubscribed, or the subscriptions have another term
        now."""
        for topic, filter in keys:
            self._ends_s.pop((topic, filter), None)
            filters = None if filter is None else self._filters.get(topic)
            if filters is not None and filter is not None:
                filters.discard(filter)
                if not filters:
                    del self._filters[topic]

    def left(self, now: Now, *, is_over: bool = False) -> None:
        """Record that the client no longer listens anywhere. If the machine slept before, that time counts as time
        away, because endpoints heard nothing from the client. ``is_over`` says that the grace time had already expired
        at the endpoints (close code 4007)."""
        if is_over:
            self._left_s, self._listens = -inf, None
        elif self._listens is not None:
            slept_s = (now.all_s - self._listens.all_s) - (now.awake_s - self._listens.awake_s)
            self._left_s = now.all_s - max(slept_s, 0.0)
            self._listens = None

    def listened(
        self, reply: Mapping[str, Any], now: Now, *, is_last: bool = False, since: str | None = None
    ) -> Ended | None:
        """Process the reply to ``listen``, and find out which subscriptions are due for renewal.

        Args:
            reply: the reply's fields.
            now: the current moment.
            is_last: whether the client has renewed all due subscriptions, so that the reply names no more of them.
            since: the position that the client sent with the ``listen``. The client renews due subscriptions from this
                position, because the ``listen`` recovers no messages of ended subscriptions.

        Returns:
            The ended subscriptions that are not in this record. ``None`` if there are none, or if a later reply will
            name them.
        """
        self.left(now)
        away_s = now.all_s - self._left_s
        self._listens = now
        ended = _named(reply.get("ended"))
        counted = reply.get("ended_count")
        count = max(counted, len(ended)) if type(counted) is int else len(ended)
        others = [key for key in ended if self._ends_s.get(key, 0.0) <= now.all_s]
        self.is_unsure = count > len(ended) and bool(self._ends_s) and not is_last
        if self._ends_s and (self.is_unsure or away_s > _SURE * self.grace_s):
            due: Iterable[Key] = self._ends_s
        else:
            mine = set(ended).difference(others)
            due = [*self._due, *(key for key in ended if key in mine)]
        self._due = deque(_ordered(dict.fromkeys(due)))
        if self._all_taken:  # otherwise keep the older position, from which other subscriptions are still due
            self._since = since
        self._all_taken = self._all_taken and not self._due
        self.out(others)
        left = count - (len(ended) - len(others))
        return Ended(list(map(_subscription, others)), left) if left and not self.is_unsure else None

    def take(self, now: Now) -> Again | None:
        """Remove and return the next due subscriptions, with their remaining time. Returns ``None`` if none is left.
        The client calls this only after it has renewed or given up the subscriptions of the previous call."""
        topics: list[str] = []
        of_these: tuple[str | None, int | None] = None, None  # their filter, and the remaining seconds
        while self._due and len(topics) < AGAIN_TOPICS_MAX:
            topic, filter = key = self._due[0]
            left_s = self._ends_s.get(key, 0.0) - now.all_s
            if left_s <= 0:  # it has expired, or the client has unsubscribed meanwhile
                self._due.popleft()
                self.out((key,))
                continue
            its = filter, None if left_s == inf else min(ceil(left_s), TTL_S_MAX)
            if topics and its != of_these:
                break
            of_these = its
            self._due.popleft()
            topics.append(topic)
        if not topics:
            self._all_taken, self._since = True, None
            return None
        filter, ttl_s = of_these
        since = {} if self._since is None else {"since": self._since}
        return Again(topics, filter, term_fields("disconnect", ttl_s) | since)

    def put_back(self, again: Again) -> None:
        """Put these subscriptions back after a failed attempt, since they are still due."""
        self._due.extendleft((topic, again.filter) for topic in reversed(again.topics))


def _named(ended: object) -> list[Key]:
    """Return the subscriptions that a reply names. Skips malformed rows."""
    return [
        (each["topic"], canonical(each["filter"]).decode() if "filter" in each else None)
        for each in (ended if type(ended) is list else ())
        if type(each) is dict and type(each.get("topic")) is str and type(each.get("filter", {})) is dict
    ]


def _subscription(key: Key) -> Subscription:
    topic, filter = key
    return Subscription(topic, None if filter is None else orjson.loads(filter))


def _ordered(keys: Iterable[Key]) -> list[Key]:
    """Group the subscriptions by filter. In a group that needs several commands, topics of one slot stay together."""
    by_filter: dict[str | None, list[str]] = {}
    for topic, filter in keys:
        by_filter.setdefault(filter, []).append(topic)
    return [
        (topic, filter)
        for filter, topics in by_filter.items()
        for topic in (neighbours(topics) if len(topics) > AGAIN_TOPICS_MAX else topics)
    ]
