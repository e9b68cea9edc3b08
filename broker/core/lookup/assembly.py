"""The layers of an endpoint that routes by lookup, the baseline for measurements of routing by homes.

Owns: the differences between these layers and those of routing by homes. Must never: affect an endpoint that routes by
homes.

Every endpoint acts as the home of all topics, and queries the store for each message. There is no state that belongs to
slots, and no cache of locations. No subscription expires or has a filter, and no message is retained.
"""

from __future__ import annotations

from ..base import Base
from ..bounds.assembly import BoundsParts
from ..clients.assembly import Clients
from ..cluster.assembly import Cluster
from ..cluster.homes import Homes
from ..history.assembly import HistoryParts
from ..layers import Layers, Options
from ..messages.assembly import Messages
from ..model import NO_SETTINGS
from ..operators.looks import looks
from ..outgoing.assembly import Outgoing
from ..replication.assembly import Replication
from ..retained.assembly import Retained
from ..topics.assembly import Topics
from .home import LookupHome
from .refusing import Refusing


def by_lookup(base: Base, options: Options) -> Layers:
    """Build the layers of an endpoint that owns no slots and acts as the home of all topics.

    Args:
        base: the desk and the limits.
        options: the other settings. ``settings``, ``states`` and ``presence`` have no effect.

    Returns:
        The layers, with all their parts in order.
    """
    cluster = Cluster(base, NO_SETTINGS, options.patience, options.grace_s, options.alone_at_url)
    homes = Homes(base.me.incarnation, joined=True)
    outgoing = Outgoing(base, options.resident)
    replication = Replication(base, cluster, options.dedup_ttl_s)
    topics = Topics(base, cluster, outgoing, homes, locations_max=0)
    retained = Retained(base, cluster, replication)
    messages = Messages(base, cluster, outgoing, replication, topics, retained, homes, LookupHome)
    clients = Clients(base, cluster, outgoing, topics, options.ping_s, homes)
    history = HistoryParts(base, cluster, outgoing, topics, retained, clients)
    bounds = BoundsParts(base, outgoing, retained, history, options.bounds, options.busy_target)
    subscribe, unsubscribe = history.admitting.commands()["subscribe"], topics.subscribing.commands()["unsubscribe"]
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
            *history.parts,
            *bounds.parts,
            Refusing(outgoing.replies, subscribe, unsubscribe),
        ],
    )
