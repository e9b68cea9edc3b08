"""Incoming slots: receives the state of slots from another home, and uses this state when this endpoint becomes their
home. ADR 21, 23.

Owns: the incoming replicas, and the set of slots whose state this endpoint treats as its own. Must never: treat a
partial replica as whole.

There are two kinds of replicas. A transfer replica brings slots that move here. It is whole when the home that gives
the slots away has sent its *final* message. A failover replica guards against a crash of the slots' home. It is whole
as soon as the home has confirmed that all keys have arrived. Later changes arrive in order over the same link, so the
replica stays whole until another replica of these slots begins. This endpoint uses a failover replica only if the home
disappears without handing over its slots.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..desk import Desk
from ..links.calls import LEAVING
from ..links.requests import ReplicaBeginsRequest, ReplicaChunkRequest, ReplicaSentRequest, Request
from ..metrics import Metric
from ..part import Part, RequestHandler
from .membership import DEAD_AFTER_S, Membership
from .slot_transfer import SlotTransfer
from .slots import Held, SlotStates, unpack_slots

#: The answer to a failover replica whose slots belong to another home in this endpoint's view. The sender should try
#: again.
NOT_THEIRS: Final = "not_theirs"

#: An endpoint that joins waits this many seconds for replicas that others pass on to it. Then it joins without these
#: replicas.
PASSED_ON_S: Final = 30.0

#: Two homes may replicate the same slot. If one replica began this many seconds after the other replica, by the clocks
#: of the two machines, the home of the later replica also acted later. The reason is that an endpoint considers a peer
#: dead only after a silence of twice this time.
LATER_S: Final = DEAD_AFTER_S / 2

#: Maximum number of replicas to receive at a time. A home makes one replica for each endpoint, and a few more while the
#: view keeps changing.
INCOMING_MAX: Final = 1_000


class IncomingReplica:
    """A replica that another endpoint sends here."""

    __slots__ = (
        "asked",
        "began_at",
        "for_failover",
        "giver",
        "keys",
        "lapsed",
        "slots",
        "when",
        "whole",
    )

    def __init__(self, slots: frozenset[int], for_failover: bool, when: tuple[int, int], began_at: float) -> None:
        self.slots = slots
        self.for_failover = for_failover
        self.keys = 0
        self.asked = 0  # how many times the sender has asked whether all keys have arrived
        self.whole = False  # all keys arrived, and the sender called it final or asked twice
        self.lapsed = False  # its sender was not acting when the replica began
        self.giver = ""  # the slots' home until now: the sender, or the endpoint whose replica the sender passes on
        self.began_at = began_at  # when the replica began, by its sender's clock, in Unix seconds
        self.when = when  # this endpoint's round of joining and count of stalls when the replica began


class IncomingReplicas(Part):
    """One endpoint's incoming replicas.

    Args:
        desk: The services of the endpoint.
        members: This endpoint's knowledge of the cluster.
        states: The slot states here.
        held: The slots whose state this endpoint treats as its own.
        slot_transfer: The replicas that this endpoint sends to others.
    """

    def __init__(
        self, desk: Desk, members: Membership, states: SlotStates, held: Held, slot_transfer: SlotTransfer
    ) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._states = states
        self._slot_transfer = slot_transfer
        self._incoming: dict[tuple[str, int], IncomingReplica] = {}  # indexed by sender and the sender's number
        self._held = held
        self._stalls = 0  # this process's count of stalls when the endpoint last acted
        self._missed = False  # since this endpoint last acted, another endpoint has acted without it

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "slots_arrived_whole",
                "Slots that arrived with their whole state when this endpoint became their home",
            ),
            self._desk.counted(
                "slots_arrived_in_part",
                "Slots that lacked some of their state when this endpoint became their home, for example after a crash",
            ),
        ]

    def requests(self) -> dict[type[Request], RequestHandler]:
        """The requests that a home sends to the next home."""
        return {
            ReplicaBeginsRequest: self.begin_requested,
            ReplicaChunkRequest: self.chunk_requested,
            ReplicaSentRequest: self.end_requested,
        }

    def begin_requested(self, peer: str, number: int, request: ReplicaBeginsRequest) -> None:
        """Begin a replica, or restrict a known replica to fewer slots. If the request names no slots, end the
        replica."""
        replica = request.replica
        slots = unpack_slots(request.slots or b"")
        known = self._incoming.get((peer, replica))
        if slots and self._members.leaving:
            self._desk.decline(peer, number, LEAVING)
            return
        if not slots:
            if known is not None:
                self._drop((peer, replica))
        elif known is not None:
            self._narrow(known, slots)
        elif len(self._incoming) >= INCOMING_MAX:
            self._desk.decline(peer, number, "internal", "this endpoint already receives as many replicas as it can")
            return
        elif request.fewer or (request.for_failover and self._are_others(slots, peer)):
            self._desk.decline(peer, number, NOT_THEIRS, "in this endpoint's view another endpoint is their home")
            return
        elif self._held.acts and not self._held.slots.isdisjoint(slots):
            # The sender was once the slots' home, and does not know yet that it has lost them.
            self._desk.decline(peer, number, "internal", "this endpoint is already the home of these slots")
            return
        elif request.lapsed and self._members.view() != [peer]:
            self._desk.decline(peer, number, "internal", "another endpoint may have acted for these slots since")
            return
        elif request.lapsed and not self._held.slots.isdisjoint(slots):
            self._let_go(self._held.slots & slots)
            self._desk.decline(
                peer, number, "internal", "both endpoints acted for these slots, and it is unknown which acted last"
            )
            return
        else:
            for_failover, began_at = request.for_failover, request.at
            if not for_failover and self._has_later(slots, peer, began_at):
                self._desk.decline(peer, number, "internal", "another home has acted since this replica began")
                return
            self._forget(slots, peer, for_failover)
            self._incoming[peer, replica] = incoming = IncomingReplica(slots, for_failover, self._when, began_at)
            incoming.lapsed = request.lapsed
            incoming.giver = request.giver or peer
            if request.giver:
                self._members.awaited[peer, replica] = self._desk.now + PASSED_ON_S
        self._desk.answer(peer, number)

    @property
    def _when(self) -> tuple[int, int]:
        return (self._members.round, self._members.stalls)

    def _are_others(self, slots: frozenset[int], peer: str) -> bool:
        """Return whether, in this endpoint's view, another peer is the home of any of these slots."""
        table = self._members.table
        return any(table[slot] != peer for slot in slots)

    def _has_later(self, slots: frozenset[int], peer: str, began_at: float) -> bool:
        """Return whether another home began to give us some of these slots later than the peer did. A link may have
        delayed the peer's replica while that home considered the peer dead."""
        return any(
            sender != peer
            and not incoming.for_failover
            and incoming.began_at > began_at + LATER_S
            and not incoming.slots.isdisjoint(slots)
            for (sender, _), incoming in self._incoming.items()
        )

    def _forget(self, slots: frozenset[int], peer: str, for_failover: bool) -> None:
        """Drop our state of these slots, because another endpoint has acted for them and may have deleted parts of the
        state.

        Also drop earlier replicas of these slots, because we may have missed their end. A failover replica stays until
        its home has given the slots away."""
        for key, other in list(self._incoming.items()):
            is_former = other.for_failover == for_failover or key[0] != peer
            if is_former and not other.slots.isdisjoint(slots):
                self._drop(key)
        if not for_failover:
            self._let_go(self._held.slots & slots)
            self._slot_transfer.forget(slots)

    def _let_go(self, slots: set[int]) -> None:
        """Drop the outdated state of these slots, which were ours."""
        if slots:
            self._held.slots -= slots
            for state in self._states.all:
                state.gone(sorted(slots))

    def chunk_requested(self, peer: str, number: int, request: ReplicaChunkRequest) -> None:
        """Absorb a chunk of a replica."""
        incoming = self._incoming.get((peer, request.replica))
        state = self._states.forms.get(request.state)
        if self._members.leaving:
            self._desk.decline(peer, number, LEAVING)
            return
        if incoming is None or state is None:
            self._desk.decline(peer, number, "internal", "this endpoint has no such replica, or has dropped it")
            return
        try:
            incoming.keys += state.absorb(request.data)
        except ValueError as error:
            self._desk.decline(peer, number, "internal", f"this is not a chunk of {request.state!r}: {error}")
        else:
            self._desk.answer(peer, number)

    def end_requested(self, peer: str, number: int, request: ReplicaSentRequest) -> None:
        """Check the sender's count of keys. If the request is ``final``, nothing follows, and the slots are ours as
        soon as the view says so."""
        if self._members.leaving:
            self._desk.decline(peer, number, LEAVING)
            return
        incoming = self._incoming.get((peer, request.replica))
        came = incoming is not None and incoming.keys == request.keys
        if incoming is not None:
            # As soon as the home has our first answer, it makes its changes wait for this replica. Everything that it
            # sent earlier arrives here before its second question.
            incoming.asked += 1
            incoming.whole = came and (request.final or (incoming.for_failover and incoming.asked > 1))
            if incoming.whole:
                self._members.awaited.pop((peer, request.replica), None)
        self._desk.answer(peer, number, came)
        if came and request.final:
            self.hand_on()

    def view_changed(self) -> None:
        """Gain or lose slots, as the new view requires."""
        if self._members.leaving and self._incoming:
            # We are leaving, so slots meant for us belong to the next home. This view may still name the giver of these
            # slots as their home.
            for key, incoming in list(self._incoming.items()):
                if incoming.whole and not incoming.for_failover:
                    self._held.slots |= incoming.slots
                self._drop(key)
            self._slot_transfer.view_changed()
        members = self._members
        self.hand_on()
        self._arrive()
        for key, incoming in list(self._incoming.items()):
            # A failover replica of a crashed home is needed when this endpoint acts again.
            if not members.in_view(key[0]) and (members.joined or not (incoming.whole and incoming.for_failover)):
                self._drop(key)

    def hand_on(self) -> None:
        """Pass on the slots that we have received and whose home is another endpoint. If the giver of a slot is still
        the slot's home in our view, find the home as if the giver had left.

        Passing slots on needs a link to their new home. The giver is no longer the slots' home, even if it has not
        announced that yet."""
        members, me = self._members, self._me
        table, linked = members.table, members.linked()
        found: dict[tuple[str, str], list[int]] = {}
        for incoming in self._incoming.values():
            if incoming.whole and not incoming.for_failover:
                giver = incoming.giver
                homes = members.table_without(giver) if any(table[slot] == giver for slot in incoming.slots) else table
                others = {slot for slot in incoming.slots if homes[slot] != me and homes[slot] in linked}
                incoming.slots -= others
                for slot in sorted(others):
                    found.setdefault((homes[slot], giver), []).append(slot)
        self._slot_transfer.pass_on(found)

    def joined(self) -> None:
        """Take over our slots, because this endpoint may act for them now."""
        self._arrive()

    def lapsed(self) -> None:
        """Record that others may act for our slots. Keep our state, which is the only copy if no other endpoint acts
        for them."""
        if self._held.acts:
            self._held.acts = False
            self._held.departed = self._members.departed
            self._stalls = self._members.stalls
            self._held.in_doubt = any(not self._members.peers[peer].yields for peer in self._members.view())

    def linked(self) -> None:
        """Pass on slots, because the newly linked peer may be their home."""
        self.hand_on()

    def peer_missed(self, peer: str, void_before: int | None) -> None:
        """Drop outdated state, because the peer may have acted for our slots and lost them again.

        The peer sends replicas of the slots that it still has. All other state here, our own or from earlier replicas,
        is outdated. The peer's failover replicas here are outdated, too, and the peer begins new ones
        (``SlotReplication.peer_reset``)."""
        if self._held.acts:
            return  # this endpoint acts already, and the peer knew that before it joined
        self._missed = True
        for key, incoming in list(self._incoming.items()):
            is_peers = key[0] == peer
            is_old = key[1] < void_before if is_peers and void_before is not None else incoming.when != self._when
            if is_old or (is_peers and incoming.for_failover):
                self._drop(key)
        self._let_go(set(self._held.slots))

    def _arrive(self) -> None:
        if not self._members.joined:
            return
        table = self._members.table
        acts = self._held.acts
        one_departed = not acts and self._members.departed > self._held.departed
        if one_departed:
            # The departed peer may have acted for these slots after we did, and can no longer say so.
            self._let_go(set(self._held.slots))
        ours = {slot for slot, home in enumerate(table) if home == self._me} - self._held.slots
        whole: set[int] = set()
        saved: set[int] = set()
        unheard: set[int] = set()  # slots whose home may have been cut off and may have continued alone
        in_view = self._members.in_view
        crashed = {
            peer for (peer, _), incoming in self._incoming.items() if incoming.for_failover and not in_view(peer)
        }
        # While this endpoint did not act, another endpoint may have taken over and crashed. While this process was
        # stalled, the crashed home may have considered this endpoint dead and continued without it.
        members = self._members
        alone = members.departed - self._held.departed <= 1 and members.stalls == self._stalls and not self._missed
        is_last = acts or alone
        for key, incoming in list(self._incoming.items()):
            slots = incoming.slots & ours
            if incoming.whole and not incoming.for_failover:
                if (acts or self._has_let_in(key[0])) and (not incoming.lapsed or members.view() == [key[0]]):
                    whole |= slots
            elif incoming.whole and is_last and key[0] in crashed:
                saved |= slots
                if members.went_on_unheard(key[0]):
                    unheard |= slots
            if slots or key[0] in crashed or not self._held.slots.isdisjoint(incoming.slots):
                incoming.slots -= slots
                # The slots' giver may be about to leave, and its announcement may be on the way.
                rest = [slot for slot in incoming.slots if table[slot] == incoming.giver and in_view(incoming.giver)]
                if incoming.whole and not incoming.for_failover and rest:
                    self._narrow(incoming, rest)
                else:
                    self._drop(key)
        is_first = not acts and not one_departed and not self._members.peers
        if is_first:
            whole = ours  # no other endpoint can have any state
        self._held.acts = True
        self._held.in_doubt = self._missed = False
        self._held.slots |= ours
        saved -= whole
        self._tell(ours - whole - saved, False)
        self._tell(saved - unheard, True, saved=True)
        self._tell(saved & unheard, True, saved=True, unheard=True)
        self._tell(whole, True, is_first=is_first)

    def _has_let_in(self, giver: str) -> bool:
        """Return whether the giver has welcomed us in this round of joining, or announced that it leaves. A giver that
        died silently may first have considered this endpoint dead, and then have acted for slots that it had given
        away."""
        peer = self._members.peers.get(giver)
        return peer is None or peer.in_view or peer.welcomed >= self._members.round

    def _drop(self, key: tuple[str, int]) -> None:
        incoming = self._incoming.pop(key)
        self._members.awaited.pop(key, None)
        self._narrow(incoming, frozenset())

    def _narrow(self, incoming: IncomingReplica, slots: Collection[int]) -> None:
        """Keep only these slots of the replica. Drop the received state of all other slots, except slots that another
        replica brings or that are ours."""
        dropped = incoming.slots.difference(slots)
        if not dropped:
            return
        incoming.slots -= dropped
        needed = self._held.slots.union(*(other.slots for other in self._incoming.values()))
        for state in self._states.forms.values():
            useless = dropped - needed if state in self._states.all else dropped
            if useless and (incoming.for_failover or state in self._states.all):
                state.dropped(sorted(useless))

    def _tell(
        self, slots: set[int], whole: bool, *, saved: bool = False, unheard: bool = False, is_first: bool = False
    ) -> None:
        """Tell the states that these slots have arrived.

        ``saved``: the slots come from a failover replica, which lacks some states. ``unheard``: the home may have
        continued without that replica, so parts of the other states may be missing, too. ``is_first``: no other
        endpoint can have any state of these slots."""
        if not slots:
            return
        missing = [state for state in self._states.all if saved and state.failover_form is None]
        self._desk.counts["slots_arrived_whole" if whole and not missing else "slots_arrived_in_part"] += len(slots)
        for state in self._states.forms.values():
            if is_first:
                state.begun(sorted(slots))
                continue
            state.arrived(sorted(slots), whole and state not in missing and not (unheard and state.is_certain))
