"""The embedded store's reads without waiting: few members, few clients, read from memory.

Owns: the innermost loops of these reads, on the caller's transaction or cursor, and the keys and values of
subscriptions. Must never: read for longer than the caller allows.

A client's subscription to a topic is an *entry* of the topic in ``subscribers``. Without a filter, the entry is the
client id; with a filter, it is FF, the client id, FF, and the hash of the filter. No text in UTF-8 has the byte FF, so
the entries without a filter come first, and one range holds the filters of a client. The *key* distinguishes a client's
subscriptions to one topic: the hash of the filter, or nothing.
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
"""Bytes of the slot in a key of ``terms``, in front of the topic's hash."""

FILTERED: Final = b"\xff"
"""Byte before and after the client id in the entry of a subscription with a filter."""

COUNT_BYTES: Final = 8
"""Bytes of the count in front of the text in a value of ``filters``."""

TOPICS_PER_LOOK: Final = 32
"""Topics of one client looked up between two checks of the clock: 0.1 ms."""

_text: Final = attrgetter("filter")


# --- keys and values


def entry_of(client_id: bytes, key: bytes) -> bytes:
    """Return the entry in ``subscribers``: at most 146 bytes, where LMDB allows a duplicate 511."""
    return FILTERED + client_id + FILTERED + key if key else client_id


def key_of(text: str | None) -> bytes:
    """Return the key of a subscription with that filter, or without one."""
    return b"" if text is None else digest(text.encode())


def prefix_of(topic: str, topic_hash: bytes) -> bytes:
    """Return the prefix of the topic's keys in ``terms``; the client's hash and the filter's follow."""
    return slot_of(topic).to_bytes(SLOT_BYTES, "big") + topic_hash


def subscription_in(record: bytes) -> Subscription:
    """Return the subscription in a value of ``terms``."""
    client, topic, text, disconnect, ends_at, stamp = ormsgpack.unpackb(record)
    return Subscription(topic, client, text, Term(disconnect, float(ends_at)), stamp)


def entries_at(entries: Any, terms: Any, topic_hash: bytes, client_id: bytes, prefix: bytes) -> dict[bytes, Any]:
    """Return the client's subscriptions to the topic: key -> value in ``terms``, or ``None``. ``entries`` and ``terms``
    are cursors on ``subscribers`` and ``terms``. ``prefix`` is that of client and topic in ``terms``; empty: no terms.
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
    """Return the subscribers of each topic without a filter, and the first page of the others. ``cursor`` is on
    ``subscribers``; ``texts`` is the database ``filters``. ``None``: a topic has more than ``members_max`` subscribers
    without a filter, or the time was up (``until``, as ``perf_counter`` counts)."""
    sets: list[Subscribers] = []
    pages: dict[str, FilterPage] = {}
    for topic in topics:
        topic_hash = digest(topic.encode())
        if not cursor.set_key(topic_hash):
            sets.append(())
        else:
            first: bytes = cursor.value()
            is_one = not cursor.next_dup()
            if is_one and first < FILTERED:  # a common case, and building a set costs more than the read
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
        if perf_counter() >= until:  # each topic can have to wait for the disk
            return (sets, pages) if len(sets) == len(topics) else None
    return sets, pages


def joined(
    soft: tuple[list[Subscribers], dict[str, FilterPage]],
    durable: tuple[list[Subscribers], dict[str, FilterPage]],
    pairs_max: int,
) -> tuple[list[Subscribers], dict[str, FilterPage]]:
    """Merge the subscribers that both lanes have for the same topics."""
    sets, pages = durable
    for number, clients in enumerate(soft[0]):
        if clients:
            sets[number] = {*sets[number], *clients} if sets[number] else clients
    for topic, page in soft[1].items():
        pages[topic] = joined_page(page, pages[topic], pairs_max) if topic in pages else page
    return sets, pages


def joined_page(soft: FilterPage, durable: FilterPage, limit: int) -> FilterPage:
    """Merge both lanes' pages after one entry into a page of at most ``limit``. Each input has ``limit`` pairs, or
    all."""
    if not soft[0] or not durable[0]:
        return soft if soft[0] else durable
    pairs = {entry_of(pair[0].encode(), key_of(pair[1])): pair for pair in soft[0] + durable[0]}
    entries = sorted(pairs)
    is_last = len(entries) <= limit and soft[1] is None and durable[1] is None
    page = entries[:limit]
    return [pairs[entry] for entry in page], None if is_last else page[-1].hex()


def filter_page(cursor: Any, txn: Any, texts: Any, topic_hash: bytes, after: bytes, limit: int) -> FilterPage:
    """Return the topic's clients and filters after the entry ``after``; ``FILTERED``: from the first one."""
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
    """Return the filter for a key that is not empty."""
    value: bytes = txn.get(key, db=texts)
    return value[COUNT_BYTES:].decode()


# --- topics of a client


def subscribed(cursor: Any, client: str, topics: Sequence[str], start: int, until: float) -> list[bool]:
    """Tell for each topic from ``start`` on whether the client has a subscription. The result covers as many topics as
    the time allows, at least ``TOPICS_PER_LOOK``. ``cursor`` is on ``topics_of``."""
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
    """Return the subscriptions of each ``(client, topic)``, for as many pairs as the time allows, at least one. Cursors
    and databases are as in ``entries_at`` and ``subscribers``."""
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
    """Merge the records of both lanes up to the point that both have reached. If both have one filter, the durable one
    counts."""
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
    """Return where each client listens. ``None``: the time was up."""
    found: list[Location | None] = []
    for client in clients:
        found.append(location(txn, client))
        if perf_counter() >= until:
            return found if len(found) == len(clients) else None
    return found


def location(txn: Any, client: str) -> Location | None:
    """Return where the client listens."""
    value = txn.get(client.encode())
    return None if value is None else Location(*ormsgpack.unpackb(value))
