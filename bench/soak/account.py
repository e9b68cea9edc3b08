"""What became of every message: delivered, dropped as a duplicate, lost for a reason the SPEC names, or unaccounted.

Owns: the judgement. Must never: touch a file, a clock or a socket.

A message is due to each client that subscribed to its topic, once. Where it did not come, or came twice, one of these
has to be so (SPEC sections 7 and 8), else it is *unaccounted*:

- the publish was not answered, because the endpoint that accepted it was killed (8.3); or answered with an error (8.7);
- the client did not listen when it was published (8.4): between two connections;
- its connection ended before it can have read what was in its outbox: its endpoint was killed, or it moved;
- it was slow: what it had not read was dropped with its connection (8.8);
- it came twice because its client moved in the seconds of a crash (8.3), or because it was published twice and the home
  that knew the first was killed (7).

Losses of the publisher and of a client's connection are checked as well: one that ended without its endpoint being
killed, or the client being slow, is unaccounted too.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .record import DUPLICATE, LOST, NEW, UNANSWERED, Attempt, Delivery, Kill, Life, Message

#: From the answer to a publish until a client that reads has it, in microseconds; a generous bound on a busy machine.
UNREAD_US = 5_000_000
#: How far a slow client's own messages may be out of the order of their due times: a publish waits that long for a home
#: that has died.
DISORDER_US = 10_000_000
#: A crash is between two publishes, or between a publish and its answer, within this: for what was answered just
#: before.
CRASH_US = 2_000_000
#: "In the seconds of a crash" a client moves: the others notice within 4 s, and requests time out after 5.5 s.
MOVES_US = 10_000_000
#: A connection of a killed endpoint is seen to end within this.
SEEN_US = 5_000_000

EXAMPLES_MAX = 20


@dataclass
class Account:
    """``publishes`` by outcome; ``due``: pairs of message and client; each is counted once in ``once``, ``twice``,
    ``lost`` or ``unaccounted``. ``examples``: of what is unaccounted, in words."""

    messages: int = 0
    publishes: Counter[str] = field(default_factory=Counter)
    due: int = 0
    once: int = 0
    deliveries: int = 0
    repeated_dropped: int = 0
    twice: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    unaccounted: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def fault(self, what: str, example: str) -> None:
        """Something that nothing permits."""
        self.unaccounted[what] += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{what}: {example}")


class Accountant:
    """``subscribers``: of each topic; ``lives``: of each client, in their order; ``slow``: clients that are."""

    def __init__(
        self,
        subscribers: Sequence[Sequence[int]],
        lives: Mapping[int, Sequence[Life]],
        kills: Sequence[Kill],
        slow: Iterable[int],
    ) -> None:
        self._subscribers = subscribers
        self._lives = lives
        self._kills = sorted(kills, key=lambda kill: kill.killed_us)
        self._slow = frozenset(slow)
        listening = {client: [life for life in of if life.listening_us >= 0] for client, of in lives.items()}
        self._listening = listening
        self._since = {client: [life.listening_us for life in of] for client, of in listening.items()}

    def account(
        self, messages: Iterable[Message], late: Mapping[int, Sequence[Delivery]], publisher_lives: Iterable[Life]
    ) -> Account:
        """All of it."""
        made = Account()
        for message in messages:
            self._message(message, late.get(message.number, ()), made)
        for of in self._lives.values():
            for life in of:
                self._end(life, life.client in self._slow, f"of client {life.client}", made)
        for life in publisher_lives:
            self._end(life, False, f"of publisher {life.client}", made)
        return made

    def _message(self, message: Message, late: Sequence[Delivery], made: Account) -> None:
        made.messages += 1
        attempts = message.attempts
        for attempt in attempts:
            made.publishes[attempt.outcome] += 1
            if attempt.outcome == UNANSWERED:
                made.fault("publish without an answer", f"message {message.number}, sent {attempt.sent_us} us")
        accepted = [attempt for attempt in attempts if attempt.outcome == NEW]
        unsure = [attempt for attempt in attempts if attempt.outcome not in (NEW, DUPLICATE)]
        self._attempts(message, accepted, unsure, made)
        came: Counter[int] = Counter()
        for delivery in (*message.deliveries, *late):
            came[delivery.client] += 1
        made.deliveries += came.total()
        subscribers = self._subscribers[message.topic]
        made.due += len(subscribers)
        for client in subscribers:
            times = came.pop(client, 0)
            if times == 1:
                made.once += 1
            elif times:
                self._twice(message, client, times, made)
            else:
                self._missing(message, client, accepted, unsure, made)
        for client in came:
            made.fault("delivered to who did not subscribe", f"message {message.number} to client {client}")

    def _attempts(self, message: Message, accepted: list[Attempt], unsure: list[Attempt], made: Account) -> None:
        """Is what the answers say of duplicates possible?"""
        repeated = sum(attempt.outcome == DUPLICATE for attempt in message.attempts)
        if repeated and not accepted and not unsure:
            made.fault("duplicate of nothing", f"message {message.number}")
            return
        made.repeated_dropped += repeated
        if len(accepted) > 1 and not self._crash(accepted[0].sent_us, accepted[-1].answered_us):
            made.fault("repetition not dropped", f"message {message.number}, sent {accepted[-1].sent_us} us")

    def _twice(self, message: Message, client: int, times: int, made: Account) -> None:
        first, last = message.attempts[0], message.attempts[-1]
        crash = self._crash(first.sent_us, last.answered_us)
        # Which of two publishes is answered as the duplicate says nothing: the first may have been handed over by the
        # home that died, and come to the next one after its repetition.
        if crash and 1 < times <= len(message.attempts):
            made.twice["published twice, and its home was killed in between"] += 1
        elif crash and self._moved(client, first.sent_us, last.answered_us):
            made.twice["its client moved in the seconds of a crash"] += 1
        else:
            made.fault("delivered twice", f"message {message.number}, {times} times to client {client}")

    def _missing(
        self, message: Message, client: int, accepted: list[Attempt], unsure: list[Attempt], made: Account
    ) -> None:
        """One excuse of each publish that was accepted; of none, that none was."""
        if not accepted:
            outcome = unsure[0].outcome if unsure else "no publish"
            if outcome == "no publish":
                made.fault("lost", f"message {message.number} to client {client}: duplicate of nothing")
            elif outcome == LOST:
                made.lost["the endpoint that accepted it was killed before it answered"] += 1
            else:
                made.lost[f"its publisher was told: {outcome}"] += 1
            return
        why = ""
        for attempt in accepted:
            why = self._excuse(message, client, attempt)
            if not why:
                made.fault("lost", f"message {message.number}, topic {message.topic}, to client {client}: {attempt}")
                return
        made.lost[why] += 1

    def _excuse(self, message: Message, client: int, attempt: Attempt) -> str:
        at = bisect.bisect_right(self._since.get(client, ()), attempt.sent_us) - 1
        if at < 0:
            return "its client was away"
        life = self._listening[client][at]
        if 0 <= life.end_us <= attempt.sent_us:
            return "its client was away"
        if client in self._slow:
            behind = message.due_us >= life.newest_us - DISORDER_US
            return "its client was slow" if behind else ""
        if life.how != "end" and life.end_us >= 0 and attempt.answered_us >= life.end_us - UNREAD_US:
            if life.how == "moved":
                return "its client was moving"
            return "its client's endpoint was killed, with what was in its outbox"
        return ""

    def _crash(self, first_us: int, last_us: int) -> bool:
        """Was an endpoint killed then?"""
        return any(first_us - CRASH_US <= kill.killed_us <= last_us + CRASH_US for kill in self._kills)

    def _moved(self, client: int, first_us: int, last_us: int) -> bool:
        return any(first_us - MOVES_US <= life.end_us <= last_us + MOVES_US for life in self._lives[client])

    def _end(self, life: Life, slow: bool, whose: str, made: Account) -> None:
        """Of a connection: was there a reason?"""
        killed = any(
            kill.endpoint == life.endpoint and -SEEN_US <= life.end_us - kill.killed_us <= SEEN_US
            for kill in self._kills
        )
        if life.how in ("moved", "end"):
            made.ends[life.how] += 1
        elif killed:
            made.ends["killed"] += 1
        elif slow and life.how in ("lost", "4002"):
            made.ends["slow"] += 1
        else:
            text = f"{whose}, number {life.number} at endpoint {life.endpoint}: {life.how} at {life.end_us} us"
            made.fault("connection that ended by itself", text)
