"""Replication: what must survive the crash of this endpoint is kept at the endpoint that takes over then. ADR 23.

Owns: which endpoint keeps what of this one's slots, whether it has it all, and who waits until it has. Must never: know
what is kept (``slots``), or decide who takes over (``homes``: the same hashing without this endpoint).

Rendezvous hashing says who is the next home of each slot, should this endpoint go. Each of these endpoints keeps a
replica of the slots that it would get. Until a replica is whole its slots count as without one; ``without`` says how
many. A part that needs to be sure of a change (``keep``) waits for the replica's answer, where there is one.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..desk import Desk
from ..metrics import Metric, gauge
from .membership import Membership
from .replicas import AtOnce, Replica, ReplicaOwner, Replicas
from .slots import SlotState, by_home

#: Nobody waits for a replica for longer than this, in seconds: a home whose link to it is cut goes on without. Shorter
#: than a lease, so that a message does not fail of it, and than the time that an origin gives a home.
WAIT_S: Final = 2.0

#: Where a slot has no replica, another try is made after so many seconds.
AGAIN_S: Final = 0.5


class SlotReplication(ReplicaOwner):
    """One endpoint's part. ``on``: are there to be replicas?"""

    def __init__(self, desk: Desk, members: Membership, replicas: Replicas, on: bool) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._replicas = replicas
        self.on = on
        self._made: dict[Replica, None] = {}
        self._of_slot: dict[int, Replica] = {}
        self._try_at = math.inf  # there is a slot of ours that could have a replica, and has none

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        help = "With replicas: slots of this endpoint that nobody else could take over whole"
        return [gauge("slots_without_replica", help, self.without)]

    @property
    def without(self) -> int:
        """Slots of this endpoint that have no replica: nobody else is there, or not all has been replicated yet. 0
        where none is wanted."""
        if not self.on:
            return 0
        mine = self._members.table.count(self._me)
        return mine - sum(len(replica.slots) for replica in self._made if replica.stands)

    def keep(self, state: SlotState, slot: int, key: Any, size: int, waiter: Any) -> bool:
        """Something is new under the state's key, of about so many bytes, and has to survive. True: the state's
        ``confirmed`` gets the waiter, once: when the replica has it, or there is none any more. False: there is
        none."""
        replica = self._of_slot.get(slot)
        if replica is None:
            return False
        waits = replica.whole
        self._replicas.at_once(replica, AtOnce(state, slot, key, size, (state, waiter) if waits else None))
        return waits  # ``confirmed`` has it by now, where it was too much for the link

    def tell(self, state: SlotState, slot: int, key: Any, size: int) -> None:
        """As ``keep``, and nobody waits: something that is kept next for the same slot gets there behind it."""
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
        """Slots may have other homes, and other next ones."""
        self._arrange()

    def joined(self) -> None:
        """This endpoint acts."""
        self._arrange()

    def lapsed(self) -> None:
        """Others may act for our slots, and may do it with what they have."""
        for replica in list(self._made):
            self._replicas.end(replica)

    def tick(self) -> None:
        """Give up what is waited for in vain; begin again what was given up, or could not be begun."""
        before = self._desk.now - WAIT_S
        for replica in list(self._made):
            if replica.unconfirmed and replica.unconfirmed[0][0] < before:
                self._replicas.give_up(replica)
        if self._desk.now >= self._try_at:
            self._arrange()

    def peer_reset(self, peer: str) -> None:
        """The peer drops what it has of ours."""
        for replica in list(self._made):
            if replica.target == peer:
                self._replicas.end(replica)
        self._arrange()

    def _arrange(self) -> None:
        """A replica of each slot of ours at the endpoint that is its home without us."""
        members = self._members
        wanted: dict[str, set[int]] = {}
        if self.on and members.joined and not members.leaving and members.only_home is None:
            homes = by_home(members.table, self._me, members.table_without_me())
            wanted = {home: set(slots) for home, slots in homes.items()}
        self._try_at = math.inf
        for replica in list(self._made):
            if replica.over:
                continue  # the end of one before it
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
