"""Replication: the endpoint that would take over a slot keeps a replica of the state that must survive a crash of this
endpoint. ADR 23.

Owns: the replicas of this endpoint's slots, whether each replica is whole, and which changes wait for it. Must never:
know a replica's content (``slots``), or choose the next home (``homes`` does, by the same hashing without this
endpoint).

Rendezvous hashing determines the next home of each slot if this endpoint disappears. Each of these next homes keeps a
replica of the slots that it would get. While a slot's replica is incomplete, the slot counts as a slot without a
replica (``without``). If a part's change must survive (``keep``), the part waits for the replica's answer, if there is
a replica.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..desk import Desk
from ..metrics import Metric, gauge
from .membership import Membership
from .replicas import AtOnce, Replica, ReplicaOwner, Replicas
from .slots import SlotState, by_home

#: The longest wait for a replica, in seconds. After that, a home whose link to the replica is cut continues without it.
#: The wait is shorter than a lease, so that a message does not fail meanwhile. It is also shorter than the time that an
#: origin waits for a home.
WAIT_S: Final = 2.0

#: Seconds after a failure until this endpoint tries again to replicate the slots without a replica.
AGAIN_S: Final = 0.5


class SlotReplication(ReplicaOwner):
    """One endpoint's failover replicas. ``on``: whether to make such replicas."""

    def __init__(self, desk: Desk, members: Membership, replicas: Replicas, on: bool) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._replicas = replicas
        self.on = on
        self._made: dict[Replica, None] = {}
        self._of_slot: dict[int, Replica] = {}
        self._try_at = math.inf  # when to try again to replicate slots of ours that have no replica

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        help = "With replication: slots of this endpoint without a whole replica at another endpoint"
        return [gauge("slots_without_replica", help, self.without)]

    @property
    def without(self) -> int:
        """The number of this endpoint's slots without a whole replica, because no peer exists or the replica is not
        complete yet. 0 if replication is off."""
        if not self.on:
            return 0
        mine = self._members.table.count(self._me)
        return mine - sum(len(replica.slots) for replica in self._made if replica.stands)

    def keep(self, state: SlotState, slot: int, key: Any, size: int, waiter: Any) -> bool:
        """Replicate a change that must survive a crash of this endpoint.

        Args:
            state: The state that owns the key.
            slot: The key's slot.
            key: The changed key.
            size: Its approximate bytes.
            waiter: An object that is added to the state's ``confirmed``, once, when the replica has the change or has
                ended.

        Returns:
            True if the waiter has to wait; False if the slot has no whole replica.
        """
        replica = self._of_slot.get(slot)
        if replica is None:
            return False
        waits = replica.whole
        self._replicas.at_once(replica, AtOnce(state, slot, key, size, (state, waiter) if waits else None))
        return waits  # if the replica was overfull, it has ended, and ``confirmed`` has the waiter by now

    def tell(self, state: SlotState, slot: int, key: Any, size: int) -> None:
        """Replicate a change without a waiter. A later ``keep`` of the same slot arrives after this change."""
        replica = self._of_slot.get(slot)
        if replica is not None:
            self._replicas.at_once(replica, AtOnce(state, slot, key, size, None))

    # ReplicaOwner

    def confirmed(self, replica: Replica, waiters: list[Any]) -> None:
        """See ``ReplicaOwner``."""
        for state, waiter in waiters:
            state.confirmed.append(waiter)

    def over(self, replica: Replica, keeps: bool) -> None:
        """See ``ReplicaOwner``."""
        del self._made[replica]
        for slot in replica.slots:
            if self._of_slot.get(slot) is replica:
                del self._of_slot[slot]
        self._try_at = self._desk.now + AGAIN_S

    # The cluster

    def view_changed(self) -> None:
        """Rearrange the replicas, because slots may have new homes and new next homes."""
        self._arrange()

    def joined(self) -> None:
        """Begin replicas, because this endpoint acts now."""
        self._arrange()

    def lapsed(self) -> None:
        """End all replicas, because others may act for our slots, using their own state."""
        for replica in list(self._made):
            self._replicas.end(replica)

    def tick(self) -> None:
        """Give up replicas that do not answer in time, and retry replicas that were given up or could not begin."""
        before = self._desk.now - WAIT_S
        for replica in list(self._made):
            if replica.unconfirmed and replica.unconfirmed[0][0] < before:
                self._replicas.give_up(replica)
        if self._desk.now >= self._try_at:
            self._arrange()

    def peer_reset(self, peer: str) -> None:
        """Begin new replicas at the peer, which drops its present replicas of our slots."""
        for replica in list(self._made):
            if replica.target == peer:
                self._replicas.end(replica)
        self._arrange()

    def _arrange(self) -> None:
        """Replicate each of our slots to the endpoint that would be its home without us."""
        members = self._members
        wanted: dict[str, set[int]] = {}
        if self.on and members.joined and not members.leaving and members.only_home is None:
            homes = by_home(members.table, self._me, members.table_without_me())
            wanted = {home: set(slots) for home, slots in homes.items()}
        self._try_at = math.inf
        for replica in list(self._made):
            if replica.over:
                continue  # an earlier step of this loop has ended this replica
            slots = replica.slots & wanted.get(replica.target, frozenset())
            if not slots or (slots != replica.slots and not replica.whole):
                self._replicas.end(replica)
                continue
            wanted[replica.target] -= slots
            if slots != replica.slots:
                for slot in replica.slots - slots:
                    del self._of_slot[slot]
                self._replicas.narrow(replica, slots)
        for target, lacking in wanted.items():
            if not lacking:
                continue
            replica = self._replicas.begin(self, target, frozenset(lacking), for_failover=True)
            self._made[replica] = None
            self._of_slot.update(dict.fromkeys(replica.slots, replica))
