"""A record in, what it violates out, and an account of every message that a subscriber did not get.

Owns: the rules, each with the section of SPEC it is from. Must never: read a clock, a file or a socket.

For every message (all publishes of one payload to one topic) and every client that was, or may have been, subscribed:
it was delivered; or nothing of the record explains why not, which is a violation; or the first of these causes does,
and it is counted: *its publisher was told* (an error reply); *its publisher was cut off* (no reply, and the connection
ended); *a duplicate* of a message that the client had no right to; *subscription in doubt* (a change under way, or
unanswered); *was not listening*; *was moving*; *its connection ended*; *its endpoint was taken for dead*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .counters import check_counters
from .model import FOREVER, Command, Connection, History, Message
from .record import Event

TOLD = "its publisher was told"
CUT_OFF = "its publisher was cut off"
DUPLICATE = "a duplicate"
IN_DOUBT = "subscription in doubt"
TAKEN_FOR_DEAD = "its endpoint was taken for dead"


@dataclass
class Violation:
    """``section``: of SPEC; ``clients``, ``topic``, ``payload``: what the events that matter are found by."""

    section: str
    text: str
    at: float
    clients: frozenset[str] = frozenset()
    topic: str | None = None
    payload: Any = None

    def __str__(self) -> str:
        return f"SPEC section {self.section}: {self.text}"


@dataclass
class Verdict:
    """What a history came to."""

    violations: list[Violation] = field(default_factory=list)
    operations: int = 0
    messages: int = 0
    deliveries: int = 0  # of a message to a client; copies beyond the first are not counted
    #: Deliveries that had to be: (client, topic, payload) -> how many.
    due: Counter[tuple[str, str | None, Any]] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)  # by cause
    allowed_twice: int = 0  # copies beyond the first, after a crash or an error
    gone: int = 0  # losses of messages to topics at endpoints that were taken for dead: each is counted as a drop
    undone: int = 0  # deliveries and list entries after an unsubscription that the union of a cut store has undone
    drops: Counter[str] = field(default_factory=Counter)  # that the endpoints counted, by reason
    unread: int = 0  # that they put into outboxes of connections that ended

    @property
    def obligations(self) -> int:
        """Deliveries that had to be, and were looked for."""
        return self.due.total()

    def violate(self, section: str, text: str, at: float, **about: Any) -> None:
        """Found one."""
        self.violations.append(Violation(section, text, at, **about))


def check(events: Iterable[Event]) -> Verdict:
    """All rules."""
    history = History(events)
    verdict = Verdict()
    verdict.operations = sum(len(connection.commands) for connection in history.connections.values())
    verdict.messages = len(history.messages)
    for rule in RULES:
        rule(history, verdict)
    check_counters(history, verdict)
    verdict.violations.sort(key=lambda violation: violation.at)
    return verdict


def check_replies(history: History, verdict: Verdict) -> None:
    """Section 1.3: every command of a connection that stayed has its reply, in order, and no other replies come."""
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
    """Section 8.9, and what membership is for: once the faults are over everything works again without a restart."""
    if history.header and history.whole_at is None:
        verdict.violate("8.9", "the endpoints were not whole again after the faults", history.events[-1]["at"])


def check_heard(history: History, verdict: Verdict) -> None:
    """Sections 2, 3 and 8: nothing is heard that was not sent, or by who had no wish for it."""
    for connection in history.connections.values():
        began = min(
            (listen.command.at for listen in history.listens[connection.client] if listen.connection is connection),
            default=None,
        )
        for event in connection.heard:
            _check_one_heard(history, verdict, connection, began, event)


def _check_one_heard(
    history: History, verdict: Verdict, connection: Connection, began: float | None, event: Event
) -> None:
    client, at, key, payload = connection.client, event["at"], event["key"], event["payload"]
    about = {"clients": frozenset({client}), "topic": key, "payload": payload}
    if (key, payload) in history.refused_messages:
        verdict.violate("5", f"{payload} was refused, and {client} got it all the same", at, **about)
        return
    message = history.messages.get((key, payload))
    if message is None or message.first_at > at:
        verdict.violate("3", f"{client} got {payload} of {key}, which nobody had published", at, **about)
        return
    if began is None or began > at:
        verdict.violate("3", f"{client} got {payload} on a connection that it does not listen on", at, **about)
        return
    if history.subscribed(client, key, message.first_at, at) == "no":
        # On conflict the union of the sets is kept (section 8.1): a cut store may undo an unsubscription.
        if history.changes.get((client, key)) and history.may_be_undone(at):
            verdict.undone += 1
        else:
            verdict.violate("2.2", f"{client} is not subscribed to {key}, and got {payload}", at, **about)
    for listen in history.listens[client]:
        newer = listen.connection is not connection and listen.command.succeeded
        mine = [old for old in history.listens[client] if old.connection is connection]
        if (
            newer
            and listen.command.replied_at < message.first_at
            and all(old.over_at < listen.command.at for old in mine)
            and not history.crashed(message.first_at, at)
        ):
            verdict.violate(
                "2.2",
                f"{client} listens at {listen.connection.endpoint}, and got {payload} where it was before",
                at,
                **about,
            )
            break


def check_deliveries(history: History, verdict: Verdict) -> None:
    """Sections 8.2, 8.3, 8.6, 8.7: what was accepted reaches every steady subscriber; every loss has a cause."""
    copies = _copies(history)
    for message in history.messages.values():
        for client in history.listeners:
            if history.subscribed(client, message.topic, message.first_at, _over(message)) == "no":
                continue
            got = sum(copies[client, message.topic, message.payload].values())
            due = 0
            cause = ""
            for send in message.sends:
                excuse = _excuse(history, message, send, client)
                cause = cause or excuse
                due += not excuse
            due = min(due, 1) if message.dedup else due
            verdict.due[client, message.topic, message.payload] += due
            verdict.deliveries += bool(got)
            if got < due:
                _lost(history, verdict, message, client, got, due)
            elif not got:
                verdict.losses[cause] += 1
                verdict.gone += cause == TAKEN_FOR_DEAD and message.topic is not None


def _over(message: Message) -> float:
    return max(send.over_at for send in message.sends)


def _lost(history: History, verdict: Verdict, message: Message, client: str, got: int, due: int) -> None:
    send = message.sends[0]
    crashed = history.crashed(message.first_at, _over(message))
    section = "8.3" if crashed else "8.6" if send.fields.get("ack") else "8.2"
    often = "never got" if not got else f"got {got} times, and not {due} times,"
    verdict.violate(
        section,
        f"{client} {often} {message.payload} of {message.topic or 'a broadcast'}, which was accepted at "
        f"{history.publisher(send).endpoint}",
        message.first_at,
        clients=frozenset({client}),
        topic=message.topic,
        payload=message.payload,
    )


def _excuse(history: History, message: Message, send: Command, client: str) -> str:
    """Why this publish need not have reached the client; nothing: it must have."""
    begin, end = send.at, send.over_at
    if send.error == "partial":
        return _excuse_partial(history, message, send, client)
    if send.error is not None:
        return TOLD
    if not send.succeeded:
        return CUT_OFF
    if message.dedup and len(message.sends) > 1 and (send.reply or {}).get("duplicate") is not False:
        # It may be a repetition, which shares the outcome of the first, and goes to who was due that one.
        before = [other for other in message.sends if other is not send and other.at < end]
        if any(not other.succeeded for other in before):
            return DUPLICATE
        begin = min([begin, *(other.at for other in before)])
    return _excuse_place(history, message, client, begin, end, DUPLICATE if begin < send.at else "")


def _excuse_place(history: History, message: Message, client: str, begin: float, end: float, otherwise: str) -> str:
    if message.topic is not None and history.subscribed(client, message.topic, begin, end) != "yes":
        return otherwise or IN_DOUBT
    listen, why = history.steady_listen(client, begin, end)
    if listen is None and history.moved_well(client, begin, end):
        return ""
    if listen is None:
        return otherwise or why
    if history.lapsed(listen.connection.life, begin, end):
        return TAKEN_FOR_DEAD
    return ""


def _excuse_partial(history: History, message: Message, send: Command, client: str) -> str:
    """Who listens at an endpoint that is said to have got it has got it (section 5)."""
    reply = send.reply or {}
    excuse = _excuse_place(history, message, client, send.at, send.over_at, TOLD)
    if excuse or len(message.sends) > 1:
        return TOLD
    listen, _ = history.steady_listen(client, send.at, send.over_at)
    if listen is None:
        return TOLD
    said = listen.connection.endpoint in reply["delivered"] and listen.connection.endpoint not in reply["failed"]
    return "" if said and "store" not in reply["failed"] else TOLD


def _copies(history: History) -> defaultdict[tuple[str, str | None, Any], Counter[int]]:
    """(client, topic, payload) -> connection -> how often it was heard there."""
    copies: defaultdict[tuple[str, str | None, Any], Counter[int]] = defaultdict(Counter)
    for connection in history.connections.values():
        for event in connection.heard:
            copies[connection.client, event["key"], event["payload"]][connection.number] += 1
    return copies


def check_once(history: History, verdict: Verdict) -> None:
    """Sections 7 and 8.3: nothing comes twice, but what was published again after a crash or an error."""
    for (client, topic, payload), by_connection in _copies(history).items():
        message = history.messages.get((topic, payload))
        if message is None:
            continue  # another rule's
        number = sum(by_connection.values())
        last = max(
            event["at"]
            for connection in by_connection
            for event in history.connections[connection].heard
            if (event["key"], event["payload"]) == (topic, payload)
        )
        crashed = history.crashed(message.first_at, last)
        failed = any(not send.succeeded for send in message.sends)
        most = len(message.sends) if crashed or failed or not message.dedup else 1
        # Who moves in the seconds of a crash can get a message at both places, and so where an endpoint ends that does
        # not reach another; and a broadcast, which goes to whoever listens, whenever it moves.
        at_both = (
            crashed
            or history.ended_cut_off(message.first_at, last)
            or (topic is None and history.moved(client, message.first_at, last))
        )
        found = max(by_connection.values()) if at_both else number
        if found > most:
            verdict.violate(
                "8.3" if crashed else "7",
                f"{client} got {payload} of {topic or 'a broadcast'} {found} times; {most} at the most",
                last,
                clients=frozenset({client}),
                topic=topic,
                payload=payload,
            )
        elif message.dedup:
            verdict.allowed_twice += number - 1


def check_order(history: History, verdict: Verdict) -> None:
    """Section 8.5: of one publisher's connection and one topic in its order, while endpoints and places stay."""
    once = {key: message.sends[0] for key, message in history.messages.items() if len(message.sends) == 1}
    for connection in history.connections.values():
        last: dict[tuple[int, str], tuple[Command, Event]] = {}
        listens = history.listens[connection.client]
        since = max((listen.over_at for listen in listens if listen.connection is connection), default=FOREVER)
        for event in connection.heard:
            send = once.get((event["key"], event["payload"]))
            if send is None or event["key"] is None or send.at <= since:
                continue
            row = (send.connection, event["key"])
            former = last.get(row)
            if former is not None and send.id < former[0].id and not history.members_changed(send.at, event["at"]):
                verdict.violate(
                    "8.5",
                    f"{connection.client} got {event['payload']} of {event['key']} after {former[1]['payload']}, "
                    "which the same connection published later",
                    event["at"],
                    clients=frozenset({connection.client}),
                    topic=event["key"],
                    payload=event["payload"],
                )
            if former is None or send.id > former[0].id:
                last[row] = (send, event)


