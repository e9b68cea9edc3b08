"""The strategies by their names: the document's, ours, and the others of the comparison.

Owns: the policy behind a name, the names of parameters, and each policy's knowledge of readers. Must never: decide what
a policy does.
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
"""The document's strategies, by their rules of admission. If the records do not fit into the room, LRU chooses the
records to drop."""

OURS: Final = OWED
OTHERS: Final = ("lru", "sieve", "tinylfu", "gdsf")
STRATEGIES: Final = (*DOCUMENT, OURS, *OTHERS)

Parameters = Mapping[str, str]


def policy_of(strategy: str, parameters: Parameters, bytes_max: int | None, records: int) -> Policy:
    """Create a policy. ``parameters`` are those of the document's rules, as text. If they are empty, the parameters of
    the document apply. ``bytes_max`` is the room, and ``records`` roughly the number of records that fit."""
    if strategy in DOCUMENT:
        return Ruled(DOCUMENT[strategy](**parameters))
    assert not parameters, f"{strategy} has no parameters"
    assert bytes_max is not None or strategy != "tinylfu", "tinylfu needs to know the room"
    return ONLINE[strategy](bytes_max or 0, records)


def is_told(strategy: str) -> bool:
    """Return whether the strategy knows which subscribers have received a record, so that it drops a record that all
    have received. The document's strategies know only the number of subscribers."""
    return strategy == OURS
