"""The sentences of the document that two programs can interpret differently, and the algorithms of each interpretation.

Owns: the second interpretation of next fit and of first fit. Must never: change an algorithm of the autoscaler.

*Next fit.* By equation 14, a new bin is the item's former bin, if no other item has opened that bin. The program that
the document's authors have published opens bin 0 before it looks at the first item. So the first item goes into bin 0,
and moves unless bin 0 is its former bin. This affects NF and NFD.

*First fit.* By section II-B and in the published program, an item goes into the left-most bin that has room, and bins
have numbers from left to right. So the bin with the lowest number comes first. Then the number of bins depends on the
names of the bins. Section VI-A says that it does not. The sentence in section VI-A is true if the bin that was opened
first comes first. This affects FF and FFD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from ingeborg.autoscaler.groups.bins import FIRST
from ingeborg.autoscaler.groups.instance import NOWHERE, Instance, by_size
from ingeborg.autoscaler.groups.packing import DOCUMENT, NEXT, Algorithm, Work, any_fit


class NextFit(StrEnum):
    """Which bin the first item of next fit opens."""

    TEXT = "equation 14"
    """Its former bin."""

    BIN_0 = "bin 0 first"
    """Bin 0, as in the program that the document's authors have published."""


class FirstFit(StrEnum):
    """Which bin first fit tries first."""

    LOWEST = "lowest number first"
    """The bin with the lowest number, as in section II-B and in the published program."""

    OLDEST = "opened first"
    """The bin that was opened first, as section VI-A requires."""


def next_fit_from_bin_0(instance: Instance, decreasing: bool) -> Work:
    """Pack with next fit, but open bin 0 for the first item. After that, equation 14 applies."""
    former = list(instance.former)
    if former:
        former[by_size(instance.sizes)[0] if decreasing else 0] = 0
    return any_fit(Instance(instance.sizes, former, instance.capacity, instance.capacities), NEXT, decreasing)


def first_fit_by_age(instance: Instance, decreasing: bool) -> Work:
    """Pack with first fit, which tries the bins in the order in which they were opened. Equation 14 then only names the
    bins. All bins must have the same capacity, because their names must not matter."""
    assert not instance.capacities
    where = yield from any_fit(Instance(instance.sizes, None, instance.capacity), FIRST, decreasing)
    names: dict[int, int] = {}
    taken: set[int] = set()
    lowest = 0
    for item in by_size(instance.sizes) if decreasing else range(len(where)):
        if where[item] in names:
            continue
        name = instance.former[item]
        if name == NOWHERE or name in taken:
            while lowest in taken:
                lowest += 1
            name = lowest
        names[where[item]] = name
        taken.add(name)
    return [names[bin] for bin in where]


NF_BIN_0: Final = "NF bin 0"
NFD_BIN_0: Final = "NFD bin 0"
FF_BY_AGE: Final = "FF by age"
FFD_BY_AGE: Final = "FFD by age"

SECOND: Final[Mapping[str, Algorithm]] = {
    NF_BIN_0: lambda instance: next_fit_from_bin_0(instance, False),
    NFD_BIN_0: lambda instance: next_fit_from_bin_0(instance, True),
    FF_BY_AGE: lambda instance: first_fit_by_age(instance, False),
    FFD_BY_AGE: lambda instance: first_fit_by_age(instance, True),
}
"""The algorithms of the second interpretation, by their names in results."""

_OTHER: Final = {"NF": NF_BIN_0, "NFD": NFD_BIN_0}


def twelve(reading: NextFit) -> Sequence[str]:
    """Return the names of the document's twelve algorithms, in its order, with this interpretation of next fit."""
    return [_OTHER.get(name, name) if reading is NextFit.BIN_0 else name for name in DOCUMENT]
