"""A writer process's changes to its environment, operation by operation.

Owns: the changes that each operation makes within the caller's transaction. Must never: begin or commit a transaction,
or raise a ``StoreError`` after an operation's first write, because the transaction also has other frames, which stay
valid.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import lmdb
import ormsgpack

from ingeborg.broker.store.base import Location, Superseded
from ingeborg.broker.store.embedded.expiry import ENDED_AT_BYTES, EndedItem, EndedRecord, pack_ended, unpack_ended
from ingeborg.broker.store.embedded.journal_operations import JournalOperations
from ingeborg.broker.store.embedded.layout import (
    Environment,
    Group,
    Lane,
    record_revocations,
    record_settings,
    revocations_in,
    settings_in,
)
from ingeborg.broker.store.embedded.slices import value_of
from ingeborg.broker.store.embedded.subscription_operations import STAYS, TAKEN_OUT, Subscriptions
from ingeborg.broker.store.revocations import recorded, unpacked
from ingeborg.protocol.hashes import HASH_BYTES, digest

SWEEP_PER_HASH: Final = 2
"""How many entries of ``seen`` the sweep examines for each hash in a call. So the sweep examines entries twice as fast
as the table can grow. At most about half of the hashes in the table have expired, and the sweep adds little work to a
single call."""

TIDY_RECORDS: Final = 2_000
"""How many records of a database one step of cleanup examines in about 2 ms. With one step per second, cleanup can
keep up with 2,000 clients per second that connect and disconnect."""

TIDY_S: Final = 0.005
"""Time limit of a step for each of the two databases. It is necessary because a record in ``ended`` can be large."""

Operation = Callable[[lmdb.Transaction, Any], list[Any]]
"""A function from the transaction and the argument of a frame to the results for the frame's items."""


def operations(environment: Environment, lane: Lane) -> dict[str, Operation]:
    """Return the lane's operations, by the names that frames use for them."""
    subscriptions = Subscriptions(environment)
    # The first item of the argument is for the writer: it tells whether the frame goes into a run.
    both: dict[str, Operation] = {
        "subscribe": lambda txn, argument: subscriptions.write(txn, "subscribe", *argument[1:]),
        "unsubscribe": lambda txn, argument: subscriptions.write(txn, "unsubscribe", *argument[1:]),
        "take_out": subscriptions.take_out,
    }
    if lane is Lane.DURABLE:
        return {**both, "settings": _settings, "revoke": _revoke}
    soft, ended, journal = _Soft(environment), _Ended(environment, subscriptions), JournalOperations(environment)
    return {
        **both,
        "listen": soft.listen,
        "unlisten": soft.unlisten,
        "seen": soft.seen,
        "register": soft.register,
        "heartbeat": soft.heartbeat,
        "deregister": soft.deregister,
        "end": ended.end,
        "has_ended": ended.has_ended,
        "has_not_ended": ended.has_not_ended,
        "subscribed": ended.subscribed,
        "tidy": ended.tidy,
        "keep": journal.keep,
        "forget": journal.keep,  # for a frame without messages
        "reach": journal.reach,
    }


def _settings(txn: lmdb.Transaction, argument: tuple[list[Any], bool]) -> list[Any]:
    """Record the settings. If ``is_first`` is set, do so only if none are recorded yet. Return the settings that are
    then recorded."""
    record, is_first = argument
    if is_first and (held := settings_in(txn)) is not None:
        return [list(held)]
    record_settings(txn, record)
    return [record]


def _revoke(txn: lmdb.Transaction, argument: tuple[float, list[list[Any]]]) -> list[Any]:
    unix_s, batch = argument
    record_revocations(txn, recorded(revocations_in(txn), unpacked(batch), unix_s))
    return []


class _Soft:
    def __init__(self, environment: Environment) -> None:
        self._locations, self._registry = environment.db["locations"], environment.db["registry"]
        self._seen = environment.db["seen"]
        self._swept = os.urandom(HASH_BYTES)  # the sweep's position in `seen`; each writer starts at a random one

    def listen(self, txn: lmdb.Transaction, batch: list[tuple[str, int, str]]) -> list[Any]:
        """Write each client's new location, unless a greater one is stored. A concurrent call may have written a
        greater one after this call drew its number."""
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
        """Return for each hash whether it was stored and unexpired. If a batch repeats a hash, the repetition counts as
        seen."""
        ttl_s, hashes = argument
        # Do not use the wall clock, because it can be set. The system's monotonic clock starts at the boot, and all
        # processes share it. This environment never outlives the boot.
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
                    self._swept = bytes(HASH_BYTES)  # reached the end: start over next time
                    return
                if ormsgpack.unpackb(cursor.value()) <= now:
                    cursor.delete()  # this moves the cursor to the next entry
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
                f"another process ({held[2]}) has since registered as endpoint {entry[0]!r}; "
                "this one stops. Give every endpoint its own name"
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


