"""What the endpoint processes of one supervisor know of each other without a message: a table in shared memory, ADR 27.

Owns: the table's layout, and who writes what of it. Must never: lock, or hold anything that has to outlive the
supervisor.

The supervisor makes it, and every process inherits its descriptor. A process has a *place* in it, which it alone writes
while it lives. Between two lives the supervisor does: it begins the next life, which clears what was counted. Each word
is written in one piece, so that nobody reads half a number.
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

#: "Ingeborg", and the layout's version in the last byte: a child of another version refuses it.
_MAGIC = int.from_bytes(b"Ingebo\0\1", "little")

_WORD = 8
#: Of the whole: magic, places, buckets, the hashes' key of two words, and three to spare.
_HEAD_WORDS = 8
#: Of a place: its life, state, beat, connections, and how many it has accepted; a line of the processor's cache each.
_PLACE_WORDS = 8
_LIFE, _STATE, _BEAT, _CONNECTIONS, _TAKEN = range(5)

#: A process that has not shown a sign of life for so long stands still, or is about to: it ticks every 0.1 s. In
#: seconds.
FRESH_S = 1.0

#: Open files that the table of addresses is made for at most: of more, some addresses would be counted by each process.
FILES_MAX = 1 << 20
#: And at least: a table of less than a page saves nothing.
FILES_MIN = 1 << 10


class State(IntEnum):
    """Of a place's process. ``WAITING``: it has not been let in by the others, or cannot use the store."""

    WAITING = 0
    ACCEPTING = 1
    LEAVING = 2


class Other(NamedTuple):
    """Another process that accepts: its connections, and how many it has accepted in its life."""

    connections: int
    taken: int


class Board:
    """The supervisor's side; and what both sides know of the layout."""

    def __init__(self, fd: int) -> None:
        """Map the table that the descriptor leads to. Raises ``ValueError``: it is none."""
        self.fd = fd
        size = os.fstat(fd).st_size
        if size < _HEAD_WORDS * _WORD:
            raise ValueError("it is too short")
        self._memory = mmap.mmap(fd, size)
        head = memoryview(self._memory)[: _HEAD_WORDS * _WORD].cast("Q")
        magic, self.places, self.buckets = head[0], head[1], head[2]
        head.release()
        if magic != _MAGIC or size != _bytes(self.places, self.buckets):
            self._memory.close()
            raise ValueError("it is another version's, or none")
        self._words = memoryview(self._memory)[: _header_bytes(self.places)].cast("Q")

    def close(self) -> None:
        """Unmap it; the descriptor is closed, too."""
        self._words.release()
        self._memory.close()
        os.close(self.fd)

    def begin(self, place: int) -> None:
        """Nobody lives there: begin the next life. What the last one counted is no longer counted."""
        self._set(place, _STATE, State.WAITING)
        self._set(place, _CONNECTIONS, 0)
        self._set(place, _TAKEN, 0)
        self._set(place, _BEAT, 0)
        self._set(place, _LIFE, self.life(place) + 1)

    def accepts(self, place: int, now: float) -> bool:
        """Is it ready, and does it move? ``now``: monotonic, in seconds."""
        return self._get(place, _STATE) == State.ACCEPTING and self._get(place, _BEAT) >= (now - FRESH_S) * 1000

    def life(self, place: int) -> int:
        """The number of its life, from 1 on; 0: the first one has not begun."""
        return self._get(place, _LIFE)

    def _get(self, place: int, word: int) -> int:
        return self._words[_HEAD_WORDS + place * _PLACE_WORDS + word]

    def _set(self, place: int, word: int, value: int) -> None:
        self._words[_HEAD_WORDS + place * _PLACE_WORDS + word] = value

    def place(self, number: int) -> Place:
        """A process's own. Raises ``ValueError``: there is none of that number."""
        if not 0 <= number < self.places:
            raise ValueError(f"it has no place {number}")
        return Place(self, number)

    def counting(self, place: int) -> SharedCount:
        """Counts connections by address, at all processes."""
        key = bytes(self._memory[3 * _WORD : 3 * _WORD + KEY_BYTES])
        start = _header_bytes(self.places)
        return SharedCount(self._memory, start, self.buckets, self.places, place, key, self.life)


class Place:
    """One process's: what it tells the others, and what they tell."""

    def __init__(self, board: Board, number: int) -> None:
        self._board = board
        self._number = number

    def show(self, state: State, now: float) -> None:
        """A sign of life, with its state. ``now``: monotonic, in seconds."""
        self._board._set(self._number, _BEAT, int(now * 1000))
        self._board._set(self._number, _STATE, state)

    def hold(self, connections: int, taken: int) -> None:
        """How many connections it has, and how many it has accepted since it began."""
        self._board._set(self._number, _CONNECTIONS, connections)
        self._board._set(self._number, _TAKEN, taken)

    def others(self, now: float | None = None) -> Sequence[Other]:
        """All others that accept and move."""
        board, at = self._board, time.monotonic() if now is None else now
        return [
            Other(board._get(place, _CONNECTIONS), board._get(place, _TAKEN))
            for place in range(board.places)
            if place != self._number and board.accepts(place, at)
        ]

    def counting(self) -> SharedCount:
        """Counts connections by address, at all processes."""
        return self._board.counting(self._number)


def make(places: int, files: int) -> Board:
    """A table for so many processes, of which each may open so many files. ``OSError``."""
    buckets = -(-4 * min(max(files, FILES_MIN), FILES_MAX) // WAYS)
    if sys.platform == "linux":
        fd = os.memfd_create("ingeborg-board", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    # What nobody has written takes no memory, so the greatest table costs what its addresses do.
    os.ftruncate(fd, _bytes(places, buckets))
    head = [_MAGIC, places, buckets, secrets.randbits(64), secrets.randbits(64)]
    os.pwrite(fd, b"".join(word.to_bytes(_WORD, sys.byteorder) for word in head), 0)
    return Board(fd)


def _header_bytes(places: int) -> int:
    """In whole pages."""
    words = _HEAD_WORDS + places * _PLACE_WORDS
    return -(-words * _WORD // mmap.PAGESIZE) * mmap.PAGESIZE


def _bytes(places: int, buckets: int) -> int:
    return _header_bytes(places) + table_bytes(buckets, places)
