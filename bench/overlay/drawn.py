"""An overlay that is there already: a random symmetrical graph, as HyParView's active views come to be.

Owns: how it is drawn. Must never: open a link.

Algorithm: the configuration model (Bollobás, 1980): every node has as many ends of links as it may have neighbours, and
ends are paired by chance. Pairs that would be a loop, or a link that is there already, are drawn again.
"""

from __future__ import annotations

from math import log10
from random import Random
from typing import Final

from ingeborg.bench.errors import BenchError

TRIES_MAX: Final = 100
"""Draws until one is connected. Of five neighbours each, the first one nearly always is."""

SPARE: Final = 1
"""A node has at most so many neighbours more than the degree."""


def degree(nodes: int) -> int:
    """The size of an active view: log10 n + c, c = 1 (section 4.2.1), and at most what so few nodes can have."""
    return max(1, min(nodes - 1, round(log10(nodes)) + 1))


def overlay(nodes: int, neighbours: int, random: Random) -> list[list[int]]:
    """The neighbours of each node: connected, symmetrical, about so many each. Raises BenchError: it cannot be."""
    if not 1 <= neighbours < nodes:
        raise BenchError(f"{nodes} nodes cannot have {neighbours} neighbours each")
    for _ in range(TRIES_MAX):
        drawn = _pair(nodes, neighbours, random)
        if reached(drawn) == nodes:
            return drawn
    raise BenchError(f"no connected overlay of {nodes} nodes with {neighbours} neighbours each was drawn")


def reached(drawn: list[list[int]]) -> int:
    """How many nodes there is a way to from the first one."""
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
    # Ends that find no partner in a round go into the next; what is left at last finds any that has room.
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
