"""The assembly of bounded inconsistency.

Owns: which parts there are, and what each is given. Must never: do more than make them.
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
    """One endpoint's. ``defaults``: the text of the rules of clients that say nothing; ``""``: none. ``busy_target``:
    the part of a core that the endpoint's process should take, from 0 to 1."""

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
