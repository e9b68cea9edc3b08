"""Decide how many copies of a message a client can get.

Owns: the rule of exactly one copy, and its exceptions (SPEC sections 7 and 8.3). Must never: judge whether the message
had to arrive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from . import places
from .facts import Copy, Facts, Kind, Message
from .verdict import Again


class Allowance(NamedTuple):
    """The limit for a client's copies. ``found``: the number of copies that count. These are all copies, or only the
    copies on the connection with the most copies. ``most``: the largest allowed number. ``crashed``: whether there was
    a crash. ``why``: the reason for more than one copy."""

    found: int
    most: int
    crashed: bool
    why: Again


def allowed(facts: Facts, message: Message, copies: Sequence[Copy]) -> Allowance:
    """Return the limit for the copies that reached one client.

    A fault explains a copy only if it began before the copy arrived.
    """
    client, last_at = copies[0].client, max(copy.at for copy in copies)
    begin = message.first_at
    end = min(last_at, message.explained_until)
    crashed = facts.disturbed(begin, end, Kind.CRASH)
    lookup = facts.disturbed(begin, end, Kind.LOOKUP)
    forgotten = crashed and not facts.terms.survives
    again = forgotten or lookup or not message.dedup or any(send.may_have_come for send in message.sends)
    most = len(message.sends) if again else 1
    # A client that moves in the seconds of a crash, or while an endpoint ends without reaching another one, can get a
    # message at both places. A broadcast goes to all listening clients, so a client can get it at both places in any
    # move.
    slack = facts.terms.moves
    at_both = (
        (crashed or lookup or facts.disturbed(begin, end, Kind.CUT_OFF))
        and places.moved(facts, client, begin - slack, end + slack)
    ) or (message.topic is None and places.moved(facts, client, begin, last_at))
    number = len(copies)
    found = max(Counter(copy.connection for copy in copies).values()) if at_both else number
    return Allowance(found, most, crashed, Again.SENT_AGAIN if number <= most else Again.AT_BOTH)