def check_replaced(history: History, verdict: Verdict) -> None:
    """Section 6: 4001 is for who listens elsewhere since."""
    for connection in history.connections.values():
        if connection.by != "endpoint" or connection.code != 4001:
            continue
        listens = history.listens[connection.client]
        mine = [listen for listen in listens if listen.connection is connection]
        if not any(
            listen.connection is not connection
            and listen.command.at < connection.ended_at
            and all(listen.over_at >= own.command.at for own in mine)
            for listen in listens
        ):
            verdict.violate(
                "6",
                f"{connection.client} was closed upon with 4001 at {connection.endpoint}, and listens nowhere since",
                connection.ended_at,
                clients=frozenset({connection.client}),
            )


def check_subscriptions(history: History, verdict: Verdict) -> None:
    """Section 8.1: what was confirmed last is kept; what was refused, or ended, is not there."""
    for connection in history.connections.values():
        for command in connection.commands:
            if command.name != "subscriptions" or not command.succeeded:
                continue
            assert command.reply is not None
            kept, client = set(command.reply["topic"]), connection.client
            for topic in sorted({topic for name, topic in history.changes if name == client} | kept):
                holds = history.subscribed(client, topic, command.at, command.replied_at)
                about = {"clients": frozenset({client}), "topic": topic}
                if holds == "yes" and topic not in kept:
                    text = f"the subscription of {client} to {topic} was confirmed, and is lost"
                    verdict.violate("8.1", text, command.replied_at, **about)
                elif holds == "no" and topic in kept:
                    known = bool(history.changes.get((client, topic)))
                    if known and history.may_be_undone(command.replied_at):
                        verdict.undone += 1
                        continue
                    text = f"{client} is subscribed to {topic} without a command that could have done it"
                    verdict.violate("2.2" if known else "5", text, command.replied_at, **about)


RULES: tuple[Callable[[History, Verdict], None], ...] = (
    check_replies,
    check_whole,
    check_heard,
    check_deliveries,
    check_once,
    check_order,
    check_replaced,
    check_subscriptions,
)


def excerpt(events: Iterable[Event], violation: Violation, lines_max: int = 60) -> list[Event]:
    """The events that matter to a violation, in time order: the message's, the client's, and every fault."""
    chosen = []
    mine: set[int] = set()  # connections of its clients
    asked: set[tuple[int, int]] = set()  # commands chosen
    for event in events:
        what = event["what"]
        if what in ("fault", "life", "whole"):
            chosen.append(event)
        elif what == "opened" and event["client"] in violation.clients:
            mine.add(event["connection"])
            chosen.append(event)
        elif event.get("connection") in mine and (
            what == "closed" or (what == "heard" and event["payload"] == violation.payload)
        ):
            chosen.append(event)
        elif what == "sent" and _matters(event, violation, mine):
            asked.add((event["connection"], event["id"]))
            chosen.append(event)
        elif what == "reply" and (event["connection"], event.get("id")) in asked:
            chosen.append(event)
    if len(chosen) > lines_max:
        # What is nearest to it says most.
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
