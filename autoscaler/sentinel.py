"""Decides when to repack the group, and how many members it needs.

Owns: the queues' sizes, the planned owner of each queue, and the wanted number of members. Must never: know the current
owner of a queue, or call a scaler.

The paper's controller (arXiv 2402.06085, section V-C, and the published program) leaves the state Sentinel when a
consumer is overloaded, when a queue has no consumer, and after some time. In this module, time alone never adds a
member. The module decides in two cases:

- If a queue has no owner, or a member has more load than its capacity, the module packs the queues again. The packing
  uses at most ``fill`` of a member's capacity. A load between ``fill`` and the full capacity changes nothing. This is
  the hysteresis.
- Every ``look_s`` seconds, the module checks whether fewer members would have sufficed for the largest sizes in the
  last ``down_cooldown_s`` seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .deciding import Decision, Group, Rules, decide
from .effects import Notes
from .model import Flow, Queue
from .settings import GroupSettings
from .sizes import Sizes

#: Minimum number of seconds between two decisions. Measurements arrive every second, but each covers a longer window.
SETTLE_S: Final = 5.0


class Sentinel:
    """Plans the owner of each queue, and the number of members.

    ``present``: the capacity in bytes per second of each member that may own queues, indexed by member number.
    """

    def __init__(self, settings: GroupSettings, notes: Notes) -> None:
        self._settings = settings
        self._notes = notes
        self._settle_s = min(SETTLE_S, settings.look_s)
        self.sizes = Sizes(settings.down_cooldown_s, settings.catch_up_s)
        self.flows: dict[Queue, Flow] = {}
        self.targets: dict[Queue, int] = {}
        self.wanted = settings.members_min
        self.hot: tuple[Queue, ...] = ()
        self.is_capped = False
        self.decisions = 0
        self.moves = 0
        self._decided_s = -SETTLE_S
        self._looked_s = 0.0
        self._changed_s = 0.0
        self._grown_s: float | None = None

    def adopt(self, now_s: float, targets: dict[Queue, int], members: int) -> None:
        """Use the current owners as the plan until the first decision."""
        self.targets = targets
        self.wanted = self._bounded(members)
        self._looked_s = self._changed_s = now_s

    def measured(self, now_s: float, flows: list[Flow]) -> None:
        """Process a measurement of all existing queues."""
        self.sizes.measured(now_s, flows)
        self.flows = {flow.queue: flow for flow in flows}
        for queue in [queue for queue in self.targets if queue not in self.flows]:
            del self.targets[queue]

    def gone(self, number: int) -> None:
        """Remove the member with this number from the plan. Its queues then have no planned owner."""
        for queue in [queue for queue, each in self.targets.items() if each == number]:
            del self.targets[queue]

    def _bounded(self, members: int) -> int:
        return min(max(members, self._settings.members_min), self._settings.members_max)

    def look(
        self, now_s: float, present: Mapping[int, float], reserved: frozenset[int], *, is_moving: bool, is_short: bool
    ) -> set[int]:
        """Make a decision if there is a reason, and return the numbers of the members to end.

        ``reserved``: numbers that a new member cannot have. ``is_moving``: whether some queues are between two owners.
        If so, the method decides only if a queue has no planned owner. ``is_short``: whether ordered members have not
        started in time. If so, the present members get all queues.
        """
        settings = self._settings
        self._bind(present, reserved)
        if not self.flows or min(now_s - self._decided_s, self.sizes.known_s(now_s)) < self._settle_s:
            return set()  # a monitor's first measurements cover only a second, which is too short
        # If a planned number has no member, the plan is for a member that has yet to join.
        homeless = [
            queue
            for queue in self.flows
            if queue not in self.targets or (is_short and self.targets[queue] not in present)
        ]
        if homeless:
            reason = "some new members have not started" if is_short else f"{len(homeless):,} queues have no owner"
            return self._grow(now_s, present, reserved, is_short, reason)
        if is_moving:
            return set()
        over = self._over(present)
        if over and not (self.is_capped and now_s - self._decided_s < settings.look_s):
            return self._grow(now_s, present, reserved, is_short, f"member {over[0]} has more load than it can take")
        self.is_capped = self.is_capped and bool(over)
        if now_s - self._looked_s >= settings.look_s:
            self._looked_s = now_s
            return self._shrink(now_s, present, reserved)
        return set()

    def _bind(self, present: Mapping[int, float], reserved: frozenset[int]) -> None:
        """Assign the queues that wait for a new member to an idle present member, because the new member may have
        joined with an unplanned number."""
        used = set(self.targets.values())
        idle = [number for number in sorted(present) if number not in used]
        if not idle:
            return
        vacant = [number for number in sorted(used) if number not in present and number not in reserved]
        names = dict(zip(vacant, idle, strict=False))
        if names:
            self.targets = {queue: names.get(number, number) for queue, number in self.targets.items()}

    def loads(self) -> dict[int, tuple[float, int]]:
        """Return the planned load for each member's number: the bytes per second, and the number of queues."""
        loads: dict[int, tuple[float, int]] = {}
        for queue, number in self.targets.items():
            load, count = loads.get(number, (0.0, 0))
            loads[number] = (load + self.sizes.now.get(queue, 0.0), count + 1)
        return loads

    def _over(self, present: Mapping[int, float]) -> list[int]:
        """Return the overloaded members. A member with a single queue never counts, because no decision can relieve
        it."""
        loads = sorted(self.loads().items())
        return [n for n, (load, count) in loads if n in present and count > 1 and load > present[n]]

    def _packed(
        self,
        sizes: Mapping[Queue, float],
        present: Mapping[int, float],
        reserved: frozenset[int],
        most: int,
        price: float,
    ) -> Decision:
        settings = self._settings
        owners = {queue: number for queue, number in self.targets.items() if number not in reserved}
        rules = Rules(
            *(settings.algorithm, price, settings.capacity_bytes_per_s, settings.fill),
            *(max(settings.members_min, 1), most),
        )
        return decide(Group(sizes, owners, present, reserved), rules)

    def _grow(
        self, now_s: float, present: Mapping[int, float], reserved: frozenset[int], is_short: bool, reason: str
    ) -> set[int]:
        settings = self._settings
        may_grow = self._grown_s is None or now_s - self._grown_s >= settings.up_cooldown_s
        most = settings.members_max
        if is_short or not may_grow:
            most = min(most, max(len(present), 1))
        # The price is 0, because only `_shrink` moves queues to save a member.
        decision = self._packed(self.sizes.now, present, reserved, most, 0.0)
        needed = self._bounded(decision.members + settings.spare)
        wanted = max(self.wanted, needed) if may_grow else self.wanted
        self._capped(decision.capped and needed == settings.members_max, decision)
        return self._apply(now_s, present, decision, wanted, reason)

    def _shrink(self, now_s: float, present: Mapping[int, float], reserved: frozenset[int]) -> set[int]:
        settings = self._settings
        calm_s = min(now_s - self._changed_s, self.sizes.known_s(now_s))
        is_calm = calm_s >= settings.down_cooldown_s and len(present) > settings.members_min
        if not is_calm and len(present) <= settings.members_max:
            return set()
        decision = self._packed(self.sizes.peaks(), present, reserved, settings.members_max, settings.price)
        needed = self._bounded(decision.members + settings.spare)
        if needed >= max(len(present), self.wanted):
            return set()
        return self._apply(now_s, present, decision, needed, f"{needed} members would have been enough")

    def _apply(
        self, now_s: float, present: Mapping[int, float], decision: Decision, wanted: int, reason: str
    ) -> set[int]:
        self._decided_s = now_s
        self.decisions += 1
        former, self.targets = self.targets, dict(decision.where)
        moves = sum(queue in former and former[queue] != number for queue, number in decision.where.items())
        self.moves += moves
        if decision.hot and decision.hot != self.hot:
            names = ", ".join(str(queue) for queue in decision.hot[:5])
            self._notes.trouble("hot", f"the load of {names} is too large for one member: add partitions")
        self.hot = decision.hot
        used = set(decision.where.values())
        idle = sorted(number for number in present if number not in used)
        surplus = min(max(len(present) - wanted, 0), len(idle))
        going = set(idle[len(idle) - surplus :])
        if wanted > self.wanted:
            self._grown_s = now_s
        if wanted != self.wanted or going:
            self._changed_s = now_s
        if wanted != self.wanted or moves or going or former.keys() != self.targets.keys():
            self._notes.note(
                "decided",
                f"{reason}: {wanted} members, {moves:,} of {len(self.targets):,} queues move "
                f"({self._settings.algorithm})",
            )
        self.wanted = wanted
        return going

    def _capped(self, is_capped: bool, decision: Decision) -> None:
        if is_capped and not self.is_capped:
            self._notes.trouble(
                "capped",
                f"{decision.members} members are needed, but members_max is {self._settings.members_max}, so members "
                "are overloaded",
            )
        self.is_capped = is_capped
