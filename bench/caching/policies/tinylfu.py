"""W-TinyLFU: a newcomer stays if it recently had more requests than the entry that it would replace.

Owns: a small window for newcomers, and a segmented LRU behind it. Must never: count requests exactly (`sketch.py`
estimates).

Einziger, Friedman, Manes: "TinyLFU: A Highly Efficient Cache Admission Policy" (ACM Transactions on Storage, 2017),
sections 3 and 4. A newcomer goes into the window. An entry that leaves the window competes with the entry that it would
replace in the main part.
"""

from __future__ import annotations

from typing import Final

from ingeborg.bench.caching.policies.sketch import Sketch
from ingeborg.broker.core.caches.policy import Entry, Policy
from ingeborg.broker.core.caches.row import Row

#: The window's share of the room, and the protected part's share of the rest (section 4).
WINDOW: Final = 0.01
PROTECTED: Final = 0.8

#: Requests between two halvings of the sketch, for each entry that fits (section 3.3).
SAMPLE: Final = 10

#: Counters in a row of the sketch, per entry that fits into the cache. Items that are not in the cache also need
#: counters.
WIDTH: Final = 4

#: The parts. An entry's mark says in which part it is.
_WINDOW: Final = 0
_PROBATION: Final = 1
_PROTECTED: Final = 2


class TinyLfu(Policy):
    """The policy. ``bytes_max`` is the room, and ``entries`` roughly the number of entries that fit. For ``width``, see
    ``WIDTH``. Keys are whole numbers."""

    def __init__(self, bytes_max: int, entries: int, width: int = WIDTH) -> None:
        self._window_bytes = max(1, int(bytes_max * WINDOW))
        self._main_bytes = bytes_max - self._window_bytes
        self._protected_bytes = int(self._main_bytes * PROTECTED)
        self._sketch = Sketch(width * max(1, entries), SAMPLE * max(1, entries))
        self._rows = (Row(), Row(), Row())
        self._bytes = [0, 0, 0]

    def admit(self, entry: Entry) -> bool:
        """Admit any entry into the window."""
        self._sketch.add(entry.key)
        self._append(entry, _WINDOW)
        return True

    def used(self, entry: Entry) -> None:
        """Make the entry the newest of its part. If the entry is on probation, move it into the protected part."""
        self._sketch.add(entry.key)
        self._move(entry, _WINDOW if entry.mark == _WINDOW else _PROTECTED)
        while self._bytes[_PROTECTED] > self._protected_bytes:
            oldest = self._rows[_PROTECTED].oldest
            assert oldest is not None
            self._move(oldest, _PROBATION)

    def victim(self) -> Entry:
        """Compare the entry that leaves the window with the oldest entry of the main part. Return the entry with fewer
        requests."""
        while True:
            newcomer = self._rows[_WINDOW].oldest
            oldest = self._rows[_PROBATION].oldest or self._rows[_PROTECTED].oldest
            if newcomer is None or (self._bytes[_WINDOW] <= self._window_bytes and oldest is not None):
                assert oldest is not None
                return self._remove(oldest)
            if self._bytes[_PROBATION] + self._bytes[_PROTECTED] + newcomer.size <= self._main_bytes:
                self._move(newcomer, _PROBATION)
                continue
            if oldest is None or self._sketch.often(newcomer.key) <= self._sketch.often(oldest.key):
                return self._remove(newcomer)
            self._move(newcomer, _PROBATION)
            return self._remove(oldest)

    def forget(self, entry: Entry) -> None:
        """Remove the entry from its part."""
        self._remove(entry)

    def _append(self, entry: Entry, part: int) -> None:
        entry.mark = part
        self._rows[part].append(entry)
        self._bytes[part] += entry.size

    def _remove(self, entry: Entry) -> Entry:
        self._rows[entry.mark].remove(entry)
        self._bytes[entry.mark] -= entry.size
        return entry

    def _move(self, entry: Entry, part: int) -> None:
        self._append(self._remove(entry), part)
