"""Admits or refuses the commands that involve retained messages (SPEC section 2.7). These are a `listen` with
`recover`, any `listen` on the connection of a recovering client, and a `subscribe` with `last` or `since`.

Owns: the decision on each of these commands, and the list of commands that wait. A command waits until the journal has
reported how far positions go, or until the previous `listen` has its reply. Must never: carry out a command. The parts
that own the commands carry them out. At the end they call ``Recovery`` or ``RetainedRead``, which start to send the
retained messages.
"""

from __future__ import annotations

from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command

from ..clients.announcement import OfListen
from ..clients.listening import Listening
from ..connections.hub import Connection, Reply
from ..desk import Desk
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part
from ..retained.retention import Retention
from ..topics.change import Change, OfChange
from ..topics.subscribing import Subscribing
from .replaying import Replaying

#: The longest time that a `listen` waits to be admitted, in seconds.
WAIT_S: Final = 5.0

#: The largest number of commands that wait to be admitted.
EARLY_MAX: Final = 10_000


class Recovery(OfListen):
    """Replays the messages that a client has missed since ``position``. An empty ``position`` means that the client has
    none yet."""

    def __init__(
        self, replaying: Replaying, connection: Connection, client: str, position: str, more: OfListen | None
    ) -> None:
        self._replaying = replaying
        self._more = more
        self._connection = connection
        self._client = client
        self._position = position

    def succeeded(self) -> dict[str, Any]:
        """See ``OfListen``."""
        fields = self._replaying.listened(self._connection, self._client, self._position)
        if self._more is not None:
            fields.update(self._more.succeeded())
        return fields

    def failed(self) -> None:
        """See ``OfListen``."""
        if self._more is not None:
            self._more.failed()
        self._replaying.not_listened(self._connection, self._client)


class RetainedRead(OfChange):
    """Sends the retained messages of a ``subscribe``'s topics: the latest messages of each topic, or the messages since
    a position."""

    def __init__(self, replaying: Replaying, subscribing: Subscribing, command: Command) -> None:
        self._replaying = replaying
        self._subscribing = subscribing
        self.topics = list(command.topics)
        self._latest = command.last
        self._since = command.since
        self._change: Change | None = None

    def succeeded(self, change: Change) -> None:
        """See ``OfChange``."""
        self._change = change
        if self.topics:
            self._replaying.read_retained(
                change.connection, self.topics, self._since, self._latest, change.filter, self._read
            )
        else:
            self._read(True, False)

    def failed(self, change: Change) -> None:
        """See ``OfChange``."""
        if self.topics:
            self._replaying.not_subscribed(change.connection)
        self._subscribing.reply(change, {})

    def _read(self, is_whole: bool, has_gap: bool) -> None:
        change = self._change
        assert change is not None
        if not is_whole:
            text = "The subscription is stored, but its kept messages could not be read; send the command again"
            change.error = ProtocolError("peer_unavailable", text)
        self._subscribing.reply(change, {"recovered": not has_gap})


class Admitting(Part):
    """Admits or refuses these commands at one endpoint. This part comes after ``listening`` and ``subscribing`` in the
    list of parts. So it replaces their handlers, and receives their commands first."""

    def __init__(
        self,
        desk: Desk,
        retention: Retention,
        replies: Replies,
        replaying: Replaying,
        listening: Listening,
        subscribing: Subscribing,
    ) -> None:
        self._desk = desk
        self._retention = retention
        self._replies = replies
        self._replaying = replaying
        self._listening = listening
        self._subscribing = subscribing
        self._early: list[tuple[float, Connection, Command, Reply, OfListen | None]] = []

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``. These are other parts' commands that can request retained messages."""
        listen = self._listening.commands()["listen"].taken_by(self.listen)
        return {"listen": listen, "subscribe": self._subscribing.commands()["subscribe"].taken_by(self.subscribe)}

    def listen(self, connection: Connection, command: Command, more: OfListen | None = None) -> None:
        """Handle a client's ``listen``: begin it now, delay it a little, or refuse it. ``more`` is a further action to
        take when the `listen` succeeds or fails."""
        if command.recover is None and connection.receiver is None:
            self._listening.listen(connection, command, more)
        else:
            self._ask(connection, command, self._replies.expect(connection), self._desk.now + WAIT_S, more)

    def _ask(self, connection: Connection, command: Command, reply: Reply, until: float, more: OfListen | None) -> None:
        refusal = self._refusal(connection, command)
        if refusal is None:
            self._begin(connection, command, reply, more)
        elif refusal.code == "peer_unavailable" and self._desk.now < until and len(self._early) < EARLY_MAX:
            self._early.append((until, connection, command, reply, more))
        else:
            if more is not None:
                more.failed()
            self._replies.refuse(connection, reply, command.id, refusal)

    def _begin(self, connection: Connection, command: Command, reply: Reply, more: OfListen | None) -> None:
        if command.recover is None:
            self._listening.begin(connection, command, reply, more)
            return
        more = Recovery(self._replaying, connection, command.client, command.recover, more)
        self._listening.begin(connection, command, reply, more)
        self._replaying.listens(connection, command.client)

    def tick(self) -> None:
        """Try again to admit the waiting commands."""
        if self._early:
            early, self._early = self._early, []
            for until, connection, command, reply, more in early:
                if not connection.closed:
                    self._ask(connection, command, reply, until, more)

    def _refusal(self, connection: Connection, command: Command) -> ProtocolError | None:
        session = self._replaying.replay_sessions.get(connection)
        if session is not None and session.stays and session.client != command.client:
            text = f"Client {session.client[:64]!r} recovers on this connection and cannot share it; use another one"
            return ProtocolError("bad_state", text)
        if command.recover is None:
            return None
        if connection.clients.difference((command.client,)):
            text = "Key 'recover': other clients listen on this connection, but a recovering client needs its own"
            return ProtocolError("bad_state", text)
        if session is not None and session.waits:
            return ProtocolError("peer_unavailable", "A listen with recover is under way on this connection: try again")
        return self._retention.refusal()

    def subscribe(self, connection: Connection, command: Command) -> None:
        """Handle a client's ``subscribe``. If it requests retained messages, they follow when the store has written the
        subscription."""
        if not command.last and command.since is None:
            self._subscribing.change(connection, command)
            return
        refusal = self._retention.refusal()
        if refusal is None and command.client not in connection.clients:
            text = "Keys 'last' and 'since': the client does not listen on this connection; send its 'listen' first"
            refusal = ProtocolError("bad_state", text)
        if refusal is not None:
            self._replies.refuse(connection, None, command.id, refusal)
            return
        more = RetainedRead(self._replaying, self._subscribing, command)
        if more.topics:
            self._replaying.hold_for(connection, command.client)
        self._subscribing.begin(connection, command, more)
