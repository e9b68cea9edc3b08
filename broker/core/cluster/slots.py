"""State that belongs to a slot: what a part of the core keeps of the topics that this endpoint is home of.

Owns: what such a part has to be able to do, so that its state goes with the slot. Must never: know how it is carried
(``replicas``), or when a slot goes (``membership``).

What is kept is known by *keys*: a payload's hash, a topic's history. A replica carries keys with what there is of each
at the moment it is packed, so a key may be packed any number of times, and the last time counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ingeborg.protocol.hashes import SLOTS
from ingeborg.protocol.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SlotState:
    """One part's. Every slice of work is of a millisecond or so."""

    def __init__(self, name: str, keys_per_chunk: int) -> None:
        """``name``: by which the next home's knows it. ``keys_per_chunk``: so many are packed in one go, some 64 KiB
        of what belongs to them."""
        self.name = name
        self.keys_per_chunk = keys_per_chunk
        #: What a replica gets of it: this state, another form of the same, or nothing (None).
        self.failover_form: SlotState | None = None
        #: What somebody has waited for to be at the replica, and need not wait for any more: whoever it is takes it.
        self.confirmed: list[Any] = []
        #: What a replica has is not whole where its home may have gone on without it before it died.
        self.is_certain = False

    def departing(self, slots: frozenset[int]) -> Iterator[list[Any]]:
        """The keys of all there is of these slots, slice by slice; a slice may be empty. What is added meanwhile may be
        left out: it is told of as a change (``Replicas.changed``)."""
        raise NotImplementedError

    def chunk(self, keys: Iterable[Any]) -> list[Any]:
        """The first of these, as many as are packed in one go."""
        return list(islice(keys, self.keys_per_chunk))

    def pack(self, keys: Sequence[Any]) -> bytes:
        """What there is of these now, or that there is nothing any more."""
        raise NotImplementedError

    def absorb(self, data: bytes) -> int:
        """Take in what another endpoint has packed, of slots that this one is not home of yet, or has just become.
        Returns how many keys they were. Raises ``ValueError`` where nothing was packed so; then nothing is changed."""
        raise NotImplementedError

    def arrived(self, slots: Sequence[int], whole: bool) -> None:
        """This endpoint is home of these slots from here on. ``whole``: all that the former home had of them has been
        absorbed. Otherwise some may be missing, or all."""

    def begun(self, slots: Sequence[int]) -> None:
        """This endpoint is home of these slots from here on, and no endpoint that has acted for them is known: all have
        ended, or there was none before."""
        self.arrived(slots, True)

    def gone(self, slots: Sequence[int]) -> None:
        """Another endpoint is home of these from here on, and has been sent what there was."""

    def dropped(self, slots: Sequence[int]) -> None:
        """What was absorbed of these is of no use: this endpoint is not to be their home, or not next."""


class SlotStates:
    """Those of one endpoint. Each folder of the core adds its own."""

    def __init__(self, states: Iterable[SlotState] = ()) -> None:
        self.all: list[SlotState] = []
        self.forms: dict[str, SlotState] = {}  # by name, what a replica gets included
        for state in states:
            self.add(state)

    def add(self, state: SlotState) -> None:
        """This belongs to slots, too. What a replica gets of it is known by now."""
        self.all.append(state)
        self.forms[state.name] = state
        if state.failover_form is not None:
            self.forms[state.failover_form.name] = state.failover_form


class Held:
    """The slots that the states know to be ours: this endpoint is their home, or was when it last acted as one."""

    def __init__(self) -> None:
        self.slots: set[int] = set()
        #: This endpoint acts as a home, or did until it left: it has joined, and its lease has not lapsed since.
        self.acts = False
        #: Endpoints that had departed when it last acted.
        self.departed = 0
        #: Others may have acted for them since this endpoint did: what it has of them may be old.
        self.in_doubt = False


def by_home(table: Sequence[str], me: str, after: Sequence[str]) -> dict[str, list[int]]:
    """The slots that are ours in one table, by whose they are in another."""
    found: dict[str, list[int]] = {}
    for slot, home in enumerate(table):
        if home == me:
            found.setdefault(after[slot], []).append(slot)
    return found


def pack_slots(slots: Iterable[int]) -> bytes:
    """A bit for each slot."""
    bits = bytearray(SLOTS // 8)
    for slot in slots:
        bits[slot >> 3] |= 1 << (slot & 7)
    return bytes(bits)


def unpack_slots(packed: bytes) -> frozenset[int]:
    """The slots whose bit is set."""
    return frozenset(slot for slot in range(8 * len(packed)) if packed[slot >> 3] >> (slot & 7) & 1)
