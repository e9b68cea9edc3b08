"""The command `history`, which returns a topic's retained messages to a client that may subscribe to the topic. SPEC
section 2.7.

Owns: the `history` commands in progress. Must never: send a notification.
"""

from __future__ import annotations

from typing import Any

from orjson import Fragment

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.messages import Command, mid_of, parse_mid, success

from ..cluster.homes import Homes
from ..connections.hub import Connection, Reply
from ..desk import Desk, in_turn
from ..filters.pattern import conjunctions, matches
from ..links.calls import TIMEOUT_S, Call
from ..links.requests import HistoryPage, HistoryRequest
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part
from ..retained.retention import Retention
from .history_server import HistoryServer


class Asked:
    """A `history` command in progress."""

    __slots__ = ("command", "connection", "question", "reply", "until")

    def __init__(
        self, connection: Connection, reply: Reply, command: Command, question: HistoryRequest, until: float
    ) -> None:
        self.connection = connection
        self.reply = reply
        self.command = command
        self.question = question
        self.until = until


class Asking(Part):
    """Handles the `history` commands at one endpoint."""

    def __init__(
        self, desk: Desk, me: str, homes: Homes, retention: Retention, history_server: HistoryServer, replies: Replies
    ) -> None:
        self._desk = desk
        self._me = me
        self._homes = homes
        self._retention = retention
        self._history_server = history_server
        self._replies = replies
        self._again: list[Asked] = []

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``."""
        return {"history": CommandSpec(self.history)}

    def history(self, connection: Connection, command: Command) -> None:
        """Handle a client's ``history`` command."""
        reply = self._replies.expect(connection)
        refusal = self._retention.refusal()
        name = parse_mid(command.since) if command.since is not None else None
        if refusal is None and command.since is not None and name is None:
            refusal = ProtocolError("bad_state", "Key 'since' must be a 'mid' that an endpoint has sent")
        if refusal is not None:
            self._replies.refuse(connection, reply, command.id, refusal)
            return
        latest = 0 if name is not None else command.last or command.limit
        question = HistoryRequest(command.client, 0, list(command.topics), latest, name, command.last or command.limit)
        self._ask(Asked(connection, reply, command, question, self._desk.now + TIMEOUT_S))

    def _ask(self, asked: Asked) -> None:
        question = asked.question
        assert question.topics is not None
        home = self._homes.table[slot_of(question.topics[0])]
        if home == self._me:
            self._history_server.ask(question, self._told, asked)
        else:
            self._desk.ask(home, question, self, asked)

    def answered(self, call: Call, value: Any) -> None:
        """Handle the home's answer."""
        self._told(call.context, value)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Refuse the command, because the home reported an error or did not answer in time."""
        asked: Asked = call.context
        self._replies.refuse(asked.connection, asked.reply, asked.command.id, ProtocolError(code, info))

    def lost(self, call: Call) -> str | None:
        """Ask again at the next tick, because the endpoint that got the question is gone or is no longer the home."""
        self._told(call.context, None)
        return None

    def tick(self) -> None:
        """Repeat the requests whose topic has just changed its home."""
        if self._again:
            again, self._again = self._again, []
            for asked in again:
                self._ask(asked)

    def _told(self, asked: Any, answer: Any) -> None:
        connection, command = asked.connection, asked.command
        if answer is None:
            if self._desk.now >= asked.until:
                text = "No endpoint became the home of this topic in time"
                self._replies.refuse(connection, asked.reply, command.id, ProtocolError("peer_unavailable", text))
            else:
                self._again.append(asked)
            return
        self._desk.job(in_turn(self._reply, asked, answer))

    def _reply(self, asked: Asked, answer: HistoryPage) -> None:
        """Send the reply in a separate turn, because it can be as large as a megabyte."""
        command = asked.command
        pattern = None if command.filter is None else conjunctions(command.filter)
        publications: list[dict[str, Any]] = []
        mid: str | None = None
        for _, payload, origin, number, _ in answer.rows:
            mid = mid_of(origin, number)
            if pattern is not None and not matches(pattern, payload):
                continue
            publications.append({"broadcast": Fragment(payload), "mid": mid})
        fields: dict[str, Any] = {"publications": publications, "mid": mid, "more": answer.number != 0}
        if command.since is not None:
            fields["recovered"] = not answer.gap_topics
            if mid is None:
                fields["mid"] = command.since if not answer.gap_topics else None
        self._replies.reply(asked.connection, asked.reply, success(command.id, **fields))
