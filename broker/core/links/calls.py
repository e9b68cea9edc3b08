"""Sends requests to other endpoints over the link, repeats them elsewhere, or gives them up.

Owns: the requests under way, their time-outs, and the numbers that tell them apart. Must never: know a request's
meaning.

A request keeps its number when another endpoint gets it (the number identifies a publish). The part that asked
(``Asker``) decides what an answer leads to.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from ingeborg.protocol.native import mypyc_attr

from .frames import Sent
from .link import Link
from .requests import Request

#: How long an answer can take, in seconds. This is longer than a store's own time-out, so that the store's error
#: arrives first.
TIMEOUT_S: Final = 5.0

#: The wait before repeating a request whose receiver was not the home, in seconds.
RETRY_S: Final = 0.05


#: A home's answer to a publish that it dispatched and retains. It answers ``False`` if it does not retain the message,
#: and ``True`` for a duplicate.
RETAINED: Final = "kept"

#: The answer of an endpoint that is not home of the topic: ask again, the views will agree.
NOT_HOME: Final = "not_home"


#: The answer of a leaving endpoint to requests for a home.
LEAVING: Final = "leaving"

#: A preliminary answer: the actual answer takes longer. A receiver can repeat it.
WAIT: Final = "wait"

#: The extra time that each ``WAIT`` grants, in seconds.
PATIENCE_S: Final = 10.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Asker:
    """A part that makes requests."""

    def answered(self, call: Call, value: Any) -> None:
        """Handle the answer to a request that succeeded."""

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Handle a refusal, or no answer in time. ``info`` is a text, or the refusing part's further fields."""

    def lost(self, call: Call) -> str | None:
        """Name another receiver, since this one is gone or no longer the home.

        Returns:
            The incarnation to ask instead; ``None``: the part needs no answer from now on.
        """
        return None


class Call:
    """One request under way."""

    __slots__ = ("asker", "context", "deadline", "number", "request", "target", "waits")

    def __init__(self, number: int, target: str, request: Request, asker: Asker, context: Any, deadline: float) -> None:
        self.number = number
        self.target = target  # incarnation
        self.request: Any = request
        self.asker = asker
        self.context = context
        self.deadline = deadline
        self.waits = False  # its receiver asked for more time


class Calls:
    """All requests of this endpoint that are under way."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}  # by the peer's incarnation
        self.due: dict[str, None] = {}  # peers whose links may have items to send at the end of the turn
        self._number = 0
        self._calls: dict[int, Call] = {}
        # Every call has the same time-out from its start, so calls start in the order of their deadlines. A repeated
        # call keeps its deadline, and so its place.
        self._by_deadline: deque[Call] = deque()
        self._again: deque[tuple[float, Call]] = deque()
        # New deadlines of calls whose receivers need longer, in order; only a call's last one counts.
        self._patient: deque[tuple[float, Call]] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def number(self) -> int:
        """Return a number that this incarnation has never used before."""
        self._number += 1
        return self._number

    def make(
        self,
        target: str,
        request: Request,
        asker: Asker,
        context: Any,
        now: float,
        number: int = 0,
        linked: Request | None = None,
    ) -> None:
        """Ask the peer. Without a link to it, the request waits for one.

        Args:
            target: The peer's incarnation.
            request: The request, as any link can carry it.
            asker: The part that gets the answer.
            context: Comes back to the asker with the answer.
            now: Monotonic seconds.
            number: One drawn before; 0: draw a new one.
            linked: Goes over the present link instead of ``request``, since it has the same meaning there, and only
                there.
        """
        if not number:
            number = self.number()
        call = Call(number, target, request, asker, context, now + TIMEOUT_S)
        self._calls[number] = call
        self._by_deadline.append(call)
        self.put(target, (number, request if linked is None else linked))

    def put(self, peer: str, item: Sent) -> None:
        """Put the item into the peer's link, if one exists. A peer that is gone has asked another by now."""
        link = self.links.get(peer)
        if link is not None:
            link.send(item)
            self.due[peer] = None

    def linked(self, peer: str, link: Link) -> None:
        """Take the peer's first or fresh link, and send all its requests under way over it."""
        self.links[peer] = link
        for call in self._calls.values():
            if call.target == peer:
                self.put(peer, (call.number, call.request))

    def asked(self, peer: str, number: int) -> Request | None:
        """Return the peer's request with this number; ``None``: it is no longer under way."""
        call = self._calls.get(number)
        return call.request if call is not None and call.target == peer else None

    def answer(self, peer: str, number: int, code: str, value: Any, now: float) -> None:
        """Handle an answer. Ignore it if the request was sent elsewhere since, or given up."""
        call = self._calls.get(number)
        if call is None or call.target != peer:
            return
        if code == NOT_HOME:
            call.target = ""
            self._again.append((now + RETRY_S, call))
            return
        if code == WAIT:
            call.waits = True
            call.deadline = now + PATIENCE_S
            self._patient.append((call.deadline, call))
            return
        del self._calls[number]
        if code:
            call.asker.failed(call, code, value)
        else:
            call.asker.answered(call, value)
        call.request = None  # the call stays queued until its deadline, without its content
        call.context = None

    def _lost(self, call: Call) -> None:
        """Send the request to the endpoint that the asker names, since its receiver will not answer."""
        target = call.asker.lost(call)
        if target is not None:
            call.target = target
            self.put(target, (call.number, call.request))
        elif self._calls.get(call.number) is call:
            del self._calls[call.number]

    def ask_again(self) -> None:
        """Repeat the requests at once that wait for new homes of their slots."""
        again, self._again = self._again, deque()
        for _, call in again:
            if self._calls.get(call.number) is call and not call.target:
                self._lost(call)

    def unlink(self, peer: str) -> None:
        """Drop a link that has been down for longer than any request on it can take. The requests under way go over the
        next link."""
        self.links.pop(peer, None)

    def gone(self, peer: str) -> None:
        """Handle a peer that died or left: its requests go to other endpoints."""
        self.links.pop(peer, None)
        for call in [call for call in self._calls.values() if call.target == peer]:
            call.target = ""
            self._lost(call)

    def tick(self, now: float) -> None:
        """Repeat the due requests, and give up the overdue ones."""
        while self._again and self._again[0][0] <= now:
            _, call = self._again.popleft()
            if self._calls.get(call.number) is call and not call.target:
                self._lost(call)
        while self._by_deadline and (self._by_deadline[0].waits or self._by_deadline[0].deadline <= now):
            call = self._by_deadline.popleft()
            if not call.waits:
                self._give_up(call)
        while self._patient and self._patient[0][0] <= now:
            deadline, call = self._patient.popleft()
            if call.deadline == deadline:
                self._give_up(call)
        # Answered calls leave the deque only when their deadline comes: skip those in front early to free them.
        while self._by_deadline and self._calls.get(self._by_deadline[0].number) is not self._by_deadline[0]:
            self._by_deadline.popleft()

    def _give_up(self, call: Call) -> None:
        # The number alone does not suffice: a part can repeat a settled request under it.
        if self._calls.get(call.number) is call:
            del self._calls[call.number]
            call.asker.failed(call, "peer_unavailable", "Another endpoint did not answer in time")
