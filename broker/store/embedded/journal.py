"""The journal of retained messages in the embedded store: its keys and values, and the endpoint's part of the
operations.

Owns: the reads of the databases ``kept``, ``kept_floors`` and ``kept_about``, and how a call is split into frames. A
writer's changes within a transaction are in ``journal_operations.py``. Must never: hold a transaction across an
``await``, read for longer than ``SLICE_S`` without an ``await``, or decide when to forget a message.

All three databases are in the soft environment. So a reboot of the machine loses retained messages, and endpoints tell
clients about the loss. The durable writer is not involved, so no ``subscribe`` waits for the write of a message.

The transaction that reads the last messages of a page reads the floors as well, after these messages. A writer may
remove a message and raise the floor while a page is read. The page then cannot lack the message and still have the old
floor.
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
"""In a frame, each message counts for this many bytes in addition to its payload and texts. So a frame cannot have too
many small messages, which would take a long time to write."""

FRAME_FORGOTTEN: Final = KEEP_BYTES // OVERHEAD_BYTES
"""The largest number of removals in a frame. This equals the largest number of messages in a frame. A frame with this
many removals takes 10 ms to write."""

assert RETAINED_BYTES_MAX + KEEP_BYTES <= FRAME_BYTES_MAX, "a frame also has floors and removals"

EPOCHS: Final = b"lines"
"""Key in ``kept_about``: the cluster's epochs in MessagePack, each with the stamp at which it ended, or nil."""

TOP: Final = b"top"
"""Key in ``kept_about``: the greatest stamp."""

VOID_FLOOR: Final = VOID.to_bytes(STAMP_BYTES, "big")
"""Value in ``kept_floors`` for a slot of which the journal has no complete part."""

Frame = tuple[list[tuple[bytes, bytes]], list[bytes], list[tuple[bytes, bytes]], list[bytes]]
"""Entries to write, keys to delete, slots with their floors, and complete slots."""

Page = tuple[list[RetainedMessage], list[tuple[int, int]], str | None]
"""Messages, floors, and the cursor of the next page."""


# --- keys and values


def pack_slot(slot: int) -> bytes:
    """Return the prefix of the keys of the slot's messages. Raises ``ValueError`` for an invalid slot."""
    if not 0 <= slot < SLOTS:
        raise ValueError(f"{slot} is not a slot: 0 to {SLOTS - 1}")
    return slot.to_bytes(SLOT_BYTES, "big")


def pack_stamp(stamp: int) -> bytes:
    """Return bytes that sort as the stamps do. Raises ``ValueError`` for an invalid stamp."""
    if not 0 <= stamp < VOID:
        raise ValueError(f"{stamp} is not a stamp: 0 to {VOID - 1}")
    return stamp.to_bytes(STAMP_BYTES, "big")


def pack_floor(stamp: int) -> bytes:
    """Return the bytes of a floor, which is a stamp or ``VOID``. Raises ``ValueError`` for an invalid stamp."""
    return VOID_FLOOR if stamp == VOID else pack_stamp(stamp)


def place_of(key: bytes) -> tuple[int, int]:
    """Return the slot and the stamp in a key."""
    return int.from_bytes(key[:SLOT_BYTES], "big"), int.from_bytes(key[SLOT_BYTES:], "big")


def pack_retained(message: RetainedMessage) -> tuple[bytes, bytes]:
    """Return the key and the value of a message. Raises ``ValueError`` for an invalid slot or stamp, or if the message
    is too large."""
    key = pack_slot(message.slot) + pack_stamp(message.stamp)
    value = ormsgpack.packb([message.topic, message.payload, message.origin, message.number, message.expires_at])
    if len(value) > RETAINED_BYTES_MAX:
        raise ValueError(f"a message of {len(value):,} bytes is too large to retain: {RETAINED_BYTES_MAX:,} at most")
    return key, value


def retained_in(key: bytes, value: bytes) -> RetainedMessage:
    """Return the message that an entry of ``kept`` holds."""
    topic, payload, origin, number, expires_at = ormsgpack.unpackb(value)
    return RetainedMessage(*place_of(key), topic, payload, origin, number, float(expires_at))


# --- the endpoint's side


