"""A message waits until its slot's replica has it: then the crash of this home loses and doubles nothing. ADR 23.

Owns: which messages wait for that. Must never: dispatch one, or know who the replica is.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..cluster.replication import SlotReplication
from ..dispatch import Dispatch
from ..links.carrying import arrived, carried
from .replicated import MESSAGE_BYTES, ReplicatedMessages


class ReplicationBarrier:
    """One home's."""

    def __init__(self, replicated: ReplicatedMessages, replication: SlotReplication) -> None:
        self.replicated = replicated
        self._replication = replication
        #: Are there to be replicas?
        self.on = replication.on
        self.names = replicated.names
        #: By key, what is being dispatched; empty where there are no replicas.
        self.under_way = replicated.under_way

    def begin(self, dispatch: Dispatch, key: int) -> None:
        """It is dispatched from here on, and waits first, if there is a replica."""
        self.name(dispatch, key)
        self.keep(dispatch, key)

    def name(self, dispatch: Dispatch, key: int) -> None:
        """By which name it is dispatched."""
        message = dispatch.message
        identity = self.replicated.identities.get(key)
        if identity is not None:
            # A message with this key is waiting to be tried again. Those who have had that must not get this one. Its
            # publish keeps its own, for a home that it may have to go to.
            said = replace(carried(message), origin=identity[0], number=identity[1])
            message = dispatch.message = arrived(said, message.received)
        self.under_way[key] = message

    def keep(self, dispatch: Dispatch, key: int) -> None:
        """Have its replica know of it."""
        size = MESSAGE_BYTES + len(dispatch.message.payload)
        dispatch.barriers += self._replication.keep(self.replicated, dispatch.slot, key, size, dispatch)

    def take_replicated(self) -> list[Dispatch]:
        """Messages that need not wait for their replica any more, and wait for nothing else."""
        replicated, self.replicated.confirmed = self.replicated.confirmed, []
        go_on: list[Dispatch] = []
        for dispatch in replicated:
            dispatch.barriers -= 1
            if not dispatch.barriers:
                go_on.append(dispatch)
        return go_on
