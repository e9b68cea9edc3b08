"""Figures: the cost of a message in instructions, in total and by function.

Owns: the records, and the figures that are computed from other figures. Must never: count instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    """``each``: instructions of one message or command. ``own``: the instructions in each function, without its
    callees. ``judged``: whether the budget applies. It does not apply to a figure that is a part of other figures."""

    name: str
    each: float
    own: Mapping[str, float]
    judged: bool = True


class Pair(NamedTuple):
    """One figure of both trees. ``base`` or ``here`` is ``None`` if that tree does not have the figure."""

    name: str
    base: Figure | None
    here: Figure | None

    @property
    def ratio(self) -> float | None:
        """The working tree's figure divided by the base's, or ``None`` if a tree does not have the figure."""
        if self.base is None or self.here is None or self.base.each <= 0:
            return None
        return self.here.each / self.base.each

    @property
    def lost(self) -> bool:
        """Return whether the base has the figure, but the working tree does not."""
        return self.base is not None and self.here is None

    def over(self, budget: float) -> bool:
        """Return whether the growth of the figure exceeds the budget."""
        judged = self.here is not None and self.here.judged
        return judged and self.ratio is not None and self.ratio > 1 + budget

    def functions(self, most: int) -> list[tuple[str, float, float]]:
        """Return the functions with the greatest differences, the greatest first. Each entry has the function's name
        and its instructions in each tree."""
        base, here = self.base, self.here
        if base is None or here is None:
            return []
        rows = [(name, base.own.get(name, 0.0), here.own.get(name, 0.0)) for name in {**base.own, **here.own}]
        rows = [row for row in rows if row[1] != row[2]]
        return sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0]))[:most]


def pairs(base: Sequence[Figure | None], here: Sequence[Figure | None], names: Sequence[str]) -> list[Pair]:
    """Pair the figures of both trees. All three arguments have the same order."""
    return [Pair(name, one, other) for name, one, other in zip(names, base, here, strict=True)]


def difference(name: str, more: Figure | None, less: Figure | None, by: float = 1.0) -> Figure | None:
    """Subtract ``less`` from ``more``, and divide the result by ``by``. Returns ``None`` if one of the two figures is
    missing."""
    if more is None or less is None:
        return None
    functions = {**more.own, **less.own}
    own = {function: (more.own.get(function, 0.0) - less.own.get(function, 0.0)) / by for function in functions}
    return Figure(name, (more.each - less.each) / by, own)


def plus(figure: Figure, each: float) -> Figure:
    """Return the figure with ``each`` instructions added."""
    return figure._replace(each=figure.each + each)
