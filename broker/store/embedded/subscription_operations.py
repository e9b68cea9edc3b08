"""How a writer process changes subscriptions.

Owns: the changes that each operation makes within the caller's transaction. Each change keeps the five databases
consistent with each other. Must never: begin or commit a transaction, raise a ``StoreError`` after an operation's first
write, or interpret a filter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import lmdb
import ormsgpack

from ingeborg.broker.store.base import FILTERS_MAX, TooManyFilters
from ingeborg.broker.store.embedded.layout import Environment, Group, record_stamp, stamp_in
from ingeborg.broker.store.embedded.now import (
    COUNT_BYTES,
    FILTERED,
    entries_at,
    entry_of,
    key_of,
    prefix_of,
    subscription_in,
)
from ingeborg.broker.store.embedded.slices import value_of
from ingeborg.protocol.hashes import HASH_BYTES, digest

STEP_ROWS: Final = 256
"""How many rows of a run are written between two checks of the clock. This takes about 1 ms."""

GONE, TAKEN_OUT, STAYS = 0, 1, 2
"""Results of ``take_out`` for a subscription. ``STAYS`` means that it has another stamp, or no term."""


class Want(NamedTuple):
    """The request of a row of ``subscribe`` that has a filter, a term or ``replace``. All other rows have ``None``
    instead."""

    text: str | None  # the filter
    key: bytes  # the filter's hash, or empty
    term: tuple[bool, float] | None
    replace: bool


Row = tuple[bytes, bytes, bytes, bytes, Any]
"""A client at a topic: the topic's hash, the client id, its hash, the topic, and the request. For ``subscribe``, the
request is a ``Want``, or ``None`` for a subscription with neither a filter nor a term. For ``unsubscribe``, it is the
filter's hash, or ``None`` for all of the client's subscriptions."""

_NUMBER_BYTES: Final = 4


def _want(what: Any) -> Want | None:
    if what is None:
        return None
    text, term, replace = what
    return Want(text, key_of(text), term, replace)


def _gone(what: Any) -> bytes | None:
    return None if what is None else digest(what.encode())


class Rows:
    """Rows in the order of their topics' hashes. LMDB's trees have the same order, so neighboring rows share pages.
    Rows of one topic keep their order of arrival.

    A row is stored as one bytes object: the topic's hash, a number that refers to the rest of the row, and the topic.
    It takes about 90 bytes for a topic of usual length. This matters because a run can have more than a hundred
    thousand rows.
    """

    def __init__(self, operation: str, groups: Iterable[Group]) -> None:
        wanted = _want if operation == "subscribe" else _gone
        self._rests: list[tuple[bytes, bytes, Any]] = []
        self._packed: list[bytes] = []
        for what, pairs in groups:
            want = wanted(what)
            for client, topics in pairs:
                number = len(self._rests).to_bytes(_NUMBER_BYTES, "big")
                client_id = client.encode()
                self._rests.append((client_id, digest(client_id), want))
                self._packed += [b"%b%b%b" % (digest(topic), number, topic) for topic in map(str.encode, topics)]
        self._packed.sort()

    def __len__(self) -> int:
        return len(self._packed)

    def part(self, start: int, stop: int) -> list[Row]:
        """Return the rows from ``start`` to ``stop``, without ``stop`` itself."""
        text_at = HASH_BYTES + _NUMBER_BYTES
        rows: list[Row] = []
        for packed in self._packed[start:stop]:
            client_id, client_hash, want = self._rests[int.from_bytes(packed[HASH_BYTES:text_at], "big")]
            rows.append((packed[:HASH_BYTES], client_id, client_hash, packed[text_at:], want))
        return rows


class Subscriptions:
    """Changes the five databases of one environment. A transaction changes all five or none."""

    def __init__(self, environment: Environment) -> None:
        self._db: Mapping[str, Any] = environment.db

    def write(self, txn: lmdb.Transaction, operation: str, above: int, groups: Sequence[Group]) -> list[Any]:
        """Apply a frame of ``subscribe`` or ``unsubscribe``."""
        rows = Rows(operation, groups)
        return self.change(txn, operation, above, rows.part(0, len(rows)))

    def change(self, txn: lmdb.Transaction, operation: str, above: int, rows: Sequence[Row]) -> list[Any]:
        """Apply sorted rows."""
        return self.subscribe(txn, above, rows) if operation == "subscribe" else self.unsubscribe(txn, rows)

    def subscribe(self, txn: lmdb.Transaction, above: int, rows: Sequence[Row]) -> list[Any]:
        """Subscribe. Return a stamp that is greater than all earlier stamps of both lanes, and not greater than the
        stamps that this call assigns. ``above`` is the other lane's greatest stamp when the call began. If a client
        would have too many filters, raise ``TooManyFilters`` before writing anything."""
        # Each lane continues from the greatest stamp of both lanes. So stamps rise from call to call, no matter in
        # which lane. And the durable lane's next stamps are still greater than all earlier ones after a reboot has
        # emptied the soft lane. A clock would guarantee neither.
        least, greatest = max(stamp_in(txn), above) + 1, 0
        # Few rows request more than a plain subscription. All rows of the same clients and topics are handled with
        # these rows, because their order matters.
        pairs = {row[:2] for row in rows if row[4] is not None}
        if pairs:
            changes = _Changes(txn, self._db)
            for row in rows:
                if row[:2] in pairs:
                    greatest = max(greatest, changes.at(*row[:4]).subscribe(row[4] or _PLAIN, least))
            changes.write()
            if greatest:
                record_stamp(txn, greatest)
            rows = [row for row in rows if row[:2] not in pairs]
        if rows:
            self._add(txn, rows)
        return [least]

    def _add(self, txn: lmdb.Transaction, rows: Sequence[Row]) -> None:
        """Add subscriptions with neither a filter nor a term."""
        with txn.cursor(self._db["subscribers"]) as cursor:
            _, new = cursor.putmulti([row[:2] for row in rows], dupdata=False)
        with txn.cursor(self._db["texts"]) as cursor:
            cursor.putmulti([(row[0], row[3]) for row in rows], overwrite=False)
        with txn.cursor(self._db["topics_of"]) as cursor:
            cursor.putmulti(sorted([(row[2], row[0]) for row in rows]), dupdata=False)
        terms = self._db["terms"]
        if new < len(rows) and txn.stat(terms)["entries"]:  # a new subscription has no term to delete
            for topic_hash, _, client_hash, topic, _ in rows:
                txn.delete(prefix_of(topic.decode(), topic_hash) + client_hash, db=terms)

    def unsubscribe(self, txn: lmdb.Transaction, rows: Sequence[Row]) -> list[Any]:
        changes = _Changes(txn, self._db)
        for row in rows:
            # Most clients have one subscription to the topic, with neither a filter nor a term. Such a subscription can
            # be removed without reading its record.
            if row[4] is None and not changes.has_more(row):
                self._remove(txn, row)
            else:
                changes.at(*row[:4]).unsubscribe(row[4])
        changes.write()
        return []

    def _remove(self, txn: lmdb.Transaction, row: Row) -> None:
        topic_hash, client_id, client_hash, _, _ = row
        if txn.delete(topic_hash, client_id, db=self._db["subscribers"]):
            txn.delete(client_hash, topic_hash, db=self._db["topics_of"])
            if txn.get(topic_hash, db=self._db["subscribers"]) is None:
                txn.delete(topic_hash, db=self._db["texts"])

    def take_out(self, txn: lmdb.Transaction, groups: Sequence[Group]) -> list[Any]:
        """Remove the subscriptions that still have the given stamps. The items are topics, filters and stamps. Return
        the outcome for each item."""
        changes = _Changes(txn, self._db)
        found: list[Any] = []
        for _, entries in groups:
            for client, items in entries:
                client_id = client.encode()
                client_hash = digest(client_id)
                for topic, text, stamp in items:
                    topic_id = topic.encode()
                    change = changes.at(digest(topic_id), client_id, client_hash, topic_id)
                    found.append(change.take_out(key_of(text), stamp))
        changes.write()
        return found


_PLAIN: Final = Want(None, b"", None, False)


class _Change:
    """A client's subscriptions to a topic, as they were before the frame (``before``) and as they become (``now``).
    Both map the filter's hash, or empty bytes, to the record in ``terms``, or to ``None`` if the subscription has no
    term."""

    __slots__ = ("before", "client_hash", "client_id", "now", "texts", "topic")

    def __init__(
        self, before: dict[bytes, Any], client_id: bytes, client_hash: bytes, topic: bytes, texts: dict[bytes, bytes]
    ) -> None:
        self.client_id, self.client_hash, self.topic = client_id, client_hash, topic
        self.before, self.now = before, before.copy()
        self.texts = texts  # by hash: texts of the filters in new subscriptions

    def subscribe(self, want: Want, least: int) -> int:
        """Subscribe. Return the stamp that this assigns, or 0 if it assigns none. ``least`` is the smallest stamp
        allowed."""
        held = self.now.get(want.key)
        record: bytes | None = None
        stamp = 0
        if want.term is not None and (want.replace or held is not None or want.key not in self.now):
            stamp = least if held is None else max(least, subscription_in(held).stamp + 1)
            record = ormsgpack.packb([self.client_id.decode(), self.topic.decode(), want.text, *want.term, stamp])
        if want.replace:
            self.now.clear()
        self.now[want.key] = record
        if want.text is not None:
            self.texts[want.key] = want.text.encode()
            if len(self.now) - (b"" in self.now) > FILTERS_MAX:
                raise too_many_filters(self.client_id.decode(), self.topic.decode())
        return stamp

    def unsubscribe(self, key: bytes | None) -> None:
        """Remove the subscription with this key, or all subscriptions if ``key`` is ``None``."""
        if key is None:
            self.now.clear()
        else:
            self.now.pop(key, None)

    def take_out(self, key: bytes, stamp: int) -> int:
        """Remove the subscription if it has this stamp. Return the outcome."""
        if key not in self.now:
            return GONE
        held = self.now[key]
        if held is None or subscription_in(held).stamp != stamp:
            return STAYS
        del self.now[key]
        return TAKEN_OUT


def too_many_filters(client: str, topic: str) -> TooManyFilters:
    """Return the error for a client that has too many filters at a topic."""
    return TooManyFilters(
        f"client {client!r} would have more than {FILTERS_MAX} filters at topic {topic[:64]!r}: remove one first, or "
        "subscribe with a filter that replaces all others"
    )


class _Changes:
    """The changes of a frame. All reads happen before the first write."""

    def __init__(self, txn: lmdb.Transaction, db: Mapping[str, Any]) -> None:
        self._txn, self._db = txn, db
        self._entries: Any = txn.cursor(db["subscribers"])
        self._terms: Any = txn.cursor(db["terms"])
        self._has_terms = self._terms.first()
        self._has_filters = txn.cursor(db["filters"]).first()
        self._all: dict[tuple[bytes, bytes], _Change] = {}
        self._texts: dict[bytes, bytes] = {}

    def has_more(self, row: Row) -> bool:
        """Return whether the client has a subscription with a filter or a term to the topic."""
        topic_hash, client_id, client_hash, topic, _ = row
        if self._has_filters:
            begin = FILTERED + client_id + FILTERED
            if self._entries.set_range_dup(topic_hash, begin) and self._entries.value().startswith(begin):
                return True
        if not self._has_terms:
            return False
        prefix = prefix_of(topic.decode(), topic_hash) + client_hash
        return bool(self._terms.set_range(prefix) and self._terms.key().startswith(prefix))

    def at(self, topic_hash: bytes, client_id: bytes, client_hash: bytes, topic: bytes) -> _Change:
        """Return the change for the client at the topic."""
        change = self._all.get((topic_hash, client_id))
        if change is None:
            prefix = prefix_of(topic.decode(), topic_hash) + client_hash if self._has_terms else b""
            before = entries_at(self._entries, self._terms, topic_hash, client_id, prefix)
            change = self._all[topic_hash, client_id] = _Change(before, client_id, client_hash, topic, self._texts)
        return change

    def write(self) -> None:
        txn, db = self._txn, self._db
        counts: defaultdict[bytes, int] = defaultdict(int)
        for topic_hash, client_id in sorted(self._all):  # in the order of the tree, so that neighbors share pages
            change = self._all[topic_hash, client_id]
            before, now = change.before, change.now
            for key, record in now.items():
                if key not in before:
                    txn.put(topic_hash, entry_of(client_id, key), db=db["subscribers"])
                    counts[key] += 1
                if record != before.get(key):
                    self._put_term(change, topic_hash, key, record)
            for key, record in before.items():
                if key not in now:
                    txn.delete(topic_hash, entry_of(client_id, key), db=db["subscribers"])
                    counts[key] -= 1
                    if record is not None:
                        self._put_term(change, topic_hash, key, None)
            if now and not before:
                txn.put(change.client_hash, topic_hash, db=db["topics_of"])
                txn.put(topic_hash, change.topic, db=db["texts"], overwrite=False)
            elif before and not now:
                txn.delete(change.client_hash, topic_hash, db=db["topics_of"])
                if txn.get(topic_hash, db=db["subscribers"]) is None:
                    txn.delete(topic_hash, db=db["texts"])
        counts.pop(b"", None)
        for key, more in sorted(counts.items()):
            if more:
                self._count(key, more)

    def _put_term(self, change: _Change, topic_hash: bytes, key: bytes, record: bytes | None) -> None:
        place = prefix_of(change.topic.decode(), topic_hash) + change.client_hash + key
        if record is None:
            self._txn.delete(place, db=self._db["terms"])
        else:
            self._txn.put(place, record, db=self._db["terms"])

    def _count(self, key: bytes, more: int) -> None:
        """Add ``more`` to the number of subscriptions with the filter. When the last subscription is gone, remove the
        filter's entry."""
        value = value_of(self._txn, key, self._db["filters"])
        count, text = (0, self._texts[key]) if value is None else unpack_filter(value)
        if count + more:
            self._txn.put(key, (count + more).to_bytes(COUNT_BYTES, "big") + text, db=self._db["filters"])
        else:
            self._txn.delete(key, db=self._db["filters"])


