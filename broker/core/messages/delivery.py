"""The destination of messages. It puts each message into the outboxes of the clients of this endpoint, exactly once.

Owns: the record of recent deliveries. The same message can arrive again from a home that took over, or for clients that
have moved here. Must never: look for a client at other endpoints. It reports absent clients to the home.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ..codec import Codec
from ..connections.hub import Hub
from ..counters import Counters
from ..desk import Desk, Job
from ..limits import SIZES, Sizes
from ..links.carrying import arrived
from ..links.link import Link
from ..links.requests import BroadcastRequest, DeliverRequest, DeliverToListRequest, Request
from ..message import Message
from ..metrics import Metric
from ..outgoing.sending import Sending
from ..part import Part, RequestHandler
from ..topics.moved import MovedAway

#: The time to remember that a message was delivered, in seconds. It is longer than the time for which an origin may
#: resend a message (``TIMEOUT_S``).
RECENT_S: Final = 30.0

#: Messages longer than this are written to fewer connections per slice.
LONG_BYTES: Final = 4096
SLICE_BYTES: Final = 2 << 20

Delivered = deque[tuple[Any, list[str]]]
"""The tray for the results of deliveries that end in later turns: (ticket of the message, its clients that are not
here)."""

Moved = list[tuple[str, float]]
"""Clients that have moved to another endpoint, and how many seconds ago each one moved."""


class DeliveryRecord:
    """A record of a message that was delivered here. ``clients`` are the clients that got it. For a broadcast, the
    clients of all bindings with numbers up to ``bound`` also got it.

    Only few messages arrive again. So ``clients`` is the list that came with the message, which other records may
    share, and ``had`` builds a set only for a message that has arrived again.
    """

    __slots__ = ("bound", "clients", "expiry", "name")

    def __init__(self, name: tuple[str, int], expiry: float, clients: list[str], bound: int | None) -> None:
        self.name = name  # the message's origin and number
        self.expiry = expiry
        self.clients = clients
        self.bound = bound

    def had(self) -> frozenset[str]:
        """Return the clients that got the message."""
        return frozenset(self.clients)


class Queued(NamedTuple):
    """A message for many clients that is being sent in slices, or that waits for an earlier message of its topic."""

    message: Message
    clients: list[str]
    ticket: Any
    told: Delivered


class Delivery(Part):
    """Delivers messages to the clients of one endpoint."""

    def __init__(
        self,
        desk: Desk,
        hub: Hub,
        sending: Sending,
        moved_away: MovedAway,
        links: dict[str, Link],
        counters: Counters,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._sizes = sizes
        self._slice = sizes.delivery_slice
        self._hub = hub
        self._sending = sending
        self._moved_away = moved_away
        self._links = links
        self._counters = counters
        self._recent: dict[tuple[str, int], DeliveryRecord] = {}
        # All records in the order of their expiry, including those that ``_recent`` has replaced since.
        self._by_age: deque[DeliveryRecord] = deque()
        self._recent_clients = 0  # the number of recipients in ``_recent``
        # For each topic, its messages for many clients, in order. The first message is being sent.
        self._queues: dict[str, deque[Queued]] = {}
        #: Completed deliveries of peers' messages that took more than one turn. Their tickets are (peer, number of its
        #: request).
        self.delivered: Delivered = deque()
        self.broadcasts: deque[tuple[tuple[str, int], Moved]] = deque()

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "messages_delivered", "Messages put into outboxes of this endpoint's clients, or held back by bounds"
            ),
        ]

    def requests(self) -> dict[type[Request], RequestHandler]:
        """See ``Part``."""
        return {
            DeliverRequest: self.deliver_requested,
            DeliverToListRequest: self.deliver_to_list_requested,
            BroadcastRequest: self.broadcast_requested,
        }

    def deliver_requested(self, peer: str, number: int, request: DeliverRequest) -> None:
        """Handle a home's message for clients of this endpoint."""
        self._deliver_requested(peer, number, request, request.clients)

    def deliver_to_list_requested(self, peer: str, number: int, request: DeliverToListRequest) -> None:
        """Handle a home's message for many clients of this endpoint. On each link, the home sends the list of clients
        only with the first of these messages, or when the list has changed."""
        kept, clients = self._links[peer].kept, request.clients
        if clients is not None:
            kept.keep(request.list_name, clients)
        elif (clients := kept.use(request.list_name)) is None:
            self._desk.decline(peer, number, "internal", "there is no such list")
            return
        self._deliver_requested(peer, number, request, clients)

    def _deliver_requested(
        self, peer: str, number: int, request: DeliverRequest | DeliverToListRequest, clients: list[str]
    ) -> None:
        message = arrived(request.message, self._desk.now)
        absent = self.deliver(message, clients, (peer, number), self.delivered)
        if absent is None:
            return
        if request.can_wait and not absent:
            self._desk.answer_later(peer, number)
        else:
            self._answer(peer, number, absent)

    def _answer(self, peer: str, number: int, absent: list[str]) -> None:
        self._desk.answer(peer, number, absent or None)
        if absent:
            self._hub.missed += absent

    def take_delivered(self) -> None:
        """Answer the homes whose messages took more than one turn to deliver. Called at the end of each turn."""
        delivered = self.delivered
        while delivered:
            (peer, number), absent = delivered.popleft()
            self._answer(peer, number, absent)
        while self.broadcasts:
            (peer, number), moved = self.broadcasts.popleft()
            self._desk.answer(peer, number, moved or None)

    def deliver(self, message: Message, clients: list[str], ticket: Any, told: Delivered) -> list[str] | None:
        """Put the message into the outboxes of the clients that have not received it. Return the clients that are not
        here.

        Return ``None`` if there are many clients, or if an earlier message of the topic is still being sent to many
        clients. In both cases the message is sent in slices. After the last slice, ``told`` gets the ticket and the
        clients that are not here.

        The same message can arrive more than once. A home sends it again for clients that have moved here. A home that
        took over also sends it again. A home that the origin could not reach for a while does the same when the origin
        repeats its request.
        """
        travelled = message.travelled or not message.topic
        if travelled:
            clients = self._fresh(message, clients)
        queue = self._queues.get(message.topic)
        payload = message.payload
        if queue is None and len(clients) <= (self._slice if len(payload) <= LONG_BYTES else self.per_slice(payload)):
            absent = self._push(message, clients)
            if travelled:
                if absent:
                    gone = set(absent)
                    clients = [client for client in clients if client not in gone]
                self._remember(message, clients)
            return absent
        if travelled:
            self._remember(message, clients)
        if queue is None:
            queue = self._queues[message.topic] = deque()
            self._desk.job(self._deliver_queued(message.topic, queue))
        queue.append(Queued(message, clients, ticket, told))
        return None

    def per_slice(self, payload: bytes) -> int:
        """Return the number of connections that a message with this payload goes to in one slice."""
        return self._slice if len(payload) <= LONG_BYTES else min(self._slice, max(1, SLICE_BYTES // len(payload)))

    def _deliver_queued(self, topic: str, queue: deque[Queued]) -> Job:
        while queue:
            message, clients, ticket, told = queue[0]
            absent: list[str] = []
            many = self.per_slice(message.payload)
            for start in range(0, len(clients), many):
                absent += self._push(message, clients[start : start + many])
                yield False
            queue.popleft()
            if absent and (message.travelled or not topic):
                self._have_not_had(message, absent)
            told.append((ticket, absent))
        del self._queues[topic]

    def _push(self, message: Message, clients: list[str]) -> list[str]:
        """Push the message to the clients. Return the clients that are not here."""
        bindings = self._hub.bindings
        push = self._sending.push
        absent = []
        codec: Codec | None = None  # the last connection's codec; ``frame`` is the message's frame in it
        frame = b""
        for client in clients:
            binding = bindings.get(client)
            if binding is None:
                absent.append(client)
                continue
            connection = binding.connection
            receiver = connection.receiver
            if receiver is not None:
                receiver.take(client, message, False)
                continue
            if connection.codec is not codec:
                codec = connection.codec
                frame = message.frame_for(codec)
            push(connection, frame)
        delivered = len(clients) - len(absent)
        self._desk.counts["messages_delivered"] += delivered
        if delivered:
            self._counters.put.append((message.received, delivered))
        return absent

    def _fresh(self, message: Message, clients: list[str]) -> list[str]:
        """Return the clients that have not got the message yet."""
        had = self._recent.get((message.origin, message.number))
        if had is None:
            return clients
        got = had.had()
        if not message.topic:
            return [client for client in clients if client not in got and not self._had_here(client, had.bound)]
        return [client for client in clients if client not in got]

    def _had_here(self, client: str, bound: int | None) -> bool:
        """Return whether the client was here when the broadcast was sent. ``bound`` is ``None`` if the broadcast was
        not sent here."""
        binding = self._hub.bindings.get(client)
        return binding is not None and bound is not None and binding.number <= bound

    def _remember(self, message: Message, clients: list[str]) -> None:
        name = (message.origin, message.number)
        had = self._recent.get(name)
        bound = None
        if had is not None:
            bound = had.bound
            clients = [*had.clients, *clients]
            self._recent_clients -= len(had.clients)
            had.clients = []  # ``_by_age`` keeps this record
        self._recent[name] = record = DeliveryRecord(name, self._desk.now + RECENT_S, clients, bound)
        self._by_age.append(record)
        self._recent_clients += len(clients)
        sizes = self._sizes
        while len(self._recent) > sizes.recent_max or self._recent_clients > sizes.recent_clients_max:
            self._desk.drops["recent_evicted"] += self._forget_oldest()

    def _have_not_had(self, message: Message, clients: list[str]) -> None:
        """Remove absent clients from the message's record. The record has listed them as recipients since the sending
        began."""
        key = (message.origin, message.number)
        had = self._recent.get(key)
        if had is not None:
            gone = set(clients)
            left = [client for client in had.clients if client not in gone]
            self._recent_clients += len(left) - len(had.clients)
            had.clients = left

    def _forget_oldest(self) -> bool:
        """Drop the oldest record. Return whether it was still in use."""
        had = self._by_age.popleft()
        if self._recent.get(had.name) is not had:
            return False
        del self._recent[had.name]
        self._recent_clients -= len(had.clients)
        return True

    # Broadcasts

    def broadcast_requested(self, peer: str, number: int, request: BroadcastRequest) -> None:
        """Handle a peer's broadcast for all clients of this endpoint. The answer has the type ``Moved``."""
        self.broadcast(arrived(request.message, self._desk.now), (peer, number), self.broadcasts)

    def broadcast(self, message: Message, ticket: Any, told: deque[tuple[Any, Moved]]) -> None:
        """Send a broadcast to all clients here. Then pass to ``told`` the ticket and the clients that have moved
        away recently. Their new endpoint may have sent the broadcast before they arrived there."""
        self._desk.job(self._broadcast(message, ticket, told))

    def _broadcast(self, message: Message, ticket: Any, told: deque[tuple[Any, Moved]]) -> Iterator[bool]:
        """Send the broadcast in slices, so that a hundred thousand clients do not delay other work."""
        key = (message.origin, message.number)
        self._remember(message, [])
        record = self._recent[key]
        bindings = self._hub.bindings
        bound = self._hub.bound
        if not self._moved_away.complete(self._desk.now):
            self._desk.drops["moved_evicted"] += 1  # clients missing from the list can miss the broadcast
        moved = [(client, since) for client, since in self._moved_away.since(self._desk.now) if client not in bindings]
        clients: list[str] = []
        if record.bound is None:  # otherwise another home's broadcast request has already sent it here
            got = record.had()
            clients = [client for client in bindings if client not in got]
            record.bound = bound
        many = self.per_slice(message.payload)
        for start in range(0, len(clients), many):
            here = clients[start : start + many]
            absent = self._push(message, here)
            moved += [(client, 0.0) for client in absent if client in self._moved_away]
            if self._hub.bound > bound:
                come_back = [client for client in here if client in bindings and bindings[client].number > bound]
                if come_back:
                    self._remember(message, come_back)
            yield False
        told.append((ticket, moved))

    def tick(self) -> None:
        """Forget deliveries that are so old that no endpoint can resend them."""
        now = self._desk.now
        while self._by_age and self._by_age[0].expiry <= now:
            self._forget_oldest()
        self._moved_away.expire(now)
