"""What a connection may do, as its token says. SPEC section 1.5.

Owns: which commands a grant covers. Must never: know what a token is, or read a clock.
"""

from __future__ import annotations

from typing import NamedTuple

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command

from .placeholders import PLACEHOLDER, Entry, Own, fill, own_entries, stop_of


class Grant(NamedTuple):
    """``client``: the id that commands may be sent for, or, where it ends in ``*``, what the ids begin with;
    ``publish``, ``subscribe``: what the topics may begin with (``""``: every topic); ``expires_at``: Unix time in
    seconds, with leeway; ``inspect``: it may look at the endpoints, and at every client's and topic's subscriptions;
    ``publish_topics``, ``subscribe_topics``: single topics, beside those prefixes; ``own``: the entries with ``{sub}``
    that are filled for each command, since the token is for several clients, or that permit nothing to its one client;
    ``revoke``: it may take tokens back; ``jti``, ``issued_at``: by which its own token may be: the id, ``None``: it has
    none, and the Unix time in seconds, ``None``: nobody has said.
    ``presence``, ``presence_topics``: topics whose subscribers it may ask for.
    """

    client: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    broadcast: bool
    expires_at: float
    inspect: bool = False
    publish_topics: frozenset[str] = frozenset()
    subscribe_topics: frozenset[str] = frozenset()
    own: Own | None = None
    revoke: bool = False
    jti: str | None = None
    issued_at: float | None = None
    presence: tuple[str, ...] = ()
    presence_topics: frozenset[str] = frozenset()

    def prepared(self) -> Grant:
        """The grant with each ``{sub}`` of its entries seen to: filled where the token is for one client, else kept
        apart. Raises ``ValueError``, which names the list, for an entry that would permit a client another's topics.
        """
        presence, presence_topics = self.presence, self.presence_topics
        own = own_entries(
            self.publish, self.publish_topics, self.subscribe, self.subscribe_topics, presence, presence_topics
        )
        if own is None:
            return self
        client = None if self.client.endswith("*") else self.client
        publish, publish_topics = _beside(self.publish, self.publish_topics, own.publish, client)
        subscribe, subscribe_topics = _beside(self.subscribe, self.subscribe_topics, own.subscribe, client)
        presence, presence_topics = _beside(presence, presence_topics, own.presence, client)
        entries = (*own.publish, *own.subscribe, *own.presence)
        if client is not None and all(entry.stops.isdisjoint(client) for entry in entries):
            own = None
        return self._replace(
            publish=publish,
            subscribe=subscribe,
            publish_topics=publish_topics,
            subscribe_topics=subscribe_topics,
            own=own,
            presence=presence,
            presence_topics=presence_topics,
        )

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
        elif name == "subscribe" or name == "history":
            self._topics("subscribe to", command, self.subscribe, self.subscribe_topics)
        elif name == "broadcast" and not self.broadcast:
            raise ProtocolError("forbidden", "The token does not permit to broadcast")
        elif name == "subscribers" and not self.inspect:
            self._topics("ask who has subscribed to", command, self.presence, self.presence_topics)
        elif name == "endpoints" and not self.inspect:
            raise ProtocolError("forbidden", "The token does not permit to inspect")
        elif name == "revoke" and not self.revoke:
            raise ProtocolError("forbidden", "The token does not permit to revoke")

    def _topics(self, what: str, command: Command, prefixes: tuple[str, ...], exact: frozenset[str]) -> None:
        if "" in prefixes:
            return
        entries: tuple[Entry, ...] = ()
        filled: tuple[tuple[str, ...], frozenset[str]] | None = None  # at the first topic that the others do not permit
        for topic in command.topics:
            if topic not in exact and not topic.startswith(prefixes):
                if filled is None:
                    if self.own is not None:
                        entries = _entries(self.own, command.name)
                    filled = fill(entries, command.client)
                if topic not in filled[1] and not topic.startswith(filled[0]):
                    text = f"The token does not permit to {what} {topic[:128]!r}"
                    stop = stop_of(entries, command.client, topic)
                    if stop is not None:
                        text += f": its {PLACEHOLDER} permits nothing to a client whose id has the character {stop!r}"
                    raise ProtocolError("forbidden", text)


def _entries(own: Own, name: str) -> tuple[Entry, ...]:
    """Those that permit the command with this name."""
    if name == "publish":
        return own.publish
    return own.subscribe if name in ("subscribe", "history") else own.presence


def _beside(
    prefixes: tuple[str, ...], exact: frozenset[str], entries: tuple[Entry, ...], client: str | None
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Prefixes and single topics without a placeholder, and those that are filled for the client."""
    filled = ((), frozenset[str]()) if client is None else fill(entries, client)
    return (
        (*(text for text in prefixes if PLACEHOLDER not in text), *filled[0]),
        frozenset(text for text in exact if PLACEHOLDER not in text) | filled[1],
    )
