"""Reads of the embedded store that do not wait, because they read few members or few clients from memory.

Owns: the innermost loops of these reads, which use the caller's transaction or cursor, and the keys and values of
subscriptions. Must never: read for longer than the caller allows.

A client's subscription to a topic is an *entry* of the topic in ``subscribers``. Without a filter, the entry is the
client id. With a filter, the entry consists of the byte FF, the client id, the byte FF, and the hash of the filter. No
UTF-8 text contains the byte FF, so the entries without a filter come first, and all entries of one client with filters
are adjacent. The *key* distinguishes a client's subscriptions to one topic: it is the hash of the filter, or empty if
there is no filter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from time import perf_counter
from typing import Any, Final

import ormsgpack

from ingeborg.broker.core.model import FilterPage, Location, Subscribers, Subscription, Term
from ingeborg.protocol.hashes import HASH_BYTES, digest, slot_of

SLOT_BYTES: Final = 2
"""Length of the slot in a key of ``terms``. The slot precedes the topic's hash."""

FILTERED: Final = b"\xff"
"""The byte before and after the client id in the entry of a subscription with a filter."""

COUNT_BYTES: Final = 8
"""Length of the count in a value of ``filters``. The count precedes the text."""

TOPICS_PER_LOOK: Final = 32
"""How many topics of one client a read looks up between two checks of the clock. This takes 0.1 ms."""

_text: Final = attrgetter("filter")


# --- keys and values


def entry_of(client_id: bytes, key: bytes) -> bytes:
    """Return the entry in ``subscribers``. It has at most 146 bytes; LMDB allows 511."""
    return FILTERED + client_id + FILTERED + key if key else client_id


def key_of(text: str | None) -> bytes:
    """Return the key of a subscription with the filter, or of one without a filter."""
    return b"" if text is None else digest(text.encode())


def prefix_of(topic: str, topic_hash: bytes) -> bytes:
    """Return the prefix of the topic's keys in ``terms``. In a key, the hashes of client and filter follow the
    prefix."""
    return slot_of(topic).to_bytes(SLOT_BYTES, "big") + topic_hash


def subscription_in(record: bytes) -> Subscription:
    """Return the subscription in a value of ``terms``."""
    client, topic, text, disconnect, ends_at, stamp = ormsgpack.unpackb(record)
    return Subscription(topic, client, text, Term(disconnect, float(ends_at)), stamp)


def entries_at(entries: Any, terms: Any, topic_hash: bytes, client_id: bytes, prefix: bytes) -> dict[bytes, Any]:
    """Return the client's subscriptions to the topic: a map from keys to values in ``terms``, or to ``None`` for a
    subscription without a term. ``entries`` and ``terms`` are cursors on ``subscribers`` and ``terms``. ``prefix`` is
    the prefix of the client's keys for the topic in ``terms``, or empty if ``terms`` is empty.
    """
    found: dict[bytes, Any] = {}
    if entries.set_key_dup(topic_hash, client_id):
        found[b""] = None
    begin = FILTERED + client_id + FILTERED
    if entries.set_range_dup(topic_hash, begin):
        for value in entries.iternext_dup():
            if not value.startswith(begin):
                break
            found[value[len(begin) :]] = None
    if found and prefix and terms.set_range(prefix):
        while terms.key().startswith(prefix):
            found[terms.key()[len(prefix) :]] = terms.value()
            if not terms.next():
                break
    return found


# --- subscribers


def subscribers(
    cursor: Any, txn: Any, texts: Any, topics: Sequence[str], members_max: int, pairs_max: int, until: float
) -> tuple[list[Subscribers], dict[str, FilterPage]] | None:
    """Return the clients that subscribe to each topic without a filter, and the first page of those with filters.
    ``cursor`` is on ``subscribers``; ``texts`` is the database ``filters``. Return ``None`` if a topic has more than
    ``members_max`` subscribers without a filter, or if the time is up (``until``, in ``perf_counter`` seconds)."""
    sets: list[Subscribers] = []
    pages: dict[str, FilterPage] = {}
    for topic in topics:
        topic_hash = digest(topic.encode())
        if not cursor.set_key(topic_hash):
            sets.append(())
        else:
            first: bytes = cursor.value()
            is_one = not cursor.next_dup()
            if is_one and first < FILTERED:  # a common case: building a set would cost more than the read
                sets.append((first.decode(),))
            else:
                members = [first] if is_one else [first, *islice(cursor.iternext_dup(), members_max)]
                if members[-1] >= FILTERED:
                    del members[bisect_left(members, FILTERED) :]
                    pages[topic] = filter_page(cursor, txn, texts, topic_hash, FILTERED, pairs_max)
                if len(members) > members_max:
                    return None
                clients = [member.decode() for member in members]
                sets.append(tuple(clients) if len(clients) < 2 else set(clients))
        if perf_counter() >= until:  # checked for each topic, because each read may wait for the disk
            return (sets, pages) if len(sets) == len(topics) else None
    return sets, pages


