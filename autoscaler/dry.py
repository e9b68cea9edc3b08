"""Shows the decisions that the autoscaler would make for a group of simulated members.

Owns: simulated members, which join, take queues and leave without delay. Must never: send an order.
"""

from __future__ import annotations

from .effects import Note, Notes
from .model import Speeds
from .sentinel import Sentinel
from .settings import GroupSettings


class DryRun:
    """Makes the controller's decision for each measurement, and assumes that the decision is carried out
    immediately."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._notes = Notes()
        self.sentinel = Sentinel(settings, self._notes)
        self._parts: list[Speeds] = []

    def heard(self, now_s: float, speeds: Speeds) -> list[Note]:
        """Process one part of a measurement. Return the notes that the controller would write, if any."""
        if self._parts and self._parts[0].serial != speeds.serial:
            self._parts.clear()
        if speeds.part != len(self._parts):
            return []
        self._parts.append(speeds)
        if len(self._parts) < speeds.parts:
            return []
        flows = [flow for part in self._parts for flow in part.flows]
        self._parts.clear()
        self.sentinel.measured(now_s, flows)
        capacity = self._settings.capacity_bytes_per_s
        used = set(self.sentinel.targets.values())
        idle = (number for number in range(1, 2 * self._settings.members_max + 1) if number not in used)
        while len(used) < self.sentinel.wanted:
            used.add(next(idle))
        self.sentinel.look(now_s, dict.fromkeys(sorted(used), capacity), frozenset(), is_moving=False, is_short=False)
        return [effect for effect in self._notes.take() if isinstance(effect, Note)]
