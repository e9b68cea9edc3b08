"""The context that all modules of a store on Riak share.

Owns: nothing. Must never: do I/O, or know an operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .layout import Buckets
from .objects import Objects


class Access(NamedTuple):
    """Access to the objects of one store. One operation works on up to ``at_once`` objects concurrently."""

    objects: Objects
    buckets: Buckets
    counters: dict[str, int]
    at_once: int
    wall_clock: Callable[[], float]

    @property
    def now_ms(self) -> int:
        """Return the Unix time in milliseconds."""
        return int(self.wall_clock() * 1000)
