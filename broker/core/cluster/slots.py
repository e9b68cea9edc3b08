"""State that belongs to a slot: what a part of the core keeps about the topics that this endpoint is home of.

Owns: what such a part must offer so that its state moves with the slot. Must never: know how state is carried
(``replicas``), or when a slot goes (``membership``).

State has *keys*: a payload's hash, a topic's history. A replica carries keys with their values at the moment of
packing. So a key can be packed any number of times, and the last time counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ingeborg.protocol.hashes import SLOTS
from ingeborg.protocol.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SlotState:
    """The state that one part keeps by slot. Parts subclass it; each slice of work takes about a millisecond."""

    def __init__(self, name: str, keys_per_chunk: int) -> None:
        """Name the state.

        Args:
            name: The same at all endpoints; replicas carry it.
            keys_per_chunk: Keys packed in one go, some 64 KiB with their values.
        """
        self.name = name
        self.keys_per_chunk = keys_per_chunk
        #: The form that a failover replica gets: this state, another form, or nothing (None).
        self.failover_form: SlotState | None = None
        #: Waiters whose change is at the replica, or that need not wait any longer. The owner takes them out.
        self.confirmed: list[Any] = []
        #: A failover replica is partial if its home may have gone on without it before it died.
        self.is_certain = False

    def departing(self, slots: frozenset[int]) -> Iterator[list[Any]]:
        """Yield the keys of these slots, slice by slice. It can leave out keys added meanwhile: they are reported as
        changes (``Replicas.changed``).

        Args:
            slots: The slots that go.

        Yields:
            Lists of keys; a list may be empty.
        """
        raise NotImplementedError

    def chunk(self, keys: Iterable[Any]) -> list[Any]:
        """The first of these keys, as many as one chunk takes."""
        return list(islice(keys, self.keys_per_chunk))

    def pack(self, keys: Sequence[Any]) -> bytes:
        """Pack the present values of these keys, or the fact that a key has none.

        Args:
            keys: At most ``keys_per_chunk`` keys.

        Returns:
            The chunk, for ``absorb`` at another endpoint.
        """
        raise NotImplementedError

    def absorb(self, data: bytes) -> int:
        """Take in a chunk of slots that this endpoint is not home of yet, or has just become home of.

        Args:
            data: A chunk from another endpoint's ``pack``.

        Returns:
            The number of keys in it.

        Raises:
            ValueError: The data is no such chunk. Nothing has changed then.
        """
        raise NotImplementedError

    def arrived(self, slots: Sequence[int], whole: bool) -> None:
        """Begin as the home of these slots.

        Args:
            slots: The slots, ascending.
            whole: All state of the former home was absorbed; otherwise some or all may be missing.
        """

    def begun(self, slots: Sequence[int]) -> None:
        """Begin as the home of slots that no known endpoint has acted for: all have ended, or none existed.

        Args:
            slots: The slots, ascending.
        """
        self.arrived(slots, True)

    def gone(self, slots: Sequence[int]) -> None:
        """Drop the state of these slots: another endpoint is their home from here on, and has received it.

        Args:
            slots: The slots, ascending.
        """

    def dropped(self, slots: Sequence[int]) -> None:
        """Drop the absorbed state of these slots: this endpoint will not be their home, or not next.

        Args:
            slots: The slots, ascending.
        """


class SlotStates:
    """The slot states of one endpoint. Each folder of the core adds its own."""

    def __init__(self, states: Iterable[SlotState] = ()) -> None:
        self.all: list[SlotState] = []
        self.forms: dict[str, SlotState] = {}  # by name, including the failover forms
        for state in states:
            self.add(state)

    def add(self, state: SlotState) -> None:
        """Add a state, with its failover form already set."""
        self.all.append(state)
        self.forms[state.name] = state
        if state.failover_form is not None:
            self.forms[state.failover_form.name] = state.failover_form


class Held:
    """The slots that the states know to be ours: this endpoint is their home, or was when it last acted."""

    def __init__(self) -> None:
        self.slots: set[int] = set()
        #: True if this endpoint acts as a home, or did until it left: it has joined, and its lease has not lapsed
        #: since.
        self.acts = False
        #: Count of departed endpoints when it last acted.
        self.departed = 0
        #: Others may have acted for these slots since this endpoint did: its state may be old.
        self.in_doubt = False


def by_home(table: Sequence[str], me: str, after: Sequence[str]) -> dict[str, list[int]]:
    """The slots that are ours in one table, by their home in another."""
    found: dict[str, list[int]] = {}
    for slot, home in enumerate(table):
        if home == me:
            found.setdefault(after[slot], []).append(slot)
    return found


def pack_slots(slots: Iterable[int]) -> bytes:
    """Pack the slots as one bit each."""
    bits = bytearray(SLOTS // 8)
    for slot in slots:
        bits[slot >> 3] |= 1 << (slot & 7)
    return bytes(bits)


def unpack_slots(packed: bytes) -> frozenset[int]:
    """The slots whose bit is set."""
    return frozenset(slot for slot in range(8 * len(packed)) if packed[slot >> 3] >> (slot & 7) & 1)
