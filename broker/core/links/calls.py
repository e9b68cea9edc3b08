"""Sends requests to other endpoints over their links. If no answer can come, it repeats the request at another endpoint
or gives it up.

Owns: the requests in progress, their time-outs, and the numbers that identify them. Must never: know a request's
meaning.

A request keeps its number when it is sent to another endpoint, because the number also identifies a publish. The part
that made the request (``Asker``) handles the answer.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from msgspec import UNSET

from ingeborg.protocol.native import mypyc_attr

from .frames import Sent
from .link import Link
from .requests import Request

#: The longest time to wait for an answer, in seconds. It is longer than the time-out of store calls. If the peer's
#: store is down, the store's error therefore arrives before this time-out.
TIMEOUT_S: Final = 5.0

#: Seconds to wait before repeating a request whose receiver was not the home.
RETRY_S: Final = 0.05


#: A home's answer to a publish that it has dispatched and retains. The home answers ``False`` if it has dispatched the
#: message without retaining it, and ``True`` if the message is a duplicate. If the home has given the message another
#: name, it answers with a tuple instead (``requests.PublishRequest``).
RETAINED: Final = "kept"

#: The answer of an endpoint that is not the topic's home. The asker retries, since the two endpoints' views of the
#: cluster will agree soon.
NOT_HOME: Final = "not_home"


#: An endpoint that is leaving the cluster gives this answer to requests that only a home can carry out.
LEAVING: Final = "leaving"

#: A preliminary answer, which says that the actual answer takes longer. A receiver can send it several times.
WAIT: Final = "wait"

#: After each ``WAIT`` the asker waits for this long, in seconds.
PATIENCE_S: Final = 10.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Asker:
    """A part that makes requests."""

    def answered(self, call: Call, value: Any) -> None:
        """Handle the answer to a request that succeeded."""

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Handle a refusal or a time-out. ``info`` is a text, or a text with further fields for the client."""

    def lost(self, call: Call) -> str | None:
        """Choose another receiver, because the present one is gone or is no longer the home.

        Returns:
            The incarnation to ask instead, or ``None`` if the part no longer needs an answer.
        """
        return None


class Call:
    """One request that waits for its answer."""

    __slots__ = ("asker", "context", "deadline", "number", "request", "target", "waits")

    def __init__(self, number: int, target: str, request: Request, asker: Asker, context: Any, deadline: float) -> None:
        self.number = number
        self.target = target  # the incarnation of the peer that should answer
        self.request: Any = request
        self.asker = asker
        self.context = context
        self.deadline = deadline
        self.waits = False  # whether its receiver has answered ``WAIT``


