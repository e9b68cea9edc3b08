"""What became of each broadcast: who got it, when, over how many links, and whether causal order held.

Owns: the deliveries of a run, and the causal oracle. Must never: know a protocol, or look into a node.

**The oracle** knows no clocks. Messages are numbered as they are broadcast, and a set of messages is a whole number
with a bit for each, so that union and difference are one operation on some hundred bytes. The past of a message are all
messages that its root had got, or knew of by the past of those. When a node gets m2, whatever of its past the node
lacks becomes *missing* there; a missing message that comes after all is a violation, as `bench check causal` counts
them. (One that never comes is lost, and violates no order.)
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ingeborg.bench.errors import BenchError

MESSAGES_MAX: Final = 20_000
"""Of one run: two sets of 2.5 kB a node, 50 MB for 10,000 nodes."""

DOUBLE: Final = 0xFFFF
"""What ``hops`` has of a delivery of what the node had got."""

NAMED_MAX: Final = 10
"""Violations that are named; the others are counted."""


@dataclass
class Message:
    """A broadcast. ``at``: the slot in which its root sent it."""

    root: int
    number: int
    at: int
    phase: str
    past: int = 0


@dataclass(frozen=True)
class Violation:
    """A node got a message (its index) after another one that its root had sent knowing it."""

    node: int
    message: int
    slot: int


@dataclass
class Record:
    """``slots``, ``nodes``, ``indices``, ``hops``: a delivery each, in the order in which they happened; a root's own
    is its broadcast. ``doubles``: deliveries of what the node had got; ``unknown``: of what nobody has broadcast.
    ``violations``: counted; the first are ``named``. ``phase``: of the messages that are broadcast next."""

    phase: str = "run"
    messages: list[Message] = field(default_factory=list)
    slots: array[int] = field(default_factory=lambda: array("I"))
    nodes: array[int] = field(default_factory=lambda: array("I"))
    indices: array[int] = field(default_factory=lambda: array("H"))
    hops: array[int] = field(default_factory=lambda: array("H"))
    doubles: int = 0
    unknown: int = 0
    violations: int = 0
    named: list[Violation] = field(default_factory=list)
    _index: dict[tuple[int, int], int] = field(default_factory=dict)
    _bits: list[int] = field(default_factory=list)
    _got: list[int] = field(default_factory=list)
    _missing: list[int] = field(default_factory=list)

    def delivered(self, slot: int, node: int, root: int, number: int, hops: int) -> None:
        """A node gives a message to its application. Raises BenchError: too many messages."""
        while node >= len(self._got):
            self._got.append(0)
            self._missing.append(0)
        index = self._index.get((root, number))
        if index is None:
            if node != root:
                self.unknown += 1
                return
            index = self._broadcast(slot, root, number)
        got, bit = self._got[node], self._bits[index]
        if got & bit:
            self.doubles += 1
            self._append(slot, node, index, DOUBLE)
            return
        if self._missing[node] & bit:
            self._missing[node] ^= bit
            self.violations += 1
            if len(self.named) < NAMED_MAX:
                self.named.append(Violation(node, index, slot))
        past = self.messages[index].past
        lacking = (past | got) ^ got
        if lacking:
            self._missing[node] |= lacking
        self._got[node] = got | bit
        self._append(slot, node, index, min(hops, DOUBLE - 1))

    def count(self, nodes: Sequence[int], index: int) -> int:
        """How many of these nodes have got it."""
        bit, got, known = self._bits[index], self._got, len(self._got)
        return sum(1 for node in nodes if node < known and got[node] & bit)

    def number_got(self, index: int) -> int:
        """How many nodes have got it, its root counted."""
        bit = self._bits[index]
        return sum(1 for got in self._got if got & bit)

    def _append(self, slot: int, node: int, index: int, hops: int) -> None:
        self.slots.append(slot)
        self.nodes.append(node)
        self.indices.append(index)
        self.hops.append(hops)

    def _broadcast(self, slot: int, root: int, number: int) -> int:
        index = len(self.messages)
        if index >= MESSAGES_MAX:
            raise BenchError(f"a run of more than {MESSAGES_MAX:,} messages")
        past = self._got[root] | self._missing[root]
        self.messages.append(Message(root, number, slot, self.phase, past))
        self._index[root, number] = index
        self._bits.append(1 << index)
        return index
