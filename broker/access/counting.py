"""How many connections an address has: at this process, or at all that share a port (ADR 27).

Owns: the counts, and how those of several processes lie in memory that they share. Must never: wait for another
process, or write what is another's.

A table of the shared kind has buckets, found by a keyed hash of the address. In each bucket every process has a
*column* of 16 entries that it alone writes; all of them read. An entry is the hash (16 bytes), the life of
the process that wrote it, and a count. It counts only while that life lasts, so a process that died has its entries
cleared by the number of its life alone.
"""

from __future__ import annotations

import hashlib
import logging
import struct
import sys
from collections import Counter
from collections.abc import Callable
from mmap import mmap
from typing import Protocol

log = logging.getLogger("ingeborg.endpoint")

#: Bytes of an address's hash: nobody who does not know the key finds two addresses of one hash.
KEY_BYTES = DIGEST_BYTES = 16
_ENTRY = struct.Struct("=16sII")  # hash, life, count
_HEAD = struct.Struct("=16sI")  # hash, life
_COUNT = struct.Struct("=II")  # its life and count, behind the hash
#: Entries of a column in one bucket. With four times as many entries as connections a bucket has 4 of them on average,
#: and one in a million has more than 16.
WAYS = 16
COLUMN_BYTES = WAYS * _ENTRY.size


class Counting(Protocol):
    """Who counts the connections of addresses."""

    def arrived(self, address: str, most: int) -> bool:
        """One more connection of the address; not, if there would be more than ``most``. Was it counted?"""

    def left(self, address: str) -> None:
        """One that was counted is gone."""


class OwnCount:
    """Of this process alone."""

    def __init__(self) -> None:
        self._connections: Counter[str] = Counter()

    def arrived(self, address: str, most: int) -> bool:
        """See ``Counting``."""
        if self._connections[address] >= most:
            return False
        self._connections[address] += 1
        return True

    def left(self, address: str) -> None:
        """See ``Counting``."""
        self._connections[address] -= 1
        if not self._connections[address]:
            del self._connections[address]


class SharedCount:
    """Of all processes that share the table. Nobody locks: a process that is stopped must not hold up the others.

    A process writes its own entry first and then adds up those of all. Of two that do so at the same time at least one
    sees the other, so there are never more connections than the limit. That both see the other, and both refuse where
    one would have had room, takes two handshakes within microseconds; a client that tries again gets in. An entry that
    counts is changed in its count alone, so that nobody reads less than there is.
    """

    def __init__(
        self, memory: mmap, start: int, buckets: int, columns: int, mine: int, key: bytes, life: Callable[[int], int]
    ) -> None:
        """``start``: of the table in the memory, in bytes; ``mine``: the column that this process writes; ``life``: the
        number, from 1 on, of the life of a column's process; 0: it does not live."""
        self._memory = memory
        self._start = start
        self._buckets = buckets
        self._columns = columns
        self._mine = mine
        self._key = key
        self._life = life
        self._spilled: Counter[str] = Counter()  # connections of addresses that had no room in their bucket
        self._told = False

    def arrived(self, address: str, most: int) -> bool:
        """See ``Counting``."""
        digest, bucket = self._place(address)
        at = self._own(digest, bucket)
        if at is None:
            return self._spill(address, most)
        mine = self._count(at, self._mine) + 1
        self._write(at, digest, mine)
        others = (column for column in range(self._columns) if column != self._mine)
        total = mine + self._spilled[address] + sum(self._of(column, digest, bucket) for column in others)
        if total > most:
            self._write(at, digest, mine - 1)
            return False
        return True

    def left(self, address: str) -> None:
        """See ``Counting``."""
        if self._spilled[address]:
            self._spilled[address] -= 1
            return
        digest, bucket = self._place(address)
        at = self._find(self._mine, digest, bucket)
        assert at is not None, "only what has been counted leaves"
        self._write(at, digest, self._count(at, self._mine) - 1)

    def _spill(self, address: str, most: int) -> bool:
        """The bucket is full: the address is counted here alone, and its limit holds for this process."""
        if not self._told:
            self._told = True
            log.warning(
                "the table of addresses is full at one place: some addresses' connections are counted by each endpoint "
                "for itself; a larger limit of open files (ulimit -n) makes a larger table"
            )
        self._spilled = +self._spilled  # without those of which none is left
        counted = self._spilled[address] < most
        self._spilled[address] += counted
        return counted

    def _place(self, address: str) -> tuple[bytes, int]:
        digest = hashlib.blake2b(address.encode(), digest_size=DIGEST_BYTES, key=self._key).digest()
        return digest, int.from_bytes(digest[:8], "little") % self._buckets

    def _column(self, column: int, bucket: int) -> int:
        return self._start + (bucket * self._columns + column) * COLUMN_BYTES

    def _find(self, column: int, digest: bytes, bucket: int) -> int | None:
        """Where the column's entry of this hash is, of whichever life."""
        start = self._column(column, bucket)
        end, at = start + COLUMN_BYTES, start
        while (at := self._memory.find(digest, at, end)) >= 0:
            if (at - start) % _ENTRY.size == 0:
                return at
            at += 1
        return None

    def _own(self, digest: bytes, bucket: int) -> int | None:
        """Where this process counts the address: the entry that has its hash, or a free one; ``None``: none is."""
        if (found := self._find(self._mine, digest, bucket)) is not None:
            return found
        start = self._column(self._mine, bucket)
        places = range(start, start + COLUMN_BYTES, _ENTRY.size)
        return next((at for at in places if not self._count(at, self._mine)), None)

    def _write(self, at: int, digest: bytes, count: int) -> None:
        # Not by `pack_into`, which clears what it writes to before it does.
        memory, behind = self._memory, at + _HEAD.size
        head = _HEAD.pack(digest, self._life(self._mine))
        if memory[at:behind] != head:  # nothing that it counts is left
            memory[behind : at + _ENTRY.size] = bytes(4)
            memory[at:behind] = head
        memory[behind : at + _ENTRY.size] = count.to_bytes(4, sys.byteorder)

    def _count(self, at: int, column: int) -> int:
        life, count = _COUNT.unpack_from(self._memory, at + DIGEST_BYTES)
        return int(count) if life == self._life(column) else 0

    def _of(self, column: int, digest: bytes, bucket: int) -> int:
        at = self._find(column, digest, bucket)
        return 0 if at is None else self._count(at, column)


def table_bytes(buckets: int, columns: int) -> int:
    """Of a table with so many buckets, for so many processes."""
    return buckets * columns * COLUMN_BYTES
