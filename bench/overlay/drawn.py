"""A built overlay: a random symmetrical graph, like the graph of HyParView's active views.

Owns: the random generation of the graph. Must never: open a link.

The algorithm is the configuration model (Bollobás, 1980). Every node has one link end for each allowed neighbour, and
the ends are paired at random. Loops and repeated links are drawn again.
"""

from __future__ import annotations

from math import log10
from random import Random
from typing import Final

from ingeborg.bench.errors import BenchError

TRIES_MAX: Final = 100
"""Maximum number of attempts to draw a connected graph. With five neighbours for each node, the first attempt nearly
always succeeds."""

SPARE: Final = 1
"""Number of neighbours that a node can have beyond the degree."""


def degree(nodes: int) -> int:
    """Return the size of an active view: log10 n + c, c = 1 (section 4.2.1), limited by the number of nodes."""
    return max(1, min(nodes - 1, round(log10(nodes)) + 1))


def overlay(nodes: int, neighbours: int, random: Random) -> list[list[int]]:
    """Return the neighbours of each node in a connected, symmetrical graph. Each node has roughly this number of
    neighbours. Raises BenchError if no attempt succeeds."""
    if not 1 <= neighbours < nodes:
        raise BenchError(f"{nodes} nodes cannot have {neighbours} neighbours each")
    for _ in range(TRIES_MAX):
        drawn = _pair(nodes, neighbours, random)
        if reached(drawn) == nodes:
            return drawn
    raise BenchError(f"no connected overlay of {nodes} nodes with {neighbours} neighbours each was found")


def reached(drawn: list[list[int]]) -> int:
    """Count the nodes that can be reached from the first node."""
    seen = bytearray(len(drawn))
    seen[0] = 1
    ahead = [0]
    for node in ahead:
        for other in drawn[node]:
            if not seen[other]:
                seen[other] = 1
                ahead.append(other)
    return len(ahead)


def _pair(nodes: int, neighbours: int, random: Random) -> list[list[int]]:
    of: list[dict[int, None]] = [{} for _ in range(nodes)]
    ends = [node for node in range(nodes) for _ in range(neighbours)]
    # Ends without a partner in a round go into the next round. Ends left after all rounds go to any node with room.
    for _ in range(neighbours + 2):
        random.shuffle(ends)
        left = []
        for one, other in zip(ends[::2], ends[1::2], strict=False):
            if one == other or other in of[one]:
                left += [one, other]
            else:
                of[one][other] = of[other][one] = None
        ends = left + ends[len(ends) // 2 * 2 :]
    most = min(nodes - 1, neighbours + SPARE)
    for one in ends:
        if len(of[one]) < neighbours:
            room = [other for other in range(nodes) if other != one and other not in of[one] and len(of[other]) < most]
            if room:
                other = random.choice(room)
                of[one][other] = of[other][one] = None
    return [list(each) for each in of]
