"""The status table in shared memory, in which one supervisor's endpoints see each other's state (ADR 27).

Owns: the table's layout, and who writes which part. Must never: use locks, or hold anything that has to outlive the
supervisor.

The supervisor makes the table, and every process inherits its descriptor. Each process has an *entry*, and only that
process writes to the entry while it lives. Before a process starts, and after it has ended, the supervisor begins the
next life of the entry, which clears the counts. Every write stores a whole word, so that no process reads half a
number.
"""

from __future__ import annotations

import mmap
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from ..access.counting import KEY_BYTES, WAYS, SharedCount, table_bytes

#: "Ingeborg", with the layout's version in the last byte: a child of another version refuses the table.
_MAGIC = int.from_bytes(b"Ingebo\0\1", "little")

_WORD = 8
#: Words of the table's head: magic, entries, buckets, the hashes' key (two words), and three spare words.
_HEAD_WORDS = 8
#: Words of an entry: life, state, heartbeat, connections, accepted connections, and three spare words. An entry fills
#: one line of the processor's cache.
_ENTRY_WORDS = 8
_LIFE, _STATE, _BEAT, _CONNECTIONS, _TAKEN = range(5)

#: A process without a heartbeat for this long, in seconds, counts as stalled. A process ticks every 0.1 s.
FRESH_S = 1.0

#: Maximum number of open files of a process for which the table of addresses has room. If a process can open more, each
#: process counts some addresses separately.
FILES_MAX = 1 << 20
#: Minimum number of open files for which the table has room. A table smaller than a page would save no memory.
FILES_MIN = 1 << 10


class State(IntEnum):
    """The state of an entry's process. ``WAITING``: the other endpoints have not let it in yet, or it cannot use the
    store."""

    WAITING = 0
    ACCEPTING = 1
    LEAVING = 2


class Other(NamedTuple):
    """Another process that accepts connections: how many it has now, and how many it has accepted since its start."""

    connections: int
    taken: int


class StatusTable:
    """The whole table, as the supervisor uses it. All processes share its layout."""

    def __init__(self, fd: int) -> None:
        """Map the table behind the descriptor. Raises ``ValueError`` if the descriptor's memory is not a table."""
        self.fd = fd
        size = os.fstat(fd).st_size
        if size < _HEAD_WORDS * _WORD:
            raise ValueError("it is too short")
        self._memory = mmap.mmap(fd, size)
        head = memoryview(self._memory)[: _HEAD_WORDS * _WORD].cast("Q")
        magic, self.entries, self.buckets = head[0], head[1], head[2]
        head.release()
        if magic != _MAGIC or size != _bytes(self.entries, self.buckets):
            self._memory.close()
            raise ValueError("it is not a table of this version")
        self._words = memoryview(self._memory)[: _header_bytes(self.entries)].cast("Q")

    def close(self) -> None:
        """Unmap the table, and close the descriptor."""
        self._words.release()
        self._memory.close()
        os.close(self.fd)

    def begin(self, entry: int) -> None:
        """Begin the next life of an entry whose process is not running. The counts of the last life no longer apply."""
        self._set(entry, _STATE, State.WAITING)
        self._set(entry, _CONNECTIONS, 0)
        self._set(entry, _TAKEN, 0)
        self._set(entry, _BEAT, 0)
        self._set(entry, _LIFE, self.life(entry) + 1)

    def accepts(self, entry: int, now: float) -> bool:
        """Return whether the process is ready and responsive. ``now`` is monotonic, in seconds."""
        return self._get(entry, _STATE) == State.ACCEPTING and self._get(entry, _BEAT) >= (now - FRESH_S) * 1000

    def life(self, entry: int) -> int:
        """Return the number of the entry's life, from 1 on, or 0 if the first life has not begun."""
        return self._get(entry, _LIFE)

    def _get(self, entry: int, word: int) -> int:
        return self._words[_HEAD_WORDS + entry * _ENTRY_WORDS + word]

    def _set(self, entry: int, word: int, value: int) -> None:
        self._words[_HEAD_WORDS + entry * _ENTRY_WORDS + word] = value

    def entry(self, number: int) -> StatusEntry:
        """Return a process's own entry. Raises ``ValueError`` if no entry has that number."""
        if not 0 <= number < self.entries:
            raise ValueError(f"it has no entry {number}")
        return StatusEntry(self, number)

    def counting(self, entry: int) -> SharedCount:
        """Return the counter of connections by address, over all processes."""
        key = bytes(self._memory[3 * _WORD : 3 * _WORD + KEY_BYTES])
        start = _header_bytes(self.entries)
        return SharedCount(self._memory, start, self.buckets, self.entries, entry, key, self.life)


class StatusEntry:
    """One process's entry. The process shows its state in it, and reads the entries of the other processes."""

    def __init__(self, table: StatusTable, number: int) -> None:
        self._table = table
        self._number = number

    def show(self, state: State, now: float) -> None:
        """Write a heartbeat, with the state. ``now`` is monotonic, in seconds."""
        self._table._set(self._number, _BEAT, int(now * 1000))
        self._table._set(self._number, _STATE, state)

    def show_counts(self, connections: int, taken: int) -> None:
        """Write how many connections the process has, and how many it has accepted since it began."""
        self._table._set(self._number, _CONNECTIONS, connections)
        self._table._set(self._number, _TAKEN, taken)

    def others(self, now: float | None = None) -> Sequence[Other]:
        """Return all other processes that accept connections and are responsive."""
        table, at = self._table, time.monotonic() if now is None else now
        return [
            Other(table._get(entry, _CONNECTIONS), table._get(entry, _TAKEN))
            for entry in range(table.entries)
            if entry != self._number and table.accepts(entry, at)
        ]

    def counting(self) -> SharedCount:
        """Return the counter of connections by address, over all processes."""
        return self._table.counting(self._number)


def make(entries: int, files: int) -> StatusTable:
    """Make a table for this many processes, each of which can open ``files`` files. Raises ``OSError``."""
    buckets = -(-4 * min(max(files, FILES_MIN), FILES_MAX) // WAYS)
    if sys.platform == "linux":
        fd = os.memfd_create("ingeborg-status-table", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    # Untouched pages take no memory, so even the largest table uses memory only for the addresses in use.
    os.ftruncate(fd, _bytes(entries, buckets))
    head = [_MAGIC, entries, buckets, secrets.randbits(64), secrets.randbits(64)]
    os.pwrite(fd, b"".join(word.to_bytes(_WORD, sys.byteorder) for word in head), 0)
    return StatusTable(fd)


def _header_bytes(entries: int) -> int:
    """Return the size of the head and the entries, in whole pages."""
    words = _HEAD_WORDS + entries * _ENTRY_WORDS
    return -(-words * _WORD // mmap.PAGESIZE) * mmap.PAGESIZE


def _bytes(entries: int, buckets: int) -> int:
    return _header_bytes(entries) + table_bytes(buckets, entries)
