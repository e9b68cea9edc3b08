"""Pages, which move with their slots, and the log of notices that the endpoint got about its slots.

Owns: the pages, their packing, and the log. Must never: depend on where a slot moves.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ingeborg.broker.core.cluster.slots import SlotState

#: Number of pages in a chunk. With pages of 4 KiB, a chunk has 64 KiB.
PAGES_PER_CHUNK: Final = 16

#: Minimum number of keys in a slice. A slice can combine the keys of several slots, so that chunks are full.
_KEYS_PER_SLICE: Final = 16 * PAGES_PER_CHUNK

#: Maximum number of slots that a slice examines. The limit is needed because many slots may have no pages.
_SLOTS_PER_SLICE: Final = 1_000

#: The header of a page in a chunk: its slot, its number and its length. The length ``_NONE`` means that the page was
#: removed.
_ROW: Final = struct.Struct("<HII")
_NONE: Final = 0xFFFF_FFFF


Told = tuple[int, str, list[int], bool]
"""A notice to an endpoint: the time in nanoseconds, "arrived" or "gone", the slots, and whether the slots are
complete."""


class Pages(SlotState):
    """The pages of one endpoint. ``of`` has the pages by slot and number. ``told`` has all notices. Each notice is also
    passed to ``note``."""

    def __init__(self, note: Callable[[Told], None] = lambda told: None) -> None:
        super().__init__("bench pages", PAGES_PER_CHUNK)
        self._note = note
        self.of: dict[int, dict[int, bytes]] = {}
        self.told: list[Told] = []

    def put(self, slot: int, number: int, page: bytes | None) -> None:
        """Set a page of the slot, or remove it if ``page`` is ``None``."""
        if page is not None:
            self.of.setdefault(slot, {})[number] = page
        elif slot in self.of:
            self.of[slot].pop(number, None)

    def departing(self, slots: frozenset[int]) -> Iterator[list[Any]]:
        """See ``SlotState``."""
        keys: list[Any] = []
        for looked_at, slot in enumerate(slots, 1):
            keys += [(slot, number) for number in self.of.get(slot, ())]
            if len(keys) >= _KEYS_PER_SLICE or looked_at % _SLOTS_PER_SLICE == 0:
                yield keys
                keys = []
        yield keys

    def pack(self, keys: Sequence[Any]) -> bytes:
        """See ``SlotState``."""
        parts = []
        for slot, number in keys:
            page = self.of.get(slot, {}).get(number)
            parts.append(_ROW.pack(slot, number, _NONE if page is None else len(page)))
            if page is not None:
                parts.append(page)
        return b"".join(parts)

    def absorb(self, data: bytes) -> int:
        """See ``SlotState``."""
        rows: list[tuple[int, int, bytes | None]] = []
        start = 0
        while start < len(data):
            try:
                slot, number, size = _ROW.unpack_from(data, start)
            except struct.error as error:
                raise ValueError(str(error)) from None
            start += _ROW.size
            if size == _NONE:
                rows.append((slot, number, None))
                continue
            page = data[start : start + size]
            if len(page) != size:
                raise ValueError(f"the chunk ends after {len(page)} of the {size} bytes of a page")
            rows.append((slot, number, page))
            start += size
        for row in rows:
            self.put(*row)
        return len(rows)

    def arrived(self, slots: Sequence[int], whole: bool) -> None:
        """See ``SlotState``."""
        self._tell("arrived", slots, whole)

    def gone(self, slots: Sequence[int]) -> None:
        """See ``SlotState``."""
        self._tell("gone", slots, True)
        for slot in slots:
            self.of.pop(slot, None)

    def _tell(self, what: str, slots: Sequence[int], whole: bool) -> None:
        told = (time.monotonic_ns(), what, list(slots), whole)
        self.told.append(told)
        self._note(told)
