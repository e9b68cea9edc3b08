"""A client's topics, page by page. SPEC section 2.3.

Owns: what a page has of each topic. Must never: change anything, or answer from a cache what the store knows better.
"""

from __future__ import annotations

from typing import Any

from orjson import loads

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command, success

from ..clients.hub import Connection, Reply
from ..clients.replies import Replies
from ..desk import Desk
from ..part import CommandHandler, Part
from ..stores import unavailable
from .words import FILTERED_PER_READ, REPLY_FILTER_BYTES, said


class Subscriptions(Part):
    """One endpoint's part."""

    def __init__(self, desk: Desk, replies: Replies) -> None:
        self._desk = desk
        self._replies = replies

    def commands(self) -> dict[str, CommandHandler]:
        """What clients ask, and operators of them."""
        return {"subscriptions": self.subscriptions}

    def subscriptions(self, connection: Connection, command: Command) -> None:
        """One page of the topics that a client has subscribed to."""
        self._subscriptions(connection, self._replies.expect(connection), command)

    def _subscriptions(self, connection: Connection, reply: Reply, command: Command) -> None:
        context = (connection, reply, command)
        self._desk.store("topics", (command.client, command.cursor, command.limit), self._topics, context)

    def _topics(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command = context
        if isinstance(error, ValueError):
            refusal = ProtocolError("bad_state", f"Key 'cursor': {error}")
            self._replies.refuse(connection, reply, command.id, refusal)
        elif error is not None:
            self._refuse(context, error)
        else:
            topics, cursor = result
            fields = {"topic": topics, "cursor": cursor}
            if topics:
                pairs = [(command.client, topic) for topic in topics]
                self._desk.store("terms", (pairs,), self._terms, (*context, fields))
            else:
                self._replies.reply(connection, reply, success(command.id, **fields))

    def _terms(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command, fields = context
        if error is not None:
            self._refuse(context, error)
            return
        terms = {topic: said(term) for topic, term in zip(fields["topic"], result, strict=True) if term is not None}
        if terms:
            fields["terms"] = terms
        self._read_filters((connection, reply, command, fields, {}, 0), 0)

    def _read_filters(self, context: Any, start: int) -> None:
        pairs = [(context[2].client, topic) for topic in context[3]["topic"][start : start + FILTERED_PER_READ]]
        self._desk.store("filters_of", (pairs,), self._filters_read, (*context, start))

    def _filters_read(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command, fields, filters, size, start = context
        if error is not None:
            self._refuse(context, error)
            return
        topics = fields["topic"]
        for number, texts in enumerate(result, start):
            size += sum(map(len, texts))
            if size > REPLY_FILTER_BYTES and number:
                # A shorter page, which has a cursor of its own.
                self._subscriptions(connection, reply, command._replace(limit=number))
                return
            if texts:
                filters[topics[number]] = [loads(text) for text in texts]
        start += FILTERED_PER_READ
        if start < len(topics):
            self._read_filters((connection, reply, command, fields, filters, size), start)
            return
        if filters:
            fields["filters"] = filters
        self._replies.reply(connection, reply, success(command.id, **fields))

    def _refuse(self, context: Any, error: Exception) -> None:
        connection, reply, command = context[:3]
        self._replies.refuse(connection, reply, command.id, unavailable(error))
