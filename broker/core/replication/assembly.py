"""Assembles the tables of seen payloads, and the parts that transfer them to other endpoints.

Owns: the choice of parts and of their arguments. Must never: do anything except make these parts.
"""

from __future__ import annotations

from ..base import Base
from ..cluster.assembly import Cluster
from ..dedup.dedup import Dedup
from ..dedup.names import Names
from ..dedup.origin_dedup import OriginDedup
from ..dispatch import Dispatch
from ..metrics import EVICTIONS, Metric, counters, gauge
from ..part import Part
from .barrier import ReplicationBarrier
from .key_transfer import KeyTransfer, SeenPayloads
from .replicated import ReplicatedMessages


class Replication:
    """One endpoint's replication. ``dedup_ttl_s`` is the time-to-live of a payload, in seconds. With 0, no message is a
    duplicate. ``seen`` is the slot state with which replicas carry the table."""

    def __init__(self, base: Base, cluster: Cluster, dedup_ttl_s: float) -> None:
        desk, sizes, names = base.desk, base.sizes, Names()
        self.dedup: Dedup[Dispatch] = Dedup(dedup_ttl_s, base.limits.dedup_keys)
        self.origin_dedup = OriginDedup(dedup_ttl_s, sizes)
        self.seen = SeenPayloads(desk, self.dedup, names)
        self.replicated = ReplicatedMessages(desk, self.dedup, names)
        self.seen.failover_form = self.replicated
        self.barrier = ReplicationBarrier(self.replicated, cluster.replication)
        self.keys = KeyTransfer(
            desk, cluster.members, self.dedup, self.origin_dedup, cluster.transfers, cluster.replicas, self.seen, sizes
        )

    @property
    def parts(self) -> list[Part]:
        """The parts, in the order in which they handle events."""
        return [self.keys]

    def metrics(self) -> list[Metric]:
        """Return the metrics of these parts."""
        return [
            gauge("duplicate_keys", "Payload hashes in the table of duplicates", len(self.dedup)),
            counters("evictions", EVICTIONS, ("cache",), [(("duplicates",), float(self.dedup.evicted))]),
        ]
