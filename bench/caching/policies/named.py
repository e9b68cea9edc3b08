"""All policies by their names, as they stand beside each other.

Owns: the table. Must never: run one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ingeborg.bench.caching.policies.gdsf import Gdsf
from ingeborg.bench.caching.policies.ruled import Ruled
from ingeborg.bench.caching.policies.rules import Buffer, Everything, Mean, Nothing, Rule, Threshold
from ingeborg.bench.caching.policies.tinylfu import TinyLfu
from ingeborg.broker.core.caches.lru import Lru
from ingeborg.broker.core.caches.pending_readers import PendingReaders
from ingeborg.broker.core.caches.policy import Policy
from ingeborg.broker.core.caches.sieve import Sieve

Maker = Callable[[int, int], Policy]
"""Of the room in bytes, and of how many entries there is room for, roughly."""

#: The document's, by what comes in. With a bounded room LRU stands behind each; so `all` is LRU then.
RULES: Final[Mapping[str, Callable[[], Rule]]] = {
    "none": Nothing,
    "all": Everything,
    "threshold": Threshold,
    "mean": Mean,
    "buffer": Buffer,
}

#: That need no knowledge of the future.
ONLINE: Final[Mapping[str, Maker]] = {
    "lru": lambda _room, _entries: Lru(),
    "sieve": lambda _room, _entries: Sieve(),
    "tinylfu": lambda room, entries: TinyLfu(room, entries),
    "gdsf": lambda _room, _entries: Gdsf(),
    "threshold": lambda _room, _entries: Ruled(Threshold()),
    "mean": lambda _room, _entries: Ruled(Mean()),
    "buffer": lambda _room, _entries: Ruled(Buffer()),
    "owed": lambda _room, _entries: PendingReaders(),
    "owed inflated": lambda _room, _entries: PendingReaders(ages=True),
}

OWED: Final = "owed"
"""``PendingReaders``, by its name in results that are kept."""

BELADY: Final = "belady"

#: Ours: told who has had a record, or they are nothing.
OURS: Final = (OWED, "owed inflated")

#: Of plain requests, where nobody is owed anything.
PLAIN: Final = ("lru", "sieve", "tinylfu", "gdsf")
