"""What a writer process does to its environment, operation by operation.

Owns: the changes each operation makes within a transaction it is given. Must never: begin or commit one, or raise a
``StoreError`` after its first write (the other frames of the transaction stay good).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import lmdb
import ormsgpack

from ingeborg.broker.store.base import Location, Superseded
from ingeborg.broker.store.embedded.ending_operations import EndingOperations
from ingeborg.broker.store.embedded.filter_operations import FilterOperations
from ingeborg.broker.store.embedded.journal_operations import JournalOperations
from ingeborg.broker.store.embedded.layout import (
    Environment,
    Lane,
    record_revocations,
    record_settings,
    revocations_in,
    settings_in,
)
from ingeborg.broker.store.revocations import recorded, unpacked
from ingeborg.protocol.hashes import HASH_BYTES, digest

SWEEP_PER_HASH = 2
"""Entries of ``seen`` examined for each hash asked about. The sweep runs twice as fast as the table can grow, so that
it settles below twice the hashes that are still alive, and no single call pays for much."""

STEP_ROWS = 256
"""Rows of a run between two looks at the clock: about 1 ms."""

Operation = Callable[[lmdb.Transaction, Any], list[Any]]
"""(transaction, argument of the frame) -> the results for the frame's items."""


def operations(environment: Environment, lane: Lane) -> dict[str, Operation]:
    """The lane's operations by the names the frames call them."""
    if lane is Lane.DURABLE:
        subscriptions, filters = Subscriptions(environment), FilterOperations(environment)

        def subscribe_filtered(
            txn: lmdb.Transaction, batch: Sequence[tuple[str, Sequence[str], str, bool]]
        ) -> list[Any]:
            filters.subscribe(txn, batch)  # which may refuse it
            instead = [(client, topics) for client, topics, _, replace in batch if replace]
            return subscriptions.remove(txn, _rows_of(instead))

        return {
            "subscribe": lambda txn, batch: subscriptions.add(txn, _rows_of(batch)),
            "unsubscribe": lambda txn, batch: subscriptions.remove(txn, _rows_of(batch)),
            "subscribe_filtered": subscribe_filtered,
            "unsubscribe_filtered": filters.unsubscribe,
            "settings": _settings,
            "revoke": _revoke,
        }
    soft, endings, journal = _Soft(environment), EndingOperations(environment), JournalOperations(environment)
    return {
        "listen": soft.listen,
        "unlisten": soft.unlisten,
        "seen": soft.seen,
        "register": soft.register,
        "heartbeat": soft.heartbeat,
        "deregister": soft.deregister,
        "subscribe_ending": endings.subscribe,
        "take_out": endings.take_out,
        "end": endings.end,
        "tidy": endings.tidy,
        "keep": journal.keep,
        "forget": journal.keep,  # of a frame without messages
        "reach": journal.reach,
    }


def _settings(txn: lmdb.Transaction, argument: tuple[list[Any], bool]) -> list[Any]:
    """Record the settings, or with the flag only where there are none; those that count then."""
    record, is_first = argument
    if is_first and (held := settings_in(txn)) is not None:
        return [list(held)]
    record_settings(txn, record)
    return [record]


def _revoke(txn: lmdb.Transaction, argument: tuple[float, list[list[Any]]]) -> list[Any]:
    unix_s, batch = argument
    record_revocations(txn, recorded(revocations_in(txn), unpacked(batch), unix_s))
    return []


Row = tuple[bytes, bytes, bytes, bytes]
"""One subscription: hash of the topic, client id, hash of the client id, topic."""

_CLIENT_BYTES = 4


