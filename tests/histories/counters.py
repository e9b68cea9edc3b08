"""Compares the endpoints' counters with the clients' observations: the sums of a record have to agree.

Owns: the sums. Must never: explain a loss; it only says whether the endpoints' own figures leave room for it.

The counters of an endpoint's life are known if somebody read them at its end; those of a life that was killed or
stopped died with it. Work under way on a connection that ended may be counted or not: sums over endpoints with such
connections are bounds, all others are exact.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .model import Command, Connection, History
from .record import Event
from .streams import COMMANDS_MAX, heard_on

if TYPE_CHECKING:
    from .checker import Verdict

#: Codes in ``errors_total`` that do not belong to replies to clients.
NOT_REPLIES = frozenset({"link", "peer_handshake"})


class Life:
    """The counts of one life of an endpoint within the history."""

    def __init__(self, begin: Event | None, end: Event) -> None:
        self.name: str = end["life"]
        self.at: float = end["at"]
        self.values: Counter[str] = Counter(end["values"])
        self.drops: Counter[str] = Counter(end["drops"])
        self.errors: Counter[str] = Counter(end["errors"])
        if begin is not None:
            self.values.subtract(begin["values"])
            self.drops.subtract(begin["drops"])
            self.errors.subtract(begin["errors"])


def lives(history: History) -> list[Life]:
    """Return those whose counters are known."""
    begins: dict[str, Event] = {}
    found = []
    for event in history.events:
        if event["what"] == "counters":
            if event["phase"] == "begin":
                begins[event["life"]] = event
            else:
                found.append(Life(begins.get(event["life"]), event))
    return found


def check_counters(history: History, verdict: Verdict) -> None:
    """Check all sums; after the other rules, since it compares the sums with their findings."""
    known = lives(history)
    connections: defaultdict[str, list[Connection]] = defaultdict(list)
    for connection in history.connections.values():
        connections[connection.life].append(connection)
    for life in known:
        verdict.drops += +life.drops
        _check_life(life, connections[life.name], heard_on(history, life.name), verdict)
    complete = {life.name for life in known} >= connections.keys()
    _check_duplicates(history, known, complete, verdict)
    counted = sum(life.drops["endpoint_gone"] + life.drops["relocation_failed"] for life in known)
    if complete and counted < verdict.gone:
        at = known[-1].at if known else 0.0
        text = f"{verdict.gone} deliveries went to endpoints taken for dead; {counted:g} drops were counted"
        verdict.violate("8.7", text, at)


def _check_life(
    life: Life, connections: list[Connection], streams: Sequence[Sequence[Event]], verdict: Verdict
) -> None:
    def wrong(what: str, counted: float, low: float, high: float) -> None:
        bounds = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        verdict.violate("1.2", f"{life.name} counted {counted:g} {what}; the clients saw {bounds}", life.at)

    if life.values["turns_failed_total"]:
        verdict.violate("5", f"{life.name} met {life.values['turns_failed_total']:g} faults of its own", life.at)
    ended = [connection for connection in connections if connection.ended_at < life.at]

    # Into outboxes, and out again. Retained messages that were sent again count separately.
    heard = sum(
        1
        for events in (*(connection.heard for connection in connections), *streams)
        for event in events
        if event["at"] <= life.at and not event.get("kept")
    )
    delivered = life.values["messages_delivered_total"]
    if delivered < heard or (not ended and not streams and delivered != heard):
        wrong("messages delivered", delivered, heard, heard)
    verdict.unread += max(int(delivered) - heard, 0)

    # Publishes: those that an endpoint refused as invalid do not count.
    publishes = [
        command
        for connection in connections
        for command in connection.commands
        if command.name in ("publish", "broadcast") and not command.changed_nothing
    ]
    over = sum(1 for command in publishes if command.over_at <= life.at)
    received = life.values["publishes_received_total"]
    if not over <= received <= len(publishes):
        wrong("publishes received", received, over, len(publishes))

    # Error replies, by code.
    replies = Counter(
        command.error for connection in connections for command in connection.commands if command.error is not None
    )
    unanswered = sum(1 for connection in ended for command in connection.commands if command.reply is None)
    unanswered += COMMANDS_MAX * len(streams)
    for code in {*replies, *life.errors} - NOT_REPLIES:
        if not replies[code] <= life.errors[code] <= replies[code] + unanswered:
            wrong(f"errors {code}", life.errors[code], replies[code], replies[code] + unanswered)
    if life.drops["slow_consumer"] and not any(connection.code == 4002 for connection in connections):
        wrong("notifications dropped for slow consumers", life.drops["slow_consumer"], 0, 0)


def _check_duplicates(history: History, known: list[Life], complete: bool, verdict: Verdict) -> None:
    """Check the duplicates. Each is dropped at one endpoint, and counted there. So is a request that an endpoint
    repeats, around a crash, to a home that has already had it; without ``ack`` nobody learns of either.
    """
    sends = [send for message in history.messages.values() for send in message.sends]
    told = sum(1 for send in sends if (send.reply or {}).get("duplicate") is True)
    may_be = sum(
        1
        for message in history.messages.values()
        if message.dedup
        for send in message.sends
        if send.reply is None and (len(message.sends) > 1 or history.crashed(send.at, send.over_at))
    )
    counted = sum(life.values["duplicates_dropped_total"] for life in known)
    if (complete and counted < told) or counted > told + may_be + _unknown(sends):
        verdict.violate(
            "7",
            f"{counted:g} duplicates were counted; the publishers were told of {told}, and {may_be} more may be",
            known[-1].at if known else 0.0,
        )


def _unknown(sends: list[Command]) -> int:
    return sum(1 for send in sends if not send.succeeded)
