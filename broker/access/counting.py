"""Counts the connections of each address, in this process or in all processes that share a port (ADR 27).

Owns: the counts, and their layout in shared memory. Must never: wait for another process, or write to another process's
entries.

A shared table consists of buckets. A keyed hash of an address selects its bucket. In each bucket, every process has a
*column* of 16 entries. Only that process writes the column; all processes read it. An entry holds the hash (16 bytes),
the number of the writing process's life, and a count. Each start of a process begins its next life, and an entry is
valid only in the life in which it was written. So when a process has died and its next life begins, all its old entries
become invalid.
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

#: Number of bytes of an address's hash and of its key. Without the key, nobody can find two addresses with the same
#: hash.
KEY_BYTES = DIGEST_BYTES = 16
_ENTRY = struct.Struct("=16sII")  # hash, life, count
_HEAD = struct.Struct("=16sI")  # hash, life
_COUNT = struct.Struct("=II")  # life and count, after the hash
#: Number of entries of a column in one bucket. The table has four times as many entries as connections, so on average a
#: column uses 4 of its entries in a bucket. One column in a million would need more than 16.
WAYS = 16
COLUMN_BYTES = WAYS * _ENTRY.size


class Counting(Protocol):
    """Counts the connections of addresses."""

    def arrived(self, address: str, most: int) -> bool:
        """Count one more connection of the address, unless the address would then have more than ``most``. Return
        whether the connection was counted."""

    def left(self, address: str) -> None:
        """Subtract one counted connection."""


class OwnCount:
    """Counts only the connections of this process."""

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
    """Counts the connections of all processes that share the table, without a lock, so that a stopped process does not
    hold up the others.

    A process writes its own entry first and then adds up the entries of all processes. If two processes do so at the
    same time, at least one sees the other's entry, so the limit holds. Both may see each other's entry and refuse,
    although there was room for one connection. This happens only if two handshakes come within microseconds of each
    other, and a client that tries again is accepted. In an entry that is in use, a process changes only the count, so
    no reader ever sees too small a count.
    """

    def __init__(
        self, memory: mmap, start: int, buckets: int, columns: int, mine: int, key: bytes, life: Callable[[int], int]
    ) -> None:
        """``start`` is the table's offset in the memory, in bytes. ``mine`` is the column that this process writes.
        ``life`` returns the number of the life of a column's process, from 1 on, or 0 if it has never started."""
        self._memory = memory
        self._start = start
        self._buckets = buckets
        self._columns = columns
        self._mine = mine
        self._key = key
        self._life = life
        self._spilled: Counter[str] = Counter()  # connections of addresses whose bucket was full
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
        assert at is not None, "a connection that leaves was not counted"
        self._write(at, digest, self._count(at, self._mine) - 1)

    def _spill(self, address: str, most: int) -> bool:
        """Count the address in this process only, because the bucket is full. The limit then applies to each process
        separately."""
        if not self._told:
            self._told = True
            log.warning(
                "a bucket of the table of addresses is full: each endpoint counts the connections of some addresses "
                "separately; raise the limit of open files (ulimit -n) to get a larger table"
            )
        self._spilled = +self._spilled  # drops addresses without connections
        counted = self._spilled[address] < most
        self._spilled[address] += counted
        return counted

    def _place(self, address: str) -> tuple[bytes, int]:
        digest = hashlib.blake2b(address.encode(), digest_size=DIGEST_BYTES, key=self._key).digest()
        return digest, int.from_bytes(digest[:8], "little") % self._buckets

    def _column(self, column: int, bucket: int) -> int:
        return self._start + (bucket * self._columns + column) * COLUMN_BYTES

    def _find(self, column: int, digest: bytes, bucket: int) -> int | None:
        """Return the offset of the column's entry with this hash, even if an earlier life wrote it, or ``None``."""
        start = self._column(column, bucket)
        end, at = start + COLUMN_BYTES, start
        while (at := self._memory.find(digest, at, end)) >= 0:
            if (at - start) % _ENTRY.size == 0:
                return at
            at += 1
        return None

    def _own(self, digest: bytes, bucket: int) -> int | None:
        """Return the offset of the entry in which this process counts the address: the entry with its hash, or else a
        free entry, or else ``None``."""
        if (found := self._find(self._mine, digest, bucket)) is not None:
            return found
        start = self._column(self._mine, bucket)
        places = range(start, start + COLUMN_BYTES, _ENTRY.size)
        return next((at for at in places if not self._count(at, self._mine)), None)

    def _write(self, at: int, digest: bytes, count: int) -> None:
        # Do not use `pack_into` here, because it zeroes its target before it writes.
        memory, behind = self._memory, at + _HEAD.size
        head = _HEAD.pack(digest, self._life(self._mine))
        if memory[at:behind] != head:  # the entry is not in use yet
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
    """Return the size in bytes of a table with ``buckets`` buckets for ``columns`` processes."""
    return buckets * columns * COLUMN_BYTES
