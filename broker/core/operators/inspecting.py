"""The command `endpoints`, which shows operators the figures of every endpoint. SPEC section 2.4.

Owns: the current request for figures. Must never: change any state of the cluster.
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

#: The longest time to wait for the other endpoints' figures, in seconds. It is short because people wait for the reply.
#: If an endpoint is slower, the reply lists it as not up.
FIGURES_S: Final = 1.0


class Census:
    """A request to all endpoints for their figures. Operators that send the command while this request is in progress
    share its result."""

    __slots__ = ("answers", "asked", "askers", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.askers: list[tuple[Connection, Reply, Any]] = []  # (connection, place of the reply, the command's id)
        self.asked: set[str] = set()  # peers that have not answered yet
        self.answers: dict[str, Any] = {}  # the figures of each endpoint, by its incarnation


class Inspecting(Part):
    """Handles the `endpoints` commands at one endpoint. ``figures`` returns the figures of this endpoint."""

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
        self._census: Census | None = None  # the request in progress

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
            except Exception:  # the shell logs the error; missing figures must not stop the endpoint
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
        """Send this endpoint's figures to a peer, because an operator has asked the peer."""
        try:
            figures = self._figures()
        except Exception:  # do not treat this as an error of the link
            self._desk.decline(peer, number, "internal", "this endpoint could not read its figures")
        else:
            self._desk.answer(peer, number, figures)

    def answered(self, call: Call, value: Any) -> None:
        """Add a peer's figures."""
        census, peer = call.context
        census.answers[peer] = value
        census.asked.discard(peer)
        self._complete(census)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Stop waiting for a peer that has refused to send its figures."""
        census, peer = call.context
        census.asked.discard(peer)
        self._complete(census)

    def lost(self, call: Call) -> str | None:
        """Stop waiting for a peer that is gone."""
        census, peer = call.context
        census.asked.discard(peer)
        self._complete(census)
        return None

    def tick(self) -> None:
        """Reply without the missing figures when the time is over."""
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