def joined(
    soft: tuple[list[Subscribers], dict[str, FilterPage]],
    durable: tuple[list[Subscribers], dict[str, FilterPage]],
    pairs_max: int,
) -> tuple[list[Subscribers], dict[str, FilterPage]]:
    """Merge the subscribers of the same topics from both lanes."""
    sets, pages = durable
    for number, clients in enumerate(soft[0]):
        if clients:
            sets[number] = {*sets[number], *clients} if sets[number] else clients
    for topic, page in soft[1].items():
        pages[topic] = joined_page(page, pages[topic], pairs_max) if topic in pages else page
    return sets, pages


def joined_page(soft: FilterPage, durable: FilterPage, limit: int) -> FilterPage:
    """Merge two pages, one from each lane, into a page of at most ``limit`` pairs. Both begin after the same entry.
    Each has at least ``limit`` pairs, or all pairs that its lane has."""
    if not soft[0] or not durable[0]:
        return soft if soft[0] else durable
    pairs = {entry_of(pair[0].encode(), key_of(pair[1])): pair for pair in soft[0] + durable[0]}
    entries = sorted(pairs)
    is_last = len(entries) <= limit and soft[1] is None and durable[1] is None
    page = entries[:limit]
    return [pairs[entry] for entry in page], None if is_last else page[-1].hex()


def filter_page(cursor: Any, txn: Any, texts: Any, topic_hash: bytes, after: bytes, limit: int) -> FilterPage:
    """Return a page of the topic's clients and filters that begins after the entry ``after``. Pass ``FILTERED`` for the
    first page."""
    if not cursor.set_range_dup(topic_hash, after):
        return [], None
    entries: list[bytes] = list(islice(cursor.iternext_dup(), limit + 2))
    if entries[0] == after:
        del entries[0]
    page = entries[:limit]
    known: dict[bytes, str] = {}
    pairs: list[tuple[str, str]] = []
    for entry in page:
        key = entry[-HASH_BYTES:]
        if key not in known:
            known[key] = text_in(txn, texts, key)
        pairs.append((entry[1 : -HASH_BYTES - 1].decode(), known[key]))
    return pairs, page[-1].hex() if len(entries) > limit else None


def text_in(txn: Any, texts: Any, key: bytes) -> str:
    """Return the text of the filter with this key, which must not be empty."""
    value: bytes = txn.get(key, db=texts)
    return value[COUNT_BYTES:].decode()


# --- topics of a client


def subscribed(cursor: Any, client: str, topics: Sequence[str], start: int, until: float) -> list[bool]:
    """Return for each topic, from index ``start`` on, whether the client has a subscription. The result covers as many
    topics as the time allows, and at least ``TOPICS_PER_LOOK``. ``cursor`` is on ``topics_of``."""
    client_hash = digest(client.encode())
    if not cursor.set_key(client_hash):
        return [False] * (len(topics) - start)
    found: list[bool] = []
    for first in range(start, len(topics), TOPICS_PER_LOOK):
        part = topics[first : first + TOPICS_PER_LOOK]
        found += [cursor.set_key_dup(client_hash, digest(topic.encode())) for topic in part]
        if perf_counter() >= until:
            break
    return found


def subscriptions_of(
    entries: Any, terms: Any, txn: Any, texts: Any, pairs: Sequence[tuple[str, str]], until: float
) -> list[list[Subscription]]:
    """Return the subscriptions of each ``(client, topic)`` pair, for as many pairs as the time allows, but at least for
    one. The cursors and databases are the same as in ``entries_at`` and ``subscribers``."""
    has_terms = terms.first()
    found: list[list[Subscription]] = []
    for client, topic in pairs:
        client_id, topic_hash = client.encode(), digest(topic.encode())
        prefix = prefix_of(topic, topic_hash) + digest(client_id) if has_terms else b""
        held = entries_at(entries, terms, topic_hash, client_id, prefix)
        mine = [
            subscription_in(record)
            if record is not None
            else Subscription(topic, client, text_in(txn, texts, key) if key else None)
            for key, record in held.items()
        ]
        found.append(_in_order(mine) if len(mine) > 1 else mine)
        if perf_counter() >= until:
            break
    return found


def joined_records(soft: list[list[Subscription]], durable: list[list[Subscription]]) -> list[list[Subscription]]:
    """Merge the records of the same pairs from both lanes, up to the end of the shorter list. If both lanes have a
    subscription with the same filter, the durable one counts."""
    found: list[list[Subscription]] = []
    for some, mine in zip(soft, durable, strict=False):
        if some and mine:
            filters = {each.filter for each in mine}
            mine = _in_order(mine + [each for each in some if each.filter not in filters])
        found.append(mine or some)
    return found


def _in_order(record: list[Subscription]) -> list[Subscription]:
    plain = [each for each in record if each.filter is None]
    return plain + sorted([each for each in record if each.filter is not None], key=_text)


def locations(txn: Any, clients: Sequence[str], until: float) -> list[Location | None] | None:
    """Return each client's location, or ``None`` if the time was up."""
    found: list[Location | None] = []
    for client in clients:
        found.append(location(txn, client))
        if perf_counter() >= until:
            return found if len(found) == len(clients) else None
    return found


def location(txn: Any, client: str) -> Location | None:
    """Return the client's location."""
    value = txn.get(client.encode())
    return None if value is None else Location(*ormsgpack.unpackb(value))
