"""Maps each slot to its home endpoint.

Owns: the hashing of slots to homes, and the table of homes that the parts use (``ingeborg.protocol.hashes`` maps topics
to slots). Must never: know why an endpoint is in the table (``membership`` does).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from hashlib import shake_128

from ingeborg.protocol.hashes import SLOTS


def slot_weights(name: str) -> tuple[int, ...]:
    """Return a 64-bit weight for each slot, from a hash of the endpoint's name. The weights are those of rendezvous
    hashing."""
    return struct.unpack(f">{SLOTS}Q", shake_128(name.encode()).digest(8 * SLOTS))


@lru_cache(maxsize=16)
def _winners(names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(weights.index(max(weights)) for weights in zip(*map(slot_weights, names), strict=True))


def home_table(endpoints: Iterable[tuple[str, str]]) -> list[str]:
    """Return the incarnation of each slot's home. ``endpoints``: (name, incarnation) pairs.

    A slot's home is the endpoint whose name has the greatest weight for that slot. With this rendezvous hashing
    (highest random weight), only the slots of a leaving endpoint get new homes.
    """
    candidates = sorted(endpoints)
    homes = [incarnation for _, incarnation in candidates]
    if len(homes) == 1:
        return homes * SLOTS
    return [homes[index] for index in _winners(tuple(name for name, _ in candidates))]


class Homes:
    """The homes of all slots, as one endpoint knows them. Until a part updates the table, the endpoint itself is home
    of all slots."""

    def __init__(self, me: str, *, joined: bool = False) -> None:
        """``me``: this endpoint's incarnation."""
        self._mine = me
        self.table: list[str] = [me] * SLOTS  # slot -> incarnation of its home
        self.only_home: str | None = me  # the home of all slots, if all have the same home
        self.version = 0  # counts changes of the table
        self.round = 1  # the join round; a new one begins after every lapse of the lease
        self.joined = joined  # whether it can act as home of the slots that the table gives it

    def is_mine(self, slot: int) -> bool:
        """Return whether this endpoint is the slot's home."""
        return self.table[slot] == self._mine
