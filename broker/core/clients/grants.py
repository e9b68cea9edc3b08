"""What a connection may do, as its token says. SPEC section 1.5.

Owns: which commands a grant covers. Must never: know what a token is, or read a clock.
"""

from __future__ import annotations

from typing import NamedTuple

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command


class Grant(NamedTuple):
    """``client``: the id that commands may be sent for, or, where it ends in ``*``, what the ids begin with;
    ``publish``, ``subscribe``: what the topics may begin with (``""``: every topic); ``expires_at``: Unix time in
    seconds, with leeway; ``inspect``: it may look at the endpoints, and at every client's and topic's subscriptions;
    ``publish_topics``, ``subscribe_topics``: single topics, beside those prefixes."""

    client: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    broadcast: bool
    expires_at: float
    inspect: bool = False
    publish_topics: frozenset[str] = frozenset()
    subscribe_topics: frozenset[str] = frozenset()

    def check(self, command: Command) -> None:
        """Raises ``ProtocolError`` (`unauthorized`, `forbidden`) where the command is not covered.

        Taking back a subscription needs no permission: who lost one may still clean up.
        """
        name = command.name
        client = self.client
        if self.inspect and name in ("subscriptions", "location"):
            return
        if command.client != client and not (client.endswith("*") and command.client.startswith(client[:-1])):
            raise ProtocolError("unauthorized", f"The token is for client {client!r}, not for {command.client!r}")
        if name == "publish":
            self._topics("publish to", command, self.publish, self.publish_topics)
        elif name == "subscribe":
            self._topics("subscribe to", command, self.subscribe, self.subscribe_topics)
        elif name == "broadcast" and not self.broadcast:
            raise ProtocolError("forbidden", "The token does not permit to broadcast")
        elif name in ("endpoints", "subscribers") and not self.inspect:
            raise ProtocolError("forbidden", "The token does not permit to inspect")

    def _topics(self, what: str, command: Command, prefixes: tuple[str, ...], exact: frozenset[str]) -> None:
        if "" in prefixes:
            return
        for topic in command.topics:
            if topic not in exact and not topic.startswith(prefixes):
                raise ProtocolError("forbidden", f"The token does not permit to {what} {topic[:128]!r}")
