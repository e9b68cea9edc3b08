"""One figure beside its goal."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """``figure``: what is measured; ``goal``, ``measured``: in words, with their units; ``met``: whether it was, and
    ``None`` where the goal needs what is not here, which ``measured`` says then."""

    figure: str
    goal: str
    measured: str
    met: bool | None
