"""Slot transfer: replicates slots to their next home before they move. Slots move when another endpoint joins or this
endpoint leaves. ADR 21.

Owns: the replicas of slots that move, and the decision about when a slot can move. Must never: know the content of a
replica (``slots``) or how it is sent (``replicas``), or decide which endpoint is home (``membership``).

A slot is replicated while this endpoint is still its home. The slot moves only when little is left to send. Then this
endpoint sends the rest, and a *final* message with the number of keys. The next home acts when it has that message
(``incoming``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..desk import Desk
from ..links.requests import PrepareRequest, Request
from ..part import RequestHandler
from .membership import Membership
from .observers import ClusterObservers
from .replicas import Replica, ReplicaOwner, Replicas
from .slots import Held, SlotStates, by_home
from .underway import UnderWay

#: A prepared replica is dropped when no peer has asked for it for this long, in seconds.
UNASKED_S: Final = 5.0


class SlotTransfer(ReplicaOwner):
    """One endpoint's slot transfers.

    Args:
        desk: The services of the endpoint.
        members: This endpoint's knowledge of the cluster.
        replicas: Sends the replicas.
        states: The slot states here.
        held: The slots whose state this endpoint treats as its own.
        transfers: Transfers that a newcomer's welcome waits for.
        observers: The observers to notify when a peer leaves.
    """

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        replicas: Replicas,
        states: SlotStates,
        held: Held,
        transfers: UnderWay,
        observers: ClusterObservers,
    ) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._replicas = replicas
        self._states = states
        self._held = held
        self._transfers = transfers
        self._observers = observers
        self._planned: dict[str, Replica] = {}  # replicas of slots that have not moved yet, by target.
        self._newcomers: dict[str, float] = {}  # peers that want their future slots prepared, and when each last asked
        self._going: dict[int, Replica] = {}  # slots that moved, until the next home has their whole state
        self._passing: dict[int, Replica] = {}  # slots given to this endpoint that it passes on

    def requests(self) -> dict[type[Request], RequestHandler]:
        """The requests of a newcomer to a home."""
        return {PrepareRequest: self.prepare_requested}

    def declined(self, replica: Replica) -> None:
        """Handle a target that leaves, although its own announcement has not arrived yet. Its slots move to other
        endpoints, and so do the slots of this replica."""
        self._observers.peer_leaving(replica.target)

    def over(self, replica: Replica, keeps: bool) -> None:
        """See ``ReplicaOwner``."""
        if self._planned.get(replica.target) is replica:
            del self._planned[replica.target]
        if replica.final:
            for row in (self._passing,) if keeps else (self._going, self._passing):
                # Slots passed on to an endpoint that died meanwhile may be ours by now.
                self._tell_gone([slot for slot in self._take(row, replica) if slot not in self._held.slots])
            self._transfers.end(replica)

    # Before a slot moves

    def prepared(self, moves: Mapping[str, Iterable[int]]) -> bool:
        """Prepare slots to move to these endpoints. Callers repeat this call until they move the slots.

        The first call begins the replicas. If no more calls follow, the replicas are dropped later.

        Args:
            moves: The slots, indexed by the incarnation that will get them.

        Returns:
            True if each target has a replica with little left to send.
        """
        ready = True
        for target, some in moves.items():
            slots = frozenset(some)
            replica = self._planned.get(target)
            if not slots or target not in self._members.peers:
                continue
            if replica is not None and not replica.slots >= slots:
                self._replicas.end(replica)
                replica = None
            if replica is None:
                replica = self._planned[target] = self._replicas.begin(self, target, slots)
            replica.asked_at = self._desk.now
            ready = ready and replica.ready
        return ready

    def prepare_requested(self, peer: str, number: int, request: PrepareRequest) -> None:
        """Tell a peer that will join whether its future slots have been replicated to it."""
        members = self._members
        self._newcomers[peer] = self._desk.now
        table = members.table_with(self._newcomers)
        slots = [slot for slot, home in enumerate(members.table) if home == self._me and table[slot] == peer]
        self._desk.answer(peer, number, not members.joined or self.prepared({peer: slots}))

    def prepared_to_leave(self) -> bool:
        """Prepare all our slots to move, as ``prepared`` does."""
        members = self._members
        return not members.joined or self.prepared(by_home(members.table, self._me, members.table_without_me()))

    def tick(self) -> None:
        """Drop replicas for moves that did not happen."""
        before = self._desk.now - UNASKED_S
        for peer in [peer for peer, asked_at in self._newcomers.items() if asked_at < before]:
            del self._newcomers[peer]
        for replica in [replica for replica in self._planned.values() if replica.asked_at < before]:
            self._replicas.end(replica)

    # When a slot moves

    def view_changed(self) -> None:
        """Send the rest of the state of the slots that have new homes."""
        table, stays = self._members.table, self._members.stays
        went: dict[str, list[int]] = {}
        changed: dict[Replica, None] = {}
        for slot, going in list(self._going.items()):
            # The slot's next home has gone without acting for it, so we have to send the slot again. A next home that
            # still exists would pass the replica on itself.
            if table[slot] != going.target and not stays(going.target):
                changed[going] = None
                del self._going[slot]
                if table[slot] == self._me:
                    self._held.slots.add(slot)
                else:
                    went.setdefault(table[slot], []).append(slot)
        for slot in self._held.slots:
            if table[slot] != self._me:
                went.setdefault(table[slot], []).append(slot)
        passed: dict[tuple[str, str], list[int]] = {}
        for slot, passing in list(self._passing.items()):
            # The target leaves, and has not confirmed the replica, so no other endpoint has the slot.
            if self._members.yields(passing.target):
                changed[passing] = None
                del self._passing[slot]
                if table[slot] == self._me:
                    self._held.slots.add(slot)
                else:
                    passed.setdefault((table[slot], passing.giver), []).append(slot)
        self._send(went, changed)
        self.pass_on(passed)

    def forget(self, slots: frozenset[int]) -> None:
        """Drop our state of these slots, because an endpoint that has acted for these slots sends them here. Drop the
        state even if it is on its way to another endpoint."""
        changed: dict[Replica, None] = {}
        for row in (self._going, self._passing):
            old = [slot for slot in row if slot in slots]
            for slot in old:
                changed[row.pop(slot)] = None
            self._tell_gone(old)
        if changed:
            self._send({}, changed)

    def _send(self, went: dict[str, list[int]], changed: Iterable[Replica]) -> None:
        """Send slots.

        ``went``: the slots to send, by target. ``changed``: replicas with slots that no longer go to their target. The
        remaining slots of such a replica are sent as a new replica. Otherwise the next home would treat the former
        replica as whole, although some parts were never sent."""
        for replica in changed:
            went.setdefault(replica.target, []).extend(self._take(self._going, replica))
        for target, slots in went.items():
            self._held.slots.difference_update(slots)
            if self._held.in_doubt or not (self._held.acts or self._nobody_else_acted(target)):
                self._tell_gone(slots)
            elif slots:
                self._transfer(target, slots)
        for replica in changed:
            self.pass_on({(replica.target, replica.giver): self._take(self._passing, replica)})
            self._replicas.end(replica, tell=True)

    def _take(self, row: dict[int, Replica], replica: Replica) -> list[int]:
        """Remove from ``row`` the slots that this replica brings, and return these slots."""
        slots = [slot for slot in sorted(replica.slots) if row.get(slot) is replica]
        for slot in slots:
            del row[slot]
        return slots

    def _nobody_else_acted(self, target: str) -> bool:
        """Return whether it is certain that no other endpoint has acted since we last acted. It is certain only if the
        target is the only peer."""
        return self._members.view() == [target] and self._members.departed == self._held.departed

    def _transfer(self, target: str, slots: list[int]) -> None:
        if target not in self._members.peers:
            self._tell_gone(slots)
            return
        rest = frozenset(slots)
        planned = self._planned.pop(target, None)
        replicas = []
        if planned is not None and planned.slots <= rest:
            replicas.append(planned)
            rest -= planned.slots
        elif planned is not None:
            self._replicas.end(planned)
        if rest:
            replicas.append(self._replicas.begin(self, target, rest, lapsed=not self._held.acts))
        for replica in replicas:
            replica.final = True
            self._going.update(dict.fromkeys(replica.slots, replica))
            self._transfers.begin(replica, target)
            self._replicas.send(replica)

    def pass_on(self, moves: Mapping[tuple[str, str], Iterable[int]]) -> None:
        """Pass on slots, received from other endpoints, to their homes.

        A target may also have received the slots from another endpoint, and act for them by now. So the slots do not
        come back to us if the target dies.

        Args:
            moves: The slots, indexed by target and giver.
        """
        for (target, giver), some in moves.items():
            slots = frozenset(some)
            if target not in self._members.peers:
                self._tell_gone(sorted(slots))
            elif slots:
                replica = self._replicas.begin(self, target, slots, giver=giver)
                replica.final = True
                self._passing.update(dict.fromkeys(slots, replica))
                self._transfers.begin(replica, target)
                self._replicas.send(replica)

    def _tell_gone(self, slots: list[int]) -> None:
        if slots:
            for state in self._states.all:
                state.gone(slots)
