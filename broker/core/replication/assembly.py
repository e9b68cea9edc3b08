"""The assembly of what is known of payloads, and of what goes with it to other endpoints.

Owns: which parts there are, and what each is given. Must never: do more than make them.
"""

from __future__ import annotations

from ..base import Base
from ..cluster.assembly import Cluster
from ..dedup.dedup import Dedup
from ..dedup.names import Names
from ..dedup.repeats import Repeats
from ..dispatch import Handover
from ..metrics import EVICTIONS, Metric, counters, gauge
from ..part import Part
from .guard import Guard
from .handover import KeyHandover, SeenPayloads
from .kept import KeptMessages


class Replication:
    """One endpoint's. ``dedup_ttl_s``: the time-to-live of a payload, in seconds; 0: there are no duplicates. ``seen``
    belongs to slots."""

    def __init__(self, base: Base, cluster: Cluster, dedup_ttl_s: float) -> None:
        desk, sizes, names = base.desk, base.sizes, Names()
        self.dedup: Dedup[Handover] = Dedup(dedup_ttl_s, base.limits.dedup_keys)
        self.repeats = Repeats(dedup_ttl_s, sizes)
        self.seen = SeenPayloads(desk, self.dedup, names)
        self.kept = KeptMessages(desk, self.dedup, names)
        self.seen.at_standby = self.kept
        self.guard = Guard(self.kept, cluster.standbys)
        self.keys = KeyHandover(
            desk, cluster.members, self.dedup, self.repeats, cluster.handovers, cluster.copies, self.seen, sizes
        )

    @property
    def parts(self) -> list[Part]:
        """The parts, in their order."""
        return [self.keys]

    def metrics(self) -> list[Metric]:
        """What these count and measure."""
        return [
            gauge("duplicate_keys", "Payload hashes in the table of duplicates", len(self.dedup)),
            counters("evictions", EVICTIONS, ("cache",), [(("duplicates",), float(self.dedup.evicted))]),
        ]
