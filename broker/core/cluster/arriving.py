"""Slots that come to this endpoint, and what belongs to them: taken in as another home copies it, and begun with when
this endpoint may act. ADR 21.

Owns: the copies that come, and which slots the states know to be ours. Must never: take a copy for whole that is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..desk import Desk
from ..links.calls import LEAVING, Kind
from ..links.capabilities import COPIES
from ..part import Part, RequestHandler
from .copying import Copying
from .membership import Membership
from .slots import Held, SlotState, unpack_slots

#: Copies that come at a time. A home makes one for each endpoint, and a few where the view changes again and again.
INCOMING_MAX: Final = 1_000


class Incoming:
    """A copy that comes."""

    __slots__ = ("keys", "slots", "whole")

    def __init__(self, slots: frozenset[int]) -> None:
        self.slots = slots
        self.keys = 0
        self.whole = False  # the final word has come, and all keys


class Arriving(Part):
    """One endpoint's part. ``states``: what belongs to slots here. ``held``: the slots that are ours. ``copying``: its
    copies to others."""

    def __init__(
        self, desk: Desk, members: Membership, states: Sequence[SlotState], held: Held, copying: Copying
    ) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._states = {state.name: state for state in states}
        self._copying = copying
        self._incoming: dict[tuple[str, int], Incoming] = {}  # by who sends it, and its number there
        self._held = held
        self._acts = False  # as a home: it has joined, and its lease has not lapsed since

    def requests(self) -> dict[Kind, RequestHandler]:
        """What a home says to the next one."""
        return {
            Kind.COPY_BEGINS: self.begin_requested,
            Kind.COPY: self.copy_requested,
            Kind.COPIED: self.end_requested,
        }

    def begin_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """A home begins a copy; one of no slots is over."""
        copy, packed = arguments
        slots = unpack_slots(packed)
        if slots and self._members.leaving:
            self._desk.decline(peer, number, LEAVING)
            return
        if not slots:
            self._incoming.pop((peer, copy), None)
        elif len(self._incoming) >= INCOMING_MAX:
            self._desk.decline(peer, number, "internal", "this endpoint is being sent too many copies")
            return
        else:
            self._incoming[peer, copy] = Incoming(slots)
        self._desk.answer(peer, number)

    def copy_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """A part of it."""
        copy, name, data = arguments
        incoming = self._incoming.get((peer, copy))
        state = self._states.get(name)
        if self._members.leaving:
            self._desk.decline(peer, number, LEAVING)
            return
        if incoming is None or state is None:
            self._desk.decline(peer, number, "internal", "there is no such copy here, or not any more")
            return
        if self._acts and not self._held.slots.isdisjoint(incoming.slots):
            # Its sender was their home once, and does not know yet that it is not any more.
            del self._incoming[peer, copy]
            self._desk.decline(peer, number, "internal", "this endpoint is the home of these slots by now")
            return
        try:
            incoming.keys += state.absorb(data)
        except ValueError as error:
            self._desk.decline(peer, number, "internal", f"not what {name!r} packs: {error}")
        else:
            self._desk.answer(peer, number)

    def end_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """So many keys have been sent. ``final``: that was all, and its slots are ours when everybody says so."""
        copy, keys, final = arguments
        if self._members.leaving:
            self._desk.decline(peer, number, LEAVING)
            return
        incoming = self._incoming.get((peer, copy))
        came = incoming is not None and incoming.keys == keys
        if incoming is not None and final:
            incoming.whole = came
            if not self._acts:
                self._held.slots -= incoming.slots  # another acted for them since we did
        self._desk.answer(peer, number, came)

    def view_changed(self) -> None:
        """Slots may be ours now, or not any more."""
        if self._members.leaving and self._incoming:
            # What was to be ours is the next home's. Whose it was may still be thought to be their home here.
            for incoming in self._incoming.values():
                if incoming.whole:
                    self._held.slots |= incoming.slots
            self._incoming.clear()
            self._copying.view_changed()
        gone = [key for key in self._incoming if key[0] not in self._members.peers]
        self._arrive()
        for key in gone:
            self._incoming.pop(key, None)

    def joined(self) -> None:
        """This endpoint may act for its slots."""
        self._arrive()

    def lapsed(self) -> None:
        """Others may act for them. What is here is kept: it is all there is, if nobody does."""
        self._acts = False

    def _arrive(self) -> None:
        if not self._members.joined:
            return
        table = self._members.table
        ours = {slot for slot, home in enumerate(table) if home == self._me} - self._held.slots
        whole: set[int] = set()
        for key, incoming in list(self._incoming.items()):
            slots = incoming.slots & ours
            if incoming.whole:
                whole |= slots
            if slots:
                del self._incoming[key]
        if not self._acts and not self._members.lacking(COPIES):
            # Whoever acted for a slot until now has handed it over. Nobody did, so there is nothing that could be
            # missing.
            whole = ours
        self._acts = True
        self._held.slots |= ours
        self._tell(ours - whole, False)
        self._tell(whole, True)

    def _tell(self, slots: set[int], whole: bool) -> None:
        if slots:
            self._desk.counts["slots_arrived_whole" if whole else "slots_arrived_in_part"] += len(slots)
            for state in self._states.values():
                state.arrived(sorted(slots), whole)