class Journal:
    """The journal of one open store."""

    def __init__(self, slices: Slices, database: Callable[[Lane, str], Any], call: Call) -> None:
        """Keep references to the parts of the store. ``database`` returns the handle of an open database."""
        self._slices, self._database, self._call = slices, database, call

    async def keep(
        self,
        retained: Sequence[RetainedMessage],
        forgotten: Sequence[tuple[int, int]],
        floors: Sequence[tuple[int, int]],
        whole: Sequence[int],
    ) -> None:
        """Write in one transaction, or in several if one frame is not enough. Each frame is sent after the previous one
        is committed."""
        entries = [pack_retained(message) for message in retained]
        keys = [pack_slot(slot) + pack_stamp(stamp) for slot, stamp in forgotten]
        raised = [(pack_slot(slot), pack_floor(stamp)) for slot, stamp in floors]
        for frame in _frames(entries, keys, raised, [pack_slot(slot) for slot in whole]):
            # The operation ``forget`` tells the writer that the frame frees space or needs little, so that the writer
            # accepts the frame even if the map is full.
            await self._call("keep" if frame[0] else "forget", [frame])

    async def page(self, slots: Sequence[int], cursor: str | None, limit: int) -> Page:
        """Return some of the slots' messages, in the order of their keys."""
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
                        # The cursor is past this slot. Slots before the cursor's position have no messages, so skip
                        # them.
                        behind = cast(bytes, entries.key())[:SLOT_BYTES]
                        at = bisect_left(prefixes, behind, at + 1) if behind else len(prefixes)
                if cursor is None or rest is None:
                    floors.extend(self._floors(txn, frozenset(wanted)))
            return True

        await self._slices.through(read_slice)
        return page, floors, rest

    async def reach(self, epochs: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        """Record the current epochs, and the greatest stamp that a position may have."""
        past, top = await self._call("reach", [(list(epochs), pack_stamp(stamp))])
        return [(epoch, ended) for epoch, ended in past], int.from_bytes(top, "big")

    def top(self) -> int:
        """Return the greatest stamp in the journal, or 0 if there is none."""
        with self._slices.reading(Lane.SOFT, "kept_about") as (txn, _):
            return top_in(txn, self._database(Lane.SOFT, "kept_about"))

    def count(self) -> int:
        """Return the number of retained messages."""
        with self._slices.reading(Lane.SOFT, "kept") as (txn, _):
            return int(txn.stat(self._database(Lane.SOFT, "kept"))["entries"])

    def _floors(self, txn: lmdb.Transaction, slots: frozenset[int]) -> Iterator[tuple[int, int]]:
        """Yield the slot and the stamp of each floor of these slots. This reads all floors, of which there is at most
        one for each slot, in 1 ms."""
        with txn.cursor(self._database(Lane.SOFT, "kept_floors")) as cursor:
            for key, value in cast(Iterator[tuple[bytes, bytes]], cursor.iternext()):
                slot = int.from_bytes(key, "big")
                if slot in slots:
                    yield slot, int.from_bytes(value, "big")


def epochs_in(txn: lmdb.Transaction, about: Any) -> dict[str, int | None]:
    """Return the recorded epochs, each with the stamp at which it ended, or ``None`` for a current epoch."""
    value = value_of(txn, EPOCHS, about)
    return {} if value is None else dict(ormsgpack.unpackb(value))


def present(recorded: Mapping[str, int | None], epochs: Sequence[str], top: int) -> dict[str, int | None]:
    """Return the epochs to record if ``epochs`` are current and ``top`` is the greatest stamp until now. The past
    epochs are first, in the order of their ends, and are at most ``EPOCHS_MAX``."""
    past = [(epoch, top if ended is None else ended) for epoch, ended in recorded.items() if epoch not in epochs]
    return dict(sorted(past, key=itemgetter(1, 0))[-EPOCHS_MAX:]) | dict.fromkeys(epochs)


def top_in(txn: lmdb.Transaction, about: Any) -> int:
    """Return the greatest stamp in the journal, or 0 if there is none."""
    value = value_of(txn, TOP, about)
    return 0 if value is None else int.from_bytes(value, "big")


def _frames(
    entries: list[tuple[bytes, bytes]], keys: list[bytes], floors: list[tuple[bytes, bytes]], whole: list[bytes]
) -> Iterator[Frame]:
    """Yield the frames of a call. The first frame has the floors. The removals are in the last frame that has messages,
    and in the frames after it. So after a crash a floor can be too high, but no message that the floor covers is
    missing."""
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
    """Yield parts of at most about ``KEEP_BYTES``. A larger message is a separate part."""
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
