"""All policies by their names.

Owns: the policy behind a name, the names of parameters, and each policy's knowledge of readers. Must never: run a
policy.
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
"""A function that makes a policy. It takes the room in bytes, and the approximate number of entries that fit."""

#: The document's policies, by their rules of admission. With bounded room, each policy evicts by LRU, so `all` is then
#: plain LRU. Parameters are text. Without parameters, the document's parameters apply.
RULES: Final[Mapping[str, Callable[..., Rule]]] = {
    "none": Nothing,
    "all": Everything,
    "threshold": Threshold,
    "mean": lambda batch="3": Mean(int(batch)),
    "buffer": Buffer,
}

#: The document's three rules.
NOVEL: Final = ("threshold", "mean", "buffer")

#: Policies that need no knowledge of the future.
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

EITHER: Final = ("all", "mean", "buffer")
"""The strategies that write fewer records if a record goes to memory or to the database, and not to both. The slides
say this for mean and buffer. They say that threshold writes each record. They say nothing about unlimited caching."""

OWED: Final = "owed"
"""The name of ``PendingReaders`` in stored results."""

BELADY: Final = "belady"

#: This project's policies. They know which subscribers have received a record, and drop a record that all have
#: received. All other policies know only the number of subscribers.
OURS: Final = (OWED, "owed inflated")

#: Policies for plain requests, which have no subscribers.
PLAIN: Final = ("lru", "sieve", "tinylfu", "gdsf")


def policy_of(strategy: str, parameters: Mapping[str, str], bytes_max: int | None, records: int) -> Policy:
    """Create a policy for a broker. ``parameters`` are the parameters of the document's rules. ``bytes_max`` is the
    room, and ``records`` roughly the number of records that fit."""
    if strategy in RULES:
        return Ruled(RULES[strategy](**parameters))
    assert not parameters, f"{strategy} has no parameters"
    assert bytes_max is not None or strategy != "tinylfu", "tinylfu needs to know the room"
    return ONLINE[strategy](bytes_max or 0, records)
