"""The rights of a connection, from its token. SPEC section 1.5.

Owns: which commands a grant covers. Must never: know what a token is, or read a clock.
"""

from __future__ import annotations

from typing import NamedTuple

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command

from .placeholders import PLACEHOLDER, Entry, Own, fill, own_entries, stop_of


class Grant(NamedTuple):
    """The rights of one connection.

    Attributes:
        client: the id of the client for which it can send commands. If this ends in ``*``, it is a prefix of such ids.
        publish, subscribe: prefixes of permitted topics (``""``: every topic).
        broadcast: whether it can send broadcasts.
        expires_at: Unix time in seconds, with leeway.
        inspect: whether it can inspect the endpoints, and the subscriptions of every client and topic.
        publish_topics, subscribe_topics: single permitted topics, in addition to those prefixes.
        own: the entries in which ``{sub}`` must be filled in for each command, because the token is for several
            clients. With a token for one client, this is set only if some entries permit nothing to that client.
        revoke: whether it can revoke tokens.
        jti: the id of the connection's own token, by which that token can be revoked. ``None`` if it has no id.
        issued_at: when that token was issued, in Unix seconds. A revocation of a subject's tokens applies to tokens
            issued up to a certain time. ``None`` if the time is unknown.
        presence, presence_topics: prefixes, and single topics, whose subscribers it can list.
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
        """Return the grant with every ``{sub}`` of its entries filled in, if the token is for one client. Otherwise
        move the entries with ``{sub}`` to ``own``. Raise ``ValueError``, which names the list, for an entry that would
        give a client access to another client's topics."""
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
        """Raise ``ProtocolError`` (`unauthorized`, `forbidden`) if the grant does not cover the command.

        Removing a subscription needs no permission, so a client that has lost the permission to subscribe can still
        clean up.
        """
        name = command.name
        client = self.client
        if self.inspect and name in ("subscriptions", "location"):
            return
        if command.client != client and not (client.endswith("*") and command.client.startswith(client[:-1])):
            raise ProtocolError("unauthorized", f"The token is for client {client!r}, not for {command.client!r}")
        if name == "publish":
            self._topics("publishing to", command, self.publish, self.publish_topics)
        elif name == "subscribe" or name == "history":
            self._topics("subscribing to", command, self.subscribe, self.subscribe_topics)
        elif name == "broadcast" and not self.broadcast:
            raise ProtocolError("forbidden", "The token does not permit broadcasting")
        elif name == "subscribers" and not self.inspect:
            self._topics("listing the subscribers of", command, self.presence, self.presence_topics)
        elif name == "endpoints" and not self.inspect:
            raise ProtocolError("forbidden", "The token does not permit inspecting")
        elif name == "revoke" and not self.revoke:
            raise ProtocolError("forbidden", "The token does not permit revoking")

    def _topics(self, what: str, command: Command, prefixes: tuple[str, ...], exact: frozenset[str]) -> None:
        if "" in prefixes:
            return
        entries: tuple[Entry, ...] = ()
        # The filled-in entries. They are made for the first topic that no other entry permits.
        filled: tuple[tuple[str, ...], frozenset[str]] | None = None
        for topic in command.topics:
            if topic not in exact and not topic.startswith(prefixes):
                if filled is None:
                    if self.own is not None:
                        entries = _entries(self.own, command.name)
                    filled = fill(entries, command.client)
                if topic not in filled[1] and not topic.startswith(filled[0]):
                    text = f"The token does not permit {what} {topic[:128]!r}"
                    stop = stop_of(entries, command.client, topic)
                    if stop is not None:
                        text += f": its {PLACEHOLDER} permits nothing to a client whose id contains {stop!r}"
                    raise ProtocolError("forbidden", text)


def _entries(own: Own, name: str) -> tuple[Entry, ...]:
    """Return the entries that permit the command with this name."""
    if name == "publish":
        return own.publish
    return own.subscribe if name in ("subscribe", "history") else own.presence


def _beside(
    prefixes: tuple[str, ...], exact: frozenset[str], entries: tuple[Entry, ...], client: str | None
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the prefixes and single topics without a placeholder, and the entries filled for the client."""
    filled = ((), frozenset[str]()) if client is None else fill(entries, client)
    return (
        (*(text for text in prefixes if PLACEHOLDER not in text), *filled[0]),
        frozenset(text for text in exact if PLACEHOLDER not in text) | filled[1],
    )
