"""Assembles the parts that give an endpoint its place in the cluster.

Owns: the choice of parts and of their arguments. Must never: do anything except make these parts.
"""

from __future__ import annotations

from ..base import Base
from ..limits import PATIENCE, Patience
from ..model import NO_SETTINGS, Settings
from ..part import Part
from .incoming import IncomingReplicas
from .joining import Joining
from .membership import Membership
from .mesh import Mesh
from .observers import ClusterObservers
from .replicas import Replicas
from .replication import SlotReplication
from .slot_transfer import SlotTransfer
from .slots import Held, SlotStates
from .underway import UnderWay


class Cluster:
    """One endpoint's place in the cluster. ``settings``: the cluster settings that it follows. ``grace_s``: see
    ``Membership``. ``alone_at_url``: see ``Joining``."""

    def __init__(
        self,
        base: Base,
        settings: Settings = NO_SETTINGS,
        patience: Patience = PATIENCE,
        grace_s: float = 60.0,
        alone_at_url: bool = True,
    ) -> None:
        desk = base.desk
        self._base = base
        self.settings = settings
        self.patience = patience
        self.members = members = Membership(base.me, desk.now, patience, grace_s, settings)
        self.observers = observers = ClusterObservers()
        self.states = states = SlotStates()
        self.writes = UnderWay()  # writes of subscriptions in slots of this endpoint
        self.transfers = transfers = UnderWay()
        held = Held()
        self.mesh = Mesh(desk, members, base.calls, base.inflight, base.counters.errors, base.sizes)
        self.replicas = replicas = Replicas(desk, members, states)
        self.slot_transfer = slot_transfer = SlotTransfer(desk, members, replicas, states, held, transfers, observers)
        self.incoming = IncomingReplicas(desk, members, states, held, slot_transfer)
        self.replication = SlotReplication(desk, members, replicas, settings.replication)
        self.joining = Joining(
            desk, members, self.mesh, replicas, self.writes, transfers, observers, self._idle, alone_at_url=alone_at_url
        )

    def _idle(self) -> bool:
        """Return whether no work is in progress."""
        return self._base.idle and not self.writes

    @property
    def first(self) -> list[Part]:
        """The parts that come first in the list, because all other parts depend on the changes that these parts
        report."""
        return [self.joining, self.mesh]

    @property
    def of_slots(self) -> list[Part]:
        """The parts that carry slot state."""
        return [self.slot_transfer, self.incoming, self.replication, self.replicas]
