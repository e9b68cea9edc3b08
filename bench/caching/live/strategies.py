"""The strategies by their names: the document's, ours, and those that they are compared with.

Owns: which policy stands for a name, the names of parameters, and who is told what. Must never: decide what a policy
does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ingeborg.bench.caching.policies.named import ONLINE, OWED
from ingeborg.bench.caching.policies.ruled import Ruled
from ingeborg.bench.caching.policies.rules import Buffer, Everything, Mean, Nothing, Rule, Threshold
from ingeborg.broker.core.caches.policy import Policy

DOCUMENT: Final[Mapping[str, Callable[..., Rule]]] = {
    "none": Nothing,
    "all": Everything,
    "threshold": Threshold,
    "mean": lambda batch="3": Mean(int(batch)),
    "buffer": Buffer,
}
"""By its rule of what comes in. Where there is less room than records, LRU stands behind it."""

OURS: Final = OWED
OTHERS: Final = ("lru", "sieve", "tinylfu", "gdsf")
STRATEGIES: Final = (*DOCUMENT, OURS, *OTHERS)

Parameters = Mapping[str, str]


def policy_of(strategy: str, parameters: Parameters, bytes_max: int | None, records: int) -> Policy:
    """A new one. ``parameters``: of the document's rules, as they are written; without, the document's own.
    ``bytes_max``, ``records``: the room, and how many records there is room for, roughly."""
    if strategy in DOCUMENT:
        return Ruled(DOCUMENT[strategy](**parameters))
    assert not parameters, f"{strategy} has no parameters"
    assert bytes_max is not None or strategy != "tinylfu", "tinylfu wants to know the room"
    return ONLINE[strategy](bytes_max or 0, records)


def is_told(strategy: str) -> bool:
    """Does it hear who has had a record, so that what all have had goes? The document's count subscribers only."""
    return strategy == OURS
