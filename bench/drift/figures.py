"""Figures: the cost of a message in instructions, in all and by function.

Owns: the records, and the figures derived from others. Must never: count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    """``each``: instructions of one message or command. ``own``: each function's own part, without its callees.
    ``judged``: the budget applies to it. It does not apply to a figure that is a part of others."""

    name: str
    each: float
    own: Mapping[str, float]
    judged: bool = True


class Pair(NamedTuple):
    """One figure of both trees. ``None``: it is not there."""

    name: str
    base: Figure | None
    here: Figure | None

    @property
    def ratio(self) -> float | None:
        """The working tree's figure divided by the base's; ``None``: a tree does not have it."""
        if self.base is None or self.here is None or self.base.each <= 0:
            return None
        return self.here.each / self.base.each

    @property
    def lost(self) -> bool:
        """Return whether the base has it, but the working tree does not."""
        return self.base is not None and self.here is None

    def over(self, budget: float) -> bool:
        """Return whether it exceeds the budget."""
        judged = self.here is not None and self.here.judged
        return judged and self.ratio is not None and self.ratio > 1 + budget

    def functions(self, most: int) -> list[tuple[str, float, float]]:
        """The functions with the greatest difference, in order: name, and instructions in each tree."""
        base, here = self.base, self.here
        if base is None or here is None:
            return []
        rows = [(name, base.own.get(name, 0.0), here.own.get(name, 0.0)) for name in {**base.own, **here.own}]
        rows = [row for row in rows if row[1] != row[2]]
        return sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0]))[:most]


def pairs(base: Sequence[Figure | None], here: Sequence[Figure | None], names: Sequence[str]) -> list[Pair]:
    """Pair the figures of both trees; all three arguments have the same order."""
    return [Pair(name, one, other) for name, one, other in zip(names, base, here, strict=True)]


def difference(name: str, more: Figure | None, less: Figure | None, by: float = 1.0) -> Figure | None:
    """Subtract ``less`` from ``more``, and divide by ``by``; ``None`` if one of the two is missing."""
    if more is None or less is None:
        return None
    functions = {**more.own, **less.own}
    own = {function: (more.own.get(function, 0.0) - less.own.get(function, 0.0)) / by for function in functions}
    return Figure(name, (more.each - less.each) / by, own)


def plus(figure: Figure, each: float) -> Figure:
    """Return the figure with more instructions."""
    return figure._replace(each=figure.each + each)
