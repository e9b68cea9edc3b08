"""The endpoints' figures, for operators. SPEC section 2.4.

Owns: the question under way. Must never: change anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command, success

from ..cluster.membership import Membership
from ..connections.hub import Connection, Reply
from ..desk import Desk
from ..links.calls import Call
from ..links.requests import FiguresRequest, Request
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part, RequestHandler
from .words import WAITING_MAX, too_many

#: How long the other endpoints can take to give their figures, in seconds. People wait for the answer, and if an
#: endpoint is slower, that is what they need to know.
FIGURES_S: Final = 1.0


class Census:
    """A question for all endpoints' figures. Operators that ask meanwhile share its answer."""

    __slots__ = ("answers", "asked", "askers", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.askers: list[tuple[Connection, Reply, Any]] = []  # with the ids of their commands
        self.asked: set[str] = set()  # peers that have not answered
        self.answers: dict[str, Any] = {}  # incarnation -> its own figures


class Inspecting(Part):
    """One endpoint's part. ``figures``: what this endpoint tells operators about itself."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        replies: Replies,
        figures: Callable[[], dict[str, Any]],
    ) -> None:
        self._desk = desk
        self._me = members.me
        self._members = members
        self._replies = replies
        self._figures = figures
        self._census: Census | None = None  # under way

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``."""
        return {"endpoints": CommandSpec(self.endpoints)}

    def requests(self) -> dict[type[Request], RequestHandler]:
        """See ``Part``."""
        return {FiguresRequest: self.figures_requested}

    # The endpoints

    def endpoints(self, connection: Connection, command: Command) -> None:
        """Ask every endpoint for its figures."""
        reply = self._replies.expect(connection)
        census = self._census
        if census is None:
            census = Census(self._desk.now + FIGURES_S)
            try:
                census.answers[self._me.incarnation] = self._figures()
            except Exception:  # the shell's error, which it logs; a missing figure is no reason to stop
                refusal = ProtocolError("internal", "This endpoint could not read its figures: its log says why")
                self._replies.refuse(connection, reply, command.id, refusal)
                return
            self._census = census
            census.asked = {peer for peer, state in self._members.peers.items() if state.connected}
            for peer in tuple(census.asked):
                self._desk.ask(peer, FiguresRequest(), self, (census, peer))
        elif len(census.askers) >= WAITING_MAX:
            self._replies.refuse(connection, reply, command.id, too_many())
            return
        census.askers.append((connection, reply, command.id))
        self._complete(census)

    def figures_requested(self, peer: str, number: int, request: FiguresRequest) -> None:
        """Answer a peer that an operator has asked."""
        try:
            figures = self._figures()
        except Exception:  # not the link's fault
            self._desk.decline(peer, number, "internal", "this endpoint could not read its figures")
        else:
            self._desk.answer(peer, number, figures)

    def answered(self, call: Call, value: Any) -> None:
        """Take a peer's figures."""
        census, peer = call.context
        census.answers[peer] = value
        census.asked.discard(peer)
        self._complete(census)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Answer without the figures of a peer that has refused."""
        census, peer = call.context
        census.asked.discard(peer)
        self._complete(census)

    def lost(self, call: Call) -> str | None:
        """Answer without the figures of a peer that is gone."""
        census, peer = call.context
        census.asked.discard(peer)
        self._complete(census)
        return None

    def tick(self) -> None:
        """Answer operators that have waited long enough."""
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
