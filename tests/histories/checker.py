"""Finds the violations in a record, and accounts for every message that a subscriber did not get.

Owns: the account, and the rules that need only this record, each with its section of SPEC: replies in order, all whole
again, the endpoints' counters; ``readers`` has those about retained messages. Must never: read a clock, a file or a
socket, or judge a delivery: ``ingeborg.bench.oracle`` does.

Take every message (all publishes of one payload to one topic) and every client that was, or could have been,
subscribed. Either the client got the message; or nothing in the record explains why not, which is a violation; or the
first matching cause of the oracle (``ingeborg.bench.oracle.verdict.Cause``) explains it, and the account counts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingeborg.bench.oracle import rules
from ingeborg.bench.oracle.facts import Facts, Kind, Line, Message, Name
from ingeborg.bench.oracle.judge import Judge, Judged
from ingeborg.bench.oracle.rules import Key
from ingeborg.bench.oracle.verdict import Broken, Cause, Violation
from ingeborg.bench.oracle.wishes import Wish, may_be_undone, wants

from .counters import check_counters
from .model import FOREVER, History
from .pages import Kept, check_pages
from .readers import Recovered, check_readers
from .record import Event
from .streams import Streamed


@dataclass
class Verdict:
    """The outcome of a history."""

    violations: list[Violation] = field(default_factory=list)
    operations: int = 0
    messages: int = 0
    deliveries: int = 0  # messages to clients; copies beyond the first do not count
    #: Required deliveries: (client, topic, payload) -> how many.
    due: Counter[tuple[Name, Name | None, Any]] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)  # by cause
    allowed_twice: int = 0  # copies beyond the first, after a crash or an error
    gone: int = 0  # losses of messages to topics at endpoints that others took for dead: each counts as a drop
    undone: int = 0  # deliveries and list entries after an unsubscription that the union of a cut store has undone
    drops: Counter[str] = field(default_factory=Counter)  # counted by the endpoints, by reason
    pages: Kept = field(default_factory=Kept)
    recovered: Recovered = field(default_factory=Recovered)  # for the clients that recover
    streamed: Streamed = field(default_factory=Streamed)  # for the pages with event streams
    unread: int = 0  # messages put into outboxes of connections that ended

    @property
    def obligations(self) -> int:
        """Return the number of required deliveries that were checked."""
        return self.due.total()

    def violate(self, section: str, text: str, at: float, **about: Any) -> None:
        """Record a violation."""
        self.violations.append(Violation(None, section, text, at, **about))


def check(events: Iterable[Event]) -> Verdict:
    """Check all rules."""
    history = History(events)
    verdict = Verdict()
    verdict.operations = sum(len(connection.commands) for connection in history.connections.values())
    verdict.messages = len(history.messages)
    check_replies(history, verdict)
    check_whole(history, verdict)
    check_locations(history, verdict)
    check_deliveries(history, verdict)
    verdict.pages = check_pages(history.events)
    for at, text in verdict.pages.wrong:
        verdict.violate("ADR 21", text, at)
    verdict.recovered, verdict.streamed = check_readers(history)
    verdict.violations += verdict.recovered.violations + verdict.streamed.violations
    check_counters(history, verdict)  # compares its sums with the findings of the others
    verdict.violations.sort(key=lambda violation: violation.at)
    return verdict


def check_replies(history: History, verdict: Verdict) -> None:
    """Section 1.3: every command of a surviving connection has its reply, in order, and no other replies come."""
    for text in history.strange_replies:
        verdict.violate("1.3", text, 0.0)
    over_at = max((event["at"] for event in history.events if event["what"] == "whole"), default=FOREVER)
    for connection in history.connections.values():
        if connection.ended_at < over_at:
            continue
        for command in connection.commands:
            silent = command.name in ("publish", "broadcast") and not command.fields.get("ack")
            if command.reply is None and not silent:
                verdict.violate(
                    "1.3",
                    f"{connection.client} got no reply to {command.name} (id {command.id}) at {connection.endpoint}, "
                    "and its connection stayed",
                    command.at,
                    clients=frozenset({connection.client}),
                )


def check_whole(history: History, verdict: Verdict) -> None:
    """Section 8.9, and the purpose of membership: after the faults everything works again without a restart."""
    if history.header and history.whole_at is None:
        verdict.violate("8.9", "the endpoints were not whole again after the faults", history.events[-1]["at"])


def check_locations(history: History, verdict: Verdict) -> None:
    """Section 2.4: in the end the endpoints report that a client listens where it does."""
    for client, listens in history.listens.items():
        last = listens[-1]
        for command in last.connection.commands:
            where = (command.reply or {}).get("endpoint")
            if command.name == "location" and command.succeeded and where != last.connection.endpoint:
                text = f"{client} listens at {last.connection.endpoint}, and is told {where}"
                verdict.violate("2.4", text, command.at, clients=frozenset({client}))


def check_deliveries(history: History, verdict: Verdict) -> None:
    """Sections 2.2, 3, 5, 6, 7 and 8.1 to 8.8: everything that the oracle knows."""
    facts, messages = history.facts(), history.told_messages()
    judge = Judge(facts, verdict.violations.append)
    copies = history.copies()
    for key, message in messages.items():
        of = copies[key]
        _count(judge.message(message, of), message, of.keys(), verdict)
    once = {key: message.sends[0] for key, message in messages.items() if len(message.sends) == 1}
    for line in history.lines():
        verdict.violations += rules.published(facts, line, messages)
        if line.client in history.readers:
            verdict.violations += _unwished(facts, line, messages)
            continue
        verdict.violations += rules.order(facts, line, once)
        verdict.violations += rules.replaced(facts, line)
    _check_lists(history, facts, verdict)


def _unwished(facts: Facts, line: Line, messages: Mapping[Key, Message]) -> Iterator[Violation]:
    """Section 2.2: a recovering client gets nothing, live or later, from before it was subscribed."""
    for at, topic, payload in line.notes:
        message = messages.get((topic, payload))
        if message is None or topic is None or wants(facts, line.client, message, message.first_at, at) is not Wish.NO:
            continue
        if not may_be_undone(facts, line.client, topic, at):
            text = f"{line.client} is not subscribed to {topic}, and got {payload}"
            yield Violation(Broken.NO_WISH, "2.2", text, at, frozenset({line.client}), topic, payload)


def _count(judged: Judged, message: Message, came_to: Collection[Name], verdict: Verdict) -> None:
    for client, owed in judged.due.items():
        verdict.due[client, message.topic, message.payload] += owed.due
        verdict.deliveries += client in came_to
    for missed in judged.missed:
        cause = missed.excuses[0].cause
        verdict.losses[cause.value] += 1
        verdict.gone += cause is Cause.TAKEN_FOR_DEAD and message.topic is not None
    verdict.undone += judged.undone
    if message.dedup:
        verdict.allowed_twice += sum(repeated.number - 1 for repeated in judged.repeated)


def _check_lists(history: History, facts: Facts, verdict: Verdict) -> None:
    for listed in (*history.lists(), *history.sets()):
        for found in rules.subscriptions(facts, listed):
            if isinstance(found, Violation):
                verdict.violations.append(found)
            else:
                assert found is Kind.UNION
                verdict.undone += 1


def excerpt(events: Iterable[Event], violation: Violation, lines_max: int = 60) -> list[Event]:
    """Return the events that matter to a violation, in time order: the message's, the client's, and every fault."""
    chosen = []
    mine: set[int] = set()  # connections of its clients
    asked: set[tuple[int, int]] = set()  # chosen commands
    for event in events:
        what = event["what"]
        if what in ("fault", "life", "whole"):
            chosen.append(event)
        elif what == "opened" and event["client"] in violation.clients:
            mine.add(event["connection"])
            chosen.append(event)
        elif event.get("connection") in mine and (
            what in ("closed", "back", "told") or (what == "heard" and event["payload"] == violation.payload)
        ):
            chosen.append(event)
        elif what == "sent" and _matters(event, violation, mine):
            asked.add((event["connection"], event["id"]))
            chosen.append(event)
        elif what == "reply" and (event["connection"], event.get("id")) in asked:
            chosen.append(event)
    if len(chosen) > lines_max:
        # The nearest events say most.
        chosen = sorted(
            sorted(chosen, key=lambda event: abs(event["at"] - violation.at))[:lines_max],
            key=lambda event: float(event["at"]),
        )
    return chosen


def _matters(event: Event, violation: Violation, mine: set[int]) -> bool:
    if event["command"] in ("publish", "broadcast"):
        return violation.payload is not None and event["payload"] == violation.payload
    if event["connection"] not in mine:
        return False
    if event["command"] in ("subscribe", "unsubscribe"):
        return violation.topic is None or violation.topic in event["topic"]
    return True
