"""The commands `subscribers`, which lists a topic's subscribers page by page, and `location`, which says where a client
listens. SPEC sections 2.4 and 2.5.

Owns: the commands that wait. Must never: change any state of the cluster, or answer from a cache that may be older than
the store.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Final

from ingeborg.protocol.messages import Command, success

from ..cluster.membership import Membership
from ..connections.hub import Connection
from ..desk import Desk
from ..limits import SIZES, Sizes
from ..model import Location
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part
from ..stores import unavailable
from .words import PAIRS_PER_READ, REPLY_FILTER_BYTES, WAITING_MAX, filter_bytes, said, too_many

#: The largest number of sets of subscribers to read and sort at the same time. A set can be so large that memory has
#: room for only two sets.
READS_AT_ONCE: Final = 2

#: The number of a topic's filters in one page from the store. This part reads them to find the clients that have
#: filters.
FILTERS_PER_READ: Final = 1_000

NOBODY: Final[frozenset[str]] = frozenset()


class SubscribersOfTopics(Part):
    """Handles `subscribers` and `location` at one endpoint."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        replies: Replies,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._me = members.me
        self._members = members
        self._replies = replies
        self._sort_slice = sizes.sort_slice
        self._reads = 0  # the number of sets of subscribers being read
        self._waiting: deque[Any] = deque()

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``."""
        return {"subscribers": CommandSpec(self.subscribers), "location": CommandSpec(self.location)}

    def subscribers(self, connection: Connection, command: Command) -> None:
        """Reply with one page of a topic's subscribers, in the order of their ids. The reply says whether each
        subscriber listens. If an operator asks, the reply also says where the subscribers listen and which
        subscriptions they have."""
        context = (connection, self._replies.expect(connection), command)
        if len(self._waiting) >= WAITING_MAX:
            self._replies.refuse(connection, context[1], command.id, too_many())
            return
        self._waiting.append(context)
        self._next()

    def _next(self) -> None:
        while self._waiting and self._reads < READS_AT_ONCE:
            self._reads += 1
            context = self._waiting.popleft()
            topics = list(context[2].topics)
            self._desk.store("subscribers", (topics,), self._read, context)

    def _ended(self) -> None:
        self._reads -= 1
        self._next()

    def _read(self, context: Any, result: Any, error: Exception | None) -> None:
        if error is not None:
            self._refuse(context, error)
            self._ended()
        else:
            [subscribers], pages = result
            if pages:
                self._filtered((*context, subscribers, set()), pages[context[2].topics[0]], None)
            else:
                self._desk.job(self._page(context, list(subscribers), NOBODY))

    def _filtered(self, context: Any, result: Any, error: Exception | None) -> None:
        plain, filtered = context[3:]
        if error is not None:
            self._refuse(context, error)
            self._ended()
            return
        pairs, cursor = result
        filtered.update([client for client, _ in pairs if client not in plain])
        if cursor is not None:
            self._desk.store("filtered", (context[2].topics[0], cursor, FILTERS_PER_READ), self._filtered, context)
        else:
            self._desk.job(self._page(context[:3], [*plain, *filtered], filtered))

    def _page(self, context: Any, clients: list[str], filtered: Collection[str]) -> Iterator[bool]:
        command = context[2]
        after = command.cursor or ""
        smallest: list[str] = []
        for start in range(0, len(clients), self._sort_slice):
            behind = [client for client in clients[start : start + self._sort_slice] if client > after]
            smallest = heapq.nsmallest(command.limit + 1, smallest + behind)
            yield False
        self._ended()
        page = smallest[: command.limit]
        cursor = page[-1] if len(smallest) > len(page) else None
        self._desk.store("locations", (page,), self._located, (*context, page, cursor, len(clients), filtered))

    def _located(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command, page, cursor, count, filtered = context
        if error is not None:
            self._refuse(context, error)
            return
        operator = connection.grant is None or connection.grant.inspect
        rows: list[dict[str, Any]] = []
        for client, location in zip(page, result, strict=True):
            place = self._name(location)
            row: dict[str, Any] = {"client_id": client, "online": place is not None}
            if client in filtered:
                row["filtered"] = True
            rows.append({**row, "endpoint": place} if operator else row)
        fields = {"topic": command.topics[0], "count": count, "subscribers": rows, "cursor": cursor}
        if operator:
            self._read_next((connection, reply, command, fields), 0, 0)
        else:
            self._replies.reply(connection, reply, success(command.id, **fields))

    def _read_next(self, context: Any, start: int, size: int) -> None:
        """Read the next subscriptions of the page's clients, beginning with client number ``start``. ``size`` counts
        the bytes of the filters read so far."""
        connection, reply, command, fields = context
        pairs = [(row["client_id"], command.topics[0]) for row in fields["subscribers"][start : start + PAIRS_PER_READ]]
        if pairs:
            self._desk.store("subscriptions_of", (pairs,), self._held_read, (*context, start, size))
        else:
            self._replies.reply(connection, reply, success(command.id, **fields))

    def _held_read(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command, fields, start, size = context
        if error is not None:
            self._refuse(context, error)
            return
        rows = fields["subscribers"]
        for number, held in enumerate(result, start):
            size += filter_bytes(held)
            if size > REPLY_FILTER_BYTES and number:
                del rows[number:]
                fields["cursor"] = rows[-1]["client_id"]
                break
            if held and (words := said(held)) is not None:
                rows[number]["subscriptions"] = words
        self._read_next((connection, reply, command, fields), start + PAIRS_PER_READ, size)

    def location(self, connection: Connection, command: Command) -> None:
        """Reply with the endpoint where the client listens."""
        context = (connection, self._replies.expect(connection), command)
        self._desk.store("locations", ([command.client],), self._found, context)

    def _found(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command = context
        if error is not None:
            self._refuse(context, error)
            return
        fields = {"client_id": command.client, "endpoint": self._name(result[0])}
        self._replies.reply(connection, reply, success(command.id, **fields))

    def _refuse(self, context: Any, error: Exception) -> None:
        connection, reply, command = context[:3]
        refusal = unavailable(error)
        self._replies.refuse(connection, reply, command.id, refusal)

    def _name(self, location: Location | None) -> str | None:
        """Return the name of the endpoint where the client listens, or ``None`` if it listens nowhere or at a dead
        endpoint."""
        if location is None or not location.online:
            return None
        if location.incarnation == self._me.incarnation:
            return self._me.name
        peer = self._members.peers.get(location.incarnation)
        return peer.endpoint.name if peer is not None and peer.dead_since is None else None
