"""The journal of retained messages in the embedded store: its keys and values, and what an endpoint does about it.

Owns: the databases ``kept``, ``kept_floors`` and ``kept_about`` as an endpoint sees them, and how a call is cut into
frames. What a writer does to them in a transaction is in ``journal_operations.py``. Must never: hold a transaction
across an ``await``, read for longer than ``SLICE_S`` without one, or know when a message is to be forgotten.

All three are in the soft environment: what is lost with the machine is what was kept, and clients are told so. The
writer of the durable one has nothing to do with it, so that no ``subscribe`` waits for a message that is written.

Floors are read in the transaction that ends a page, behind its messages: what a transaction before had taken out, with
a floor raised for it, is never missing from a page whose floor is the old one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from time import perf_counter
from typing import Any, Final, cast

import lmdb
import ormsgpack

from ingeborg.broker.store.base import (
    EPOCHS_MAX,
    KEEP_BYTES,
    RETAINED_BYTES_MAX,
    RETAINED_PAGE_BYTES,
    VOID,
    RetainedMessage,
)
from ingeborg.broker.store.embedded.layout import FRAME_BYTES_MAX, Lane
from ingeborg.broker.store.embedded.now import SLOT_BYTES
from ingeborg.broker.store.embedded.slices import SLICE_S, Call, Slices, entries_from, from_cursor, value_of
from ingeborg.protocol.hashes import SLOTS

STAMP_BYTES: Final = 8

OVERHEAD_BYTES: Final = 256
"""What a message counts beside its payload and topic, so that many small ones do not make a frame long to write."""

FRAME_FORGOTTEN: Final = KEEP_BYTES // OVERHEAD_BYTES
"""What is forgotten in a frame: as many as there are messages in one at most, 10 ms."""

assert RETAINED_BYTES_MAX + KEEP_BYTES <= FRAME_BYTES_MAX, "beside a message a frame has floors and what is forgotten"

EPOCHS: Final = b"lines"
"""Key in ``kept_about``: the lives of the cluster in MessagePack, each with the stamp at which it ended, or nil."""

TOP: Final = b"top"
"""Key in ``kept_about``: the greatest stamp."""

VOID_FLOOR: Final = VOID.to_bytes(STAMP_BYTES, "big")
"""In ``kept_floors``, of a slot of which nothing is whole."""

Frame = tuple[list[tuple[bytes, bytes]], list[bytes], list[tuple[bytes, bytes]], list[bytes]]
"""Entries to write, keys to delete, slots and their floors, slots that are whole."""

Page = tuple[list[RetainedMessage], list[tuple[int, int]], str | None]
"""Messages, floors, and where the next page begins."""


# --- keys and values


def pack_slot(slot: int) -> bytes:
    """What the keys of its messages begin with. ``ValueError``: it is none."""
    if not 0 <= slot < SLOTS:
        raise ValueError(f"{slot} is no slot: 0 to {SLOTS - 1}")
    return slot.to_bytes(SLOT_BYTES, "big")


def pack_stamp(stamp: int) -> bytes:
    """In an order that is that of the numbers. ``ValueError``: it is none."""
    if not 0 <= stamp < VOID:
        raise ValueError(f"{stamp} is no stamp: 0 to {VOID - 1}")
    return stamp.to_bytes(STAMP_BYTES, "big")


def pack_floor(stamp: int) -> bytes:
    """The same; a floor may be ``VOID`` as well."""
    return VOID_FLOOR if stamp == VOID else pack_stamp(stamp)


def place_of(key: bytes) -> tuple[int, int]:
    """Slot and stamp."""
    return int.from_bytes(key[:SLOT_BYTES], "big"), int.from_bytes(key[SLOT_BYTES:], "big")


def pack_retained(message: RetainedMessage) -> tuple[bytes, bytes]:
    """Key and value. ``ValueError``: its slot or stamp is none, or it is larger than a frame."""
    key = pack_slot(message.slot) + pack_stamp(message.stamp)
    value = ormsgpack.packb([message.topic, message.payload, message.origin, message.number, message.expires_at])
    if len(value) > RETAINED_BYTES_MAX:
        raise ValueError(f"a message of {len(value):,} bytes is not kept: {RETAINED_BYTES_MAX:,} at most")
    return key, value


def retained_in(key: bytes, value: bytes) -> RetainedMessage:
    """What ``kept`` has."""
    topic, payload, origin, number, expires_at = ormsgpack.unpackb(value)
    return RetainedMessage(*place_of(key), topic, payload, origin, number, float(expires_at))


# --- an endpoint's


class Journal:
    """That of one open store."""

    def __init__(self, slices: Slices, database: Callable[[Lane, str], Any], call: Call) -> None:
        """``database``: gives the handle of one that is open."""
        self._slices, self._database, self._call = slices, database, call

    async def keep(
        self,
        retained: Sequence[RetainedMessage],
        forgotten: Sequence[tuple[int, int]],
        floors: Sequence[tuple[int, int]],
        whole: Sequence[int],
    ) -> None:
        """In one transaction, unless it is too much for a frame. A frame is sent when the one before is committed."""
        entries = [pack_retained(message) for message in retained]
        keys = [pack_slot(slot) + pack_stamp(stamp) for slot, stamp in forgotten]
        raised = [(pack_slot(slot), pack_floor(stamp)) for slot, stamp in floors]
        for frame in _frames(entries, keys, raised, [pack_slot(slot) for slot in whole]):
            # By its name the writer knows that it lets go of room, or needs little: a full map does not refuse that.
            await self._call("keep" if frame[0] else "forget", [frame])

    async def page(self, slots: Sequence[int], cursor: str | None, limit: int) -> Page:
        """Some of the slots' messages, in the order of their keys."""
        wanted, last = (
            sorted(set(slots)),
            (b"" if cursor is None else from_cursor(cursor, lambda key: len(key) == SLOT_BYTES + STAMP_BYTES)),
        )
        prefixes = [pack_slot(slot) for slot in wanted]
        at = bisect_left(prefixes, last[:SLOT_BYTES])
        page: list[RetainedMessage] = []
        size = 0
        floors: list[tuple[int, int]] = []
        rest: str | None = None

        def read_slice() -> bool:
            nonlocal at, last, size, rest
            with self._slices.reading(Lane.SOFT, "kept") as (txn, entries):
                until = perf_counter() + SLICE_S
                while at < len(prefixes) and rest is None:
                    prefix = prefixes[at]
                    for key, value in entries_from(entries, prefix, last if last.startswith(prefix) else b""):
                        message = retained_in(key, value)
                        if page and (len(page) >= limit or size + len(message.payload) > RETAINED_PAGE_BYTES):
                            rest = last.hex()
                            break
                        page.append(message)
                        last, size = key, size + len(message.payload)
                        if perf_counter() >= until:
                            return False
                    else:
                        # The cursor stands behind the slot: the slots up to where it stands have nothing.
                        behind = cast(bytes, entries.key())[:SLOT_BYTES]
                        at = bisect_left(prefixes, behind, at + 1) if behind else len(prefixes)
                if cursor is None or rest is None:
                    floors.extend(self._floors(txn, frozenset(wanted)))
            return True

        await self._slices.through(read_slice)
        return page, floors, rest

    async def reach(self, epochs: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        """Record how far positions go, and of which epochs."""
        past, top = await self._call("reach", [(list(epochs), pack_stamp(stamp))])
        return [(epoch, ended) for epoch, ended in past], int.from_bytes(top, "big")

    def top(self) -> int:
        """The greatest stamp; 0: none."""
        with self._slices.reading(Lane.SOFT, "kept_about") as (txn, _):
            return top_in(txn, self._database(Lane.SOFT, "kept_about"))

    def count(self) -> int:
        """How many messages are kept."""
        with self._slices.reading(Lane.SOFT, "kept") as (txn, _):
            return int(txn.stat(self._database(Lane.SOFT, "kept"))["entries"])

    def _floors(self, txn: lmdb.Transaction, slots: frozenset[int]) -> Iterator[tuple[int, int]]:
        """Slot and stamp; all are gone through, one a slot at most: 1 ms."""
        with txn.cursor(self._database(Lane.SOFT, "kept_floors")) as cursor:
            for key, value in cast(Iterator[tuple[bytes, bytes]], cursor.iternext()):
                slot = int.from_bytes(key, "big")
                if slot in slots:
                    yield slot, int.from_bytes(value, "big")


def epochs_in(txn: lmdb.Transaction, about: Any) -> dict[str, int | None]:
    """Those recorded, each with the stamp at which it has ended; ``None``: it is present."""
    value = value_of(txn, EPOCHS, about)
    return {} if value is None else dict(ormsgpack.unpackb(value))


def present(recorded: Mapping[str, int | None], epochs: Sequence[str], top: int) -> dict[str, int | None]:
    """The same, where ``epochs`` are the present ones, and ``top`` is the greatest stamp that there was before: the
    past ones first, in the order in which they have ended, and no more than ``EPOCHS_MAX``."""
    past = [(epoch, top if ended is None else ended) for epoch, ended in recorded.items() if epoch not in epochs]
    return dict(sorted(past, key=itemgetter(1, 0))[-EPOCHS_MAX:]) | dict.fromkeys(epochs)


def top_in(txn: lmdb.Transaction, about: Any) -> int:
    """The greatest stamp; 0: none."""
    value = value_of(txn, TOP, about)
    return 0 if value is None else int.from_bytes(value, "big")


def _frames(
    entries: list[tuple[bytes, bytes]], keys: list[bytes], floors: list[tuple[bytes, bytes]], whole: list[bytes]
) -> Iterator[Frame]:
    """Floors in the first frame, what is forgotten from the last of the messages' on: what a crash leaves has
    a floor too many at most, and never a message too few."""
    parts = list(_parts(entries)) or [[]]
    going = [keys[start : start + FRAME_FORGOTTEN] for start in range(0, len(keys), FRAME_FORGOTTEN)] or [[]]
    for number, part in enumerate(parts):
        is_first, is_last = not number, number == len(parts) - 1
        frame = part, going[0] if is_last else [], floors if is_first else []
        if any(frame):
            yield *frame, whole if is_first else []
    for part_of_keys in going[1:]:
        yield [], part_of_keys, [], []


def _parts(entries: list[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Of about ``KEEP_BYTES`` at most, or one message."""
    part: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in entries:
        needed = len(value) + OVERHEAD_BYTES
        if part and size + needed > KEEP_BYTES:
            yield part
            part, size = [], 0
        part.append((key, value))
        size += needed
    if part:
        yield part
