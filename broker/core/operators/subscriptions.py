"""The command `subscriptions`, which lists a client's topics page by page. SPEC section 2.3.

Owns: the description of each topic on a page. Must never: change any state of the cluster, or answer from a cache that
may be older than the store.
"""

from __future__ import annotations

from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command, success

from ..connections.hub import Connection
from ..desk import Desk
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part
from ..stores import unavailable
from .words import PAIRS_PER_READ, REPLY_FILTER_BYTES, filter_bytes, said


class Subscriptions(Part):
    """Handles the `subscriptions` commands at one endpoint."""

    def __init__(self, desk: Desk, replies: Replies) -> None:
        self._desk = desk
        self._replies = replies

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``. A connection has only one such command in progress at a time. A page can have megabytes, and
        would otherwise have to wait in memory for earlier replies."""
        return {"subscriptions": CommandSpec(self.subscriptions, overlaps=False)}

    def subscriptions(self, connection: Connection, command: Command) -> None:
        """Reply with one page of the topics that a client has subscribed to."""
        self._read_topics((connection, self._replies.expect(connection), command))

    def _read_topics(self, context: Any) -> None:
        command = context[2]
        self._desk.store("topics", (command.client, command.cursor, command.limit), self._topics, context)

    def _topics(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command = context
        if isinstance(error, ValueError):
            refusal = ProtocolError("bad_state", f"Key 'cursor': {error}")
            self._replies.refuse(connection, reply, command.id, refusal)
        elif error is not None:
            self._refuse(context, error)
        else:
            self._read_next((*context, result, [], {}), 0, 0)

    def _read_next(self, context: Any, start: int, size: int) -> None:
        """Read the client's next subscriptions at the page's topics, beginning with topic number ``start``. ``context``
        holds the page, and the topics and subscriptions collected for the reply so far. ``size`` counts the bytes of
        their filters."""
        connection, reply, command, (topics, cursor), named, words = context
        pairs = [(command.client, topic) for topic in topics[start : start + PAIRS_PER_READ]]
        if pairs:
            self._desk.store("subscriptions_of", (pairs,), self._read, (context, start, size))
            return
        fields: dict[str, Any] = {"topic": named, "cursor": cursor}
        if words:
            fields["subscriptions"] = words
        self._replies.reply(connection, reply, success(command.id, **fields))

    def _read(self, context: Any, result: Any, error: Exception | None) -> None:
        page, start, size = context
        connection, reply, command, (topics, _), named, words = page
        if error is not None:
            self._refuse(page, error)
            return
        for number, held in enumerate(result, start):
            size += filter_bytes(held)
            if size > REPLY_FILTER_BYTES and number:
                # Read a shorter page instead. The store then returns the cursor for the end of the shorter page.
                self._read_topics((connection, reply, command._replace(limit=number)))
                return
            if held:  # otherwise the subscription has ended since the page was read
                named.append(topics[number])
                if (of_topic := said(held)) is not None:
                    words[topics[number]] = of_topic
        self._read_next(page, start + PAIRS_PER_READ, size)

    def _refuse(self, context: Any, error: Exception) -> None:
        connection, reply, command = context[:3]
        self._replies.refuse(connection, reply, command.id, unavailable(error))
