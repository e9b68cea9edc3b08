"""Which seeds a test takes, and how much has to happen in their histories.

Owns: that the compiled form gets a third of them. Where it is tested the sources are, too, with all of these seeds: the
logic is the same, and what compiling may break shows in few histories.
"""

from __future__ import annotations

from typing import Final

from ingeborg import form

#: The compiled form takes one seed in so many,
ONE_IN: Final = 3 if form.compiled() else 1

#: and of what has to happen in all of them one in so many: a third, less what chance takes of few histories.
ENOUGH: Final = 5 if form.compiled() else 1


def seeds(first: int, count: int) -> range:
    """Of ``count`` histories."""
    return range(first, first + count, ONE_IN)


def enough(least: int) -> int:
    """How much of something has to be in those histories if there are ``least`` of it in all."""
    return least // ENOUGH
