"""Ending subscriptions in the embedded store: their keys and values, and what an endpoint does about them.

Owns: the three databases ``ending``, ``ending_of`` and ``ended`` as an endpoint sees them, that a plain subscription
wins over an ending one, and the page that has a client's topics of all kinds. What a writer does to them in a
transaction is in ``ending_operations.py``. Must never: hold a transaction across an ``await``, or read for longer than
``SLICE_S`` without one.

Plain subscriptions are in the durable environment, ending ones in the soft one, and no transaction has both:

* A plain ``subscribe`` writes the plain subscription, then looks for an ending one, which its soft writer takes out.
  ``subscribe_ending`` writes the ending one, then looks for a plain one, and takes out its own again. Of two under way
  at the same time at least one sees the other. (What is left where a process dies in between stands beside a plain
  one, which readers take for what counts, and ``end`` takes it out without a word.)
* Whoever reads both reads the ending ones first, or begins that transaction first: what was taken out before had its
  plain subscription before, so that a client that goes from one to the other is never missed.
* ``end`` compares the location and the stamp, deletes, and writes ``ended`` in one transaction of the soft environment,
  where ``listen`` writes the location. A ``listen`` that was committed before is seen; one that comes later, returns
  later, and finds ``ended`` written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import islice
from time import perf_counter
from typing import Any, Final, cast

import lmdb
import ormsgpack

from ingeborg.broker.store.base import Ended, Ending, Location, Term
from ingeborg.broker.store.embedded.layout import FRAME_ITEMS, Lane, subscription_frames
from ingeborg.broker.store.embedded.now import SLOT_BYTES, client_in, prefix_of
from ingeborg.broker.store.embedded.slices import LOOKS, SLICE_S, Slices, Subscribed, duplicates_after
from ingeborg.protocol.hashes import HASH_BYTES, digest

ENDED_AT_BYTES: Final = 8
"""In front of the value of ``ended``: who clears up reads these, and not a thousand topics."""

Call = Callable[[str, list[Any]], Any]
"""Of the soft writer: operation and frames, to be awaited."""


# --- keys and values


def value_of(txn: lmdb.Transaction, key: bytes, database: Any) -> bytes | None:
    """What the database has for the key."""
    return cast("bytes | None", txn.get(key, db=database))


def ending_in(value: bytes) -> Ending:
    """What ``ending`` has."""
    client, topic, disconnect, ends_at, stamp = ormsgpack.unpackb(value)
    return Ending(topic, client, Term(disconnect, float(ends_at)), stamp)


def pack_ended(at_ms: int, count: int, topics: Sequence[str]) -> bytes:
    """A value of ``ended``."""
    return at_ms.to_bytes(ENDED_AT_BYTES, "big") + ormsgpack.packb([count, topics])


def unpack_ended(value: bytes) -> tuple[int, int, list[str]]:
    """Unix time in milliseconds, count, topics."""
    count, topics = ormsgpack.unpackb(value[ENDED_AT_BYTES:])
    return int.from_bytes(value[:ENDED_AT_BYTES], "big"), count, topics


def ended_in(value: bytes) -> Ended:
    """What ``ended`` has."""
    _, count, topics = unpack_ended(value)
    return Ended(topics, count)


def from_cursor(cursor: str | None) -> bytes:
    """The end of the key that a page has ended with. ``ValueError``: it is no cursor of ``Endings.page``."""
    try:
        found = b"" if cursor is None else bytes.fromhex(cursor)
    except ValueError:
        found = b""
    if cursor is not None and (len(found) != 2 * HASH_BYTES or found.hex() != cursor):
        raise ValueError(f"{cursor[:64]!r} is no cursor of this store")
    return found


def entries_from(cursor: lmdb.Cursor, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of those that begin with the prefix; ``after``: from behind that key on."""
    if not cursor.set_range(after or prefix) or (cursor.key() == after and not cursor.next()):
        return
    for key, value in cast(Iterator[tuple[bytes, bytes]], cursor.iternext()):
        if not key.startswith(prefix):
            return
        yield key, value


