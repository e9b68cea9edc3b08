"""What a writer process does to the ending subscriptions of the soft environment.

Owns: the changes each operation makes within a transaction it is given; every one of them leaves ``ending`` and
``ending_of`` with the same subscriptions. Must never: begin or commit a transaction, or raise a ``StoreError``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import lmdb
import ormsgpack

from ingeborg.broker.store.base import ENDED_TOPICS_MAX
from ingeborg.broker.store.embedded.endings import ENDED_AT_BYTES, pack_ended, unpack_ended, value_of
from ingeborg.broker.store.embedded.layout import Environment
from ingeborg.broker.store.embedded.now import prefix_of
from ingeborg.protocol.hashes import digest

TIDY_RECORDS: Final = 2_000
"""Records of a database that one step of clearing up looks at: 2 ms. With a step a second it keeps up with 2,000
clients that come and go each second."""

TIDY_S: Final = 0.005
"""How long a step may take all the same, for each of the two databases: what has ended may be large."""

STAMP_BITS: Final = 16
"""Of a stamp, behind the number of its transaction, which writes fewer subscriptions than that."""

_STAMP: Final = 4
"""Its place in a value of ``ending``."""


class EndingOperations:
    """The three databases; a transaction changes all of them or none."""

    def __init__(self, environment: Environment) -> None:
        self._ending, self._ending_of = environment.db["ending"], environment.db["ending_of"]
        self._ended, self._locations = environment.db["ended"], environment.db["locations"]
        self._tidied: dict[str, bytes] = {}  # by database: up to where it has been cleared up; b"": begin anew

    def subscribe(self, txn: lmdb.Transaction, argument: tuple[list[tuple[str, list[str], bool, float]]]) -> list[Any]:
        """Add them, or give them the new term and a greater stamp."""
        # Transactions have numbers that rise, in all processes, for as long as the environment lives. A clock may not.
        least = txn.id() << STAMP_BITS
        for client, topics, disconnect, ends_at in argument[0]:
            client_hash = digest(client.encode())
            for topic in topics:
                text = topic.encode()
                topic_hash = digest(text)
                key = prefix_of(topic, topic_hash) + client_hash
                held = value_of(txn, key, self._ending)
                stamp = least if held is None else max(least, ormsgpack.unpackb(held)[_STAMP] + 1)
                txn.put(key, ormsgpack.packb([client, topic, disconnect, ends_at, stamp]), db=self._ending)
                txn.put(client_hash + topic_hash, text, db=self._ending_of)
            self._subscribed(txn, client, topics)
        return []

    def take_out(self, txn: lmdb.Transaction, argument: tuple[bool, list[tuple[str, list[str]]]]) -> list[Any]:
        """Have none of these any more; and, if they are subscribed to as plain ones, nothing that has ended of them."""
        is_subscribed, batch = argument
        for client, topics in batch:
            client_hash = digest(client.encode())
            for topic in topics:
                self._delete(txn, topic, digest(topic.encode()), client_hash)
            if is_subscribed:
                self._subscribed(txn, client, topics)
        return []

    def end(self, txn: lmdb.Transaction, argument: tuple[int, list[Any]]) -> list[Any]:
        """Whether each has been taken out, or was gone. The argument has the time, Unix ms, for what has ended."""
        now_ms, entries = argument
        out: list[Any] = []
        for client, location, only, endings in entries:
            held = value_of(txn, client.encode(), self._locations)
            may = not only or (None if held is None else ormsgpack.unpackb(held)) == location
            client_hash = digest(client.encode())
            ended: list[str] = []
            for topic, stamp, is_plain in endings:
                topic_hash = digest(topic.encode())
                found = value_of(txn, prefix_of(topic, topic_hash) + client_hash, self._ending)
                is_same = found is not None and ormsgpack.unpackb(found)[_STAMP] == stamp
                if may and is_same:
                    self._delete(txn, topic, topic_hash, client_hash)
                    if not is_plain:
                        ended.append(topic)
                out.append(found is None or (may and is_same))
            self._has_ended(txn, client, ended, now_ms)
        return out

    def tidy(self, txn: lmdb.Transaction, argument: tuple[int, int]) -> list[Any]:
        """A step of clearing up; how many records went. The argument: the time and how long all is kept, in ms."""
        now_ms, kept_ms = argument
        before_ms = now_ms - kept_ms

        def is_old(_: bytes, value: bytes) -> bool:
            return int.from_bytes(value[:ENDED_AT_BYTES], "big") < before_ms

        def is_away(client_id: bytes, value: bytes) -> bool:
            number, _, online = ormsgpack.unpackb(value)
            if online or number >= before_ms:
                return False
            client_hash = digest(client_id)  # a home that waits for it goes by its location
            with txn.cursor(self._ending_of) as cursor:
                return not (cursor.set_range(client_hash) and cast(bytes, cursor.key()).startswith(client_hash))

        ended = self._clear(txn, "ended", self._ended, is_old)
        return [ended + self._clear(txn, "locations", self._locations, is_away)]

    def _clear(self, txn: lmdb.Transaction, name: str, database: Any, is_over: Callable[[bytes, bytes], bool]) -> int:
        until = time.monotonic() + TIDY_S
        after, went = self._tidied.get(name, b""), 0
        with txn.cursor(database) as cursor:
            found = cursor.set_range(after) if after else cursor.first()
            for _ in range(TIDY_RECORDS):
                if not found or time.monotonic() >= until:
                    break
                if is_over(*cast("tuple[bytes, bytes]", cursor.item())):
                    cursor.delete()  # which moves on to the next entry
                    went += 1
                    found = bool(cursor.key())
                else:
                    found = cursor.next()
            self._tidied[name] = bytes(cursor.key()) if found else b""
        return went

    def _delete(self, txn: lmdb.Transaction, topic: str, topic_hash: bytes, client_hash: bytes) -> None:
        txn.delete(prefix_of(topic, topic_hash) + client_hash, db=self._ending)
        txn.delete(client_hash + topic_hash, db=self._ending_of)

    def _has_ended(self, txn: lmdb.Transaction, client: str, topics: Sequence[str], now_ms: int) -> None:
        if not topics:
            return
        value = value_of(txn, client.encode(), self._ended)
        _, count, held = (0, 0, []) if value is None else unpack_ended(value)
        new = set(topics)
        kept = [topic for topic in held if topic not in new]
        count += len(new) - (len(held) - len(kept))
        value = pack_ended(now_ms, count, [*kept, *dict.fromkeys(topics)][-ENDED_TOPICS_MAX:])
        txn.put(client.encode(), value, db=self._ended)

    def _subscribed(self, txn: lmdb.Transaction, client: str, topics: Sequence[str]) -> None:
        """Those topics have not ended any more. What is counted without its name stays counted: nobody knows what it
        was."""
        value = value_of(txn, client.encode(), self._ended)
        if value is None:
            return
        at_ms, count, held = unpack_ended(value)
        new = set(topics)
        kept = [topic for topic in held if topic not in new]
        count -= len(held) - len(kept)
        if not count:
            txn.delete(client.encode(), db=self._ended)
        elif len(kept) < len(held):
            txn.put(client.encode(), pack_ended(at_ms, count, kept), db=self._ended)