class Rows:
    """Subscriptions in the order of their topics' hashes, as the trees have them: neighbours share pages.

    A row is kept as one bytes object (the topic's hash, the client's number, the topic), some 90 bytes for topics of
    usual length: a run has more than a hundred thousand.
    """

    def __init__(self, batch: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Of ``(client, topics)`` pairs."""
        self._clients: list[tuple[bytes, bytes]] = []
        self._packed: list[bytes] = []
        for client, topics in batch:
            number = len(self._clients).to_bytes(_CLIENT_BYTES, "big")
            client_id = client.encode()
            self._clients.append((client_id, digest(client_id)))
            self._packed += [b"%b%b%b" % (digest(topic), number, topic) for topic in map(str.encode, topics)]
        self._packed.sort()

    def __len__(self) -> int:
        return len(self._packed)

    def part(self, start: int, stop: int) -> list[Row]:
        """Those from ``start`` to before ``stop``."""
        text_at = HASH_BYTES + _CLIENT_BYTES
        rows: list[Row] = []
        for packed in self._packed[start:stop]:
            client_id, client_hash = self._clients[int.from_bytes(packed[HASH_BYTES:text_at], "big")]
            rows.append((packed[:HASH_BYTES], client_id, client_hash, packed[text_at:]))
        return rows


def _rows_of(batch: Sequence[tuple[str, Sequence[str]]]) -> list[Row]:
    rows = Rows(batch)
    return rows.part(0, len(rows))


class Subscriptions:
    """The three databases of the durable environment; a transaction changes all of them or none."""

    def __init__(self, environment: Environment) -> None:
        self._subscribers, self._topics_of = environment.db["subscribers"], environment.db["topics_of"]
        self._texts = environment.db["texts"]

    def add(self, txn: lmdb.Transaction, rows: Sequence[Row]) -> list[Any]:
        with txn.cursor(self._subscribers) as cursor:
            cursor.putmulti([row[:2] for row in rows], dupdata=False)
        with txn.cursor(self._texts) as cursor:
            cursor.putmulti([(topic_hash, topic) for topic_hash, _, _, topic in rows], overwrite=False)
        with txn.cursor(self._topics_of) as cursor:
            cursor.putmulti(
                sorted([(client_hash, topic_hash) for topic_hash, _, client_hash, _ in rows]), dupdata=False
            )
        return []

    def remove(self, txn: lmdb.Transaction, rows: Sequence[Row]) -> list[Any]:
        for topic_hash, client_id, client_hash, _ in rows:
            txn.delete(client_hash, topic_hash, db=self._topics_of)
            if (
                txn.delete(topic_hash, client_id, db=self._subscribers)
                and txn.get(topic_hash, db=self._subscribers) is None
            ):
                txn.delete(topic_hash, db=self._texts)
        return []


class Run:
    """Many large frames of one operation, written as one sorted sequence over as many transactions as it takes.

    Hashes scatter a frame over the whole tree, and every page touched is copied and synced in every transaction. What
    several frames want of one page is therefore done in one transaction (docs/adr/0002 has the figures).
    """

    def __init__(self, subscriptions: Subscriptions, operation: str, frames: Sequence[tuple[int, Any]]) -> None:
        """``frames``: (number, argument) of each."""
        self.operation = operation
        self.numbers = [number for number, _ in frames]
        self.position = 0  # rows written so far; set back when a transaction has failed
        self._change = subscriptions.add if operation == "subscribe" else subscriptions.remove
        self._rows = Rows(pair for _, batch in frames for pair in batch)

    @property
    def done(self) -> bool:
        return self.position >= len(self._rows)

    def step(self, txn: lmdb.Transaction) -> None:
        """The next rows."""
        self._change(txn, self._rows.part(self.position, self.position + STEP_ROWS))
        self.position += STEP_ROWS

    def abandon(self) -> None:
        """Write no more of it."""
        self.position = len(self._rows)


class _Soft:
    def __init__(self, environment: Environment) -> None:
        self._locations, self._registry = environment.db["locations"], environment.db["registry"]
        self._seen = environment.db["seen"]
        self._swept = os.urandom(HASH_BYTES)  # up to where `seen` has been swept; every writer starts elsewhere

    def listen(self, txn: lmdb.Transaction, batch: list[tuple[str, int, str]]) -> list[Any]:
        """Each client's new location, unless a greater one has come since its number was drawn."""
        for client, number, incarnation in batch:
            key = client.encode()
            held = txn.get(key, db=self._locations)
            if held is None or Location(*ormsgpack.unpackb(held)).rank < (number, incarnation, False):
                txn.put(key, ormsgpack.packb([number, incarnation, True]), db=self._locations)
        return []

    def unlisten(self, txn: lmdb.Transaction, batch: list[tuple[str, int, str]]) -> list[Any]:
        for client, number, incarnation in batch:
            key = client.encode()
            held = txn.get(key, db=self._locations)
            if held is not None and ormsgpack.unpackb(held) == [number, incarnation, True]:
                txn.put(key, ormsgpack.packb([number, incarnation, False]), db=self._locations)
        return []

    def seen(self, txn: lmdb.Transaction, argument: tuple[float, list[bytes]]) -> list[Any]:
        """Whether each hash was there and alive. Of two equal ones in a batch the first makes the second seen."""
        ttl_s, hashes = argument
        # The system's monotonic clock counts from the boot and is one for all processes, and this environment never
        # outlives the boot: no wall clock, which may be set.
        now = time.monotonic()
        expires = ormsgpack.packb(now + ttl_s)
        alive = []
        for key in hashes:
            held = txn.get(key, db=self._seen)
            alive.append(held is not None and ormsgpack.unpackb(held) > now)
            txn.put(key, expires, db=self._seen)
        self._sweep(txn, now, SWEEP_PER_HASH * len(hashes))
        return alive

    def _sweep(self, txn: lmdb.Transaction, now: float, count: int) -> None:
        with txn.cursor(self._seen) as cursor:
            found = cursor.set_range(self._swept)
            for _ in range(count):
                if not found:
                    self._swept = bytes(HASH_BYTES)  # the end: from the start again, next time
                    return
                if ormsgpack.unpackb(cursor.value()) <= now:
                    cursor.delete()  # which moves on to the next entry
                    found = bool(cursor.key())
                else:
                    found = cursor.next()
            if found:
                self._swept = bytes(cursor.key())

    def register(self, txn: lmdb.Transaction, entry: list[Any]) -> list[Any]:
        txn.put(digest(entry[0].encode()), ormsgpack.packb(entry), db=self._registry)
        return []

    def heartbeat(self, txn: lmdb.Transaction, entry: list[Any]) -> list[Any]:
        held = self._registered(txn, entry[0])
        if held is not None and held[1] != entry[1]:
            raise Superseded(
                f"another process ({held[2]}) has registered as endpoint {entry[0]!r} since; "
                "this one stops. Give every endpoint a name of its own"
            )
        return self.register(txn, entry)

    def deregister(self, txn: lmdb.Transaction, entry: list[Any]) -> list[Any]:
        held = self._registered(txn, entry[0])
        if held is not None and held[1] == entry[1]:
            txn.delete(digest(entry[0].encode()), db=self._registry)
        return []

    def _registered(self, txn: lmdb.Transaction, name: str) -> Any:
        held = txn.get(digest(name.encode()), db=self._registry)
        return None if held is None else ormsgpack.unpackb(held)