class _Ended:
    """Clients' ended subscriptions, and the cleanup of old records."""

    def __init__(self, environment: Environment, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self._ended, self._locations = environment.db["ended"], environment.db["locations"]
        self._tidied: dict[str, bytes] = {}  # database -> the cleanup's position, or b"" to start over

    def end(self, txn: lmdb.Transaction, argument: tuple[int, Sequence[Group]]) -> list[Any]:
        """Remove subscriptions of this environment if their clients' locations are the given ones, and add the removed
        subscriptions to ``ended``. Return the outcome for each subscription. The time in the argument is in Unix
        milliseconds."""
        now_ms, groups = argument
        found: list[Any] = []
        for where, entries in groups:
            for client, items in entries:
                if not self._may_end(txn, client, where):
                    found += [STAYS] * len(items)
                    continue
                states = self._subscriptions.take_out(txn, [(None, [(client, items)])])
                if went := [item for item, state in zip(items, states, strict=True) if state == TAKEN_OUT]:
                    self._name(txn, client, went, now_ms)
                found += states
        return found

    def has_ended(self, txn: lmdb.Transaction, argument: tuple[int, Sequence[Group]]) -> list[Any]:
        """Add the subscriptions to ``ended`` if their clients' locations are the given ones. Return for each
        subscription whether it was added. The argument is the same as that of ``end``."""
        now_ms, groups = argument
        found: list[Any] = []
        for where, entries in groups:
            for client, items in entries:
                may = self._may_end(txn, client, where)
                found += [may] * len(items)
                if may:
                    self._name(txn, client, items, now_ms)
        return found

    def _may_end(self, txn: lmdb.Transaction, client: str, where: tuple[Any, bool]) -> bool:
        location, only = where
        if not only:
            return True
        held = value_of(txn, client.encode(), self._locations)
        return bool((None if held is None else ormsgpack.unpackb(held)) == location)

    def has_not_ended(self, txn: lmdb.Transaction, groups: Sequence[Group]) -> list[Any]:
        """Remove subscriptions from ``ended`` that did not end after all, because they have another stamp by now, or no
        term."""
        for _, entries in groups:
            for client, items in entries:
                held = self._held(txn, client)
                those = set(map(tuple, items))
                self._keep(txn, client, held, [each for each in held.named if tuple(each) not in those])
        return []

    def subscribed(self, txn: lmdb.Transaction, argument: tuple[int, Sequence[Group]]) -> list[Any]:
        """Remove subscriptions from ``ended`` that exist again, if their stamps are less than the given one. A greater
        stamp belongs to a later subscription, which has ended since."""
        before, groups = argument
        for (text, replace), entries in groups:
            for client, topics in entries:
                held = self._held(txn, client)
                those = set(topics)
                named = [
                    each
                    for each in held.named
                    if each[0] not in those or not (replace or each[1] == text) or each[2] >= before
                ]
                self._keep(txn, client, held, named)
        return []

    def _held(self, txn: lmdb.Transaction, client: str) -> EndedRecord:
        value = value_of(txn, client.encode(), self._ended)
        return EndedRecord(0, 0, []) if value is None else unpack_ended(value)

    def _name(self, txn: lmdb.Transaction, client: str, items: Sequence[EndedItem], now_ms: int) -> None:
        held = self._held(txn, client)
        new = {(topic, text): stamp for topic, text, stamp in items}
        named: list[EndedItem] = []
        for each in held.named:
            topic, text, stamp = each
            if (topic, text) in new:
                new[topic, text] = max(new[topic, text], stamp)  # keep the stamp of a later subscription
            else:
                named.append(each)
        total = held.total - len(held.named) + len(named) + len(new)
        named += [(topic, text, stamp) for (topic, text), stamp in new.items()]
        txn.put(client.encode(), pack_ended(EndedRecord(now_ms, total, named)), db=self._ended)

    def _keep(self, txn: lmdb.Transaction, client: str, held: EndedRecord, named: list[EndedItem]) -> None:
        """Keep only these subscriptions in the client's record. Subscriptions that are only counted stay counted,
        because it is unknown which they were."""
        went = len(held.named) - len(named)
        if not went:
            return
        if went == held.total:
            txn.delete(client.encode(), db=self._ended)
        else:
            left = EndedRecord(held.at_ms, held.total - went, named)
            txn.put(client.encode(), pack_ended(left), db=self._ended)

    def tidy(self, txn: lmdb.Transaction, argument: tuple[int, int]) -> list[Any]:
        """Do one step of cleanup. Return the number of removed records. The argument has the current time and the time
        for which records are kept, both in ms."""
        now_ms, kept_ms = argument
        before_ms = now_ms - kept_ms

        def is_old(value: bytes) -> bool:
            return int.from_bytes(value[:ENDED_AT_BYTES], "big") < before_ms

        def is_away(value: bytes) -> bool:
            number, _, online = ormsgpack.unpackb(value)
            return not online and number < before_ms

        ended = self._clear(txn, "ended", self._ended, is_old)
        return [ended + self._clear(txn, "locations", self._locations, is_away)]

    def _clear(self, txn: lmdb.Transaction, name: str, database: Any, is_over: Callable[[bytes], bool]) -> int:
        until = time.monotonic() + TIDY_S
        after, went = self._tidied.get(name, b""), 0
        with txn.cursor(database) as cursor:
            found = cursor.set_range(after) if after else cursor.first()
            for _ in range(TIDY_RECORDS):
                if not found or time.monotonic() >= until:
                    break
                if is_over(cast(bytes, cursor.value())):
                    cursor.delete()  # this moves the cursor to the next entry
                    went += 1
                    found = bool(cursor.key())
                else:
                    found = cursor.next()
            self._tidied[name] = bytes(cursor.key()) if found else b""
        return went
