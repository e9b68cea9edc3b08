"""What the embedded store can say without waiting: few members, few clients, read from memory.

Owns: the innermost loops of these reads, on a transaction or cursor that is the caller's, and what of keys and values
they have to know. Must never: read for longer than it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from time import perf_counter
from typing import Any, Final

import ormsgpack

from ingeborg.broker.core.model import Location, Subscribers
from ingeborg.protocol.hashes import HASH_BYTES, digest, slot_of

SLOT_BYTES: Final = 2
"""Of a key in ``ending``, in front of the topic's hash."""

CLIENT_END: Final = b"\xff"
"""Behind the client id in a value of ``filtered``: no text in UTF-8 has this byte."""

COUNT_BYTES: Final = 8
"""In front of the text in a value of ``filters``."""


TOPICS_PER_LOOK: Final = 32
"""Topics of one client that are looked up between two looks at the clock: 0.1 ms."""


def subscribers(cursor: Any, topics: Sequence[str], members_max: int, until: float) -> list[Subscribers] | None:
    """The subscribers of each topic. ``None``: one has more than ``members_max``, or the time was up (``until``, of
    ``perf_counter``)."""
    sets: list[Subscribers] = []
    for topic in topics:
        if not cursor.set_key(digest(topic.encode())):
            sets.append(())
        else:
            first: bytes = cursor.value()
            # Most songs are on one list, and a set costs more than its reading.
            if not cursor.next_dup():
                sets.append((first.decode(),))
            else:
                members = list(islice(cursor.iternext_dup(), members_max))
                if len(members) == members_max:
                    return None
                clients = {first.decode()}
                clients.update([member.decode() for member in members])
                sets.append(clients)
        if perf_counter() >= until:  # each may have to wait for the disk
            return sets if len(sets) == len(topics) else None
    return sets


def subscribers_and_ending(
    cursor: Any, endings: Any, topics: Sequence[str], members_max: int, until: float
) -> list[Subscribers] | None:
    """The same with those whose subscription is an ending one. ``endings``: a cursor on these, of a transaction that
    has begun before that of ``cursor``."""
    sets: list[Subscribers] = []
    for topic in topics:
        topic_hash = digest(topic.encode())
        prefix = prefix_of(topic, topic_hash)
        clients: list[str] = []
        found = endings.set_range(prefix)
        while found and endings.key().startswith(prefix) and len(clients) < members_max:
            clients.append(client_in(endings.value()))
            found = endings.next()
        if cursor.set_key(topic_hash):
            clients += [member.decode() for member in islice(cursor.iternext_dup(), members_max)]
        if len(clients) >= members_max:
            return None
        sets.append(tuple(clients) if len(clients) < 2 else set(clients))
        if perf_counter() >= until:
            return sets if len(sets) == len(topics) else None
    return sets


def with_filters(cursor: Any, topics: Sequence[str], until: float) -> list[str] | None:
    """Those of the topics that have subscriptions with filters. ``cursor``: on ``filtered``, of the transaction that
    has read the plain ones or of a later one. ``None``: the time was up."""
    if not cursor.first():
        return []
    found: list[str] = []
    for number, topic in enumerate(topics, 1):
        if cursor.set_key(digest(topic.encode())):
            found.append(topic)
        if perf_counter() >= until:
            return found if number == len(topics) else None
    return found


def subscribed(
    client: str,
    topics: Sequence[str],
    start: int,
    plain: Any,
    endings: Any,
    filtered: Any,
    until: float,
) -> list[bool]:
    """Whether the client has a subscription to each topic, from the one at ``start`` on: of all of them, or of those
    there was time for, ``TOPICS_PER_LOOK`` at least. ``plain``, ``endings``, ``filtered``: cursors on ``topics_of``,
    ``ending_of`` and ``filtered_of``, that of ``endings`` of a transaction that has begun before that of the others.
    ``None``: that kind does not count."""
    client_hash = digest(client.encode())
    has_plain = plain.set_key(client_hash)
    has_filters = filtered is not None and filtered.set_key(client_hash)
    has_endings = endings is not None and endings.set_range(client_hash) and endings.key().startswith(client_hash)
    found: list[bool] = []
    for first in range(start, len(topics), TOPICS_PER_LOOK):
        for topic in topics[first : first + TOPICS_PER_LOOK]:
            topic_hash = digest(topic.encode())
            found.append(
                (has_plain and plain.set_key_dup(client_hash, topic_hash))
                or (has_filters and filtered.set_key_dup(client_hash, topic_hash))
                or (has_endings and endings.set_key(client_hash + topic_hash))
            )
        if perf_counter() >= until:
            break
    return found


def prefix_of(topic: str, topic_hash: bytes) -> bytes:
    """What all keys in ``ending`` begin with that are of the topic."""
    return slot_of(topic).to_bytes(SLOT_BYTES, "big") + topic_hash


def client_in(value: bytes) -> str:
    """Whose subscription a value in ``ending`` is of."""
    client: str = ormsgpack.unpackb(value)[0]
    return client


def filtered(
    cursor: Any,
    txn: Any,
    texts: Any,
    asked: Sequence[tuple[str, str | None]],
    pairs_max: int,
    until: float,
) -> list[tuple[list[tuple[str, str]], str | None]] | None:
    """All pairs of client and filter of each topic. ``cursor``: on ``filtered``; ``texts``: the database ``filters``.
    ``None``: one has more than ``pairs_max``, so that it has pages, or a page has been read; or the time was up."""
    if not cursor.first():
        return [([], None) for _ in asked]
    pages: list[tuple[list[tuple[str, str]], str | None]] = []
    for topic, after in asked:
        if after is not None:
            return None
        pairs: list[tuple[str, str]] = []
        if cursor.set_key(digest(topic.encode())):
            if cursor.count() > pairs_max:
                return None
            pairs = [pair_in(txn, texts, value) for value in cursor.iternext_dup()]
        pages.append((pairs, None))
        if perf_counter() >= until:
            return pages if len(pages) == len(asked) else None
    return pages


def pair_in(txn: Any, texts: Any, value: bytes) -> tuple[str, str]:
    """Client and filter of a value in ``filtered``."""
    text: bytes = txn.get(value[-HASH_BYTES:], db=texts)
    return value[: -HASH_BYTES - 1].decode(), text[COUNT_BYTES:].decode()


def locations(txn: Any, clients: Sequence[str], until: float) -> list[Location | None] | None:
    """Where each client listens. ``None``: the time was up."""
    found: list[Location | None] = []
    for client in clients:
        found.append(location(txn, client))
        if perf_counter() >= until:
            return found if len(found) == len(clients) else None
    return found


def location(txn: Any, client: str) -> Location | None:
    """Where the client listens."""
    value = txn.get(client.encode())
    return None if value is None else Location(*ormsgpack.unpackb(value))