# --- an endpoint's


class Endings:
    """Those of one open store."""

    def __init__(
        self,
        slices: Slices,
        database: Callable[[Lane, str], Any],
        call: Call,
        *,
        wall_clock: Callable[[], float],
    ) -> None:
        """``database``: gives the handle of one that is open."""
        self._slices, self._reading, self._holds = slices, slices.reading, slices.holds
        self._database, self._call, self._wall_clock = database, call, wall_clock

    async def subscribe(self, batch: Sequence[tuple[str, Sequence[str], Term]]) -> None:
        """Where there is no plain one."""
        mine = [(client, topics, term.disconnect, term.ends_at) for client, topics, term in batch]
        new = await self._slices.chosen(Lane.DURABLE, "topics_of", mine, _has_no_plain, _is_not_plain)
        await self._write("subscribe_ending", new)
        if plain := await self._slices.chosen(Lane.DURABLE, "topics_of", new, _has_plain, _is_plain):
            await self._write("take_out", [(client, topics) for client, topics, *_ in plain], [False])

    async def take_out(self, batch: Sequence[tuple[str, Sequence[str]]], *, is_subscribed: bool) -> None:
        """Have none of these any more. ``is_subscribed``: they are plain ones by now, and so nothing of them has ended.
        The writer is asked only about those that there are."""
        if not self._holds(Lane.SOFT, "ending_of") and not (is_subscribed and self._holds(Lane.SOFT, "ended")):
            return
        ended: frozenset[str] = frozenset()  # what has ended of the client that is looked at

        def quick(txn: lmdb.Transaction, cursor: lmdb.Cursor, client: str, client_hash: bytes) -> bool | None:
            nonlocal ended
            value = value_of(txn, client.encode(), self._database(Lane.SOFT, "ended")) if is_subscribed else None
            ended = frozenset() if value is None else frozenset(unpack_ended(value)[2])
            return None if ended or _begins(cursor, client_hash) else False

        def look(txn: lmdb.Transaction, cursor: lmdb.Cursor, client_hash: bytes, topic: str) -> bool:
            return topic in ended or txn.get(client_hash + digest(topic.encode())) is not None

        there = await self._slices.chosen(Lane.SOFT, "ending_of", batch, quick, look)
        await self._write("take_out", there, [is_subscribed])

    async def clients(self, topics: Sequence[str]) -> list[list[str]]:
        """Of each topic the clients whose subscription is an ending one."""
        found: list[list[str]] = []
        members: list[str] = []
        after = b""  # the last member's key, where a slice ended within a topic

        def read_slice() -> bool:
            nonlocal members, after
            with self._reading(Lane.SOFT, "ending") as (_, cursor):
                until = perf_counter() + SLICE_S
                while len(found) < len(topics):
                    topic = topics[len(found)]
                    entries = entries_from(cursor, prefix_of(topic, digest(topic.encode())), after)
                    while part := list(islice(entries, LOOKS)):
                        members += [client_in(value) for _, value in part]
                        if perf_counter() >= until:
                            after = part[-1][0]
                            return False
                    found.append(members)
                    members, after = [], b""
                    if perf_counter() >= until:
                        return len(found) == len(topics)
            return True

        await self._slices.through(read_slice)
        return found

    async def topics(self, client: str, after: bytes | None, limit: int) -> tuple[list[str], str | None]:
        """A page of the client's topics of all kinds, merged by their hashes, in which all are in order."""
        key = digest(client.encode())
        page: list[str] = []
        cursor: str | None = None

        def read_slice() -> bool:
            nonlocal after, cursor
            with ExitStack() as stack:
                kinds: list[Iterator[bytes]] = []
                soft: lmdb.Transaction | None = None
                if self._holds(Lane.SOFT, "ending_of"):
                    soft, endings = stack.enter_context(self._reading(Lane.SOFT, "ending_of"))
                    kinds.append(_ending_topics(endings, key, after))
                txn, plain = stack.enter_context(self._reading(Lane.DURABLE, "topics_of"))
                kinds.append(duplicates_after(plain, key, after))
                filtered = stack.enter_context(txn.cursor(self._database(Lane.DURABLE, "filtered_of")))
                if filtered.set_key(key):
                    kinds.append(duplicates_after(filtered, key, after))
                texts, filtered_topics = (self._database(Lane.DURABLE, name) for name in ("texts", "filtered_topics"))
                until = perf_counter() + SLICE_S
                for topic_hash in kinds[0] if len(kinds) == 1 else merge(*kinds):
                    if topic_hash == after:  # it is of several kinds
                        continue
                    if len(page) == limit:
                        assert after is not None
                        cursor = after.hex()
                        return True
                    text = txn.get(topic_hash, db=texts)
                    if text is None:
                        text = txn.get(topic_hash, db=filtered_topics)
                    if text is None and soft is not None:
                        text = soft.get(key + topic_hash)
                    if text is None:
                        raise ValueError("a topic has no name")
                    page.append(str(cast(bytes, text), "utf-8"))
                    after = topic_hash
                    if perf_counter() >= until:
                        return False
            return True

        await self._slices.through(read_slice)
        return page, cursor

    async def terms(self, pairs: Sequence[tuple[str, str]]) -> list[Term | None]:
        """Of each ``(client, topic)``; ``None`` where there is none, or a plain one."""

        def term_of(txn: lmdb.Transaction, _: lmdb.Cursor, pair: tuple[str, str]) -> Term | None:
            client, topic = pair
            key = prefix_of(topic, digest(topic.encode())) + digest(client.encode())
            value = value_of(txn, key, self._database(Lane.SOFT, "ending"))
            return None if value is None else ending_in(value).term

        terms = await self._slices.each(Lane.SOFT, "ending", pairs, term_of)
        ending = [pair for pair, term in zip(pairs, terms, strict=True) if term is not None]
        plain = {pair for pair, is_plain in zip(ending, await self._plain(ending), strict=True) if is_plain}
        return [None if pair in plain else term for pair, term in zip(pairs, terms, strict=True)]

    def slots(self) -> list[int]:
        """Those that have any, in order: a look for each, 4 ms at most."""
        found: list[int] = []
        with self._reading(Lane.SOFT, "ending") as (_, entries):
            there = entries.first()
            while there:
                found.append(int.from_bytes(entries.key()[:SLOT_BYTES], "big"))
                there = entries.set_range((found[-1] + 1).to_bytes(SLOT_BYTES, "big"))
        return found

    async def page(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Ending], str | None]:
        """Some of those of the slot, in the order of their keys."""
        prefix, last = slot.to_bytes(SLOT_BYTES, "big"), from_cursor(cursor)
        page: list[Ending] = []
        rest: str | None = None

        def read_slice() -> bool:
            nonlocal last, rest
            with self._reading(Lane.SOFT, "ending") as (_, entries):
                until = perf_counter() + SLICE_S
                for key, value in entries_from(entries, prefix, prefix + last if last else b""):
                    if len(page) >= limit:
                        rest = last.hex()
                        return True
                    page.append(ending_in(value))
                    last = key[SLOT_BYTES:]
                    if perf_counter() >= until:
                        return False
            return True

        await self._slices.through(read_slice)
        return page, rest

    async def end(self, batch: Sequence[tuple[Sequence[Ending], Location | None, bool]]) -> list[list[Ending]]:
        """Take them out; those that are, or were gone, and have no plain one beside them."""
        pairs = [(ending.client, ending.topic) for endings, _, _ in batch for ending in endings]
        # Once before, so that nothing is said to have ended that goes on as a plain one; once afterwards, for one that
        # has become one meanwhile: its `subscribe` has taken it from what has ended.
        plain = await self._plain(pairs)
        out: list[bool] = []
        for frame in _end_frames(batch, plain):
            out += await self._call("end", [(self._now_ms(), frame)])
        plain = await self._plain(pairs)
        is_over = iter([is_out and not is_plain for is_out, is_plain in zip(out, plain, strict=True)])
        return [[ending for ending in endings if next(is_over)] for endings, _, _ in batch]

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        """What has ended of each."""
        if not self._holds(Lane.SOFT, "ended"):
            return [None] * len(clients)

        def look(txn: lmdb.Transaction, _: lmdb.Cursor, client: str) -> Ended | None:
            value = value_of(txn, client.encode(), self._database(Lane.SOFT, "ended"))
            return None if value is None else ended_in(value)

        return await self._slices.each(Lane.SOFT, "ended", clients, look)

    async def tidy(self, kept_s: float) -> int:
        """A step of it; how many records went."""
        return sum(await self._call("tidy", [(self._now_ms(), int(kept_s * 1000))]))

    def _now_ms(self) -> int:
        return int(self._wall_clock() * 1000)

    async def _plain(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether each ``(client, topic)`` is a plain subscription."""
        return await self._slices.each(
            Lane.DURABLE,
            "topics_of",
            pairs,
            lambda txn, cursor, pair: _is_plain(txn, cursor, digest(pair[0].encode()), pair[1]),
        )

    async def _write(self, operation: str, batch: Sequence[Subscribed], options: Sequence[Any] = ()) -> None:
        """Frame by frame, each when the one before is committed: a ``listen`` waits for one of them, not for all."""
        for frame in subscription_frames(batch):
            await self._call(operation, [[*options, frame]])


def _ending_topics(cursor: lmdb.Cursor, client_hash: bytes, after: bytes | None) -> Iterator[bytes]:
    """The hash of each topic of ``ending_of``, in order, those up to ``after`` left out."""
    for key, _ in entries_from(cursor, client_hash, client_hash + after if after else b""):
        yield key[HASH_BYTES:]


def _begins(cursor: lmdb.Cursor, prefix: bytes) -> bool:
    """Whether there is a key that begins so."""
    return cursor.set_range(prefix) and cast(bytes, cursor.key()).startswith(prefix)


def _has_plain(_: lmdb.Transaction, cursor: lmdb.Cursor, client: str, client_hash: bytes) -> bool | None:
    return None if cursor.set_key(client_hash) else False


def _has_no_plain(_: lmdb.Transaction, cursor: lmdb.Cursor, client: str, client_hash: bytes) -> bool | None:
    return None if cursor.set_key(client_hash) else True


def _is_plain(_: lmdb.Transaction, cursor: lmdb.Cursor, client_hash: bytes, topic: str) -> bool:
    return cursor.set_key_dup(client_hash, digest(topic.encode()))


def _is_not_plain(txn: lmdb.Transaction, cursor: lmdb.Cursor, client_hash: bytes, topic: str) -> bool:
    return not _is_plain(txn, cursor, client_hash, topic)


def _end_frames(
    batch: Sequence[tuple[Sequence[Ending], Location | None, bool]], plain: Sequence[bool]
) -> Iterator[list[Any]]:
    """Entries of ``end`` as ``(client, location, flag, [(topic, stamp, whether it is plain, too)])``, ``FRAME_ITEMS``
    subscriptions a frame at most."""
    is_plain = iter(plain)
    frame: list[Any] = []
    room = FRAME_ITEMS
    for endings, location, only in batch:
        for start in range(0, len(endings), FRAME_ITEMS):
            part = [(ending.topic, ending.stamp, next(is_plain)) for ending in endings[start : start + FRAME_ITEMS]]
            if len(part) > room:
                yield frame
                frame, room = [], FRAME_ITEMS
            frame.append((endings[start].client, None if location is None else tuple(location), only, part))
            room -= len(part)
    if frame:
        yield frame
