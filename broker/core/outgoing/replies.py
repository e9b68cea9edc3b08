"""Sends replies in the order of their commands, even if the results arrive in another order. SPEC section 1.

Owns: each connection's queue of replies, and the count of commands by result. Must never: begin a command.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import failure

from ..connections.hub import Connection, Reply
from ..counters import Counters
from ..desk import Desk
from .memory import Memory
from .sending import Sending

#: The largest number of commands in progress on one connection. Beyond this number the endpoint stops reading the
#: connection until only half as many commands are in progress.
REPLIES_MAX: Final = 2_000

#: Replies up to this size do not count as held bytes of a connection while they wait for earlier replies.
SHORT_REPLY_BYTES: Final = 256


class Replies:
    """One endpoint's replies."""

    def __init__(self, desk: Desk, sending: Sending, memory: Memory, counters: Counters) -> None:
        self._desk = desk
        self._sending = sending
        self._memory = memory
        self._commands = counters.commands
        self._errors = counters.errors
        #: A callback for every refusal. Its arguments are the connection's number, the command's id, the kind of
        #: command, and the error.
        self.on_refusal: Callable[[int, Any, str, ProtocolError], None] | None = None
        #: Connections whose waiting commands can begin, because enough of their earlier commands have ended.
        self.ready: deque[Connection] = deque()

    def tally(self, kind: str) -> dict[str, int]:
        """Return how many commands of this kind have had each result."""
        return self._commands[kind]

    def expect(self, connection: Connection, waits: bool = True) -> Reply:
        """Reserve the next place in the connection's queue of replies. ``waits``: the client waits for this reply, and
        therefore for all earlier outcomes."""
        replies = connection.replies
        if (waits or len(replies) == REPLIES_MAX // 2) and replies and not replies[-1].is_awaited:
            self.hurry(connection)
        reply = Reply()
        reply.is_awaited = waits
        replies.append(reply)
        return reply

    def hurry(self, connection: Connection) -> None:
        """Record that something on this connection waits for all its outcomes. Ask for those that wait at peers."""
        for reply in reversed(connection.replies):
            if reply.is_awaited:
                break  # and so are all before it
            reply.is_awaited = True
        self._desk.hurry()

    def reply(
        self,
        connection: Connection,
        reply: Reply | None,
        data: bytes | None,
        result: str = "success",
        kind: str | None = None,
    ) -> None:
        """Complete a command with the reply ``data``, or with no reply if ``data`` is ``None``. ``reply`` is the
        command's place in the queue. If it is ``None``, the command gets the next place now.

        The metrics count the command by ``kind`` and ``result``. Without ``kind``, the command counts under the kind of
        the connection's commands in progress.
        """
        tally = self._commands[kind] if kind is not None else connection.tally
        tally[result] = tally.get(result, 0) + 1
        if reply is None:
            if not connection.replies:
                if data is not None:
                    self._sending.push(connection, connection.codec.frame(data), True)
                return
            reply = self.expect(connection, data is not None)
        reply.done = True
        reply.data = data
        replies = connection.replies
        if data is not None and len(data) > SHORT_REPLY_BYTES and replies[0] is not reply:
            reply.held = len(data)
            self._memory.wait(connection, reply.held)
        before = len(replies)
        while replies and replies[0].done:
            first = replies.popleft()
            if first.held:
                self._memory.wait(connection, -first.held)
            if first.data is not None:
                self._sending.push(connection, connection.codec.frame(first.data), True)
        # One reply can release many later replies, so compare the numbers of waiting replies before and after.
        if connection.backlog and (not replies or len(replies) <= REPLIES_MAX // 2 < before):
            self.ready.append(connection)

    def refuse(
        self, connection: Connection, reply: Reply | None, number: Any, error: ProtocolError, name: str | None = None
    ) -> None:
        """Give a command an error reply."""
        self.refuse_as(connection, reply, number, error, name, connection.kind, None)

    def refuse_as(
        self,
        connection: Connection,
        reply: Reply | None,
        number: Any,
        error: ProtocolError,
        name: str | None,
        kind: str,
        counted_as: str | None,
    ) -> None:
        """Give a command of this ``kind`` an error reply. ``counted_as`` is the argument ``kind`` for the method
        ``reply``."""
        self._errors[error.code] += 1
        if self.on_refusal is not None:
            self.on_refusal(connection.number, number, kind, error)
        self.reply(connection, reply, failure(number, error, name), error.code, counted_as)
