"""The simulator's store: the contract of ``broker/store/base.py`` as dictionaries.

Owns: the effect of each operation at its instant, and the list of operations that take two instants. Must never: choose
the instant (``world`` does), or fail on its own.

* A replace takes two instants. At the first, the new subscription appears; until the second, ``subscribers`` and
  ``filtered`` still find the replaced ones.
* An ``end`` takes two instants. At the first, it takes the subscriptions out; at the second, they have ended or are
  back.
* The index of terms can have rows of subscriptions that are gone, or have another term by now, until ``end`` gets these
  rows; unless the store ``tells_slots``.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ingeborg.broker.core.model import (
    ENDED_BYTES_MAX,
    ENDED_MAX,
    EPOCHS_MAX,
    FILTERS_MAX,
    VOID,
    Ended,
    Endpoint,
    FilterPage,
    Location,
    RetainedMessage,
    Revocation,
    Subscribe,
    Subscribers,
    Subscription,
    Superseded,
    TooManyFilters,
)
from ingeborg.broker.store.base import RETAINED_PAGE_BYTES
from ingeborg.broker.store.revocations import recorded
from ingeborg.protocol.hashes import slot_of

#: Records that one step of clearing up removes.
TIDY_RECORDS = 10

#: Filters of a topic that come with its subscribers: few, so that a history reads further pages.
FIRST_FILTERS = 3

End = tuple[Sequence[Subscription], Location | None, bool]

Unsubscribe = tuple[str, Sequence[str], str | None]

#: A client's subscriptions at a topic, by filter.
Record = dict[str | None, Subscription]

#: Topic and filter.
Name = tuple[str, str | None]

#: Topic, client and filter.
Key = tuple[str, str, str | None]


def _after(cursor: str | None) -> list[Any] | None:
    """Return the last key of a page."""
    if cursor is None:
        return None
    try:
        found = json.loads(cursor)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise ValueError(f"{cursor!r} is no cursor")
    return found


def key_of(subscription: Subscription) -> Key:
    """Return the key that identifies a subscription."""
    return subscription.topic, subscription.client, subscription.filter


def in_order(record: Record) -> list[Subscription]:
    """Sort a record: the subscription without a filter first, then by the filters' texts."""
    return [record[text] for text in sorted(record, key=lambda text: (text is not None, text or ""))]


