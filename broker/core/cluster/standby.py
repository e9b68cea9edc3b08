"""Standbys: what must survive the crash of this endpoint is kept at the endpoint that takes over then. ADR 23.

Owns: which endpoint keeps what of this one's slots, whether it has it all, and who waits until it has. Must never: know
what is kept (``slots``), or decide who takes over (``homes``: the same hashing without this endpoint).

Rendezvous hashing says who is the next home of each slot, should this endpoint go. Each of these endpoints keeps a copy
of the slots that it would get. While such a copy is being made its slots have no standby; ``without`` says how many. A
part that needs to be sure of a change (``keep``) waits for the standby's answer, where there is one.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..desk import Desk
from ..metrics import Metric, gauge
from .copies import AtOnce, Copier, Copies, Copy
from .membership import Membership
from .slots import SlotState, by_home

#: Nobody waits for a standby for longer than this, in seconds: a home whose link to it is cut goes on without. Shorter
#: than a lease, so that a message does not fail of it, and than the time that an origin gives a home.
WAIT_S: Final = 2.0

#: Where a slot has no standby, another try is made after so many seconds.
AGAIN_S: Final = 0.5


class Standbys(Copier):
    """One endpoint's part. ``on``: are there to be standbys?"""

    def __init__(self, desk: Desk, members: Membership, copies: Copies, on: bool) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._copies = copies
        self.on = on
        self._made: dict[Copy, None] = {}
        self._of_slot: dict[int, Copy] = {}
        self._try_at = math.inf  # there is a slot of ours that could have a standby, and has no copy

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        help = "With standbys: slots of this endpoint that nobody else could take over whole"
        return [gauge("slots_without_standby", help, self.without)]

    @property
    def without(self) -> int:
        """Slots of this endpoint that have no standby: nobody else is there, or not all has been copied yet. 0 where
        none is wanted."""
        if not self.on:
            return 0
        mine = self._members.table.count(self._me)
        return mine - sum(len(copy.slots) for copy in self._made if copy.stands)

    def keep(self, state: SlotState, slot: int, key: Any, size: int, waiter: Any) -> bool:
        """Something is new under the state's key, of about so many bytes, and has to survive. True: the state's
        ``confirmed`` gets the waiter, once: when the standby has it, or there is none any more. False: there is
        none."""
        copy = self._of_slot.get(slot)
        if copy is None:
            return False
        waits = copy.whole
        self._copies.at_once(copy, AtOnce(state, slot, key, size, (state, waiter) if waits else None))
        return waits  # ``confirmed`` has it by now, where it was too much for the link

    def tell(self, state: SlotState, slot: int, key: Any, size: int) -> None:
        """As ``keep``, and nobody waits: something that is kept next for the same slot gets there behind it."""
        copy = self._of_slot.get(slot)
        if copy is not None:
            self._copies.at_once(copy, AtOnce(state, slot, key, size, None))

    # Copier

    def confirmed(self, copy: Copy, waiters: list[Any]) -> None:
        """See ``Copier``."""
        for state, waiter in waiters:
            state.confirmed.append(waiter)

    def over(self, copy: Copy, keeps: bool) -> None:
        """See ``Copier``."""
        del self._made[copy]
        for slot in copy.slots:
            if self._of_slot.get(slot) is copy:
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
        for copy in list(self._made):
            self._copies.end(copy)

    def tick(self) -> None:
        """Give up what is waited for in vain; begin again what was given up, or could not be begun."""
        before = self._desk.now - WAIT_S
        for copy in list(self._made):
            if copy.unconfirmed and copy.unconfirmed[0][0] < before:
                self._copies.give_up(copy)
        if self._desk.now >= self._try_at:
            self._arrange()

    def peer_reset(self, peer: str) -> None:
        """The peer drops what it has of ours."""
        for copy in list(self._made):
            if copy.target == peer:
                self._copies.end(copy)
        self._arrange()

    def _arrange(self) -> None:
        """A copy of each slot of ours at the endpoint that is its home without us."""
        members = self._members
        wanted: dict[str, set[int]] = {}
        if self.on and members.joined and not members.leaving and members.only_home is None:
            homes = by_home(members.table, self._me, members.table_without_me())
            wanted = {home: set(slots) for home, slots in homes.items()}
        self._try_at = math.inf
        for copy in list(self._made):
            if copy.over:
                continue  # the end of one before it
            slots = copy.slots & wanted.get(copy.target, frozenset())
            if not slots or (slots != copy.slots and not copy.whole):
                self._copies.end(copy)
                continue
            wanted[copy.target] -= slots
            if slots != copy.slots:
                for slot in copy.slots - slots:
                    del self._of_slot[slot]
                self._copies.narrow(copy, slots)
        for target, lacking in wanted.items():
            if not lacking:
                continue
            copy = self._copies.begin(self, target, frozenset(lacking), standby=True)
            self._made[copy] = None
            self._of_slot.update(dict.fromkeys(copy.slots, copy))
