"""The layers of an endpoint that routes by homes, from the bottom up. Each folder of the core has an assembly, which
receives the assemblies of the layers below it.

Owns: the order of the layers, and the order in which the parts learn of events. Must never: decide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .base import Base
from .bounds.assembly import BoundsParts
from .bounds.steering import BUSY_TARGET
from .clients.assembly import Clients
from .cluster.assembly import Cluster
from .cluster.slots import SlotState
from .history.assembly import HistoryParts
from .limits import PATIENCE, Patience
from .messages.assembly import Messages
from .metrics import Metric
from .model import NO_SETTINGS, Settings
from .operators.looks import looks
from .outgoing.assembly import Outgoing
from .part import Part
from .replication.assembly import Replication
from .retained.assembly import Retained
from .topics.assembly import Topics


class Options(NamedTuple):
    """The settings of an endpoint, apart from the limits on its memory.

    Attributes:
        dedup_ttl_s: how long homes remember the keys of messages, in seconds.
        patience: how long to wait for other endpoints.
        figures: a function that returns the figures that the endpoint shows to operators (SPEC section 2.4).
        resident: a function that returns the memory of this process in bytes. If it is ``None``, the endpoint relies on
            its own count of the bytes that connections hold.
        alone_at_url: see ``Joining``.
        ping_s: seconds between two pings of a connection.
        states: slot states in addition to those of the core's parts.
        settings: the cluster settings that the endpoint follows.
        grace_s: seconds; see ``Membership``.
        presence: the prefixes of topics with presence.
        bounds: the text of the default rules, for clients that set no bounds (``protocol.bounds``). ``""`` if there are
            none.
        busy_target: the share of a CPU core that this process should use, from 0 to 1 (``Steering``).
    """

    dedup_ttl_s: float = 60.0
    patience: Patience = PATIENCE
    figures: Callable[[], dict[str, Any]] = dict
    resident: Callable[[], int] | None = None
    alone_at_url: bool = True
    ping_s: float = 25.0
    states: Sequence[SlotState] = ()
    settings: Settings = NO_SETTINGS
    grace_s: float = 60.0
    presence: Sequence[str] = ()
    bounds: str = ""
    busy_target: float = BUSY_TARGET


class Layers:
    """One endpoint's layers.

    Attributes:
        parts: all parts, in the order in which they learn of ticks, ends of turns, and changes of the cluster.
    """

    def __init__(
        self,
        base: Base,
        cluster: Cluster,
        outgoing: Outgoing,
        replication: Replication,
        topics: Topics,
        retained: Retained,
        messages: Messages,
        clients: Clients,
        history: HistoryParts,
        bounds: BoundsParts,
        parts: list[Part],
    ) -> None:
        self.base = base
        self.cluster = cluster
        self.outgoing = outgoing
        self.replication = replication
        self.topics = topics
        self.retained = retained
        self.messages = messages
        self.clients = clients
        self.history = history
        self.bounds = bounds
        self.parts = parts

    def metrics(self) -> list[Metric]:
        """Return the metrics of all parts."""
        found = [*self.base.metrics(), *self.outgoing.metrics(), *self.replication.metrics(), *self.topics.metrics()]
        found += self.clients.sessions.metrics()
        for part in self.parts:
            found += part.metrics()
        return found


def by_homes(base: Base, options: Options) -> Layers:
    """Build the layers of an endpoint that is home of slots.

    Args:
        base: the desk and the limits.
        options: the other settings.

    Returns:
        The layers, with all their parts in order. The cluster also carries the state of ``options.states``.
    """
    cluster = Cluster(base, options.settings, options.patience, options.grace_s, options.alone_at_url)
    homes = cluster.members
    outgoing = Outgoing(base, options.resident)
    replication = Replication(base, cluster, options.dedup_ttl_s)
    topics = Topics(base, cluster, outgoing, homes, options.presence)
    retained = Retained(base, cluster, replication)
    messages = Messages(base, cluster, outgoing, replication, topics, retained, homes)
    clients = Clients(base, cluster, outgoing, topics, options.ping_s, homes)
    history = HistoryParts(base, cluster, outgoing, topics, retained, clients)
    bounds = BoundsParts(base, outgoing, retained, history, options.bounds, options.busy_target)
    for state in (replication.seen, retained.state, *options.states):
        cluster.states.add(state)
    return Layers(
        *(base, cluster, outgoing, replication, topics, retained, messages, clients, history, bounds),
        [
            *cluster.first,
            *messages.parts,
            retained.retention_part,
            *replication.parts,
            *cluster.of_slots,
            messages.failover,
            *clients.parts,
            *topics.parts,
            *looks(base.desk, cluster.members, outgoing.replies, options.figures, base.sizes),
            messages.fanout,
            topics.expiry,
            clients.lapsed_lease,
            *history.parts,
            *bounds.parts,
        ],
    )
