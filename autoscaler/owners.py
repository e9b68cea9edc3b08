"""Who owns which queue, and the orders that take it to who is to own it.

Owns: the owner of each queue, as far as it is known, and its epoch. Must never: choose an owner.

For each queue by itself: its owner is told to stop, says that it has, and only then the next one is told to start
(arXiv 2402.06085, section V-C: no more than one consumer of a group reads a queue). Once a start has been sent, its
receiver counts as owner. An owner that lives and does not let go in time loses the queue all the same: the next epoch
is newer, and the sink refuses the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .effects import Notes
from .model import QUEUES_SENT, Held, Queue, Start, Stop

STARTING: Final = "starting"
OWNED: Final = "owned"
STOPPING: Final = "stopping"


@dataclass(slots=True)
class Owner:
    """``since_s``: of the state; ``sent_s``: when it was told last."""

    name: str
    epoch: int
    state: str
    since_s: float
    sent_s: float


class Owners:
    """``answer_s``: after so long an order is sent again; ``stop_s``: after so long nobody waits for it."""

    def __init__(self, answer_s: float, stop_s: float, notes: Notes) -> None:
        self._answer_s = answer_s
        self._stop_s = stop_s
        self._notes = notes
        self.of: dict[Queue, Owner] = {}
        #: The newest epoch of each queue that is known here.
        self._newest: dict[Queue, int] = {}
        #: Of queues that are between two owners, or without any: when the first order for that was given.
        self._since_s: dict[Queue, float] = {}
        self.forced = 0
        self.repeats = 0

    def holders(self) -> set[str]:
        """Members that own something, or may."""
        return {owner.name for owner in self.of.values()}

    def moving(self, now_s: float) -> int:
        """Queues between two owners, but for those that nobody waits for any more."""
        return sum(owner.state != OWNED and now_s - owner.since_s <= self._stop_s for owner in self.of.values())

    def paused(self, gap_s: float) -> None:
        """The controller has not looked for so long: nobody has been late in that time."""
        for owner in self.of.values():
            owner.since_s += gap_s
            owner.sent_s += gap_s
        for queue in self._since_s:
            self._since_s[queue] += gap_s

    # What members say

    def holds(self, now_s: float, name: str, held: Iterable[Held]) -> list[Queue]:
        """All that the member owns, by its own word. What it should not own is returned: it has missed something, and
        the sink refuses what it has of that."""
        listed = {each.queue: each.epoch for each in held}
        wrong = []
        for queue, epoch in listed.items():
            owner = self.of.get(queue)
            if epoch < self._newest.get(queue, 0):
                if owner is None or owner.name != name:
                    wrong.append(queue)
                continue
            self._newest[queue] = epoch
            if owner is None or (owner.name != name and epoch > owner.epoch):
                self.of[queue] = Owner(name, epoch, OWNED, now_s, now_s)
                self._since_s.pop(queue, None)
            elif owner.name != name:
                wrong.append(queue)
            elif owner.state == OWNED:
                owner.epoch = epoch
            elif owner.state == STARTING and owner.epoch == epoch:
                owner.state, owner.since_s = OWNED, now_s
                self._since_s.pop(queue, None)
        for queue, owner in list(self.of.items()):
            if owner.name == name and owner.state != STARTING and queue not in listed:
                del self.of[queue]
        return wrong

    def started(self, now_s: float, name: str, epoch: int, queue: Queue) -> float | None:
        """The member has it now, so many seconds after the first order that led to it. ``None``: it was not told so;
        0: it has been known."""
        owner = self.of.get(queue)
        if owner is None or (owner.name, owner.epoch) != (name, epoch):
            return None
        if owner.state == STARTING:
            owner.state, owner.since_s = OWNED, now_s
        return now_s - self._since_s.pop(queue, now_s)

    def stopped(self, name: str, queue: Queue) -> bool:
        """The member does not have it any more. False: it was not told so."""
        owner = self.of.get(queue)
        if owner is None or owner.name != name or owner.state != STOPPING:
            return False
        del self.of[queue]
        return True

    def refused(self, name: str, epoch: int, queue: Queue) -> None:
        """The sink does not take it from the member: it needs an epoch that is newer."""
        owner = self.of.get(queue)
        if owner is not None and (owner.name, owner.epoch) == (name, epoch):
            del self.of[queue]

    def gone(self, name: str) -> int:
        """The member is no more; it owned so many."""
        mine = [queue for queue, owner in self.of.items() if owner.name == name]
        for queue in mine:
            del self.of[queue]
        return len(mine)

    # Orders

    def orders(
        self, now_s: float, targets: Mapping[Queue, str | None], term: int, next_epoch: Callable[[], int]
    ) -> dict[str, list[Start | Stop]]:
        """What to tell whom, by name. ``targets``: who is to own each queue; ``None``: one that is still to come, until
        then all stays as it is. A queue that is not there is to be owned by nobody."""
        stops: dict[str, list[Queue]] = {}
        starts: dict[tuple[str, int], list[Queue]] = {}
        epoch = 0
        for queue in sorted(targets.keys() | self.of.keys()):
            target = targets.get(queue, "")
            owner = self.of.get(queue)
            if owner is None and not target:
                self._since_s.pop(queue, None)
            if owner is not None and target != owner.name and self._is_over(now_s, owner, queue):
                stops.setdefault(owner.name, []).append(queue)
                owner = None
                del self.of[queue]
            if owner is None:
                if target:
                    epoch = epoch or next_epoch()
                    self.of[queue] = Owner(target, epoch, STARTING, now_s, now_s)
                    self._newest[queue] = epoch
                    self._since_s.setdefault(queue, now_s)
                    starts.setdefault((target, epoch), []).append(queue)
            elif owner.state == OWNED:
                if target is not None and target != owner.name:
                    owner.state, owner.since_s, owner.sent_s = STOPPING, now_s, now_s
                    self._since_s[queue] = now_s
                    stops.setdefault(owner.name, []).append(queue)
            elif owner.state == STARTING and target is not None and target != owner.name:
                owner.state, owner.since_s, owner.sent_s = STOPPING, now_s, now_s
                stops.setdefault(owner.name, []).append(queue)
            elif now_s - owner.sent_s >= self._answer_s:
                owner.sent_s = now_s
                self.repeats += 1
                if owner.state == STOPPING:
                    stops.setdefault(owner.name, []).append(queue)
                else:
                    starts.setdefault((owner.name, owner.epoch), []).append(queue)
        found: dict[str, list[Start | Stop]] = {}
        for name, queues in stops.items():
            found.setdefault(name, []).extend(Stop(name, term, some) for some in _slices(queues))
        for (name, at), queues in starts.items():
            found.setdefault(name, []).extend(Start(name, term, at, some) for some in _slices(queues))
        return found

    def _is_over(self, now_s: float, owner: Owner, queue: Queue) -> bool:
        """It lives, and has not let go in time."""
        if owner.state != STOPPING or now_s - owner.since_s <= self._stop_s:
            return False
        self.forced += 1
        self._notes.trouble(
            "forced",
            f"{owner.name} has not let go of {queue} in {self._stop_s:g} s: it is taken away, and the sink refuses "
            "what comes of it",
        )
        return True


def _slices(queues: list[Queue]) -> Iterable[tuple[Queue, ...]]:
    return (tuple(queues[first : first + QUEUES_SENT]) for first in range(0, len(queues), QUEUES_SENT))
