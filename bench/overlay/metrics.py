"""The figures of a run, from what was recorded of it: section 4.1.1 of the document, and what it left out.

Owns: every formula. Must never: run a world, or read a file. Pure.

**Owed.** A message is owed to whoever was in the overlay when its root sent it, and is up at the end; but for a message
whose root has crashed: that one only if any node that is up at the end has got it. (Nobody can be blamed for a message
that died with its root; but for one that some survivors have and others not.)
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from ingeborg.bench.overlay.record import DOUBLE, Message, Record
from ingeborg.bench.overlay.wheel import SLOT_S

Row = dict[str, Any]

DIGITS = 6
"""Of a figure in a row: a tenth of a microsecond, a millionth of a share."""


@dataclass(frozen=True)
class Life:
    """A node's: the slot of its first link (``None``: it never had one), and whether it is up at the end."""

    since: int | None
    up: bool


@dataclass(frozen=True)
class Traffic:
    """What had gone over all links at some moment: messages, bytes of payloads, and all other bytes."""

    messages: int = 0
    payload_bytes: int = 0
    control_bytes: int = 0

    def since(self, before: Traffic) -> Traffic:
        """What came since."""
        return Traffic(
            self.messages - before.messages,
            self.payload_bytes - before.payload_bytes,
            self.control_bytes - before.control_bytes,
        )


def redundancy(copies: float, nodes: float) -> float:
    """RMR: m / (n - 1) - 1, of m copies of a payload that n nodes got (section 4.1.1; Leitão et al. 2007, Plumtree,
    section 4.1). 0: a tree."""
    return copies / (nodes - 1) - 1 if nodes > 1 else 0.0


def percentile(counts: Counter[int], share: float) -> int:
    """By nearest rank, of values and how often each is; 0 of none."""
    rank, total = ceil(share * counts.total()), 0
    for value in sorted(counts):
        total += counts[value]
        if total >= rank:
            return value
    return 0


def owed_to(message: Message, index: int, lives: Sequence[Life], record: Record) -> list[int]:
    """The nodes that have to have it at the end, but its root."""
    up = [
        node
        for node, life in enumerate(lives)
        if life.up and life.since is not None and life.since <= message.at and node != message.root
    ]
    if lives[message.root].up or record.count([node for node, life in enumerate(lives) if life.up], index):
        return up
    return []


def figures(record: Record, phase: str, lives: Sequence[Life], traffic: Traffic, payload_bytes: int) -> Row:
    """Of the messages of one phase, of so many bytes each. ``traffic``: what went over all links for them.

    Times in milliseconds, of deliveries at other nodes than the root; ``last_hop``: the longest way of a payload (LDH),
    a mean over messages; ``redundancy``: over all messages; ``control_bytes``: a node and message; ``reliability``,
    ``least``: over messages, the mean and the worst.
    """
    chosen = [index for index, message in enumerate(record.messages) if message.phase == phase]
    latencies, latest, last_hops = _ways(record, set(chosen))
    shares, got = [], 0
    for index in chosen:
        owed = owed_to(record.messages[index], index, lives, record)
        got += record.number_got(index)
        if owed:
            shares.append(record.count(owed, index) / len(owed))
    count = latencies.total()
    number = len(chosen)
    mean_slots = sum(value * often for value, often in latencies.items()) / count if count else 0.0
    mean_got = got / number if number else 0.0
    row = {
        "messages": number,
        "deliveries": count,
        "reliability": sum(shares) / len(shares) if shares else 1.0,
        "least": min(shares, default=1.0),
        "mean_ms": mean_slots * SLOT_S * 1e3,
        "p50_ms": percentile(latencies, 0.5) * SLOT_S * 1e3,
        "p99_ms": percentile(latencies, 0.99) * SLOT_S * 1e3,
        "max_ms": max(latencies, default=0) * SLOT_S * 1e3,
        "last_ms": sum(latest.values()) / number * SLOT_S * 1e3 if number else 0.0,
        "last_hop": sum(last_hops.values()) / number if number else 0.0,
        "redundancy": redundancy(traffic.payload_bytes / payload_bytes / number, mean_got) if number else 0.0,
        "control_bytes": traffic.control_bytes / number / mean_got if number else 0.0,
        "sends": traffic.messages / number / mean_got if number else 0.0,
    }
    return {name: round(value, DIGITS) for name, value in row.items()}


def _ways(record: Record, chosen: set[int]) -> tuple[Counter[int], dict[int, int], dict[int, int]]:
    """How often each latency (in slots) was; by message, the last delivery's latency and the longest way in links."""
    sent = {index: record.messages[index].at for index in chosen}
    roots = {index: record.messages[index].root for index in chosen}
    values: list[int] = []
    latest, last_hops = dict.fromkeys(sorted(chosen), 0), dict.fromkeys(sorted(chosen), 0)
    for slot, node, index, hops in zip(record.slots, record.nodes, record.indices, record.hops, strict=True):
        if index in sent and node != roots[index] and hops != DOUBLE:
            value = slot - sent[index]
            values.append(value)
            if value > latest[index]:
                latest[index] = value
            if hops > last_hops[index]:
                last_hops[index] = hops
    return Counter(values), latest, last_hops


def islands(neighbours: Callable[[int], Iterable[int]], nodes: Sequence[int]) -> list[int]:
    """How many of these nodes are in each part that no link leads out of: greatest first."""
    left = dict.fromkeys(nodes)
    sizes = []
    while left:
        ahead = [left.popitem()[0]]
        for node in ahead:
            for other in neighbours(node):
                if other in left:
                    del left[other]
                    ahead.append(other)
        sizes.append(len(ahead))
    return sorted(sizes, reverse=True)


def memory_bytes(node: object, shared: Iterable[object]) -> int:
    """What a node's state takes in this interpreter: everything that is reached from it, each object once, but what is
    ``shared``, classes and functions."""
    seen = {id(each) for each in shared}
    ahead: list[object] = [node]
    total = 0
    while ahead:
        each = ahead.pop()
        if id(each) in seen or isinstance(each, (type, _FUNCTION, _MODULE)):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        ahead.extend(gc.get_referents(each))
    return total


_FUNCTION = type(lambda: None)
_MODULE = type(sys)
