"""Where clients listen: ``listen`` and ``unlisten``, their announcement to the peers, and what the peers announce.

Owns: the listens under way. Must never: say success to a ``listen`` before the mapping is stored and every peer has
corrected its cache; from then on every publish handled anywhere finds the client here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from protocol.errors import ProtocolError
from protocol.messages import Command, success

from .calls import TIMEOUT_S, Call, Kind
from .hub import Binding, Connection, Reply
from .model import Location

if TYPE_CHECKING:
    from .router import Router

#: Listens in one store call and one announcement: each side takes up to 10 ms for so many.
LISTENS_PER_BATCH = 500

#: Clients of a connection that has closed, taken in one slice: some 2 ms.
CLOSED_PER_SLICE = 500


class Listen:
    """A ``listen`` under way."""

    __slots__ = ("again", "client", "connection", "former", "id", "reply")

    def __init__(
        self, client: str, connection: Connection, reply: Reply | None, number: Any, former: Binding | None
    ) -> None:
        self.client = client
        self.connection = connection
        self.reply = reply  # None: nobody asked, the endpoint repeats what it was told
        self.id = number
        self.former = former  # the client's binding to another connection of this endpoint, until now
        self.again = False  # it listened on this connection already


class Announcement:
    """A batch of listens that the peers are being told of."""

    __slots__ = ("deadline", "error", "listens", "news", "open")

    def __init__(self, listens: list[Listen], deadline: float) -> None:
        self.listens = listens
        self.deadline = deadline
        self.news: list[tuple[str, int, str, bool]] = []  # (client, *location)
        self.open = 1
        self.error: ProtocolError | None = None


class Listening:
    """One endpoint's clients and the word about them."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._me = router.me.incarnation
        self._listens: list[Listen] = []  # of this turn
        self._clears: list[tuple[str, Location]] = []  # mappings that ended in this turn
        self._parked: deque[Announcement] = deque()  # until we have joined
        self._doubted: set[str] = set()  # being looked up because a home looked for them here
        self._rivals: dict[str, Location] = {}  # announced by a peer while a `listen` of the same client is written

    def listen(self, connection: Connection, command: Command) -> None:
        """A client's ``listen``: bound at once (messages may come before the reply), stored and announced in batch."""
        again = command.client in connection.clients
        former = self._router.hub.bind(command.client, connection)
        self._router.memory.weigh(connection)
        if former is not None:
            self._router.memory.weigh(former.connection)
        reply = self._router.expect(connection)
        listen = Listen(command.client, connection, reply, command.id, former)
        listen.again = again
        self._listens.append(listen)

    def unlisten(self, connection: Connection, command: Command) -> None:
        """A client's ``unlisten``: nothing to do where it listens elsewhere by now."""
        router = self._router
        binding = router.hub.unbind(command.client, connection)
        router.memory.weigh(connection)
        reply = router.expect(connection)
        if binding is None or binding.location is None:
            router.reply(connection, reply, success(command.id))
            return
        self._learn_offline(command.client, binding.location)
        context = (connection, reply, command)
        router.store("unlisten", ([(command.client, binding.location)],), self._unlistened, context)

    def _unlistened(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command = context
        if error is not None:
            info = str(error) or repr(error)
            self._router.refuse(connection, reply, command.id, ProtocolError("store_unavailable", info))
        else:
            self._router.reply(connection, reply, success(command.id))

    def connection_closed(self, connection: Connection) -> None:
        """Its clients listen here no longer: at once, or slice by slice where they are many. Until then what comes for
        them is dropped at the connection; who listens again, here or elsewhere, does so at once."""
        if len(connection.clients) <= CLOSED_PER_SLICE:
            self._unbind(connection, list(connection.clients))
        else:
            self._router.jobs.append(self._unbind_many(connection))

    def _unbind_many(self, connection: Connection) -> Iterator[bool]:
        while connection.clients:
            self._unbind(connection, list(islice(connection.clients, CLOSED_PER_SLICE)))
            yield False

    def _unbind(self, connection: Connection, clients: list[str]) -> None:
        for client in clients:
            binding = self._router.hub.unbind(client, connection)
            if binding is not None and binding.location is not None:
                self._learn_offline(client, binding.location)
                self._clears.append((client, binding.location))
        self._router.memory.weigh(connection)

    def _learn_offline(self, client: str, location: Location) -> None:
        if not self._router.lookup:
            self._router.publishing.locations.learn(client, location._replace(online=False))

    def _learn_absent(self, client: str, location: Location) -> None:
        """The newest ``listen`` came into effect when its connection was gone. If the client was elsewhere before, it
        may still be, and will say so anew; until then it is looked for there.
        """
        if not self._router.lookup:
            known = self._router.publishing.locations.get(client)
            if known is None or not known.online or known.incarnation == location.incarnation:
                self._learn_offline(client, location)

    def flush(self) -> None:
        """Write this turn's listens, and clear what ended."""
        router = self._router
        listens, self._listens = self._listens, []
        for start in range(0, len(listens), LISTENS_PER_BATCH):
            batch = listens[start : start + LISTENS_PER_BATCH]
            # Two listens of one client in one turn are one to the store; the hub knows which was the later.
            clients = list(dict.fromkeys(listen.client for listen in batch))
            router.store("listen", (clients, self._me), self._listened, (clients, batch))
        if self._clears:
            router.store("unlisten", (self._clears,), self._cleared, len(self._clears))
            self._clears = []

    def _cleared(self, count: int, result: Any, error: Exception | None) -> None:
        if error is not None:
            # The mapping stays, and is found out at the next message for the client.
            self._router.counts["stale_mappings_left"] += count

    def _listened(self, context: tuple[list[str], list[Listen]], result: Any, error: Exception | None) -> None:
        router = self._router
        clients, listens = context
        if error is not None:
            failure = ProtocolError("store_unavailable", str(error) or repr(error))
            for listen in listens:
                if listen.reply is not None:
                    self._undo(listen)
                    router.refuse(listen.connection, listen.reply, listen.id, failure)
                else:
                    router.counts["stale_mappings_left"] += 1
            return
        announcement = Announcement(listens, router.now + TIMEOUT_S)
        news: list[tuple[str, int, str, bool]] = []
        locations: dict[str, Location] = dict(zip(clients, result, strict=True))
        for listen in listens:
            location = locations[listen.client]
            binding = router.hub.bindings.get(listen.client)
            if binding is None:
                # Gone while it was being written.
                self._learn_absent(listen.client, location)
                self._clears.append((listen.client, location))
            else:
                if not router.lookup:
                    router.publishing.locations.learn(listen.client, location)
                if binding.location is None or binding.location.rank < location.rank:
                    binding.location = location
            if listen.former is not None:
                router.replaced(listen.former.connection)
            news.append((listen.client, location.number, location.incarnation, binding is not None))
            rival = self._rivals.pop(listen.client, None)
            if rival is not None:
                self._superseded(listen.client, rival)
        announcement.news = news
        if router.members.joined or router.lookup:
            self._announce(announcement)
        else:
            # Who has to be told is known once we have joined: nobody acts then who has not let us in.
            self._parked.append(announcement)

    def _announce(self, announcement: Announcement) -> None:
        for peer in self._router.members.view():
            announcement.open += 1
            self._router.ask(Kind.LISTEN, peer, (announcement.news,), self, announcement)
        self._close(announcement)

    def tick(self) -> None:
        """Give up what has been parked for too long."""
        while self._parked and self._parked[0].deadline <= self._router.now:
            announcement = self._parked.popleft()
            announcement.error = ProtocolError("peer_unavailable", "This endpoint has not joined the others yet")
            self._close(announcement)

    def _undo(self, listen: Listen) -> None:
        """It could not be stored: as it was before, if that is still there."""
        hub = self._router.hub
        self._rivals.pop(listen.client, None)
        if listen.again or hub.unbind(listen.client, listen.connection) is None:
            return
        self._router.memory.weigh(listen.connection)
        former = listen.former
        if former is not None and not former.connection.closed:
            hub.restore(listen.client, former)
            self._router.memory.weigh(former.connection)

    def _close(self, announcement: Announcement) -> None:
        announcement.open -= 1
        if announcement.open:
            return
        router = self._router
        for listen in announcement.listens:
            if listen.reply is None:
                continue
            if announcement.error is not None:
                router.refuse(listen.connection, listen.reply, listen.id, announcement.error)
            else:
                router.reply(listen.connection, listen.reply, success(listen.id))

    def answered(self, call: Call, value: Any) -> None:
        """A peer has corrected its cache."""
        self._close(call.context)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """A peer that is alive did not: its cache may be wrong, so the listen has not succeeded."""
        call.context.error = ProtocolError(code, info)
        self._close(call.context)

    def lost(self, call: Call) -> None:
        """A peer that is dead has no cache."""
        self._router.calls.settle(call)
        self._close(call.context)

    def joined(self) -> None:
        """Tell what could not be told yet. And: the others may have taken us for dead, and not told us where our
        clients went meanwhile.
        """
        while self._parked:
            self._announce(self._parked.popleft())
        clients = list(self._router.hub.bindings)
        for start in range(0, len(clients), LISTENS_PER_BATCH):
            part = clients[start : start + LISTENS_PER_BATCH]
            self._router.store("locations", (part,), self._revised, part)

    def _revised(self, clients: list[str], result: Any, error: Exception | None) -> None:
        if error is not None:
            # They are found out when their messages go elsewhere; only the old connections stay open.
            self._router.counts["stale_mappings_left"] += len(clients)
            return
        for client, location in zip(clients, result, strict=True):
            if location is not None:
                self._superseded(client, location)

    def absent(self, clients: list[str]) -> None:
        """A home looks for clients here that are not. Does the store say so, too? A ``listen`` that failed here may
        have been written late, over the place where the client is.
        """
        unknown = [client for client in clients if client not in self._doubted]
        if unknown:
            self._doubted.update(unknown)
            self._router.store("locations", (unknown,), self._checked, unknown)

    def _checked(self, clients: list[str], result: Any, error: Exception | None) -> None:
        router = self._router
        self._doubted.difference_update(clients)
        if error is not None:
            return
        news: list[tuple[str, int, str, bool]] = []
        for client, location in zip(clients, result, strict=True):
            here = location is not None and location.online and location.incarnation == self._me
            if here and client not in router.hub.bindings:
                self._learn_offline(client, location)
                self._clears.append((client, location))
                news.append((client, location.number, location.incarnation, False))
        if news:
            # Whoever holds one of them with a lower number says so anew.
            announcement = Announcement([], router.now + TIMEOUT_S)
            announcement.news = news
            self._announce(announcement)

    def listen_announced(self, peer: str, number: int, arguments: list[Any]) -> None:
        """Clients listen at the peer now."""
        router = self._router
        for client, listen_number, incarnation, online in arguments[0]:
            location = Location(listen_number, incarnation, online)
            if not online:
                self._learn_absent(client, location)
            elif not router.lookup:
                router.publishing.locations.learn(client, location)
            binding = router.hub.bindings.get(client)
            if online or binding is None or binding.location is None:
                self._superseded(client, location)
            elif binding.location.rank < location.rank:
                # A `listen` whose connection was gone when it came into effect, late: the client is here, alive.
                self._listens.append(Listen(client, binding.connection, None, None, None))
        router.answer(peer, number)

    def _superseded(self, client: str, location: Location) -> None:
        """The client listens elsewhere. Later than here? A ``listen`` without a number yet will see by its own."""
        router = self._router
        binding = router.hub.bindings.get(client)
        if binding is None:
            return
        if binding.location is None:
            rival = self._rivals.get(client)
            if rival is None or rival.rank < location.rank:
                self._rivals[client] = location
        elif binding.location.rank < location.rank:
            router.hub.unbind(client, binding.connection)
            router.delivering.moved_away(client)
            router.counts["clients_replaced"] += 1
            router.replaced(binding.connection)
