"""Record each broadcast: the nodes that got it, the time and the number of links for each node, and violations of
causal order.

Owns: the deliveries of a run, and the causal oracle. Must never: depend on a protocol, or read a node's state.

**The oracle** uses no clocks. It numbers messages in the order of their broadcasts, and represents a set of messages as
an integer with a bit for each message. So a union or difference is one operation on a few hundred bytes. The past of a
message consists of all messages that its root had got, and of their pasts. When a node gets a message, each message in
its past that the node lacks becomes *missing* at that node. If a missing message arrives later, that is a violation, as
in `bench check causal`. (A message that never arrives is lost, and violates no order.)
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ingeborg.bench.errors import BenchError

MESSAGES_MAX: Final = 20_000
"""Maximum number of messages in a run. Each node then has two sets of 2.5 kB, which is 50 MB for 10,000 nodes."""

DOUBLE: Final = 0xFFFF
"""The value in ``hops`` for a repeated delivery."""

NAMED_MAX: Final = 10
"""Maximum number of violations that are stored with details. Further violations are only counted."""


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
    """A node received a message after a later message whose root already had it. ``message``: the index of the earlier
    message."""

    node: int
    message: int
    slot: int


@dataclass
class Record:
    """``slots``, ``nodes``, ``indices``, ``hops``: one entry for each delivery, in order. A root's own delivery is its
    broadcast. ``doubles``: number of repeated deliveries. ``unknown``: number of deliveries of messages that no root
    has broadcast. ``violations``: number of violations. ``named`` has the first few violations. ``phase``: the phase of
    the next broadcasts."""

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
        """Record that a node delivers a message to its application. Raises BenchError if there are too many
        messages."""
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
        """Count how many of these nodes have received the message."""
        bit, got, known = self._bits[index], self._got, len(self._got)
        return sum(1 for node in nodes if node < known and got[node] & bit)

    def number_got(self, index: int) -> int:
        """Count all nodes that have received the message, including its root."""
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
            raise BenchError(f"the run has more than {MESSAGES_MAX:,} messages")
        past = self._got[root] | self._missing[root]
        self.messages.append(Message(root, number, slot, self.phase, past))
        self._index[root, number] = index
        self._bits.append(1 << index)
        return index
