"""Compute the figures of a run from its record: the figures of the document's section 4.1.1, and others.

Owns: every formula. Must never: run a world, or read a file.

**Owed.** A message is due to all nodes that were in the overlay when its root sent it and are up at the end. If the
root has crashed, the message is due only if at least one node that is up at the end has it. (A protocol is not to blame
if a message was lost with its root, but it is to blame if only some of the surviving nodes have the message.)
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
"""Digits after the decimal point of a figure in a row. The last digit is a nanosecond in a time in ms, and a millionth
in a share."""


@dataclass(frozen=True)
class Life:
    """A node's life: the slot of its first link, or ``None`` if it never had a link, and whether it is up at the
    end."""

    since: int | None
    up: bool


@dataclass(frozen=True)
class Traffic:
    """The traffic over all links until some moment, as messages, bytes of payloads, and all other bytes."""

    messages: int = 0
    payload_bytes: int = 0
    control_bytes: int = 0

    def since(self, before: Traffic) -> Traffic:
        """Return the traffic since ``before``."""
        return Traffic(
            self.messages - before.messages,
            self.payload_bytes - before.payload_bytes,
            self.control_bytes - before.control_bytes,
        )


def redundancy(copies: float, nodes: float) -> float:
    """Return the RMR, which is m / (n - 1) - 1 for m copies of a payload that n nodes got (section 4.1.1; Leitão et al.
    2007, Plumtree, section 4.1). It is 0 for a tree."""
    return copies / (nodes - 1) - 1 if nodes > 1 else 0.0


def percentile(counts: Counter[int], share: float) -> int:
    """Return a percentile by nearest rank, from values and their counts. Returns 0 if there are no values."""
    rank, total = ceil(share * counts.total()), 0
    for value in sorted(counts):
        total += counts[value]
        if total >= rank:
            return value
    return 0


def owed_to(message: Message, index: int, lives: Sequence[Life], record: Record) -> list[int]:
    """Return the nodes other than the root that must have a message at the end."""
    up = [
        node
        for node, life in enumerate(lives)
        if life.up and life.since is not None and life.since <= message.at and node != message.root
    ]
    if lives[message.root].up or record.count([node for node, life in enumerate(lives) if life.up], index):
        return up
    return []


def figures(record: Record, phase: str, lives: Sequence[Life], traffic: Traffic, payload_bytes: int) -> Row:
    """Return the figures of the messages of one phase, all with the same payload size. ``traffic``: their traffic over
    all links.

    Times are latencies of deliveries at nodes other than the root, in milliseconds. ``last_hop``: the longest path of a
    payload (LDH), as the mean over messages. ``redundancy``: the RMR of all messages. ``control_bytes``: bytes per node
    and message. ``reliability``, ``least``: the mean and the smallest share of due nodes that got a message.
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
    """Return the counts of all latencies (in slots), and, for each message, the latency of its last delivery and its
    longest path in links."""
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
    """Return the sizes of the overlay's connected components, the largest first."""
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
    """Return the bytes of a node's state in this interpreter. Every object that the node references, directly or
    indirectly, counts once, except ``shared`` objects, classes, functions and modules."""
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