class SortedSet(set[str]):
    """A set with a fixed order of iteration, so that a seed gives the same history for every ``PYTHONHASHSEED``."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))


class Store:
    """The truth. ``down``: the store answers nobody; ``cut``: it does not answer these endpoints; ``readonly``: it
    takes no write from these."""

    WRITES = frozenset(
        {
            *("subscribe", "unsubscribe", "end", "tidy", "listen", "unlisten", "keep", "reach"),
            *("register", "heartbeat", "deregister", "revoke"),
        }
    )

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Record]] = {}  # by topic and client; no empty record
        self.index: dict[Subscription, None] = {}  # subscriptions with a term, and stale rows
        self.lingering: list[Subscription] = []  # replaced subscriptions that some reads still find
        self.taken: dict[Key, Subscription] = {}  # taken out of the records by an `end` under way
        self.ended_of: dict[str, tuple[float, int, list[tuple[str, str | None]]]] = {}  # by client: time, count, names
        self.tells_slots = False  # true for a store in this machine's memory
        self.stamps = itertools.count(1)
        self.journal: dict[tuple[int, int], RetainedMessage] = {}  # by slot and stamp
        self.floors: dict[int, int] = {}  # by slot
        self.epochs: dict[str, int | None] = {}  # each with the stamp at which it ended; None: the present one
        self.top = 0  # the greatest stamp ever seen
        self.location_of: dict[str, Location] = {}
        self.registry: dict[str, Endpoint] = {}
        self.seen_until: dict[bytes, float] = {}
        self.revoked: list[Revocation] = []
        self.down = False
        self.cut: set[str] = set()
        self.readonly: set[str] = set()
        self.now = 0.0

    def answers(self, incarnation: str, operation: str) -> bool:
        """Does this call get through?"""
        if self.down or incarnation in self.cut:
            return False
        return not (operation in self.WRITES and incarnation in self.readonly)

    # Subscriptions

    def record(self, topic: str, client: str) -> Record:
        """Return all subscriptions of the client at the topic."""
        return self.records.get(topic, {}).get(client, {})

    def all_of_them(self) -> list[Subscription]:
        """Return every subscription, in a fixed order."""
        return [
            each
            for topic in sorted(self.records)
            for client in sorted(self.records[topic])
            for each in in_order(self.records[topic][client])
        ]

    def subscribe(self, batch: Sequence[Subscribe]) -> None:
        self.finish_subscribe(self.begin_subscribe(batch))

    def begin_subscribe(self, batch: Sequence[Subscribe]) -> list[Subscription]:
        """Add the subscriptions. Returns those that they replace."""
        self._refuse_too_many(batch)
        replaced: list[Subscription] = []
        for row in batch:
            for topic in row.topics:
                record = self.record(topic, row.client)
                held = record.get(row.filter)
                if row.replace:
                    replaced += [each for each in in_order(record) if each.filter != row.filter]
                    self._drop(topic, row.client, self._all_at(topic, row.client))
                self.taken.pop((topic, row.client, row.filter), None)
                if row.replace or held is None or held.term is not None:
                    stamp = 0 if row.term is None else next(self.stamps)
                    self._put(Subscription(topic, row.client, row.filter, row.term, stamp))
                self._again(row, topic)
        self.lingering += replaced
        return replaced

    def finish_subscribe(self, replaced: list[Subscription]) -> None:
        """Hide the replaced subscriptions from every read."""
        for each in replaced:
            self.lingering.remove(each)

    def unsubscribe(self, batch: Sequence[Unsubscribe]) -> None:
        for client, topics, text in batch:
            for topic in topics:
                self._drop(topic, client, self._all_at(topic, client) if text is None else [text])

    def subscribers(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        sets: list[Subscribers] = []
        for topic in topics:
            found = SortedSet(client for client, record in self.records.get(topic, {}).items() if None in record)
            found |= {each.client for each in self.lingering if each.topic == topic and each.filter is None}
            sets.append(found)
        pages = {topic: self._filters(topic, None, FIRST_FILTERS) for topic in topics}
        return sets, {topic: page for topic, page in pages.items() if page[0]}

    def filtered(self, topic: str, cursor: str, limit: int) -> FilterPage:
        return self._filters(topic, _after(cursor), limit)

    def subscriptions_of(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        return [in_order(self.record(topic, client)) for client, topic in pairs]

    def subscribed(self, client: str, topics: Sequence[str]) -> list[bool]:
        return [bool(self.record(topic, client)) for topic in topics]

    def topics(self, client: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        after = _after(cursor)
        mine = sorted(topic for topic, clients in self.records.items() if client in clients)
        rest = [topic for topic in mine if after is None or [topic] > after]
        return rest[:limit], json.dumps([rest[limit - 1]]) if len(rest) > limit else None

    def expiring_slots(self) -> list[int] | None:
        return sorted({slot_of(each.topic) for each in self.index}) if self.tells_slots else None

    def expiring(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Subscription], str | None]:
        after = _after(cursor)
        rows = {(each.topic, each.client, each.filter or "", each.stamp): each for each in self.index}
        mine = sorted(place for place in rows if slot_of(place[0]) == slot)
        rest = [place for place in mine if after is None or [*place] > after]
        return [rows[place] for place in rest[:limit]], json.dumps(rest[limit - 1]) if len(rest) > limit else None

    def end(self, batch: Sequence[End]) -> list[list[Subscription]]:
        self.begin_end(batch)
        return self.finish_end(batch)

    def begin_end(self, batch: Sequence[End]) -> None:
        """Take the rows' subscriptions out."""
        for subscriptions, location, only in batch:
            for each in subscriptions:
                held = self.record(each.topic, each.client).get(each.filter)
                may = not only or self.location_of.get(each.client) == location
                if may and held is not None and held.stamp == each.stamp and held.term is not None:
                    self._drop(each.topic, each.client, [each.filter])
                    self.taken[key_of(each)] = held

    def finish_end(self, batch: Sequence[End]) -> list[list[Subscription]]:
        """End these subscriptions, or put back those whose client has listened meanwhile."""
        results: list[list[Subscription]] = []
        for subscriptions, location, only in batch:
            over: list[Subscription] = []
            for each in subscriptions:
                held = self.taken.get(key_of(each))
                if held is not None and held.stamp == each.stamp:
                    del self.taken[key_of(each)]
                    if only and self.location_of.get(each.client) != location:
                        self._put(held)
                    else:
                        self.has_ended(held)
                there = self.record(each.topic, each.client).get(each.filter)
                if there is None:
                    over.append(each)
                if there is None or there.stamp != each.stamp:
                    self.index.pop(each, None)
            results.append(over)
        return results

    def tidy(self, kept_s: float) -> int:
        before = self.now - kept_s
        forgotten = [client for client, (at, _, _) in self.ended_of.items() if at < before]
        away = [
            client
            for client, location in self.location_of.items()
            if not location.online and location.number < before * 1000
        ]
        for client in forgotten[:TIDY_RECORDS]:
            del self.ended_of[client]
        for client in away[:TIDY_RECORDS]:
            del self.location_of[client]
        return len(forgotten[:TIDY_RECORDS]) + len(away[:TIDY_RECORDS])

    def _refuse_too_many(self, batch: Sequence[Subscribe]) -> None:
        """Refuse all rows if one would exceed the limit of filters."""
        new: dict[tuple[str, str], set[str | None]] = {}
        for row in batch:
            for topic in row.topics:
                there = new.get((topic, row.client)) or set(self.record(topic, row.client))
                new[topic, row.client] = {row.filter} if row.replace else there | {row.filter}
                if len(new[topic, row.client] - {None}) > FILTERS_MAX:
                    raise TooManyFilters(f"{row.client} would have more than {FILTERS_MAX} filters at {topic}")

    def _put(self, subscription: Subscription) -> None:
        record = self.records.setdefault(subscription.topic, {}).setdefault(subscription.client, {})
        held = record.get(subscription.filter)
        if held is not None:
            self._unindexed(held)
        record[subscription.filter] = subscription
        if subscription.term is not None:
            self.index[subscription] = None

    def _drop(self, topic: str, client: str, filters: Iterable[str | None]) -> None:
        """Remove these subscriptions, including those that an `end` has taken out."""
        record = self.record(topic, client)
        for text in filters:
            self._unindexed(record.pop(text, None))
            self.taken.pop((topic, client, text), None)
        if not record and client in self.records.get(topic, {}):
            del self.records[topic][client]
            if not self.records[topic]:
                del self.records[topic]

    def _all_at(self, topic: str, client: str) -> list[str | None]:
        """Return the filters of all present subscriptions, and the filters just taken out."""
        taken = (text for at, whose, text in self.taken if (at, whose) == (topic, client))
        return [*self.record(topic, client), *taken]

    def _unindexed(self, held: Subscription | None) -> None:
        """Remove the index row at once; leave every second one until `end` gets it."""
        if held is not None and (self.tells_slots or held.stamp % 2):
            self.index.pop(held, None)

    def _filters(self, topic: str, after: list[Any] | None, limit: int) -> FilterPage:
        there = [each for record in self.records.get(topic, {}).values() for each in record.values()]
        there += [each for each in self.lingering if each.topic == topic]
        pairs = sorted({(each.client, each.filter) for each in there if each.filter is not None})
        rest = [pair for pair in pairs if after is None or [*pair] > after]
        return rest[:limit], json.dumps(rest[limit - 1]) if len(rest) > limit else None

    # Ended subscriptions

    def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        found = [self.ended_of.get(client) for client in clients]
        return [None if ended is None else Ended(list(ended[2]), ended[1]) for ended in found]

    def has_ended(self, held: Subscription) -> None:
        """Name and count an ended subscription."""
        _, count, names = self.ended_of.get(held.client, (0.0, 0, []))
        name = held.topic, held.filter
        count += name not in names
        names = [each for each in names if each != name] + [name]
        sizes = itertools.accumulate(len(topic.encode()) + len((text or "").encode()) for topic, text in names[::-1])
        fit = sum(size <= ENDED_BYTES_MAX for size in sizes)
        self.ended_of[held.client] = self.now, count, names[-min(fit, ENDED_MAX) :]

    def _again(self, row: Subscribe, topic: str) -> None:
        """Remove a new subscription from the ended ones."""
        at, count, names = self.ended_of.pop(row.client, (0.0, 0, []))
        kept = [name for name in names if name[0] != topic or not (row.replace or name[1] == row.filter)]
        count -= len(names) - len(kept)
        if count:
            self.ended_of[row.client] = at, count, kept

    # The journal

    def keep(
        self,
        retained: Sequence[RetainedMessage],
        forgotten: Sequence[tuple[int, int]],
        floors: Sequence[tuple[int, int]],
        whole: Sequence[int] = (),
    ) -> None:
        self.journal.update({(message.slot, message.stamp): message for message in retained})
        for key in forgotten:
            self.journal.pop(key, None)
        for slot, stamp in floors:
            held = self.floors.get(slot, 0)
            self.floors[slot] = stamp if held == VOID and slot in whole else max(held, stamp)
        places = [*((message.slot, message.stamp) for message in retained), *forgotten, *floors]
        self.top = max([self.top, *(stamp for _, stamp in places if stamp != VOID)])

    def retained(
        self, slots: Sequence[int], cursor: str | None, limit: int
    ) -> tuple[list[RetainedMessage], list[tuple[int, int]], str | None]:
        after = _after(cursor)
        rest = sorted(key for key in self.journal if key[0] in slots and (after is None or [*key] > after))
        sizes = itertools.accumulate(len(self.journal[key].payload) for key in rest)
        count = min(limit, max(1, sum(size <= RETAINED_PAGE_BYTES for size in sizes)))
        page = [self.journal[key] for key in rest[:count]]
        last = json.dumps(rest[count - 1]) if len(rest) > count else None
        floors = sorted((slot, stamp) for slot, stamp in self.floors.items() if slot in slots)
        return page, floors if cursor is None or last is None else [], last

    def retained_top(self) -> int:
        return self.top

    def reach(self, epochs: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        past = {
            epoch: self.top if ended is None else ended for epoch, ended in self.epochs.items() if epoch not in epochs
        }
        last = dict(sorted(past.items(), key=lambda item: (item[1], item[0]))[-EPOCHS_MAX:])
        self.epochs = last | dict.fromkeys(epochs)
        self.top = max(self.top, stamp)
        return list(last.items()), self.top

    def copied(self) -> tuple[Any, ...]:
        """Return a copy of the journal for ``put_back``. The greatest stamp comes last."""
        return copy.deepcopy((self.journal, self.floors, self.epochs, self.top))

    def put_back(self, copied: tuple[Any, ...]) -> None:
        """Restore the journal from a copy."""
        self.journal, self.floors, self.epochs, self.top = copied

    # Locations, the registry, and revocations

    def draw(self, clients: list[str], incarnation: str) -> list[tuple[str, Location]]:
        """Return the locations that a ``listen`` beginning now will write."""
        known = {client: self.location_of.get(client) for client in clients}
        number = int(self.now * 1000)
        return [
            (client, Location(max(location.number + 1 if location else 1, number), incarnation, True))
            for client, location in known.items()
        ]

    def listen(self, drawn: list[tuple[str, Location]], incarnation: str) -> list[tuple[Location, Ended | None]]:
        for client, location in drawn:
            known = self.location_of.get(client)
            if known is None or known.rank < location.rank:
                self.location_of[client] = location
        ended = self.ended([client for client, _ in drawn])
        return [(location, has_ended) for (_, location), has_ended in zip(drawn, ended, strict=True)]

    def unlisten(self, batch: list[tuple[str, Location]]) -> None:
        for client, location in batch:
            if self.location_of.get(client) == location:
                self.location_of[client] = location._replace(online=False)

    def locations(self, clients: list[str]) -> list[Location | None]:
        return [self.location_of.get(client) for client in clients]

    def seen(self, hashes: list[bytes], ttl_s: float) -> list[bool]:
        result = [self.seen_until.get(key, -1.0) > self.now for key in hashes]
        self.seen_until.update(dict.fromkeys(hashes, self.now + ttl_s))
        return result

    def register(self, endpoint: Endpoint) -> None:
        self.registry[endpoint.name] = endpoint

    def heartbeat(self, endpoint: Endpoint) -> None:
        known = self.registry.get(endpoint.name)
        if known is not None and known.incarnation != endpoint.incarnation:
            raise Superseded(endpoint.name)
        self.registry[endpoint.name] = endpoint

    def deregister(self, endpoint: Endpoint) -> None:
        known = self.registry.get(endpoint.name)
        if known is not None and known.incarnation == endpoint.incarnation:
            del self.registry[endpoint.name]

    def endpoints(self) -> list[Endpoint]:
        return list(self.registry.values())

    def revoke(self, batch: list[Revocation]) -> None:
        self.revoked = recorded(self.revoked, batch, self.now)

    def revocations(self) -> list[Revocation]:
        return list(self.revoked)
