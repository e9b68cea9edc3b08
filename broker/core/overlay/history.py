"""A node's history: the messages that it has delivered recently, in the order of delivery.

Owns: the messages that a node can send again, and the search for messages that another node lacks. Must never: send.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from .roots import HISTORY_S, TOLD_S, Root, Vector

#: The largest number of payload bytes to keep for new neighbours. With 1,000 messages of 1,600 bytes per second, they
#: cover ``HISTORY_S`` seconds.
HISTORY_BYTES_MAX: Final = 16 << 20

#: The number of messages between two sweeps. If there were a sweep for each message, it would walk over the freed
#: places in the dictionary each time.
SWEEP_EVERY: Final = 64

Key = tuple[Hashable, int]
"""A message: the name of the life of its root, and its number in this life, beginning with 1."""

Record = tuple[int, int, float, float]
"""The record of a message: the bytes of its payload, the number of links that it has crossed, and two times. These are
when it was sent (computed from its age) and when it was delivered here."""


class History:
    """A history. ``bytes_max`` limits the bytes of payloads. ``age_max_s`` limits the time since the messages were
    sent, in seconds."""

    __slots__ = ("_age_max_s", "_bytes", "_bytes_max", "_until_sweep", "records")

    def __init__(self, bytes_max: int = HISTORY_BYTES_MAX, age_max_s: float = HISTORY_S) -> None:
        self.records: dict[Key, Record] = {}  # in the order of delivery
        self._bytes = 0
        self._bytes_max = bytes_max
        self._age_max_s = age_max_s
        self._until_sweep = SWEEP_EVERY

    def append(self, key: Key, payload_bytes: int, hops: int, born: float, now: float) -> None:
        """Add a delivered message."""
        self.records[key] = (payload_bytes, hops, born, now)
        self._bytes += payload_bytes
        self._until_sweep -= 1
        if self._until_sweep <= 0 or self._bytes > self._bytes_max:
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        """Drop old messages. If the bytes exceed the limit, drop an eighth of the limit in one step, for the same
        reason as with ``SWEEP_EVERY``."""
        self._until_sweep = SWEEP_EVERY
        oldest = now - self._age_max_s
        left = self._bytes
        goal = left if left <= self._bytes_max else self._bytes_max - self._bytes_max // 8
        gone: list[Key] = []
        for key, record in self.records.items():
            if record[3] >= oldest and left <= goal:
                break
            left -= record[0]
            gone.append(key)
        for key in gone:
            del self.records[key]
        self._bytes = left

    def find(self, key: Key, now: float) -> Record | None:
        """Return the record of the message if it can still be sent, else ``None``."""
        record = self.records.get(key)
        return None if record is None or record[2] < now - self._age_max_s else record

    def lacking(
        self, theirs: Vector, rows: Mapping[Hashable, Root], since: float, now: float
    ) -> tuple[Vector, list[Key]]:
        """Find the messages that another node lacks.

        Args:
            theirs: The other node's vector.
            rows: This node's roots.
            since: A time in seconds. Messages delivered earlier are left out.
            now: The present time, in seconds.

        Returns:
            Two items. The first item has the floors. A floor is a message number of a root. The other node must get the
                root's messages up to this number elsewhere. The second item has the messages to send, in the order of
                delivery.
        """
        floors: Vector = {}
        keys: list[Key] = []
        upto: Vector = {}
        oldest = now - self._age_max_s
        for key, record in self.records.items():
            name, seq = key
            had = upto.get(name)
            if had is None:
                had = theirs.get(name, 0)
            if seq <= had or record[3] < since or record[2] < oldest:
                continue
            if seq > had + 1:
                floors[name] = seq - 1
            upto[name] = seq
            keys.append(key)
        for name, row in rows.items():
            had = upto.get(name)
            if had is None:
                had = theirs.get(name, 0)
            if row.seq > had and row.at >= now - TOLD_S:
                floors[name] = row.seq
        return floors, keys
