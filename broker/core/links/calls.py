"""Requests to other endpoints: sent over the link, answered, refused, made again, or given up.

Owns: the requests under way, their time-outs, and the numbers that tell them apart. Must never: know what is asked.

A request has a number that stays its own when it is made again to another endpoint (a publish is known by it). What is
to become of an answer is up to the part that asked (``Asker``).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from ingeborg.protocol.native import mypyc_attr

from .frames import Sent
from .link import Link
from .requests import Request

#: How long an answer may take, in seconds. Longer than a store's own time-out, so that its reason gets through.
TIMEOUT_S: Final = 5.0

#: How long to wait before a request that its receiver was not home for is made again, in seconds.
RETRY_S: Final = 0.05


#: A home's answer to a publish that it has dispatched and retains. Its answer is ``False`` if it does not retain the
#: message, and ``True`` for a duplicate.
RETAINED: Final = "kept"

#: The answer of an endpoint that is not home of the topic: ask again, the views will agree.
NOT_HOME: Final = "not_home"


#: The answer of an endpoint that leaves to what is for a home.
LEAVING: Final = "leaving"

#: An answer before the answer, as often as one likes: it takes longer.
WAIT: Final = "wait"

#: How much longer an answer may take each time, in seconds.
PATIENCE_S: Final = 10.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Asker:
    """A part that makes requests."""

    def answered(self, call: Call, value: Any) -> None:
        """It was done."""

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It was refused, or not answered in time. ``info`` is a text, or what the refusing part gave."""

    def lost(self, call: Call) -> str | None:
        """Its receiver is gone, or not the home any more. Returns the incarnation to ask instead; ``None``: the part
        does without an answer from here on."""
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
        self.waits = False  # its receiver has asked for more time


class Calls:
    """All requests of this endpoint that are under way."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}  # by the peer's incarnation
        self.due: dict[str, None] = {}  # peers whose links may have something to send at the end of the turn
        self._number = 0
        self._calls: dict[int, Call] = {}
        # Every call has the same time-out from its start, so the order of starting is that of the deadlines. A call
        # made again keeps its deadline, and with it its place.
        self._by_deadline: deque[Call] = deque()
        self._again: deque[tuple[float, Call]] = deque()
        # New deadlines of those whose receivers need longer, in their order; only a call's last one counts.
        self._patient: deque[tuple[float, Call]] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def number(self) -> int:
        """A number never used before by this incarnation."""
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
        """Ask the peer. Where there is no link to it yet, the request waits for one.

        ``number``: one that was drawn before; 0: a new one. ``linked``: goes over the present link instead, since it
        means the same there, and only there.
        """
        if not number:
            number = self.number()
        call = Call(number, target, request, asker, context, now + TIMEOUT_S)
        self._calls[number] = call
        self._by_deadline.append(call)
        self.put(target, (number, request if linked is None else linked))

    def put(self, peer: str, item: Sent) -> None:
        """Put the item into the peer's link, if there is one. A peer that is gone has asked another by now."""
        link = self.links.get(peer)
        if link is not None:
            link.send(item)
            self.due[peer] = None

    def linked(self, peer: str, link: Link) -> None:
        """The peer has a link now, or a fresh one: what it is being asked goes over it from the start."""
        self.links[peer] = link
        for call in self._calls.values():
            if call.target == peer:
                self.put(peer, (call.number, call.request))

    def asked(self, peer: str, number: int) -> Request | None:
        """What the peer is being asked under this number; ``None``: nothing any more."""
        call = self._calls.get(number)
        return call.request if call is not None and call.target == peer else None

    def answer(self, peer: str, number: int, code: str, value: Any, now: float) -> None:
        """An answer came. One to a request that was made again elsewhere, or was given up, means nothing now."""
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
        call.request = None  # it waits for its deadline in the row below, without what it carried
        call.context = None

    def _lost(self, call: Call) -> None:
        """Its receiver will not answer: the part that asked says who is to be asked instead."""
        target = call.asker.lost(call)
        if target is not None:
            call.target = target
            self.put(target, (call.number, call.request))
        elif self._calls.get(call.number) is call:
            del self._calls[call.number]

    def ask_again(self) -> None:
        """Slots have other homes: make again at once what waits for that."""
        again, self._again = self._again, deque()
        for _, call in again:
            if self._calls.get(call.number) is call and not call.target:
                self._lost(call)

    def unlink(self, peer: str) -> None:
        """The link has been down for longer than any request on it may take: nothing on it is of use any more. The
        requests under way go over the next one.
        """
        self.links.pop(peer, None)

    def gone(self, peer: str) -> None:
        """The peer is dead or has left: whoever asked it has to ask another."""
        self.links.pop(peer, None)
        for call in [call for call in self._calls.values() if call.target == peer]:
            call.target = ""
            self._lost(call)

    def tick(self, now: float) -> None:
        """Make again what is due, give up what is overdue."""
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
        # The number alone would not do: what was settled may have been asked again under it.
        if self._calls.get(call.number) is call:
            del self._calls[call.number]
            call.asker.failed(call, "peer_unavailable", "Another endpoint did not answer in time")
