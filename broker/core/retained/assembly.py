"""Assembles the parts for retained messages, at the home of their topic.

Owns: the choice of parts and of their arguments. Must never: do anything except make these parts.
"""

from __future__ import annotations

from ..base import Base
from ..cluster.assembly import Cluster
from ..replication.assembly import Replication
from .clock import Clock
from .journal import Journal
from .log import Log
from .retention import Retention
from .retention_part import RetentionPart
from .state import History
from .watermarks import Watermarks


class Retained:
    """One endpoint's layer of retained messages, made according to the cluster's setting ``history``. ``state`` is the
    part of this layer that moves with slots."""

    def __init__(self, base: Base, cluster: Cluster, replication: Replication) -> None:
        desk, members, limits, kind = base.desk, cluster.members, base.limits, cluster.settings.history
        self.on = kind != "off"
        self.log = log = Log(limits.history_bytes if self.on else 0, limits.history_size, members)
        self.clock = clock = Clock()
        self.watermarks = watermarks = Watermarks(desk, members, clock)
        self.journal = journal = Journal(
            desk,
            members,
            cluster.observers,
            log,
            clock,
            watermarks,
            writes=kind == "store",
            voids=kind == "memory" and base.shape.journal,
        )
        self.state = state = History(desk, log, clock, journal)
        pieces = (log, clock, state, watermarks, cluster.replicas, cluster.replication, replication.barrier, journal)
        self.retention = Retention(desk, self.on, limits.history_topics, *pieces)
        self.retention_part = RetentionPart(desk, log, self.retention, journal, state, cluster.replicas)
