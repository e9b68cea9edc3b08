"""A member's state in its group: its number, its queues, and its answers to the controller.

Owns: the queues that the controller gave to the member and that the member has not released. Must never: read a queue,
or call a sink.

The member carries out orders between two of its cycles (arXiv 2402.06085, section V-B), and answers only then. So when
it reports a queue as released, it passes no more records from that queue to the sink. If there is no controller, the
member keeps reading its queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .model import (
    QUEUES_SENT,
    Beat,
    Bye,
    Held,
    Hello,
    Message,
    Queue,
    Refused,
    Reign,
    Start,
    Started,
    Stop,
    Stopped,
    Welcome,
)

#: Maximum number of queues in one beat, and maximum length of a queue's problem in characters. With these limits, a
#: beat fits into one message even if the topics' names have 249 characters.
BEAT_QUEUES, PROBLEM_CHARS = 1_500, 300


@dataclass(slots=True)
class Holding:
    """A queue that the member owns. ``next``: the offset after the last record in the sink, or -1 if it is not known
    yet. ``is_open``: the sink has accepted this epoch. ``problem``: the reason why the member does not read the queue,
    or ``""``."""

    epoch: int
    next: int = -1
    is_open: bool = False
    bytes_per_s: float = 0.0
    problem: str = ""


class Membership:
    """One member's state. ``name``: the member's name, also in the scaler's list. ``nonce``: identifies this run of the
    program. ``capacity``: in bytes per second, or 0 for the value in the settings file. ``sink``: see ``model.Hello``.

    After each call, the caller must process ``opening`` (queues to open at the sink), ``closing`` (queues to release)
    and ``answers`` (messages for the controller).
    """

    def __init__(self, name: str, nonce: str, capacity: float = 0.0, sink: str = "") -> None:
        self.name = name
        self.nonce = nonce
        self.capacity = capacity
        self.sink = sink
        self.number = 0
        self.term = 0
        self.held: dict[Queue, Holding] = {}
        self.opening: set[Queue] = set()
        self.closing: set[Queue] = set()
        self.answers: list[Message] = []
        self.stale = 0

    # Messages in

    def welcomed(self, message: Message) -> bool:
        """Process a message from the controller's own partition. Return True if the member's number has changed."""
        match message:
            case Welcome() if message.name == self.name and message.nonce == self.nonce:
                if message.term < self.term:
                    return False
                self.term = message.term
                is_other = self.number != message.number
                self.number = message.number
                self.beat()
                return is_other
        return False

    def told(self, message: Message) -> None:
        """Process a message that the controller sent to the member's number."""
        match message:
            case Reign():
                if message.term > self.term:
                    self.term = message.term
                self.beat()
            case Welcome():
                self.welcomed(message)
            case Start() | Stop():
                if message.term < self.term:
                    self.stale += 1  # from a replaced controller
                    return
                self.term = message.term
                if message.name != self.name or message.nonce not in ("", self.nonce):
                    # The number now belongs to another member, because this member was silent for too long or shares
                    # its name with another program. This member will request a new number.
                    self.number = 0
                    return
                if isinstance(message, Start):
                    self._start(message)
                else:
                    self._stop(message)
            case _:
                self.stale += 1

    def _start(self, message: Start) -> None:
        again = []
        for queue in message.queues:
            holding = self.held.get(queue)
            if holding is None or holding.epoch < message.epoch:
                next = -1 if holding is None else holding.next
                self.held[queue] = Holding(message.epoch, next)
                self.closing.discard(queue)
                self.opening.add(queue)
            elif holding.epoch == message.epoch and holding.is_open:
                again.append(queue)
        if again:
            self.answers.append(Started(self.name, self.number, self.term, message.epoch, tuple(again)))

    def _stop(self, message: Stop) -> None:
        nothing = []
        for queue in message.queues:
            if queue in self.held:
                self.closing.add(queue)
            else:
                nothing.append(queue)
        self._stopped(nothing)

    def _stopped(self, queues: Iterable[Queue]) -> None:
        some = tuple(queues)
        for first in range(0, len(some), QUEUES_SENT):
            part = some[first : first + QUEUES_SENT]
            self.answers.append(Stopped(self.name, self.number, self.term, part))

    # Results of the work

    def opened(self, queue: Queue, epoch: int, next: int) -> None:
        """Take note that the sink has accepted the epoch, and that reading starts at the offset ``next``."""
        holding = self.held.get(queue)
        if holding is None or holding.epoch != epoch:
            return
        holding.is_open, holding.next, holding.problem = True, next, ""
        self.opening.discard(queue)
        self.answers.append(Started(self.name, self.number, self.term, epoch, (queue,)))

    def refused(self, queue: Queue, newer: int) -> None:
        """Drop the queue, because the sink knows an owner with a newer epoch."""
        holding = self.held.pop(queue, None)
        self.opening.discard(queue)
        self.closing.discard(queue)
        if holding is not None:
            self.answers.append(Refused(self.name, self.number, self.term, holding.epoch, newer, (queue,)))

    def closed(self) -> None:
        """Release the queues in ``closing``. The caller ensures that no call to the sink for these queues is still
        running."""
        for queue in self.closing:
            self.held.pop(queue, None)
            self.opening.discard(queue)
        self._stopped(sorted(self.closing))
        self.closing.clear()

    # Messages out

    def hello(self) -> Hello:
        """Return the ``Hello`` message, which the member repeats until it has a number."""
        return Hello(self.name, self.nonce, self.capacity, self.sink)

    def beat(self) -> None:
        """Report the owned queues to the controller, if the member has a number."""
        if not self.number:
            return
        held = [
            Held(queue, each.epoch, each.next, each.bytes_per_s, each.problem[:PROBLEM_CHARS])
            for queue, each in sorted(self.held.items())
        ]
        parts = max(-(-len(held) // BEAT_QUEUES), 1)
        for part in range(parts):
            some = tuple(held[part * BEAT_QUEUES : (part + 1) * BEAT_QUEUES])
            self.answers.append(
                Beat(*(self.name, self.nonce, self.number, self.term, part, parts, self.capacity, some, self.sink))
            )

    def bye(self) -> Bye:
        """Release all queues, and return the member's last message."""
        self.held.clear()
        self.opening.clear()
        self.closing.clear()
        return Bye(self.name, self.nonce, self.number)

    def take(self) -> list[Message]:
        """Return the messages for the controller since the last call. Consecutive ``Started`` messages with the same
        epoch are merged into one."""
        answers, self.answers = self.answers, []
        found: list[Message] = []
        for answer in answers:
            last = found[-1] if found else None
            if isinstance(answer, Started) and isinstance(last, Started) and last[:4] == answer[:4]:
                queues = last.queues + answer.queues
                if len(queues) <= QUEUES_SENT:
                    found[-1] = last._replace(queues=queues)
                    continue
            found.append(answer)
        return found
