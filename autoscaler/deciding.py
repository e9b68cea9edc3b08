"""Decides which member reads which queue, and how many members are needed. This is the paper's step "Reassign".

Owns: computing a decision from the queues' sizes and owners. Must never: read a clock, or depend on earlier decisions.

``autoscaler.groups`` packs the queues into bins. This module assigns a member's number to each bin, and keeps within
the limits of the settings file: at least ``least`` members, and at most ``most``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from .groups import packing
from .groups.instance import NOWHERE, ROUNDING, Instance, by_size
from .groups.mend import mend
from .groups.packing import Algorithm, pack
from .model import Queue

ALGORITHMS: Mapping[str, Algorithm] = {
    "mwf": packing.modified_worst_fit,
    "mbf": packing.modified_best_fit,
    "mwfp": packing.modified_worst_fit_partition,
    "mbfp": packing.modified_best_fit_partition,
    "nf": packing.next_fit,
    "ff": packing.first_fit,
    "bf": packing.best_fit,
    "wf": packing.worst_fit,
    "nfd": packing.next_fit_decreasing,
    "ffd": packing.first_fit_decreasing,
    "bfd": packing.best_fit_decreasing,
    "wfd": packing.worst_fit_decreasing,
}
"""The packing algorithms by name, except ``mend``, which also takes a price."""

#: If the group has more members than the load needs, because ``least`` requires them, the load of each member may be up
#: to this many times an equal share. Exactly equal shares would require moves at every measurement.
EVEN = 1.25


class Group(NamedTuple):
    """A group's current state.

    ``sizes``: bytes per second of each queue. ``owners``: the number of the member that owns each queue. ``members``:
    the capacity in bytes per second of each present member, indexed by member number. ``reserved``: numbers that a new
    member cannot have.
    """

    sizes: Mapping[Queue, float]
    owners: Mapping[Queue, int]
    members: Mapping[int, float]
    reserved: frozenset[int]


class Rules(NamedTuple):
    """Limits of a decision.

    ``capacity``: the capacity in bytes per second of a member that has not reported its own. ``fill``: the fraction of
    a member's capacity that a decision may use. ``price``: see ``mend``. ``least``, ``most``: the smallest and the
    largest number of members.
    """

    algorithm: str
    price: float
    capacity: float
    fill: float
    least: int
    most: int


class Decision(NamedTuple):
    """The result of a decision.

    ``where``: the number of the planned owner of each queue. ``members``: the number of members that the packing needs,
    which can be below ``least`` or above ``most``. ``hot``: queues that exceed the capacity of a whole member.
    ``capped``: the group needs more than ``most`` members, so some members get more than they can take.
    """

    where: dict[Queue, int]
    members: int
    hot: tuple[Queue, ...]
    capped: bool


def decide(group: Group, rules: Rules) -> Decision:
    """Pack the group."""
    queues = sorted(group.sizes)
    sizes = [group.sizes[queue] for queue in queues]
    capacity = rules.capacity * rules.fill
    if rules.least > 1:
        capacity = min(capacity, max(EVEN * math.fsum(sizes) / rules.least, *sizes, 0.0) or capacity)
    packed = sizes
    if queues and not any(sizes):
        # The sizes are unknown, so give each member the same number of queues.
        packed = [capacity / math.ceil(len(queues) / max(rules.least, 1))] * len(queues)
    own = {
        number - 1: min(each * rules.fill, capacity) if capacity < rules.capacity * rules.fill else each * rules.fill
        for number, each in group.members.items()
        if each != rules.capacity
    }
    former = [group.owners.get(queue, 0) - 1 for queue in queues]
    former = [bin if bin >= 0 else NOWHERE for bin in former]
    instance = Instance(packed, former, capacity, own)
    bins = pack(ALGORITHMS[rules.algorithm], instance) if rules.algorithm != "mend" else _mended(instance, rules.price)
    if capacity < rules.capacity * rules.fill:
        bins = _evened(instance, bins)
    numbers = _numbered(bins, packed, group, rules)
    used = set(numbers)
    is_capped = len(used) > rules.most
    if is_capped:
        numbers = _levelled(numbers, packed, [bin + 1 for bin in former], group, rules)
    hot = tuple(
        queue
        for queue, size, number in zip(queues, sizes, numbers, strict=True)
        if size > group.members.get(number, rules.capacity) * (1.0 + ROUNDING)
    )
    return Decision(dict(zip(queues, numbers, strict=True)), len(used), hot, is_capped)


def _mended(instance: Instance, price: float) -> list[int]:
    return pack(lambda instance: mend(instance, price), instance)


def _evened(instance: Instance, bins: list[int]) -> list[int]:
    """Redistribute the items that have no former bin over the used bins, the largest item first. Each item goes into
    the bin that is the least full at that moment."""
    filled = dict.fromkeys(bins, 0.0)
    for item, bin in enumerate(bins):
        if instance.former[item] != NOWHERE:
            filled[bin] += instance.sizes[item]
    found = list(bins)
    for item in by_size(instance.sizes):
        size = instance.sizes[item]
        if instance.former[item] == NOWHERE:
            bin = min(filled, key=lambda bin: ((filled[bin] + size) / instance.capacity_of(bin), bin))
            filled[bin] += size
            found[item] = bin
    return found


def _numbered(bins: list[int], sizes: list[float], group: Group, rules: Rules) -> list[int]:
    """Return for each item the number of the member that gets it. A bin without a present member gets a present member
    that is idle. If no member is idle, the bin gets a new member."""
    used = {bin + 1 for bin in bins}
    names = {number: number for number in used if number in group.members}
    free = sorted(number for number, each in group.members.items() if number not in used and each == rules.capacity)
    new = 1
    for number in sorted(used - names.keys()):
        if free:
            names[number] = free.pop(0)
            continue
        while new in group.members or new in group.reserved:
            new += 1
        names[number] = new
        new += 1
    return [names[bin + 1] for bin in bins]


def _levelled(numbers: list[int], sizes: list[float], former: list[int], group: Group, rules: Rules) -> list[int]:
    """Reduce a decision to ``most`` members. The function keeps present members before new members. Among present
    members, and among new members, it keeps those with the most load. It reassigns the items of the other members, the
    largest item first. An item goes to the member that would be the least full with it, or back to its former owner if
    that owner would be at most ``EVEN`` times as full as that member."""
    loads: dict[int, float] = {}
    for number, size in zip(numbers, sizes, strict=True):
        loads[number] = loads.get(number, 0.0) + size
    for number in group.members:  # members that the decision would have left empty
        loads.setdefault(number, 0.0)
    kept = sorted(loads, key=lambda number: (number not in group.members, -loads[number], number))[: rules.most]
    filled = {number: loads[number] for number in kept}

    def share(number: int, more: float) -> tuple[float, int]:
        return (filled[number] + more) / group.members.get(number, rules.capacity), number

    found = list(numbers)
    loose = [item for item, number in enumerate(numbers) if number not in filled]
    for item in sorted(loose, key=lambda item: (-sizes[item], item)):
        number = min(kept, key=lambda number: share(number, sizes[item]))
        back = former[item]
        if back in filled and share(back, sizes[item])[0] <= EVEN * share(number, sizes[item])[0]:
            number = back
        filled[number] += sizes[item]
        found[item] = number
    _relieve(found, filled, sizes, group, rules)
    return found


def _relieve(numbers: list[int], filled: dict[int, float], sizes: list[float], group: Group, rules: Rules) -> None:
    """While the fullest member has more than it can take, move one of its items to the emptiest member. Choose the item
    so that after the move, the fuller of these two members is as little full as possible. The number of moves is at
    most the number of items."""

    def share(number: int, more: float = 0.0) -> float:
        return (filled[number] + more) / group.members.get(number, rules.capacity)

    for _ in numbers:
        fullest, emptiest = max(filled, key=share), min(filled, key=share)
        if share(fullest) <= 1.0 + ROUNDING:
            return
        after, best = min(
            (max(share(fullest, -sizes[item]), share(emptiest, sizes[item])), item)
            for item, number in enumerate(numbers)
            if number == fullest
        )
        if after >= share(fullest) - ROUNDING:
            return
        filled[fullest] -= sizes[best]
        filled[emptiest] += sizes[best]
        numbers[best] = emptiest
