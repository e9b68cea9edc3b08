"""What is in the objects of ending subscriptions, which all lie in the bucket type that expires.

Owns: these values, and how two versions of one merge: of a client's subscription to a topic the greater stamp, else the
union. Must never: do I/O, or forget a subscription in a merge that another version has.

An entry that was taken out is not remembered, so a version from before may bring it back: an ``end`` or an
``unsubscribe`` may have to be repeated, a subscription never (SPEC section 8.1).

Where a plain subscription takes the place of an ending one, a *mark* does so here, for ``MARKED_MS``: an entry whose
time is before all times. Whoever has read the plain ones before that, and reads the ending ones after it, finds the
client all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import ormsgpack

from ..base import ENDED_TOPICS_MAX, Ended, Term
from .layout import (
    ENTRY_BYTES,
    OBJECT_BYTES_MAX,
    RECENT_MS,
    REMOVED_MAX,
    TOPIC_CLIENTS_MAX,
    VERSION,
    SetObject,
    unpack,
    utf8_bytes,
)

_TERM_BYTES: Final = 1 + 1 + 9 + 9
"""An array of a truth value, a time and a stamp."""

_TIME_BYTES: Final = 9

MARKED_MS: Final = 60_000
"""How long a mark is one: longer than a reader takes for two reads. After it nobody sees it, and the next write leaves
it out."""


class Stamped(NamedTuple):
    """An ending subscription of a client whose topic is known."""

    disconnect: bool
    ends_at: float
    stamp: int

    @property
    def rank(self) -> tuple[int, float, bool]:
        """Of two the greater is true; where two writers drew one stamp, some one of both, the same for everybody."""
        return (self.stamp, self.ends_at, self.disconnect)

    @property
    def mark(self) -> bool:
        """It is none, but has become a plain one lately."""
        return self.ends_at < 0

    @property
    def term(self) -> Term:
        """When it ends."""
        return Term(self.disconnect, self.ends_at)


def keep_later(known: dict[str, Stamped], others: Mapping[str, Any], marked_since_ms: int = 0) -> None:
    """Add the others: of a client that both have, the entry with the greater stamp. Marks from before are left out.
    ``TypeError`` for no entries."""
    for client, packed in others.items():
        entry = Stamped(*packed)
        held = known.get(client)
        if entry.mark and entry.stamp < marked_since_ms:
            continue
        if held is None or entry.rank > held.rank:
            known[client] = entry


def _packed(entries: Mapping[str, Stamped]) -> dict[str, tuple[object, ...]]:
    return {client: tuple(entry) for client, entry in sorted(entries.items())}


def _anew(held: Stamped | None, term: Term, now_ms: int) -> Stamped:
    """The entry of a subscription that is made now."""
    return Stamped(term.disconnect, term.ends_at, max(now_ms, held.stamp + 1) if held else now_ms)


_MARK: Final = Term(disconnect=False, ends_at=-1.0)


class TermPartition:
    """The ending subscriptions to the topics of one partition, those of small topics.

    A topic that has grown large, and every new one once the object is ``full``, goes on in objects of its own, as in
    ``layout.Partition``. Other than there, everything has to be found again from here, to be renewed and looked
    through: so the topics that a full partition has no room to name are in a set that is named after it.
    """

    def __init__(self, now_ms: int) -> None:
        self.dirty = False
        self._now_ms = now_ms
        self.topics: dict[str, dict[str, Stamped]] = {}
        self.spilled: set[str] = set()
        self.full = False
        self._bytes = 32

    def absorb(self, value: bytes) -> None:
        topics, spilled, full = unpack(value, 3)
        for topic, clients in topics.items():
            known = self.topics.setdefault(topic, {})
            keep_later(known, clients, self._now_ms - MARKED_MS)
            if not known:
                del self.topics[topic]
        self.spilled.update(spilled)
        self.full = self.full or full
        self._bytes = max(self._bytes, len(value))  # as in ``layout.Partition``

    def encode(self) -> bytes:
        topics = {topic: _packed(clients) for topic, clients in self.topics.items()}
        return ormsgpack.packb([VERSION, topics, sorted(self.spilled), self.full])

    def elsewhere(self, topic: str) -> bool:
        """Whether the topic can have ending subscriptions in objects of its own, too."""
        return self.full or topic in self.spilled

    def put(self, topic: str, client: str, term: Term) -> bool:
        """Whether it is in here now; if not, it belongs into the topic's own objects (and that has been noted).

        Either way this object is written: a mark that expired before what it leads to would hide it.
        """
        self.dirty = True
        clients = self.topics.get(topic)
        if clients is not None and client in clients:
            clients[client] = _anew(clients[client], term, self._now_ms)
            return True
        if self.elsewhere(topic):
            return False
        if clients is not None and len(clients) >= TOPIC_CLIENTS_MAX:
            self.spilled.add(topic)
            self._bytes += utf8_bytes(topic) + ENTRY_BYTES
            return False
        more = utf8_bytes(client) + ENTRY_BYTES + _TERM_BYTES
        if clients is None:
            more += utf8_bytes(topic) + 2 * ENTRY_BYTES
        if self._bytes + more > OBJECT_BYTES_MAX:
            self.full = True
            return False
        self._bytes += more
        self.topics.setdefault(topic, {})[client] = _anew(None, term, self._now_ms)
        return True

    def mark(self, topic: str, client: str) -> Stamped | None:
        """The subscription has become a plain one; what it was, if it is in here."""
        clients = self.topics.get(topic, {})
        held = clients.get(client)
        if held is not None:
            self.dirty = True
            clients[client] = _anew(held, _MARK, self._now_ms)
        return held

    def take(self, topic: str, client: str, stamp: int | None) -> Stamped | None:
        """Take the subscription out if it has this stamp (``None``: whichever it has); the one that has another."""
        clients = self.topics.get(topic, {})
        held = clients.get(client)
        if held is None or stamp not in (None, held.stamp):
            return held
        self.dirty = True
        del clients[client]
        self._bytes -= utf8_bytes(client) + _TERM_BYTES
        if not clients:
            del self.topics[topic]
            self._bytes -= utf8_bytes(topic) + 1
        return None

    def renew(self) -> None:
        """Have it written again, if there is anything in it."""
        self.dirty = self.dirty or bool(self.topics or self.spilled or self.full)


class TermObject(SetObject):
    """One object of a topic's own: some of its clients, with the terms of their subscriptions."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._now_ms = now_ms
        self.terms: dict[str, Stamped] = {}

    def absorb(self, value: bytes) -> None:
        name, level, terms = unpack(value, 3)
        self._of(name, level, value)
        keep_later(self.terms, terms, self._now_ms - MARKED_MS)
        self.members.update(self.terms)

    def encode(self) -> bytes:
        return ormsgpack.packb([VERSION, self.name, self.level, _packed(self.terms)])

    def put(self, client: str, term: Term, limit: int) -> bool:
        """As ``SetObject.add``, with the term."""
        if not self.add(client, limit):
            return False
        self.terms[client] = _anew(self.terms.get(client), term, self._now_ms)
        return True

    def mark(self, client: str) -> Stamped | None:
        """As ``TermPartition.mark``."""
        held = self.terms.get(client)
        if held is not None:
            self.dirty = True
            self.terms[client] = _anew(held, _MARK, self._now_ms)
        return held

    def take(self, client: str, stamp: int | None) -> Stamped | None:
        """As ``TermPartition.take``."""
        held = self.terms.get(client)
        if held is None or stamp not in (None, held.stamp):
            return held
        self.discard(client)
        del self.terms[client]
        return None

    def _entry_bytes(self, member: str) -> int:
        return super()._entry_bytes(member) + _TERM_BYTES


