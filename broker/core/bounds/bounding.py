"""The commands with which clients set their bounds and confirm the notifications that they have processed. SPEC section
2.8.

Owns: the moments at which rules and windows take effect. Must never: hold a message (``holding`` does).
"""

from __future__ import annotations

from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command, success

from ..clients.announcement import OfListen
from ..connections.hub import Connection
from ..desk import Desk
from ..history.admitting import Admitting
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part
from .holding import Holding


class Bounded(OfListen):
    """The bounds and the window in a ``listen``, which take effect when the ``listen`` succeeds."""

    def __init__(self, holding: Holding, connection: Connection, client: str, text: str | None, window: int) -> None:
        self._holding = holding
        self._connection = connection
        self._client = client
        self._text = text
        self._window = window

    def succeeded(self) -> dict[str, Any]:
        """See ``OfListen``."""
        if self._connection.closed or self._client not in self._connection.clients:
            return {}
        if self._window:
            self._holding.attach(self._connection).window = self._window
        return self._holding.say(self._connection, self._client, self._text)

    def failed(self) -> None:
        """See ``OfListen``."""
        self._holding.detach_unused(self._connection)


class Bounding(Part):
    """Handles the commands for bounds at one endpoint. This part comes after ``admitting`` in the list of parts. Its
    ``listen`` handler therefore replaces the handler of ``admitting``, and receives each ``listen`` first."""

    def __init__(self, desk: Desk, replies: Replies, admitting: Admitting, holding: Holding) -> None:
        self._desk = desk
        self._replies = replies
        self._admitting = admitting
        self._holding = holding

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``."""
        return {
            "listen": self._admitting.commands()["listen"].taken_by(self.listen),
            "bounds": CommandSpec(self.bounds),
            "credit": CommandSpec(self.credit, overtakes=True),
        }

    def listen(self, connection: Connection, command: Command) -> None:
        """Handle a client's ``listen``. Its window takes effect immediately. Its bounds take effect when the ``listen``
        succeeds."""
        text, window, _ = command.flow
        if text is None and self._holding.defaults:
            text = self._holding.defaults
        if text is None and not window and connection not in self._holding.receivers:
            self._admitting.listen(connection, command)
            return
        if window:
            receiver = self._holding.receivers.get(connection)
            if connection.has_listened and (receiver is None or not receiver.window):
                info = "Key 'window': the first listen of this connection had no window; connect again to set one"
                self._replies.refuse(connection, None, command.id, ProtocolError("bad_state", info))
                return
            self._holding.attach(connection)  # its window takes effect now
        more = Bounded(self._holding, connection, command.client, text, window)
        self._admitting.listen(connection, command, more)

    def bounds(self, connection: Connection, command: Command) -> None:
        """Handle a client's ``bounds``: replace the client's rules."""
        if command.client not in connection.clients:
            info = "The client does not listen on this connection; send its listen first"
            self._replies.refuse(connection, None, command.id, ProtocolError("bad_state", info))
            return
        fields = self._holding.say(connection, command.client, command.flow.bounds)
        fields.setdefault("bounds", [])
        self._replies.reply(connection, self._replies.expect(connection), success(command.id, **fields))

    def credit(self, connection: Connection, command: Command) -> None:
        """Handle a client's ``credit``. Reply only to refuse the command."""
        receiver = self._holding.receivers.get(connection)
        if receiver is None or not receiver.window:
            info = "This connection has no window; send a window with its first listen"
            self._replies.refuse(connection, None, command.id, ProtocolError("bad_state", info))
            return
        processed = command.flow.processed
        if processed > receiver.sent:
            info = f"Key 'count' has {processed}, but only {receiver.sent} notifications were sent"
            self._replies.refuse(connection, None, command.id, ProtocolError("bad_state", info))
            return
        self._holding.credit(receiver, processed)