class Calls:
    """All requests of this endpoint that wait for an answer."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}  # indexed by the peer's incarnation
        self.due: dict[str, None] = {}  # peers whose links may have items to send at the end of the turn
        self._number = 0
        # Whether answers to this endpoint may wait at peers that have got no ``Hurry``, or none that goes on.
        self._may_wait = self._may_wait_on = False
        # All calls have the same time-out, so they are in the order of their deadlines. A repeated call keeps its
        # deadline and its place. A call whose receiver has answered ``WAIT`` keeps its place, but has a later deadline.
        self._calls: dict[int, Call] = {}
        self._again: deque[tuple[float, Call]] = deque()

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
        can_wait: bool = False,
    ) -> None:
        """Send a request to the peer. If there is no link to the peer, the request waits until one exists.

        Args:
            target: The peer's incarnation.
            request: The request, in a form that is valid on every link.
            asker: The part that gets the answer.
            context: An object that the asker gets back with the answer.
            now: Monotonic seconds.
            number: A number that ``number()`` has returned, or 0 to draw a new number.
            linked: The record to send instead of ``request`` over the present link, or ``None``. It has the same
                meaning as ``request`` on this link, and no meaning on any other link.
            can_wait: Whether the request says that its answer can wait.
        """
        if not number:
            number = self.number()
        self._calls[number] = Call(number, target, request, asker, context, now + TIMEOUT_S)
        link = self.put(target, (number, request if linked is None else linked))
        if can_wait and link is not None:
            self._may_wait = self._may_wait_on = True
            link.patient = max(link.patient, number)

    def hurry(self, goes_on: bool = True) -> None:
        """Ask all peers for the answers that they let wait, because somebody now waits for an earlier request.
        ``goes_on``: see ``Hurry``."""
        if not (self._may_wait_on if goes_on else self._may_wait):
            return
        self._may_wait = False
        if goes_on:
            self._may_wait_on = False
        for peer, link in self.links.items():
            if link.hurry(goes_on):
                self.due[peer] = None

    def put(self, peer: str, item: Sent) -> Link | None:
        """Put the item into the peer's link, and return the link. If there is no link, drop the item. A peer that is
        gone needs no answer, and a new link gets all unanswered requests again."""
        link = self.links.get(peer)
        if link is not None:
            link.send(item)
            self.due[peer] = None
        return link

    def answer_usually(self, peer: str, number: int, can_wait: bool = False) -> None:
        """Put the usual answer to the peer's request with this number into the peer's link, if there is a link."""
        link = self.links.get(peer)
        if link is not None:
            link.answer_usually(number, can_wait)
            self.due[peer] = None

    def linked(self, peer: str, link: Link) -> None:
        """Use a new link to the peer, and resend over it all requests that wait for this peer's answer."""
        self.links[peer] = link
        for call in self._calls.values():
            if call.target == peer:
                self.put(peer, (call.number, call.request))
        link.patient = self._number  # some of these requests may say that their answers can wait
        self._may_wait = self._may_wait_on = True

    def asked(self, peer: str, number: int) -> Request | None:
        """Return the request with this number if the peer has yet to answer it, else ``None``."""
        call = self._calls.get(number)
        return call.request if call is not None and call.target == peer else None

    def answer(self, peer: str, number: int, code: str, value: Any, now: float) -> None:
        """Handle a peer's answer. Ignore it if the request has been given up, or has meanwhile been sent to another
        endpoint."""
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
            return
        del self._calls[number]
        if code:
            call.asker.failed(call, code, value)
        else:
            call.asker.answered(call, value)

    def answered_usually(self, peer: str, numbers: list[int], now: float) -> None:
        """Handle a peer's usual answers to the requests with these numbers, as ``answer`` does."""
        calls = self._calls
        for number in numbers:
            call = calls.get(number)
            if call is not None and call.target == peer:
                usual = call.request.usual
                if usual is UNSET:
                    self.answer(peer, number, "internal", "the answer is malformed", now)
                    continue
                del calls[number]
                call.asker.answered(call, usual)

    def _lost(self, call: Call) -> None:
        """Send the request to the endpoint that the asker chooses, because the present receiver will not answer."""
        target = call.asker.lost(call)
        if target is not None:
            call.target = target
            self.put(target, (call.number, call.request))
        elif self._calls.get(call.number) is call:
            del self._calls[call.number]

    def ask_again(self) -> None:
        """Immediately repeat all requests whose receiver was not the home."""
        again, self._again = self._again, deque()
        for _, call in again:
            if self._calls.get(call.number) is call and not call.target:
                self._lost(call)

    def unlink(self, peer: str) -> None:
        """Drop a link that has been down for longer than the time-out of any request. Unanswered requests to this peer
        will use the next link."""
        self.links.pop(peer, None)

    def gone(self, peer: str) -> None:
        """Handle a peer that died or left. Requests to this peer go to other endpoints."""
        self.links.pop(peer, None)
        for call in [call for call in self._calls.values() if call.target == peer]:
            call.target = ""
            self._lost(call)

    def tick(self, now: float) -> None:
        """Repeat the requests that are due, and give up those whose deadline has passed."""
        while self._again and self._again[0][0] <= now:
            _, call = self._again.popleft()
            if self._calls.get(call.number) is call and not call.target:
                self._lost(call)
        late = []
        for call in self._calls.values():
            if call.deadline <= now:
                late.append(call)
            elif not call.waits:
                break
        for call in late:
            self._give_up(call)

    def _give_up(self, call: Call) -> None:
        # Comparing numbers would not suffice, because a part can repeat a settled request under the same number.
        if self._calls.get(call.number) is call:
            del self._calls[call.number]
            call.asker.failed(call, "peer_unavailable", "Another endpoint did not answer in time")
