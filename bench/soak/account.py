"""The fate of every message: delivered, dropped as a duplicate, lost for a reason that the SPEC names, or unaccounted.

Owns: the account, its words, and the translation of a soak's record into facts for the oracle. Must never: judge
(``ingeborg.bench.oracle`` does), or touch a file, a clock or a socket.

A message is due once to each client that subscribed to its topic. If it did not arrive, or arrived twice, one of these
must hold (SPEC sections 7 and 8), else it is *unaccounted*:

- the publish was not answered, because the endpoint that accepted it was killed (8.3); or answered with an error (8.7);
- the client did not listen when it was published (8.4): between two connections;
- its connection ended before it can have read what was in its outbox: its endpoint was killed, or it moved;
- it was slow: what it had not read was dropped with its connection (8.8);
- it came twice because its client moved in the seconds of a crash (8.3), or because it was published twice and the home
  that knew the first was killed (7).

The account also covers losses of the publisher and of clients' connections: a connection that ended although its
endpoint was not killed and its client was not slow is unaccounted as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ingeborg.bench.oracle import facts as told
from ingeborg.bench.oracle import rules
from ingeborg.bench.oracle.facts import (
    FOREVER,
    By,
    Change,
    Copy,
    Disturbance,
    Facts,
    Kind,
    Line,
    Name,
    Outcome,
    Place,
    Send,
)
from ingeborg.bench.oracle.judge import Judge, Missed
from ingeborg.bench.oracle.verdict import Again, Broken, Cause, Violation

from .record import DUPLICATE, LOST, NEW, UNANSWERED, Attempt, Delivery, Kill, Life, Message

#: From the answer to a publish until a reading client has it, in microseconds; a generous bound on a busy machine.
UNREAD_US = 5_000_000
#: How far a slow client's own messages may be out of the order of their due times: a publish waits that long for a home
#: that has died.
DISORDER_US = 10_000_000
#: A crash lies between two publishes, or between a publish and its answer, within this time: for publishes that were
#: answered just before.
CRASH_US = 2_000_000
#: "In the seconds of a crash" a client moves: the others notice within 4 s, and requests time out after 5.5 s.
MOVES_US = 10_000_000
#: A connection of a killed endpoint is known to have ended within this.
SEEN_US = 5_000_000

EXAMPLES_MAX = 20


@dataclass
class Account:
    """``publishes`` by outcome; ``due``: pairs of message and client; each counts in exactly one of ``once``,
    ``twice``, ``lost`` and ``unaccounted``. ``examples``: unaccounted cases, in words."""

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
        """Note an event that nothing permits."""
        self.unaccounted[what] += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{what}: {example}")


class Accountant:
    """``subscribers``: by topic; ``lives``: by client, in their order; ``slow``: the slow clients."""

    def __init__(
        self,
        subscribers: Sequence[Sequence[int]],
        lives: Mapping[int, Sequence[Life]],
        kills: Sequence[Kill],
        slow: Iterable[int],
    ) -> None:
        self._lives = lives
        self._slow = frozenset(slow)
        # Make each name once: for tens of millions of deliveries that takes longer than judging them.
        everybody = {*lives, *(client for of in subscribers for client in of)}
        self._names: dict[int, Name] = {client: f"client {client}" for client in everybody}
        self._topics: list[Name] = [f"topic {topic}" for topic in range(len(subscribers))]
        self._life_at: dict[tuple[Name, Name], Life] = {
            (self._names[client], life.number): life for client, of in lives.items() for life in of
        }
        self._facts = Facts(
            # A client that never came to listen counts as away.
            places={name: self._places(name, lives.get(client, ())) for client, name in self._names.items()},
            # All had subscribed before anything was published.
            changes=[
                Change(self._names[client], topic, None, added=True, at=-FOREVER, over_at=-FOREVER)
                for topic, clients in zip(self._topics, subscribers, strict=True)
                for client in clients
            ],
            disturbances=[one for kill in kills for one in _disturbances(kill)],
            terms=told.Terms(read=UNREAD_US, moves=MOVES_US),
        )

    def account(
        self, messages: Iterable[Message], late: Mapping[int, Sequence[Delivery]], publisher_lives: Iterable[Life]
    ) -> Account:
        """Account for the whole record."""
        made = Account()
        judge = Judge(self._facts, lambda violation: _fault(violation, made), every_pair=False)
        for message in messages:
            self._message(message, late.get(message.number, ()), judge, made)
        for of in self._lives.values():
            for life in of:
                self._end(life, life.client in self._slow, f"client {life.client}", made)
        for life in publisher_lives:
            self._end(life, False, f"publisher {life.client}", made)
        return made

    def _message(self, message: Message, late: Sequence[Delivery], judge: Judge, made: Account) -> None:
        made.messages += 1
        for attempt in message.attempts:
            made.publishes[attempt.outcome] += 1
        sends = [_send(attempt) for attempt in message.attempts]
        repeated = sum(send.outcome is Outcome.DUPLICATE for send in sends)
        made.repeated_dropped += repeated if repeated < len(sends) else 0  # else they are duplicates of nothing
        copies: dict[Name, list[Copy]] = {}
        for client, life, at_us in (*message.deliveries, *late):
            name = self._names.get(client, client)
            copies.setdefault(name, []).append(Copy(name, life, at_us))
        topic = self._topics[message.topic]
        made.deliveries += len(message.deliveries) + len(late)
        made.due += len(self._facts.audience(topic))
        of = told.Message(topic, f"message {message.number}", sends, due_at=message.due_us)
        if sends:
            of.explained_until = sends[-1].over_at
        judged = judge.message(of, copies)
        made.once += judged.once
        for again in judged.repeated:
            made.twice[_TWICE[again.why]] += 1
        for missed in judged.missed:
            self._missed(missed, message, made)

    def _missed(self, missed: Missed, message: Message, made: Account) -> None:
        """Record the last excuse of an accepted publish; without any, record the fault."""
        accepted = [excuse for excuse in missed.excuses if excuse.send.outcome is Outcome.NEW]
        if not accepted:
            failed = [one.outcome for one in message.attempts if one.outcome not in (NEW, DUPLICATE)]
            if not failed:
                made.fault(Broken.LOST.value, f"{missed.client}, message {message.number}: duplicate of nothing")
            elif failed[0] == LOST:
                made.lost["the endpoint that accepted it was killed before it answered"] += 1
            else:
                made.lost[f"its publisher was told: {failed[0]}"] += 1
            return
        cause, send, place = accepted[-1]
        if place is None or place.until <= send.at:
            made.lost["its client was away"] += 1
        elif cause is Cause.SLOW:
            made.lost["its client was slow"] += 1
        elif self._life_at[missed.client, place.connection].how == "moved":
            made.lost["its client was moving"] += 1
        else:
            made.lost["its client's endpoint was killed, with what was in its outbox"] += 1

    def _places(self, client: Name, lives: Sequence[Life]) -> list[Place]:
        """Return the places where the client was, in order: it connects again when its connection is over."""
        found: list[Place] = []
        begun_at = -FOREVER
        for life in lives:
            # The soak waits until a client that is connected at the end has read everything.
            until = FOREVER if life.end_us < 0 or life.how == "end" else life.end_us
            found.append(
                Place(
                    client,
                    life.number,
                    endpoint=_endpoint(life.endpoint),
                    begun_at=begun_at,
                    answered_at=life.listening_us if life.listening_us >= 0 else FOREVER,
                    until=until,
                    ended_at=until,
                    slow=life.client in self._slow,
                    read_before=life.newest_us - DISORDER_US if life.client in self._slow else None,
                )
            )
            begun_at = life.end_us + 1
        return found

    def _end(self, life: Life, slow: bool, whose: str, made: Account) -> None:
        """Find the reason why a connection ended."""
        by = {"moved": By.CLIENT, "end": By.NOBODY}.get(life.how, By.OTHER)
        code = int(life.how) if life.how.isdigit() else None
        line = Line(life.number, whose, _endpoint(life.endpoint), life.end_us, by, code, slow)
        found = rules.ends(self._facts, line)
        if isinstance(found, Violation):
            _fault(found, made)
        else:
            made.ends[found] += 1


_TWICE = {
    Again.SENT_AGAIN: "published twice, and its home was killed in between",
    Again.AT_BOTH: "its client moved in the seconds of a crash",
}

_OUTCOMES = {
    NEW: Outcome.NEW,
    DUPLICATE: Outcome.DUPLICATE,
    LOST: Outcome.CUT_OFF,
    UNANSWERED: Outcome.UNANSWERED,
    "partial": Outcome.PARTIAL,
}


def _send(attempt: Attempt) -> Send:
    outcome = _OUTCOMES.get(attempt.outcome, Outcome.TOLD)
    return Send(attempt.sent_us, attempt.answered_us, outcome, endpoint=_endpoint(attempt.endpoint))


def _endpoint(number: int) -> Name:
    return f"endpoint {number}"


def _disturbances(kill: Kill) -> tuple[Disturbance, Disturbance]:
    at_us = kill.killed_us
    return (
        Disturbance(at_us - CRASH_US, at_us + CRASH_US, Kind.CRASH),
        Disturbance(at_us - SEEN_US, at_us + SEEN_US, Kind.KILL, _endpoint(kill.endpoint)),
    )


def _fault(violation: Violation, made: Account) -> None:
    assert violation.broken is not None
    made.fault(violation.broken.value, f"{violation.text}; at {violation.at:.0f} us")
