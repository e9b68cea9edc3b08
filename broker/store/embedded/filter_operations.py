"""What a writer process does to the subscriptions with filters.

Owns: the changes each operation makes within a transaction it is given; every one of them leaves the four databases
with the same subscriptions. Must never: begin or commit a transaction, raise a ``StoreError`` after its first write, or
know what a filter says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import lmdb

from ingeborg.broker.store.base import FILTERS_MAX, TooManyFilters
from ingeborg.broker.store.embedded.endings import value_of
from ingeborg.broker.store.embedded.filters import hashes_of, pack_filter, pair_of, unpack_filter
from ingeborg.broker.store.embedded.layout import Environment
from ingeborg.protocol.hashes import digest

Pair = tuple[bytes, bytes]
"""Hash of a topic and a client's id."""


class _Change:
    """What a client has at a topic: before the transaction, and when the frame is done."""

    __slots__ = ("before", "now", "topic")

    def __init__(self, topic: bytes, before: frozenset[bytes]) -> None:
        self.topic, self.before = topic, before
        self.now: set[bytes] = set(before)  # hashes of filters


class FilterOperations:
    """The four databases; a transaction changes all of them or none."""

    def __init__(self, environment: Environment) -> None:
        self._filtered, self._filtered_of = environment.db["filtered"], environment.db["filtered_of"]
        self._topics, self._filters = environment.db["filtered_topics"], environment.db["filters"]

    def subscribe(self, txn: lmdb.Transaction, batch: Sequence[tuple[str, Sequence[str], str, bool]]) -> list[Any]:
        """Add them, each beside the client's others or, with the flag, instead of them. ``TooManyFilters``: nothing has
        been written."""
        changes: dict[Pair, _Change] = {}
        texts: dict[bytes, bytes] = {}
        with txn.cursor(self._filtered) as cursor:
            for client, topics, text, replace in batch:
                filter_hash = digest(text.encode())
                texts[filter_hash] = text.encode()
                for topic in topics:
                    change = _change(changes, cursor, client, topic)
                    if replace:
                        change.now.clear()
                    change.now.add(filter_hash)
                    if len(change.now) > FILTERS_MAX:
                        raise TooManyFilters(
                            f"client {client!r} would have more than {FILTERS_MAX} filters at topic {topic[:64]!r}: "
                            "take one of them out first, or subscribe with one that takes the place of all"
                        )
        self._write(txn, changes, texts)
        return []

    def unsubscribe(self, txn: lmdb.Transaction, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> list[Any]:
        """Take out the filter of each, where it is; ``None``: all filters."""
        changes: dict[Pair, _Change] = {}
        with txn.cursor(self._filtered) as cursor:
            for client, topics, text in batch:
                gone = None if text is None else digest(text.encode())
                for topic in topics:
                    change = _change(changes, cursor, client, topic)
                    if gone is None:
                        change.now.clear()
                    else:
                        change.now.discard(gone)
        self._write(txn, changes, {})
        return []

    def _write(self, txn: lmdb.Transaction, changes: Mapping[Pair, _Change], texts: Mapping[bytes, bytes]) -> None:
        """``texts``: of those that are new, by their hashes."""
        counts: defaultdict[bytes, int] = defaultdict(int)
        for topic_hash, client_id in sorted(changes):  # as the tree has them: neighbours share pages
            change = changes[topic_hash, client_id]
            for filter_hash in change.now - change.before:
                txn.put(topic_hash, pair_of(client_id, filter_hash), db=self._filtered)
                counts[filter_hash] += 1
            for filter_hash in change.before - change.now:
                txn.delete(topic_hash, pair_of(client_id, filter_hash), db=self._filtered)
                counts[filter_hash] -= 1
            if change.now and not change.before:
                txn.put(digest(client_id), topic_hash, db=self._filtered_of)
                txn.put(topic_hash, change.topic, db=self._topics, overwrite=False)
            elif change.before and not change.now:
                txn.delete(digest(client_id), topic_hash, db=self._filtered_of)
                if txn.get(topic_hash, db=self._filtered) is None:
                    txn.delete(topic_hash, db=self._topics)
        for filter_hash, more in sorted(counts.items()):
            if more:
                self._count(txn, filter_hash, more, texts)

    def _count(self, txn: lmdb.Transaction, filter_hash: bytes, more: int, texts: Mapping[bytes, bytes]) -> None:
        """So many more pairs have the filter, or fewer."""
        value = value_of(txn, filter_hash, self._filters)
        count, text = (0, texts.get(filter_hash, b"")) if value is None else unpack_filter(value)
        if count + more > 0:
            txn.put(filter_hash, pack_filter(count + more, text), db=self._filters)
        else:
            txn.delete(filter_hash, db=self._filters)


def _change(changes: dict[Pair, _Change], cursor: lmdb.Cursor, client: str, topic: str) -> _Change:
    text, client_id = topic.encode(), client.encode()
    pair = digest(text), client_id
    if pair not in changes:
        changes[pair] = _Change(text, frozenset(hashes_of(cursor, *pair)))
    return changes[pair]