class EndedTopics:
    """What has ended of a client, and when. Its subscriptions have several homes, whose writes may miss each other: of
    an end and a new subscription the later is true, for ``RECENT_MS``, as in ``layout.ListObject``; an end if they are
    equal.

    ``unnamed``: how many more there were, whose names had no room; ``unnamed_ms``: when the last of them ended.
    """

    def __init__(self, now_ms: int) -> None:
        self.dirty = False
        self.topics: dict[str, int] = {}  # when, as a Unix time in milliseconds
        self.unnamed = 0
        self.unnamed_ms = 0
        self._now_ms = now_ms
        self._back: dict[str, int] = {}  # subscribed to again, and when

    def absorb(self, value: bytes) -> None:
        topics, back, unnamed, unnamed_ms = unpack(value, 4)
        for times, known in ((topics, self.topics), (back, self._back)):
            for topic, at_ms in times.items():
                known[topic] = max(at_ms, known.get(topic, 0))
        self._back = {topic: at_ms for topic, at_ms in self._back.items() if at_ms > self._now_ms - RECENT_MS}
        self.topics = {topic: at_ms for topic, at_ms in self.topics.items() if at_ms >= self._back.get(topic, 0)}
        self.unnamed = max(self.unnamed, unnamed)
        self.unnamed_ms = max(self.unnamed_ms, unnamed_ms)

    def encode(self) -> bytes:
        back = sorted(self._back.items(), key=lambda entry: entry[1], reverse=True)[:REMOVED_MAX]
        return ormsgpack.packb(
            [VERSION, self.topics, dict(_that_fit(back, OBJECT_BYTES_MAX // 4)), self.unnamed, self.unnamed_ms]
        )

    def add(self, topics: Iterable[str], kept_ms: int) -> int:
        """These have ended. What ended more than ``kept_ms`` before is forgotten; how many lost their names."""
        self._forget(kept_ms)
        for topic in topics:
            self.dirty = True
            self.topics[topic] = max(self._now_ms, self._back.pop(topic, 0))
        latest = self._latest()
        lost = self.topics.keys() - latest.keys()
        self.unnamed += len(lost)
        self.unnamed_ms = max([self.unnamed_ms, *(self.topics[topic] for topic in lost)])
        self.topics = latest
        return len(lost)

    def discard(self, topics: Iterable[str]) -> None:
        """These have been subscribed to again. Those without names stay counted: which they are nobody knows."""
        for topic in topics:
            at_ms = self.topics.pop(topic, None)
            if at_ms is not None:
                self.dirty = True
                self._back[topic] = max(self._now_ms, at_ms + 1)

    def ended(self, kept_ms: int) -> Ended | None:
        """What a reader is told: the latest last."""
        self._forget(kept_ms)
        if not self.topics and not self.unnamed:
            return None
        return Ended(list(self._latest()), len(self.topics) + self.unnamed)

    def _forget(self, kept_ms: int) -> None:
        since_ms = self._now_ms - kept_ms
        self.topics = {topic: at_ms for topic, at_ms in self.topics.items() if at_ms >= since_ms}
        if self.unnamed_ms < since_ms:
            self.unnamed = 0

    def _latest(self) -> dict[str, int]:
        """As many as there may be, and have room; the latest last."""
        latest = sorted(self.topics.items(), key=lambda entry: entry[1])[-ENDED_TOPICS_MAX:]
        return dict(reversed(_that_fit(latest[::-1], OBJECT_BYTES_MAX // 2)))


def _that_fit(entries: list[tuple[str, int]], room: int) -> list[tuple[str, int]]:
    """The first of them, in so many bytes."""
    for number, (topic, _) in enumerate(entries):
        room -= utf8_bytes(topic) + ENTRY_BYTES + _TIME_BYTES
        if room < 0:
            return entries[:number]
    return entries
