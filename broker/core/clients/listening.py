"""Where clients listen: handles ``listen`` and ``unlisten``, announces them to the peers, and handles the peers'
announcements.

Owns: the listens in progress. Must never: report success for a ``listen`` before the client's location is stored and
every peer has corrected its cache. From then on every publish that any endpoint handles finds the client here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from orjson import Fragment

from ingeborg.protocol.errors import REPLACED, ProtocolError
from ingeborg.protocol.messages import Command, success

from ..cluster.homes import Homes
from ..cluster.membership import Membership
from ..connections.hub import Connection, Hub, Reply
from ..desk import Desk
from ..limits import SIZES, Sizes
from ..links.calls import TIMEOUT_S, Call
from ..links.requests import ListenRequest, Request
from ..metrics import Metric
from ..model import Ended, Location
from ..outgoing.memory import Memory
from ..outgoing.replies import Replies
from ..outgoing.sending import Sending
from ..part import CommandSpec, Part, RequestHandler
from ..stores import unavailable
from ..topics.locations import Locations
from ..topics.moved import MovedAway
from .announcement import Announcement, Listen, OfListen
from .concurrent_listens import ConcurrentListens
from .stale_locations import Place, StaleLocations

#: Maximum number of listens in one store call and in one announcement. The sender and the receiver each take up to 10
#: ms to process this number.
LISTENS_PER_BATCH: Final = 500


class Listening(Part):
    """One endpoint's clients, and the announcements about them. ``homes``: tells whether this endpoint has joined."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        homes: Homes,
        hub: Hub,
        locations: Locations,
        moved_away: MovedAway,
        replies: Replies,
        sending: Sending,
        memory: Memory,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._closed_per_slice = sizes.closed_per_slice
        self._me = members.me.incarnation
        self._members = members
        self._homes = homes
        self._hub = hub
        self._locations = locations
        self._moved_away = moved_away
        self._replies = replies
        self._sending = sending
        self._memory = memory
        self._stale_locations = StaleLocations(desk, hub, self._me, self._are_absent)
        self._listens: list[Listen] = []  # the listens of this turn
        self._clears: list[tuple[str, Location]] = []  # locations that ended in this turn
        self._parked: deque[Announcement] = deque()  # waiting until this endpoint has joined
        self._concurrent_listens = ConcurrentListens()

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted("clients_replaced", "Clients that now listen at another endpoint"),
            self._desk.counted(
                "stale_mappings_left",
                "Client mappings that could not be cleared when their connection closed",
            ),
        ]

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``."""
        return {"listen": CommandSpec(self.listen), "unlisten": CommandSpec(self.unlisten)}

    def requests(self) -> dict[type[Request], RequestHandler]:
        """See ``Part``."""
        return {ListenRequest: self.listen_announced}

    def listen(self, connection: Connection, command: Command, more: OfListen | None = None) -> None:
        """Handle a client's ``listen``. Bind the client to the connection immediately, so messages can come before the
        reply. Store and announce its location later, in a batch. ``more``: what the command requests in addition."""
        self.begin(connection, command, self._replies.expect(connection), more)

    def begin(self, connection: Connection, command: Command, reply: Reply, more: OfListen | None) -> None:
        """Begin a ``listen``. ``reply``: the place of its reply among the connection's replies. ``more``: what the
        command requests in addition."""
        again = command.client in connection.clients
        connection.has_listened = True
        former = self._hub.bind(command.client, connection)
        self._memory.weigh(connection)
        if former is not None:
            self._memory.weigh(former.connection)
        listen = Listen(command.client, connection, reply, command.id, former)
        listen.again = again
        listen.more = more
        self._listens.append(listen)

    def unlisten(self, connection: Connection, command: Command) -> None:
        """Handle a client's ``unlisten``. If the client listens elsewhere by now, change nothing."""
        binding = self._hub.unbind(command.client, connection)
        if connection.receiver is not None:
            connection.receiver.gone(command.client)
        self._memory.weigh(connection)
        reply = self._replies.expect(connection)
        if binding is None or binding.location is None:
            self._replies.reply(connection, reply, success(command.id))
            return
        self._learn_gone(command.client, binding.location)
        context = (connection, reply, command)
        self._desk.store("unlisten", ([(command.client, binding.location)],), self._unlistened, context)

    def _unlistened(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command = context
        if error is not None:
            self._replies.refuse(connection, reply, command.id, unavailable(error))
        else:
            self._replies.reply(connection, reply, success(command.id))

    def closed(self, connection: Connection) -> None:
        """Unbind the connection's clients: immediately, or in slices if there are many. Until a client is unbound, the
        connection drops the client's messages. A client can listen again, here or elsewhere, before it is unbound."""
        if len(connection.clients) <= self._closed_per_slice:
            self._unbind(connection, list(connection.clients))
        else:
            self._desk.job(self._unbind_many(connection))

    def _unbind_many(self, connection: Connection) -> Iterator[bool]:
        while connection.clients:
            self._unbind(connection, list(islice(connection.clients, max(1, self._closed_per_slice))))
            yield False

    def _unbind(self, connection: Connection, clients: list[str]) -> None:
        for client in clients:
            binding = self._hub.unbind(client, connection)
            if binding is not None and binding.location is not None:
                self._learn_gone(client, binding.location)
                self._clears.append((client, binding.location))
            elif binding is not None:
                self._stale_locations.look_later([client])  # the store may still have its earlier location
        self._memory.weigh(connection)

    def _learn_gone(self, client: str, location: Location) -> None:
        """Note in the cache of locations that a client has left this endpoint. If the cache has no location for the
        client, add none. The client may have listened at another endpoint that did not tell this endpoint, so a later
        lookup must read the store."""
        if self._locations.get(client) is not None:
            self._locations.learn_offline(client, location)

    def _learn_absent(self, client: str, location: Location) -> None:
        """Note a ``listen`` that took effect only after its connection had gone. If the client was at another endpoint
        before, it can still be there. In this case that endpoint announces the client again, and until then homes look
        for the client there. If the cache has no location for the client, add none. The announcement of this `listen`
        may be late, and the cache may have forgotten a newer location, so a later lookup must read the store."""
        known = self._locations.get(client)
        if known is not None and (not known.online or known.incarnation == location.incarnation):
            self._locations.learn_offline(client, location)

    def flush(self) -> None:
        """Write this turn's listens to the store, and clear the locations that ended. Ask the store about clients that
        a home looked for here in vain."""
        if self._hub.missed:
            missed, self._hub.missed = self._hub.missed, []
            self._stale_locations.look(missed)
        listens, self._listens = self._listens, []
        for start in range(0, len(listens), LISTENS_PER_BATCH):
            batch = listens[start : start + LISTENS_PER_BATCH]
            # The store gets only one listen for a client that has sent two in one turn. The hub knows which listen was
            # later.
            clients = list(dict.fromkeys(listen.client for listen in batch))
            self._desk.store("listen", (clients, self._me), self._listened, (clients, batch))
        if self._clears:
            self._desk.store("unlisten", (self._clears,), self._cleared, self._clears)
            self._clears = []

    def _cleared(self, clears: list[tuple[str, Location]], result: Any, error: Exception | None) -> None:
        if error is not None:
            self._stale_locations.not_cleared(clears)

    def _listened(self, context: tuple[list[str], list[Listen]], result: Any, error: Exception | None) -> None:
        clients, listens = context
        if error is not None:
            self._stale_locations.look_later(clients)
            failure = unavailable(error)
            for listen in listens:
                if listen.reply is not None:
                    self._undo(listen)
                    if listen.more is not None:
                        listen.more.failed()
                    self._replies.refuse(listen.connection, listen.reply, listen.id, failure)
                else:
                    self._desk.counts["stale_mappings_left"] += 1
            return
        locations: dict[str, Location] = {}
        ended: dict[str, Ended] = {}
        for client, (location, has_ended) in zip(clients, result, strict=True):
            locations[client] = location
            if has_ended is not None:
                ended[client] = has_ended
        again = self._concurrent_listens.outranked(locations, self._hub.bindings)
        if again:
            self._listens += [listen for listen in listens if listen.client in again]
            listens = [listen for listen in listens if listen.client not in again]
            if not listens:
                return
        announcement = Announcement(listens, self._desk.now + TIMEOUT_S)
        news: list[tuple[str, int, str, bool]] = []
        for listen in listens:
            location = locations[listen.client]
            if ended:
                listen.ended = ended.get(listen.client)
            binding = self._hub.bindings.get(listen.client)
            if binding is None:
                # The client left while the store was writing.
                self._learn_absent(listen.client, location)
                self._clears.append((listen.client, location))
            else:
                self._locations.learn(listen.client, location)
                if binding.location is None or binding.location.rank < location.rank:
                    binding.location = location
            if listen.former is not None:
                self._replaced(listen.client, listen.former.connection)
            news.append((listen.client, location.number, location.incarnation, binding is not None))
            place = self._concurrent_listens.take(listen.client)
            if place is not None:
                self._superseded(listen.client, place)
        announcement.news = news
        if self._homes.joined:
            self._announce(announcement)
        else:
            # When this endpoint has joined, it knows which peers to tell, because every acting endpoint has accepted it
            # by then.
            self._parked.append(announcement)

    def _announce(self, announcement: Announcement) -> None:
        peers = self._members.view()
        announcement.open += len(peers)
        self._desk.cast(peers, ListenRequest(announcement.news), self, announcement)
        self._close(announcement)

    def tick(self) -> None:
        """Give up listens that have been parked for too long. Try again to clear the locations that the store did not
        clear."""
        self._clears += self._stale_locations.due()
        while self._parked and self._parked[0].deadline <= self._desk.now:
            announcement = self._parked.popleft()
            announcement.error = ProtocolError("peer_unavailable", "This endpoint has not joined the others yet")
            self._close(announcement)

    def _undo(self, listen: Listen) -> None:
        """Restore the state from before a ``listen`` that the store could not record, if that state still exists."""
        hub = self._hub
        self._concurrent_listens.forget(listen.client)
        if listen.again or hub.unbind(listen.client, listen.connection) is None:
            return
        self._memory.weigh(listen.connection)
        former = listen.former
        if former is not None and not former.connection.closed:
            hub.restore(listen.client, former)
            if former.connection.receiver is not None:
                former.connection.receiver.restored()
            self._memory.weigh(former.connection)

    def _close(self, announcement: Announcement) -> None:
        announcement.open -= 1
        if announcement.open:
            return
        for listen in announcement.listens:
            if listen.reply is None:
                continue
            if announcement.error is not None:
                self._replies.refuse(listen.connection, listen.reply, listen.id, announcement.error)
                if listen.more is not None:
                    listen.more.failed()
                continue
            fields: dict[str, Any] = {}
            if listen.more is not None:
                fields = listen.more.succeeded()
            if (ended := listen.ended) is not None:
                fields["ended"] = [_named(topic, filter) for topic, filter in ended.subscriptions]
                fields["ended_count"] = ended.total
            self._replies.reply(listen.connection, listen.reply, success(listen.id, **fields))

    def answered(self, call: Call, value: Any) -> None:
        """Handle a peer's answer that it has corrected its cache."""
        self._close(call.context)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Fail the listens, because a peer that is alive did not answer, and its cache may be wrong."""
        call.context.error = ProtocolError(code, info)
        self._close(call.context)

    def lost(self, call: Call) -> str | None:
        """Stop waiting for a dead peer, which has no cache to correct."""
        self._close(call.context)
        return None

    def joined(self) -> None:
        """Announce the parked listens. Then read from the store where the clients listen. The other endpoints may have
        considered this one dead, so they may not have told it that its clients had moved."""
        bindings = self._hub.bindings
        while self._parked:
            announcement = self._parked.popleft()
            # Some clients have gone meanwhile, and may listen elsewhere. Announcements about them must not close any
            # connection.
            announcement.news = [
                (client, number, incarnation, online and client in bindings)
                for client, number, incarnation, online in announcement.news
            ]
            self._announce(announcement)
        clients = list(self._hub.bindings)
        for start in range(0, len(clients), LISTENS_PER_BATCH):
            part = clients[start : start + LISTENS_PER_BATCH]
            self._desk.store("locations", (part,), self._revised, part)

    def _revised(self, clients: list[str], result: Any, error: Exception | None) -> None:
        if error is not None:
            # If a client has moved, the next message for it will reveal that. Until then its old connection stays open.
            self._desk.counts["stale_mappings_left"] += len(clients)
            return
        for client, location in zip(clients, result, strict=True):
            if location is not None:
                self._superseded(client, location)

    def _are_absent(self, places: list[Place]) -> None:
        """Correct the locations of clients that do not listen here, although the store's record says that they do."""
        announcement = Announcement([], self._desk.now + TIMEOUT_S)
        for client, location in places:
            self._learn_absent(client, location)  # the store's answer may be late
            self._clears.append((client, location))
            announcement.news.append((client, location.number, location.incarnation, False))
        # If such a client listens at a peer, but its location there has a lower number, the peer announces the client
        # again.
        self._announce(announcement)

    def listen_announced(self, peer: str, number: int, request: ListenRequest) -> None:
        """Process a peer's announcement of its clients."""
        bindings = self._hub.bindings
        for client, listen_number, incarnation, online in request.news:
            location = Location(listen_number, incarnation, online)
            binding = bindings.get(client)
            if binding is not None and binding.location is not None and binding.location.rank > location.rank:
                # The cache may have forgotten the client's location here. A late announcement must not replace this
                # location.
                self._locations.learn(client, binding.location)
            elif online:
                self._locations.learn(client, location)
                self._superseded(client, location)
            else:
                self._learn_absent(client, location)
                self._outlived(client, location)
        self._desk.answer(peer, number)

    def _replaced(self, client: str, connection: Connection) -> None:
        """Tell the connection's receiver that the client has moved. If this client was the connection's last, close the
        connection, unless it is closing already."""
        if connection.receiver is not None and client not in connection.clients:
            connection.receiver.moved(client)
        if not connection.clients and connection.ends_at is None:
            self._sending.close(connection, REPLACED)

    def _superseded(self, client: str, location: Location) -> None:
        """Handle a ``listen`` of the client at another endpoint. If that ``listen`` is later than the one here, unbind
        the client. If the ``listen`` here has no number yet, compare the two numbers as soon as both are known."""
        binding = self._hub.bindings.get(client)
        if binding is None:
            return
        if binding.location is None:
            self._concurrent_listens.is_there(client, location)
        elif binding.location.rank < location.rank:
            self._hub.unbind(client, binding.connection)
            self._moved_away.add(client, self._desk.now)
            self._desk.counts["clients_replaced"] += 1
            self._replaced(client, binding.connection)

    def _outlived(self, client: str, location: Location) -> None:
        """Note a `listen` at another endpoint that took effect only after its connection had gone. If the client
        listens here, but with a lower number, announce the client again."""
        binding = self._hub.bindings.get(client)
        if binding is None:
            return
        if binding.location is None:
            self._concurrent_listens.was_there(client, location)
        elif binding.location.rank < location.rank:
            self._listens.append(Listen(client, binding.connection, None, None, None))


def _named(topic: str, filter: str | None) -> dict[str, Any]:
    return {"topic": topic} if filter is None else {"topic": topic, "filter": Fragment(filter)}
