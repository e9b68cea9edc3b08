"""Assembles the parts for bounded inconsistency.

Owns: the choice of parts and of their arguments. Must never: do anything except make these parts.
"""

from __future__ import annotations

from ..base import Base
from ..history.assembly import HistoryParts
from ..outgoing.assembly import Outgoing
from ..part import Part
from ..retained.assembly import Retained
from .bounding import Bounding
from .holding import Holding
from .steering import Steering


class BoundsParts:
    """One endpoint's parts for bounds. ``defaults``: the text of the default rules, for clients that set no bounds;
    ``""`` if there are none. ``busy_target``: the share of a CPU core that the endpoint's process should use, from 0 to
    1."""

    def __init__(
        self,
        base: Base,
        outgoing: Outgoing,
        retained: Retained,
        history: HistoryParts,
        defaults: str,
        busy_target: float,
    ) -> None:
        desk = base.desk
        self.steering = Steering(desk.now, busy_target)
        self.holding = Holding(desk, outgoing.sending, outgoing.memory, retained.watermarks, self.steering, defaults)
        bounding = Bounding(desk, outgoing.replies, history.admitting, self.holding)
        self.parts: list[Part] = [self.holding, bounding]
