"""Which seeds a test takes, and how much has to happen in their histories.

Owns: that each form of the code has its half of them. Where the compiled form is tested the sources are, too: the logic
is the same, and what compiling may break shows in few histories.
"""

from __future__ import annotations

from typing import Final

from ingeborg import form

#: The sources have the seeds at even places.
FIRST: Final = 1 if form.compiled() else 0

#: Of what has to happen in all histories so much has to in half of them, few as they may be.
ENOUGH: Final = 4


def seeds(first: int, count: int) -> range:
    """This form's, of ``count`` in all."""
    return range(first + FIRST, first + count, 2)


def enough(least: int) -> int:
    """How much of something has to be in this form's histories if there are ``least`` of it in all."""
    return least // ENOUGH
