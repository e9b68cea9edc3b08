"""State that belongs to slots: the data that a part of the core keeps about topics whose home is this endpoint.

Owns: the interface through which the state of such a part moves with the slot. Must never: know how state is sent
(``replicas``), or when a slot moves (``membership``).

State consists of *keys* with values. A key is, for example, the hash of a payload, or a topic that has a history. A
replica carries keys with their values at the moment of packing. So a key can be packed repeatedly, and the last value
counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ingeborg.protocol.hashes import SLOTS
from ingeborg.protocol.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SlotState:
    """The state that one part keeps for each slot. Parts subclass this class. A slice of work takes about a
    millisecond."""

    def __init__(self, name: str, keys_per_chunk: int) -> None:
        """Name the state.

        Args:
            name: The name of the state, which replicas carry. It is the same at all endpoints.
            keys_per_chunk: The number of keys in one chunk. With their values, they take about 64 KiB.
        """
        self.name = name
        self.keys_per_chunk = keys_per_chunk
        #: The form of the state that a failover replica gets: this state itself, another form, or nothing (None).
        self.failover_form: SlotState | None = None
        #: Waiters whose change has arrived at the replica, or that need not wait any longer. The state's owner removes
        #: these waiters.
        self.confirmed: list[Any] = []
        #: Whether a failover replica counts as partial if its home may have continued without this replica before
        #: crashing.
        self.is_certain = False

    def departing(self, slots: frozenset[int]) -> Iterator[list[Any]]:
        """Yield the keys of these slots, slice by slice. Keys that are added meanwhile can be omitted, because they are
        reported as changes (``Replicas.changed``).

        Args:
            slots: The slots that are replicated.

        Yields:
            Lists of keys; a list may be empty.
        """
        raise NotImplementedError

    def chunk(self, keys: Iterable[Any]) -> list[Any]:
        """Return the first of these keys, at most ``keys_per_chunk``."""
        return list(islice(keys, self.keys_per_chunk))

    def pack(self, keys: Sequence[Any]) -> bytes:
        """Pack the current values of these keys. If a key has no value, pack a mark that says this.

        Args:
            keys: At most ``keys_per_chunk`` keys.

        Returns:
            The chunk, for ``absorb`` at another endpoint.
        """
        raise NotImplementedError

    def absorb(self, data: bytes) -> int:
        """Store a chunk from another endpoint. This endpoint is not the home of the chunk's slots yet, or has just
        become their home.

        Args:
            data: A chunk from another endpoint's ``pack``.

        Returns:
            The number of keys in it.

        Raises:
            ValueError: The data is not such a chunk. In this case the state is unchanged.
        """
        raise NotImplementedError

    def arrived(self, slots: Sequence[int], whole: bool) -> None:
        """Begin as the home of these slots.

        Args:
            slots: The slots, ascending.
            whole: Whether all state of the former home has been absorbed. Otherwise some or all of the state may be
                missing.
        """

    def begun(self, slots: Sequence[int]) -> None:
        """Begin as the home of slots for which no other endpoint can have any state, because all earlier endpoints have
        ended or none existed.

        Args:
            slots: The slots, ascending.
        """
        self.arrived(slots, True)

    def gone(self, slots: Sequence[int]) -> None:
        """Drop the state of these slots, because another endpoint is their home from here on and has received the
        state.

        Args:
            slots: The slots, ascending.
        """

    def dropped(self, slots: Sequence[int]) -> None:
        """Drop the absorbed state of these slots, because this endpoint will not become their home, or another endpoint
        will be their home first.

        Args:
            slots: The slots, ascending.
        """


class SlotStates:
    """The slot states of one endpoint. Each folder of the core adds its own states."""

    def __init__(self, states: Iterable[SlotState] = ()) -> None:
        self.all: list[SlotState] = []
        self.forms: dict[str, SlotState] = {}  # indexed by name, with the failover forms
        for state in states:
            self.add(state)

    def add(self, state: SlotState) -> None:
        """Add a state, with its failover form already set."""
        self.all.append(state)
        self.forms[state.name] = state
        if state.failover_form is not None:
            self.forms[state.failover_form.name] = state.failover_form


class Held:
    """The slots whose state this endpoint treats as its own, because it is their home, or was their home when it last
    acted."""

    def __init__(self) -> None:
        self.slots: set[int] = set()
        #: True if this endpoint acts as a home, or did until it left: it has joined, and its lease has not lapsed since
        #: then.
        self.acts = False
        #: ``Membership.departed`` when this endpoint last acted.
        self.departed = 0
        #: Whether others may have acted for these slots after this endpoint did, so that this endpoint's state may be
        #: outdated.
        self.in_doubt = False


def by_home(table: Sequence[str], me: str, after: Sequence[str]) -> dict[str, list[int]]:
    """Return the slots that are ours in ``table``, grouped by their home in the table ``after``."""
    found: dict[str, list[int]] = {}
    for slot, home in enumerate(table):
        if home == me:
            found.setdefault(after[slot], []).append(slot)
    return found


def pack_slots(slots: Iterable[int]) -> bytes:
    """Pack the slots, with one bit for each slot."""
    bits = bytearray(SLOTS // 8)
    for slot in slots:
        bits[slot >> 3] |= 1 << (slot & 7)
    return bytes(bits)


def unpack_slots(packed: bytes) -> frozenset[int]:
    """Return the slots whose bit is set."""
    return frozenset(slot for slot in range(8 * len(packed)) if packed[slot >> 3] >> (slot & 7) & 1)