def unpack_filter(value: bytes) -> tuple[int, bytes]:
    """Return the number of subscriptions with the filter, and its text."""
    return int.from_bytes(value[:COUNT_BYTES], "big"), value[COUNT_BYTES:]


class Run:
    """Many large frames of one operation. Their rows are written as one sorted sequence, in as many transactions as are
    necessary.

    The keys are hashes, so the rows of a frame are scattered over the whole tree, and each transaction copies and syncs
    every page that it changes. A run therefore collects the changes of several frames, and makes all changes to one
    page in the same transaction (docs/adr/0002 has the figures).
    """

    def __init__(
        self, subscriptions: Subscriptions, operation: str, frames: Sequence[tuple[int, int, Sequence[Group]]]
    ) -> None:
        """Sort the rows of ``frames``. A frame is (number, greatest stamp of the other lane, groups)."""
        self.operation = operation
        self.numbers = [number for number, _, _ in frames]
        self.position = 0  # rows written so far; the writer resets it if a transaction fails
        self.results: list[Any] = []  # the first transaction's results, which every frame gets
        self._subscriptions = subscriptions
        self._above = max(above for _, above, _ in frames)
        self._rows = Rows(operation, (group for _, _, groups in frames for group in groups))

    @property
    def done(self) -> bool:
        return self.position >= len(self._rows)

    def step(self, txn: lmdb.Transaction) -> None:
        """Write the next rows."""
        rows = self._rows.part(self.position, self.position + STEP_ROWS)
        results = self._subscriptions.change(txn, self.operation, self._above, rows)
        self.results = self.results or results
        self.position += STEP_ROWS

    def abandon(self) -> None:
        """Skip the remaining rows."""
        self.position = len(self._rows)
