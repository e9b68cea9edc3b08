"""Decide which messages a client must have got, and on which connection. For all other messages, give an excuse.

Owns: the promises about each client that a successful publish makes (SPEC sections 8.2, 8.3 and 8.6, and section 7 for
repetitions). Must never: consider deliveries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from . import places, wishes
from .facts import FOREVER, Facts, Kind, Message, Name, Outcome, Place, Send
from .verdict import Cause
from .wishes import Wish


class Excuse(NamedTuple):
    """The reason why one publish did not have to reach a client. ``place``: the client's latest confirmed place."""

    cause: Cause
    send: Send
    place: Place | None = None


@dataclass
class Owed:
    """The number of copies that must have arrived, and their connections.

    - ``due``: the number of copies.
    - ``connections``: the connections on which the client listened all the time. ``anywhere``: the client moved without
      a problem, so a copy on any of its connections counts.
    - ``excuses``: the excuses of the publishes that did not have to reach the client, in order.
    - ``roaming``: whether the recorder guarantees that the client listened at some place all the time.
    """

    due: int = 0
    connections: list[Name] = field(default_factory=list)
    anywhere: bool = False
    excuses: list[Excuse] = field(default_factory=list)
    roaming: bool = False


class _Due(NamedTuple):
    """A publish that must reach the client. ``place``: where it must arrive, if known."""

    place: Place | None
    roaming: bool = False


def owed(facts: Facts, message: Message, client: Name) -> Owed:
    """Return the copies due for all publishes of the message: one copy in total if repetitions are dropped, otherwise
    one copy for each publish."""
    found = Owed()
    for send in message.sends:
        verdict = _one(facts, message, send, client)
        if isinstance(verdict, Excuse):
            found.excuses.append(verdict)
            continue
        found.due += 1
        found.roaming |= verdict.roaming
        if verdict.place is None:
            found.anywhere = True
        else:
            found.connections.append(verdict.place.connection)
    if message.dedup:
        found.due = min(found.due, 1)
    return found


def _one(facts: Facts, message: Message, send: Send, client: Name) -> _Due | Excuse:
    if send.outcome is Outcome.PARTIAL:
        return _partial(facts, message, send, client)
    if send.outcome is Outcome.TOLD:
        return Excuse(Cause.TOLD, send)
    if not send.outcome.succeeded:
        return Excuse(Cause.CUT_OFF, send)
    begin, end = send.at, send.settled_at
    if message.dedup and len(message.sends) > 1 and send.outcome is not Outcome.NEW:
        # This publish may be a repetition, which shares the outcome and the recipients of the first publish.
        before = [other for other in message.sends if other is not send and other.at < send.over_at]
        if any(other.settled_at == FOREVER for other in before):
            return Excuse(Cause.DUPLICATE, send)
        begin = min([begin, *(other.at for other in before)])
    return _at_a_place(facts, message, send, client, begin, end, Cause.DUPLICATE if begin < send.at else None)


def _at_a_place(
    facts: Facts, message: Message, send: Send, client: Name, begin: float, end: float, otherwise: Cause | None
) -> _Due | Excuse:
    if wishes.wants(facts, client, message, begin, end) is not Wish.YES:
        return Excuse(otherwise or Cause.IN_DOUBT, send)
    roaming = facts.always.get(client, FOREVER) <= begin
    place, why = places.steady(facts, client, message, begin, end)
    if why is None:
        assert place is not None
        if not facts.disturbed(begin, end, Kind.GONE, where=place.life):
            return _Due(place, roaming)
        why = Cause.TAKEN_FOR_DEAD
        if not roaming:
            return Excuse(why, send, place)
    if roaming or places.moved_well(facts, client, begin, end):
        return _Due(None, roaming)
    return Excuse(otherwise or why, send, place)


def _partial(facts: Facts, message: Message, send: Send, client: Name) -> _Due | Excuse:
    """Judge a partial success: clients at the endpoints that the reply names as reached must get the message (section
    5)."""
    told = Excuse(Cause.TOLD, send)
    if len(message.sends) > 1:
        return told
    found = _at_a_place(facts, message, send, client, send.at, send.over_at, None)
    if isinstance(found, Excuse) or found.place is None or found.place.endpoint not in send.reached:
        return told
    return found
