"""Judge each message: it must arrive once at every client to which it was due, and at no other client.

Owns: the account of every pair of a message and a client. Must never: keep messages, of which there can be millions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import answers, rules
from .copies import allowed
from .facts import Copy, Facts, Kind, Message, Name
from .owing import Excuse, Owed, owed
from .verdict import Again, Broken, Violation
from .wishes import Wish, wants

Report = Callable[[Violation], None]


class Missed(NamedTuple):
    """A message that did not reach a client, and did not have to reach it. The first excuse is sufficient."""

    client: Name
    excuses: Sequence[Excuse]


class Repeated(NamedTuple):
    """A message that reached a client more than once, which was allowed."""

    client: Name
    number: int
    why: Again


@dataclass
class Judged:
    """The account of one message. ``due``: the copies that were due, by examined client. ``once``: the number of
    clients with one copy. ``conflated``: the clients that got another message in its place. ``undone``: the number of
    copies that arrived after the client had unsubscribed, because the union of a conflict reverted the end of
    the subscription."""

    due: dict[Name, Owed] = field(default_factory=dict)
    missed: list[Missed] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    conflated: list[Name] = field(default_factory=list)
    once: int = 0
    undone: int = 0


class Judge:
    """The judge. ``report`` gets each violation. Without ``every_pair``, the judge accepts a single copy at any client
    that ever subscribed to the topic. A full check would take too long for tens of millions of copies: where each copy
    was due, and whether it was due."""

    def __init__(self, facts: Facts, report: Report, *, every_pair: bool = True) -> None:
        self._facts = facts
        self._report = report
        self._every_pair = every_pair
        self._standing = Counter(facts.skipped)  # number of replaced messages, minus those already found missing

    def message(self, message: Message, copies: Mapping[Name, Sequence[Copy]]) -> Judged:
        """Judge one message. ``copies``: all copies that each client got, at any time."""
        facts, judged = self._facts, Judged()
        for violation in answers.check(facts, message):
            self._report(violation)
        audience = facts.audience(message.topic)
        for client in audience:
            mine = copies.get(client, ())
            if len(mine) == 1 and message.dedup and not self._every_pair:
                judged.once += 1
            else:
                self._pair(message, client, mine, judged)
        for client, mine in copies.items():
            if client not in audience:
                self._heard(message, mine, judged)
                self._often(message, mine, judged)
        return judged

    def _pair(self, message: Message, client: Name, mine: Sequence[Copy], judged: Judged) -> None:
        judged.once += len(mine) == 1
        misplaced = self._heard(message, mine, judged)
        if len(mine) > 1:
            self._often(message, mine, judged)
        facts = self._facts
        if message.sends and wants(facts, client, message, message.first_at, message.over_at) is Wish.NO:
            return
        found = owed(facts, message, client)
        judged.due[client] = found
        got = len(mine)
        if found.due and not found.anywhere:
            # A copy at a wrong place is reported as misplaced, so it must not be reported as lost too.
            got = sum(copy.connection in found.connections for copy in mine) + misplaced
        if got < found.due or not message.sends:
            if message.sends and self._conflated(message, client, found.due - got):
                judged.conflated.append(client)
            else:
                self._lost(message, client, got, found.due)
        elif not mine:
            judged.missed.append(Missed(client, found.excuses))

    def _conflated(self, message: Message, client: Name, missing: int) -> bool:
        """Return whether other messages of the topic replaced the missing copies. A client does not see which messages
        were replaced, so only their number counts."""
        if message.topic is None or self._standing[client, message.topic] < missing:
            return False
        self._standing[client, message.topic] -= missing
        return True

    def _heard(self, message: Message, mine: Sequence[Copy], judged: Judged) -> int:
        """Report wrong copies, and return the number of copies that arrived at a wrong place."""
        misplaced = 0
        for copy in mine:
            for found in rules.heard(self._facts, message, copy):
                if isinstance(found, Violation):
                    self._report(found)
                    misplaced += found.broken in (Broken.ELSEWHERE, Broken.FORMER_PLACE)
                else:
                    assert found is Kind.UNION
                    judged.undone += 1
        return misplaced

    def _often(self, message: Message, mine: Sequence[Copy], judged: Judged) -> None:
        found = allowed(self._facts, message, mine)
        client = mine[0].client
        if found.found > found.most:
            of = "a broadcast" if message.topic is None else message.topic
            text = f"{client} got {message.payload} of {of} {found.found} times, but at most {found.most} are allowed"
            section = "8.3" if found.crashed else "7"
            self._violate(Broken.TWICE, section, text, max(copy.at for copy in mine), message, client)
        elif len(mine) > 1:
            judged.repeated.append(Repeated(client, len(mine), found.why))

    def _lost(self, message: Message, client: Name, got: int, due: int) -> None:
        of = "a broadcast" if message.topic is None else message.topic
        if not message.sends:
            text = f"{client} never got {message.payload} of {of}, which was never published"
            self._violate(Broken.LOST, "8.2", text, 0.0, message, client)
            return
        first = message.sends[0]
        crashed = self._facts.disturbed(message.first_at, message.over_at, Kind.CRASH)
        section = "8.3" if crashed else "8.6" if first.acknowledged else "8.2"
        often = "never got" if not got else f"got {got} instead of {due} copies of"
        text = f"{client} {often} {message.payload} of {of}, which was accepted at {first.endpoint}"
        self._violate(Broken.LOST, section, text, message.first_at, message, client)

    def _violate(self, broken: Broken, section: str, text: str, at: float, message: Message, client: Name) -> None:
        about = frozenset({client})
        self._report(Violation(broken, section, text, at, about, message.topic, message.payload))
