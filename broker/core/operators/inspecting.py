"""What is looked at: a client's topics; for operators the endpoints' figures, a topic's subscribers, a client's place.
SPEC sections 2.3 and 2.4.

Owns: the questions under way. Must never: change anything, or answer from a cache what the store knows better.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command, success

from ..clients.hub import Connection, Reply
from ..clients.replies import Replies
from ..cluster.features import Switch
from ..cluster.membership import Membership
from ..desk import Desk
from ..limits import SIZES, Sizes
from ..links.calls import Call, Kind
from ..model import Location, Term
from ..part import CommandHandler, Part, RequestHandler
from ..stores import unavailable

#: How long the other endpoints may take to give their figures, in seconds: people wait for the answer, and one that
#: takes longer is what they are looking for.
FIGURES_S: Final = 1.0

#: Sets of subscribers that are read and sorted at once: each may be so large that memory has room for two.
READS_AT_ONCE: Final = 2

#: Questions that may wait for others to be answered, some 500 bytes each; more are refused. People ask them, and who
#: comes to a topic with presence.
WAITING_MAX: Final = 1_000


class Census:
    """The endpoints' figures, being asked for; whoever asks meanwhile is answered with it."""

    __slots__ = ("answers", "asked", "askers", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.askers: list[tuple[Connection, Reply, Any]] = []  # and the ids of their commands
        self.asked: set[str] = set()  # peers that have not answered
        self.answers: dict[str, Any] = {}  # incarnation -> what it says of itself


class Inspecting(Part):
    """One endpoint's part in answering operators. ``figures``: what this endpoint tells them of itself."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        replies: Replies,
        figures: Callable[[], dict[str, Any]],
        ending: Switch,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._ending = ending
        self._sort_slice = sizes.sort_slice
        self._me = members.me
        self._members = members
        self._replies = replies
        self._figures = figures
        self._census: Census | None = None  # under way
        self._reads = 0  # sets of subscribers, under way
        self._waiting: deque[Any] = deque()

    def commands(self) -> dict[str, CommandHandler]:
        """What clients and operators ask."""
        return {
            "subscriptions": self.subscriptions,
            "endpoints": self.endpoints,
            "subscribers": self.subscribers,
            "location": self.location,
        }

    def requests(self) -> dict[Kind, RequestHandler]:
        """What a peer asks for an operator."""
        return {Kind.FIGURES: self.figures_requested}

    # A client's topics

    def subscriptions(self, connection: Connection, command: Command) -> None:
        """One page of the topics that a client has subscribed to."""
        context = (connection, self._replies.expect(connection), command)
        arguments: tuple[Any, ...] = (command.client, command.cursor, command.limit)
        if self._ending.on:
            arguments = (*arguments, True)
        self._desk.store("topics", arguments, self._topics, context)

    def _topics(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command = context
        if isinstance(error, ValueError):
            refusal = ProtocolError("bad_state", f"Key 'cursor': {error}")
            self._replies.refuse(connection, reply, command.id, refusal)
        elif error is not None:
            self._refuse(context, error)
        else:
            topics, cursor = result
            if self._ending.on and topics:
                pairs = [(command.client, topic) for topic in topics]
                self._desk.store("terms", (pairs,), self._terms, (*context, topics, cursor))
            else:
                self._replies.reply(connection, reply, success(command.id, topic=topics, cursor=cursor))

    def _terms(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command, topics, cursor = context
        if error is not None:
            self._refuse(context, error)
            return
        terms = {topic: _said(term) for topic, term in zip(topics, result, strict=True) if term is not None}
        fields = {"topic": topics, "cursor": cursor, **({"terms": terms} if terms else {})}
        self._replies.reply(connection, reply, success(command.id, **fields))

    # The endpoints

    def endpoints(self, connection: Connection, command: Command) -> None:
        """Ask every endpoint for its figures."""
        reply = self._replies.expect(connection)
        census = self._census
        if census is None:
            census = Census(self._desk.now + FIGURES_S)
            try:
                census.answers[self._me.incarnation] = self._figures()
            except Exception as error:  # of the shell: what it could not find out is no reason to stop
                refusal = ProtocolError("internal", f"this endpoint does not know its figures: {error!r}")
                self._replies.refuse(connection, reply, command.id, refusal)
                return
            self._census = census
            census.asked = {peer for peer, state in self._members.peers.items() if state.connected}
            for peer in tuple(census.asked):
                self._desk.ask(Kind.FIGURES, peer, (), self, (census, peer))
        elif len(census.askers) >= WAITING_MAX:
            self._refuse_more(connection, reply, command)
            return
        census.askers.append((connection, reply, command.id))
        self._complete(census)

    def figures_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """A peer is being asked by an operator."""
        try:
            figures = self._figures()
        except Exception as error:  # not the link's fault
            self._desk.decline(peer, number, "internal", repr(error))
        else:
            self._desk.answer(peer, number, figures)

    def answered(self, call: Call, value: Any) -> None:
        """A peer's figures."""
        census, peer = call.context
        census.answers[peer] = value
        census.asked.discard(peer)
        self._complete(census)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It has none for us."""
        census, peer = call.context
        census.asked.discard(peer)
        self._complete(census)

    def lost(self, call: Call) -> str | None:
        """It is gone."""
        census, peer = call.context
        census.asked.discard(peer)
        self._complete(census)
        return None

    def tick(self) -> None:
        """Answer what has waited long enough."""
        census = self._census
        if census is not None and census.deadline <= self._desk.now:
            census.asked.clear()
            self._complete(census)

    def _complete(self, census: Census) -> None:
        if census.asked or census is not self._census:
            return
        self._census = None
        me = self._me
        rows = [{"name": me.name, "url": me.url, "me": True, "up": True, **census.answers[me.incarnation]}]
        for incarnation, peer in self._members.peers.items():
            said = census.answers.get(incarnation)
            row = {"name": peer.endpoint.name, "url": peer.endpoint.url, "me": False, "up": said is not None}
            rows.append({**row, **(said or {"figures": None})})
        rows.sort(key=lambda row: row["name"])
        for connection, reply, number in census.askers:
            self._replies.reply(connection, reply, success(number, endpoints=rows))

    # Subscribers and places

    def subscribers(self, connection: Connection, command: Command) -> None:
        """One page of a topic's subscribers, in the order of their ids, and whether each listens. Where, and until when
        they have subscribed, is the operators' to know."""
        context = (connection, self._replies.expect(connection), command)
        if len(self._waiting) >= WAITING_MAX:
            self._refuse_more(*context)
            return
        self._waiting.append(context)
        self._next()

    def _next(self) -> None:
        while self._waiting and self._reads < READS_AT_ONCE:
            self._reads += 1
            context = self._waiting.popleft()
            topics = list(context[2].topics)
            self._desk.store("subscribers", (topics, True) if self._ending.on else (topics,), self._read, context)

    def _ended(self) -> None:
        self._reads -= 1
        self._next()

    def _refuse_more(self, connection: Connection, reply: Reply, command: Command) -> None:
        refusal = ProtocolError("store_unavailable", f"{WAITING_MAX} others wait for such an answer; ask again later")
        self._replies.refuse(connection, reply, command.id, refusal)

    def _read(self, context: Any, result: Any, error: Exception | None) -> None:
        if error is not None:
            self._refuse(context, error)
            self._ended()
        else:
            self._desk.job(self._page(context, list(result[0])))

    def _page(self, context: Any, clients: list[str]) -> Iterator[bool]:
        command = context[2]
        after = command.cursor or ""
        smallest: list[str] = []
        for start in range(0, len(clients), self._sort_slice):
            behind = [client for client in clients[start : start + self._sort_slice] if client > after]
            smallest = heapq.nsmallest(command.limit + 1, smallest + behind)
            yield False
        self._ended()
        page = smallest[: command.limit]
        cursor = page[-1] if len(smallest) > len(page) else None
        self._desk.store("locations", (page,), self._located, (*context, page, cursor, len(clients)))

    def _located(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command, page, cursor, count = context
        if error is not None:
            self._refuse(context, error)
            return
        operator = connection.grant is None or connection.grant.inspect
        rows: list[dict[str, Any]] = []
        for client, location in zip(page, result, strict=True):
            place = self._name(location)
            row = {"client_id": client, "online": place is not None}
            rows.append({**row, "endpoint": place} if operator else row)
        fields = {"topic": command.topics[0], "count": count, "subscribers": rows, "cursor": cursor}
        if self._ending.on and page and operator:
            pairs = [(client, command.topics[0]) for client in page]
            self._desk.store("terms", (pairs,), self._with_terms, (connection, reply, command, fields))
        else:
            self._replies.reply(connection, reply, success(command.id, **fields))

    def _with_terms(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command, fields = context
        if error is not None:
            self._refuse(context, error)
            return
        for row, term in zip(fields["subscribers"], result, strict=True):
            row.update(_said(term))
        self._replies.reply(connection, reply, success(command.id, **fields))

    def location(self, connection: Connection, command: Command) -> None:
        """Where the client listens."""
        context = (connection, self._replies.expect(connection), command)
        self._desk.store("locations", ([command.client],), self._found, context)

    def _found(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command = context
        if error is not None:
            self._refuse(context, error)
            return
        fields = {"client_id": command.client, "endpoint": self._name(result[0])}
        self._replies.reply(connection, reply, success(command.id, **fields))

    def _refuse(self, context: Any, error: Exception) -> None:
        connection, reply, command = context[:3]
        refusal = unavailable(error)
        self._replies.refuse(connection, reply, command.id, refusal)

    def _name(self, location: Location | None) -> str | None:
        """Of the endpoint where the client listens; ``None``: nowhere, or at one that is dead."""
        if location is None or not location.online:
            return None
        if location.incarnation == self._me.incarnation:
            return self._me.name
        peer = self._members.peers.get(location.incarnation)
        return peer.endpoint.name if peer is not None and peer.dead_since is None else None


def _said(term: Term | None) -> dict[str, Any]:
    """When a subscription ends, as a reply has it; nothing of one that is plain."""
    said: dict[str, Any] = {}
    if term is not None and term.disconnect:
        said["until"] = "disconnect"
    if term is not None and term.ends_at:
        said["ends_at"] = round(term.ends_at, 3)
    return said
