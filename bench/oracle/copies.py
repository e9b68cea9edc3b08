"""How often a message may have come to a client.

Owns: exactly once, and what is allowed beyond (SPEC sections 7 and 8.3). Must never: ask whether it had to come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from . import places
from .facts import Copy, Facts, Kind, Message
from .verdict import Again


class Allowance(NamedTuple):
    """``found``: copies that count: all, or those of the one connection that has most; ``most``: so many may be."""

    found: int
    most: int
    crashed: bool
    why: Again


def allowed(facts: Facts, message: Message, copies: Sequence[Copy]) -> Allowance:
    """Of the copies that came to one client.

    A fault explains a copy only if it had begun before that came.
    """
    client, last_at = copies[0].client, max(copy.at for copy in copies)
    begin = message.first_at
    end = min(last_at, message.explained_until)
    crashed = facts.disturbed(begin, end, Kind.CRASH)
    lookup = facts.disturbed(begin, end, Kind.LOOKUP)
    forgotten = crashed and not facts.terms.survives
    again = forgotten or lookup or not message.dedup or any(send.may_have_come for send in message.sends)
    most = len(message.sends) if again else 1
    # Who moves in the seconds of a crash can get a message at both places, and so where an endpoint ends that does not
    # reach another; and a broadcast, which goes to whoever listens, whenever it moves.
    slack = facts.terms.moves
    at_both = (
        (crashed or lookup or facts.disturbed(begin, end, Kind.CUT_OFF))
        and places.moved(facts, client, begin - slack, end + slack)
    ) or (message.topic is None and places.moved(facts, client, begin, last_at))
    number = len(copies)
    found = max(Counter(copy.connection for copy in copies).values()) if at_both else number
    return Allowance(found, most, crashed, Again.SENT_AGAIN if number <= most else Again.AT_BOTH)
