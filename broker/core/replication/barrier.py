"""Holds back a message until its slot's replica has it. A crash of this home then neither loses nor duplicates the
message. ADR 23.

Owns: the messages that wait for a replica. Must never: dispatch a message, or know which endpoint has the replica.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..cluster.replication import SlotReplication
from ..dispatch import Dispatch
from ..links.carrying import arrived, carried
from .replicated import MESSAGE_BYTES, ReplicatedMessages


class ReplicationBarrier:
    """One home's barrier."""

    def __init__(self, replicated: ReplicatedMessages, replication: SlotReplication) -> None:
        self.replicated = replicated
        self._replication = replication
        #: Whether the cluster's setting ``replication`` is on.
        self.on = replication.on
        self.names = replicated.names
        #: The messages that are being dispatched, indexed by key. Empty without replication.
        self.under_way = replicated.under_way

    def begin(self, dispatch: Dispatch, key: bytes) -> None:
        """Begin to dispatch a message. The message first waits for the slot's replica, if a replica exists."""
        self.name(dispatch, key)
        self.keep(dispatch, key)

    def name(self, dispatch: Dispatch, key: bytes) -> None:
        """Set the origin and number under which to dispatch the message."""
        message = dispatch.message
        identity = self.replicated.identities.get(key)
        if identity is not None:
            # An earlier message with this key, from a crashed home, waits for a retry. The new message takes over the
            # name of the earlier message, so that clients that already have the earlier message do not get the new
            # message. The publish itself keeps its own name, in case it goes to another home.
            said = replace(carried(message), origin=identity[0], number=identity[1])
            message = dispatch.message = arrived(said, message.received)
            dispatch.renamed = True
        self.under_way[key] = message

    def keep(self, dispatch: Dispatch, key: bytes) -> None:
        """Send the message to the replica of its slot."""
        size = MESSAGE_BYTES + len(dispatch.message.payload)
        dispatch.barriers += self._replication.keep(self.replicated, dispatch.slot, key, size, dispatch)

    def take_replicated(self) -> list[Dispatch]:
        """Return the messages that can continue. Their replica has them now, and they wait for nothing else."""
        replicated, self.replicated.confirmed = self.replicated.confirmed, []
        go_on: list[Dispatch] = []
        for dispatch in replicated:
            dispatch.barriers -= 1
            if not dispatch.barriers:
                go_on.append(dispatch)
        return go_on
