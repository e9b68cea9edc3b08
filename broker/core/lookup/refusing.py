"""Refuses the commands that routing by lookup does not support: those for subscriptions that expire or have a filter.

Owns: the refusal. Must never: carry out a command.
"""

from __future__ import annotations

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command

from ..connections.hub import Connection
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part


class Refusing(Part):
    """Refuses commands for subscriptions that expire or have a filter, at one endpoint. It receives all commands for
    subscriptions before the part that carries them out, and passes on those that it does not refuse."""

    def __init__(self, replies: Replies, subscribe: CommandSpec, unsubscribe: CommandSpec) -> None:
        self._replies = replies
        self._subscribe = subscribe
        self._unsubscribe = unsubscribe

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``. These are the two commands that change subscriptions."""
        return {
            "subscribe": self._subscribe.taken_by(self.subscribe),
            "unsubscribe": self._unsubscribe.taken_by(self.unsubscribe),
        }

    def subscribe(self, connection: Connection, command: Command) -> None:
        """Refuse or pass on a client's ``subscribe``."""
        self._take(connection, command, self._subscribe)

    def unsubscribe(self, connection: Connection, command: Command) -> None:
        """Refuse or pass on a client's ``unsubscribe``."""
        self._take(connection, command, self._unsubscribe)

    def _take(self, connection: Connection, command: Command, spec: CommandSpec) -> None:
        if command.filter is not None:
            text = "Key 'filter': lookup routing has no filters; leave the key out"
        elif command.term is not None:
            text = "Keys 'until' and 'ttl_s': with lookup routing no subscription expires; leave the keys out"
        else:
            spec.handler(connection, command)
            return
        self._replies.refuse(connection, None, command.id, ProtocolError("bad_state", text))
