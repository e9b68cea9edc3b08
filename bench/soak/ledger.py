"""Collects publishes, answers and deliveries of each message, from the moment it is due until its line is written.

Owns: the messages under way, and the counts of the current step of the search. Must never: send anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .record import UNANSWERED, Attempt, Delivery, Message, Writer

#: How long a message stays in the ledger after its last answer, in microseconds. Within this time, all clients that
#: read receive the message.
HOLD_US = 15_000_000
#: A publish that has no answer after this time counts as unanswered, in microseconds. An endpoint's own time-outs can
#: add up to two times 5.5 s.
ANSWER_US = 45_000_000


class _Open:
    """A message under way. It needs answers to ``wanted`` attempts. ``answers`` has the answers that have arrived."""

    __slots__ = ("answered_us", "answers", "message", "sent", "wanted")

    def __init__(self, message: Message, wanted: int) -> None:
        self.message = message
        self.wanted = wanted
        self.sent: dict[int, tuple[int, int]] = {}  # attempt -> endpoint, time
        self.answers: dict[int, Attempt] = {}
        self.answered_us = 0


class Ledger:
    """The messages under way. ``slow`` has the clients whose latencies do not count."""

    def __init__(self, writer: Writer, slow: frozenset[int]) -> None:
        self._writer = writer
        self._slow = slow
        self._open: dict[int, _Open] = {}
        self._order: deque[int] = deque()
        self._next = 0
        self.outstanding = 0  # publishes that have no answer yet
        self.window_sent = 0
        self.window_latencies_us: list[int] = []
        self._in_window = False  # only in steps, because a window for the whole soak would hold every delivery
        self.sent = 0
        self.delivered = 0

    def due(self, topic: int, due_us: int, wanted: int) -> int:
        """Add a message that is to be published ``wanted`` times, and return its number."""
        number = self._next
        self._next += 1
        self._open[number] = _Open(Message(number, topic, due_us), wanted)
        self._order.append(number)
        return number

    def sent_at(self, number: int, attempt: int, endpoint: int, at_us: int) -> None:
        """Record that an attempt was written."""
        self._open[number].sent[attempt] = endpoint, at_us
        self.outstanding += 1
        self.sent += 1
        self.window_sent += 1

    def not_sent(self, number: int) -> None:
        """Record that a repetition was withheld."""
        self._open[number].wanted -= 1

    def answered(self, number: int, attempt: int, outcome: str, at_us: int) -> None:
        """Note the endpoint's answer, or the loss of its connection. An answer that arrives after the message's line
        was written changes nothing."""
        found = self._open.get(number)
        if found is None or attempt in found.answers or attempt not in found.sent:
            return
        endpoint, sent_us = found.sent[attempt]
        found.answers[attempt] = Attempt(endpoint, sent_us, at_us, outcome)
        found.answered_us = max(found.answered_us, at_us)
        self.outstanding -= 1

    def delivered_at(self, number: int, client: int, life: int, due_us: int, at_us: int) -> None:
        """Record that a client received the message."""
        self.delivered += 1
        found = self._open.get(number)
        if found is None:
            self._writer.late(number, Delivery(client, life, at_us))
            return
        found.message.deliveries.append(Delivery(client, life, at_us))
        if self._in_window and client not in self._slow:
            self.window_latencies_us.append(at_us - due_us)

    def begin_window(self) -> None:
        """Begin a step: count publishes and latencies until ``end_window``."""
        self._in_window = True
        self.window_sent = 0
        self.window_latencies_us = []

    def end_window(self) -> list[int]:
        """End the step, and return its latencies in µs, in ascending order."""
        latencies, self.window_latencies_us = sorted(self.window_latencies_us), []
        self._in_window = False
        return latencies

    def settle(self, now_us: int, *, all: bool = False) -> None:
        """Write the lines of all messages for which nothing more is expected. At the end of the run (``all``), write
        the lines of all messages."""
        self._writer.settled(self._settled(now_us, all))

    def _settled(self, now_us: int, all: bool) -> Iterator[Message]:
        while self._order:
            found = self._open[self._order[0]]
            waiting = len(found.answers) < found.wanted
            if waiting and (all or now_us - found.message.due_us > ANSWER_US):
                for attempt in found.sent.keys() - found.answers.keys():
                    self.answered(found.message.number, attempt, UNANSWERED, now_us)
            elif not all and (waiting or now_us - found.answered_us < HOLD_US):
                return
            found.message.attempts = [found.answers[attempt] for attempt in sorted(found.answers)]
            del self._open[self._order.popleft()]
            yield found.message
