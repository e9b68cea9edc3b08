"""Accounts for every message: it was delivered, dropped as a duplicate, or lost for a reason in the SPEC, or it is
unaccounted.

Owns: the account, the texts of its reasons, and the translation of a soak's record into facts for the oracle. Must
never: judge (``ingeborg.bench.oracle`` does), or use a file, a clock or a socket.

A message is due once to each client that subscribed to its topic. If the message did not arrive, or arrived twice, one
of these reasons must explain it (SPEC sections 7 and 8). Otherwise the message is *unaccounted*:

- the publish was not answered, because the endpoint that accepted it was killed (8.3), or it was answered with an error
  (8.7);
- the client was between two connections, and so did not listen, when the message was published (8.4);
- the client's connection ended before the client could read its outbox, because its endpoint was killed, or because
  the client moved;
- the client was slow, and the messages that it had not read were dropped with its connection (8.8);
- the message arrived twice because its client moved in the seconds around a crash (8.3), or because it was published
  twice and the home that knew the first publish was killed (7).

The account also covers connections, both of publishers and of clients. A connection is unaccounted if it ended although
its endpoint was not killed and its client was not slow.
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

#: Maximum time from the answer to a publish until a client that reads has the message, in microseconds. The limit is
#: generous even for a busy machine.
UNREAD_US = 5_000_000
#: Two messages of a slow client may arrive in the wrong order if their due times differ by at most this number of
#: microseconds. A publish waits this long for a home that has died.
DISORDER_US = 10_000_000
#: Tolerance when the time of a crash is compared with the time of a publish or of its answer. Some publishes are
#: answered just before the crash.
CRASH_US = 2_000_000
#: Length of "the seconds of a crash", in which a moving client may get a message twice. The other endpoints notice a
#: crash within 4 s. Requests time out after 5.5 s.
MOVES_US = 10_000_000
#: A client notices within this time that its endpoint was killed.
SEEN_US = 5_000_000

EXAMPLES_MAX = 20


@dataclass
class Account:
    """The counts of an account. ``publishes`` counts publishes by outcome. ``due`` counts pairs of a message and a
    client. Each pair also counts in exactly one of ``once``, ``twice``, ``lost`` and ``unaccounted``. ``examples``
    describes unaccounted cases in words."""

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
        """Count an event for which there is no permitted reason."""
        self.unaccounted[what] += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{what}: {example}")


class Accountant:
    """Makes the account. ``subscribers`` has the clients of each topic, ``lives`` has each client's connections in
    order, and ``slow`` has the slow clients."""

    def __init__(
        self,
        subscribers: Sequence[Sequence[int]],
        lives: Mapping[int, Sequence[Life]],
        kills: Sequence[Kill],
        slow: Iterable[int],
    ) -> None:
        self._lives = lives
        self._slow = frozenset(slow)
        # Make each name only once. Making names for tens of millions of deliveries would take longer than judging them.
        everybody = {*lives, *(client for of in subscribers for client in of)}
        self._names: dict[int, Name] = {client: f"client {client}" for client in everybody}
        self._topics: list[Name] = [f"topic {topic}" for topic in range(len(subscribers))]
        self._life_at: dict[tuple[Name, Name], Life] = {
            (self._names[client], life.number): life for client, of in lives.items() for life in of
        }
        self._facts = Facts(
            # A client that never listened counts as away.
            places={name: self._places(name, lives.get(client, ())) for client, name in self._names.items()},
            # All clients had subscribed before the first publish.
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
        """Return the account of the whole record."""
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
        made.repeated_dropped += repeated if repeated < len(sends) else 0  # all are duplicates: there is no original
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
        """Count a missed message as lost, and give the last excuse of an accepted publish as the reason. If no publish
        was accepted, the reason is the first failed publish, or a fault."""
        accepted = [excuse for excuse in missed.excuses if excuse.send.outcome is Outcome.NEW]
        if not accepted:
            failed = [one.outcome for one in message.attempts if one.outcome not in (NEW, DUPLICATE)]
            if not failed:
                made.fault(Broken.LOST.value, f"{missed.client}, message {message.number}: duplicate of nothing")
            elif failed[0] == LOST:
                made.lost["the endpoint that accepted it was killed before it answered"] += 1
            else:
                made.lost[f"its publisher got an error: {failed[0]}"] += 1
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
        """Return the places where the client was, in order. The client connects again when its connection has ended."""
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
        """Count the reason why a connection ended, or record that there is no permitted reason."""
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
