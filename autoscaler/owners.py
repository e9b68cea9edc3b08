"""The owner of each queue, and the orders that move a queue to its planned owner.

Owns: the known owner of each queue, and its epoch. Must never: choose an owner.

Each queue moves independently of the others. The controller orders the owner to stop, and waits for the owner to
confirm. Only then does it order the next owner to start. So at most one consumer of a group reads a queue (arXiv
2402.06085, section V-C). A member counts as the owner as soon as the controller has sent it an order to start. A live
owner that does not release a queue in time loses the queue anyway: the next owner has a newer epoch, so the sink
refuses the old owner.
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
    """The owner of a queue. ``since_s``: the time when the current state began. ``sent_s``: the time of the last order
    to this owner."""

    name: str
    epoch: int
    state: str
    since_s: float
    sent_s: float


class Owners:
    """The owners of all queues. ``answer_s``: seconds after which an unanswered order is sent again. ``stop_s``:
    seconds that an owner may take to release a queue."""

    def __init__(self, answer_s: float, stop_s: float, notes: Notes) -> None:
        self._answer_s = answer_s
        self._stop_s = stop_s
        self._notes = notes
        self.of: dict[Queue, Owner] = {}
        #: The newest known epoch of each queue.
        self._newest: dict[Queue, int] = {}
        #: The time of the first order, for each queue that is between two owners or has no owner yet.
        self._since_s: dict[Queue, float] = {}
        self.forced = 0
        self.repeats = 0

    def holders(self) -> set[str]:
        """Return the names of the members that own queues, or may own queues."""
        return {owner.name for owner in self.of.values()}

    def moving(self, now_s: float) -> int:
        """Return the number of queues that are moving from one owner to another. Queues whose release is overdue do not
        count."""
        return sum(owner.state != OWNED and now_s - owner.since_s <= self._stop_s for owner in self.of.values())

    def paused(self, gap_s: float) -> None:
        """Postpone all deadlines by ``gap_s``, because nobody counts as late during a pause of the controller."""
        for owner in self.of.values():
            owner.since_s += gap_s
            owner.sent_s += gap_s
        for queue in self._since_s:
            self._since_s[queue] += gap_s

    # Reports from members

    def holds(self, now_s: float, name: str, held: Iterable[Held]) -> list[Queue]:
        """Process a member's complete report. Return the reported queues that the member should not own, because it has
        missed an order. The sink refuses the member's records from these queues."""
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
        """Take note that the member owns the queue. Return the seconds since the first order of this move. Return
        ``None`` if the member had no such order, and 0 if the ownership was already known."""
        owner = self.of.get(queue)
        if owner is None or (owner.name, owner.epoch) != (name, epoch):
            return None
        if owner.state == STARTING:
            owner.state, owner.since_s = OWNED, now_s
        return now_s - self._since_s.pop(queue, now_s)

    def stopped(self, name: str, queue: Queue) -> bool:
        """Take note that the member has released the queue. Return False if the member had no order to release it."""
        owner = self.of.get(queue)
        if owner is None or owner.name != name or owner.state != STOPPING:
            return False
        del self.of[queue]
        return True

    def refused(self, name: str, epoch: int, queue: Queue) -> None:
        """Take note that the sink refuses the member's epoch. The queue then has no owner, and needs a newer epoch."""
        owner = self.of.get(queue)
        if owner is not None and (owner.name, owner.epoch) == (name, epoch):
            del self.of[queue]

    def gone(self, name: str) -> int:
        """Remove the member, and return the number of queues that it owned."""
        mine = [queue for queue, owner in self.of.items() if owner.name == name]
        for queue in mine:
            del self.of[queue]
        return len(mine)

    # Orders

    def orders(
        self, now_s: float, targets: Mapping[Queue, str | None], term: int, next_epoch: Callable[[], int]
    ) -> dict[str, list[Start | Stop]]:
        """Return the orders to send, indexed by member name. ``targets``: the planned owner of each queue. If it is
        ``None``, the planned owner has yet to join, and the queue stays with its current owner. A queue that is missing
        from ``targets`` is released."""
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
        """Return whether a live owner has failed to release the queue in time."""
        if owner.state != STOPPING or now_s - owner.since_s <= self._stop_s:
            return False
        self.forced += 1
        self._notes.trouble(
            "forced",
            f"{owner.name} has not released {queue} in {self._stop_s:g} s, so the controller reassigns the queue, and "
            "the sink refuses the old owner's batches",
        )
        return True


def _slices(queues: list[Queue]) -> Iterable[tuple[Queue, ...]]:
    return (tuple(queues[first : first + QUEUES_SENT]) for first in range(0, len(queues), QUEUES_SENT))
