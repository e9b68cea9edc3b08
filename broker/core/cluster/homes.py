"""Maps each slot to its home endpoint.

Owns: slot -> home, and the table of homes that the parts look into (``ingeborg.protocol.hashes``: topic -> slot). Must
never: know why an endpoint is in the table (``membership`` does).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from hashlib import shake_128

from ingeborg.protocol.hashes import SLOTS


def slot_weights(name: str) -> tuple[int, ...]:
    """One 64-bit weight per slot, drawn by a hash of the endpoint's name: rendezvous hashing for all slots at once."""
    return struct.unpack(f">{SLOTS}Q", shake_128(name.encode()).digest(8 * SLOTS))


@lru_cache(maxsize=16)
def _winners(names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(weights.index(max(weights)) for weights in zip(*map(slot_weights, names), strict=True))


def home_table(endpoints: Iterable[tuple[str, str]]) -> list[str]:
    """Compute slot -> incarnation of its home from ``(name, incarnation)`` pairs: the name with the greatest weight
    wins.

    Rendezvous (highest random weight) hashing: when an endpoint goes, only its own slots get new homes.
    """
    candidates = sorted(endpoints)
    homes = [incarnation for _, incarnation in candidates]
    if len(homes) == 1:
        return homes * SLOTS
    return [homes[index] for index in _winners(tuple(name for name, _ in candidates))]


class Homes:
    """The homes, as one endpoint knows them. Before it has joined, and if no part updates them, it is home of all
    slots."""

    def __init__(self, me: str, *, joined: bool = False) -> None:
        """``me``: this endpoint's incarnation."""
        self._mine = me
        self.table: list[str] = [me] * SLOTS  # slot -> incarnation of its home
        self.only_home: str | None = me  # the home of all slots, if one endpoint is
        self.version = 0  # counts changes of the table
        self.round = 1  # the join round; a new one begins after every lapse of the lease
        self.joined = joined  # it can act as home of the slots that the table gives it

    def is_mine(self, slot: int) -> bool:
        """Is this endpoint the slot's home?"""
        return self.table[slot] == self._mine
