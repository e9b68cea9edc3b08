"""The destination: messages for clients of this endpoint into their outboxes, each message once.

Owns: the memory of what was delivered here lately, which may come again from a home that took over, or for clients that
have moved here; and of who has moved away. Must never: look for a client elsewhere; a home is told who is not here.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.messages import notification

from .calls import TIMEOUT_S
from .lists import Recipients
from .message import Publish

if TYPE_CHECKING:
    from .router import Router

#: How long a delivered message's id is remembered: longer than any origin goes on resending (``TIMEOUT_S``).
RECENT_S = 30.0

#: And how many; at 20,000 messages/s from other endpoints that is 10 s, twice what an origin goes on resending.
RECENT_MAX = 200_000

#: And how many recipients of them in all, at some 100 bytes each.
RECENT_CLIENTS_MAX = 500_000

#: How long it is remembered that a client has moved away, in seconds: longer than a broadcast is on its way.
MOVED_S = 2 * TIMEOUT_S

#: And of how many. More can only be where many connections are not closed before their clients come back elsewhere.
MOVED_MAX = 10_000

#: Connections that one message goes to in one slice: about 5 ms of writing. Of a long message fewer, by its bytes.
DELIVERY_SLICE = 500
LONG_BYTES = 4096
SLICE_BYTES = 2 << 20

Done = Callable[[Publish, list[str]], None]
"""Told when a message is in the outboxes, and which of its clients were not there."""

Moved = list[tuple[str, float]]
"""Clients that listen elsewhere now, and for how many seconds."""


def per_slice(frame: bytes) -> int:
    """To how many connections the frame goes in one slice."""
    return DELIVERY_SLICE if len(frame) <= LONG_BYTES else min(DELIVERY_SLICE, max(1, SLICE_BYTES // len(frame)))


class Had(NamedTuple):
    """That a message was delivered here, and to whom: to these; a broadcast also to all whose binding's number is at
    most ``bound``.
    """

    expiry: float
    clients: frozenset[str]
    bound: int | None = None


class Delivering:
    """One endpoint's part as the destination of messages."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._recent: OrderedDict[tuple[str, int], Had] = OrderedDict()
        self._recent_clients = 0  # recipients in it
        self._moved: OrderedDict[str, float] = OrderedDict()  # clients that listen elsewhere now -> since when
        self._moved_evicted_at = -math.inf  # when one was last forgotten before its time
        # By topic: messages for many, in their order, the first of which is going out.
        self._queues: dict[str, deque[tuple[Publish, bytes, list[str], Done]]] = {}

    def deliver_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """A home has a message for clients of ours."""
        origin, origin_number, topic, payload, clients, keep = arguments
        if keep:
            kept = self._router.calls.links[peer].kept
            if clients is None:
                clients = kept.use(topic)
            else:
                clients = Recipients(clients)
                kept.keep(topic, clients)
        message = Publish(topic, payload, False, self._router.now)
        message.origin, message.number, message.travelled = origin, origin_number, True
        self.deliver(message, clients, partial(self._delivered, peer, number))

    def _delivered(self, peer: str, number: int, message: Publish, absent: list[str]) -> None:
        self._router.answer(peer, number, absent)
        if absent:
            self._router.listening.absent(absent)

    def deliver(self, message: Publish, clients: list[str], done: Done) -> None:
        """Put the message into its clients' outboxes, but for those that have had it: at once; or, if there are many,
        in slices, and the topic's next messages behind it.

        It may come more than once: from a home for clients that have moved here, from another home that took over, from
        the same one, where its origin was out of reach and asks again.
        """
        router = self._router
        travelled = message.travelled or not message.topic
        if travelled:
            clients = self._fresh(message, clients)
        frame = message.frame
        if frame is None:
            frame = message.frame = router.wrap(notification(message.topic, message.payload))
        queue = self._queues.get(message.topic)
        if queue is None and len(clients) <= (DELIVERY_SLICE if len(frame) <= LONG_BYTES else per_slice(frame)):
            absent = self._push(message, frame, clients)
            if travelled:
                gone = set(absent)
                self._remember(message, [client for client in clients if client not in gone])
            done(message, absent)
            return
        if travelled:
            self._remember(message, clients)
        if queue is None:
            queue = self._queues[message.topic] = deque()
            router.jobs.append(self._deliver_queued(message.topic, queue))
        queue.append((message, frame, clients, done))

    def _deliver_queued(self, topic: str, queue: deque[tuple[Publish, bytes, list[str], Done]]) -> Iterator[bool]:
        while queue:
            message, frame, clients, done = queue[0]
            absent: list[str] = []
            many = per_slice(frame)
            for start in range(0, len(clients), many):
                absent += self._push(message, frame, clients[start : start + many])
                yield False
            queue.popleft()
            if absent and (message.travelled or not topic):
                self._have_not_had(message, absent)
            done(message, absent)
        del self._queues[topic]

    def _push(self, message: Publish, frame: bytes, clients: list[str]) -> list[str]:
        """Into the outboxes; returns the clients that are not here."""
        router = self._router
        bindings = router.hub.bindings
        absent = []
        for client in clients:
            binding = bindings.get(client)
            if binding is None:
                absent.append(client)
            else:
                router.push(binding.connection, frame)
        delivered = len(clients) - len(absent)
        router.counts["messages_delivered"] += delivered
        if delivered:
            router.written.append((message.received, delivered))
        return absent

    def _fresh(self, message: Publish, clients: list[str]) -> list[str]:
        """The clients that have not had the message."""
        had = self._recent.get((message.origin, message.number))
        if had is None:
            return clients
        if not message.topic:
            return [client for client in clients if client not in had.clients and not self._had_here(client, had.bound)]
        return [client for client in clients if client not in had.clients]

    def _had_here(self, client: str, bound: int | None) -> bool:
        """Was the client here when the broadcast went out, if it has?"""
        binding = self._router.hub.bindings.get(client)
        return binding is not None and bound is not None and binding.number <= bound

    def _remember(self, message: Publish, clients: list[str]) -> None:
        key = (message.origin, message.number)
        had = self._recent.get(key)
        recipients = clients.ids if isinstance(clients, Recipients) else frozenset(clients)
        bound = None
        if had is not None:
            bound = had.bound
            recipients |= had.clients
            self._recent_clients -= len(had.clients)
        self._recent[key] = Had(self._router.now + RECENT_S, recipients, bound)
        self._recent.move_to_end(key)
        self._recent_clients += len(recipients)
        while len(self._recent) > RECENT_MAX or self._recent_clients > RECENT_CLIENTS_MAX:
            self._forget_oldest()
            self._router.drops["recent_evicted"] += 1

    def _have_not_had(self, message: Publish, clients: list[str]) -> None:
        """They were remembered when the message began to go out."""
        key = (message.origin, message.number)
        had = self._recent.get(key)
        if had is not None:
            left = had.clients.difference(clients)
            self._recent_clients += len(left) - len(had.clients)
            self._recent[key] = had._replace(clients=left)

    def _forget_oldest(self) -> None:
        _, had = self._recent.popitem(last=False)
        self._recent_clients -= len(had.clients)

    def broadcast_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """The broadcasts' home has one for all clients of ours. Answered with ``Moved``."""
        origin, origin_number, payload = arguments
        answer = partial(self._router.answer, peer, number)
        self._router.jobs.append(self.broadcast(origin, origin_number, payload, self._router.now, answer))

    def broadcast(
        self, origin: str, number: int, payload: bytes, received: float, done: Callable[[Moved], None]
    ) -> Iterator[bool]:
        """To all clients here, in slices, so that a hundred thousand of them keep nobody waiting; then ``done`` is told
        who has moved away lately: perhaps to where the broadcast had been before them.
        """
        router = self._router
        frame = router.wrap(notification("", payload))
        key = (origin, number)
        had = self._recent.get(key)
        message = Publish("", payload, False, received)
        message.origin, message.number = key
        self._remember(message, [])
        bindings = router.hub.bindings
        bound = router.hub.bound
        if self._moved_evicted_at + MOVED_S > router.now:
            router.drops["moved_evicted"] += 1  # for whom the broadcast may be too early and too late
        moved = [(client, router.now - since) for client, since in self._moved.items() if client not in bindings]
        clients: list[str] = []
        if had is None or had.bound is None:  # else another home had it go out before
            clients = [client for client in bindings if had is None or client not in had.clients]
            self._recent[key] = self._recent[key]._replace(bound=bound)
        many = per_slice(frame)
        for start in range(0, len(clients), many):
            here = clients[start : start + many]
            absent = self._push(message, frame, here)
            moved += [(client, 0.0) for client in absent if client in self._moved]
            if router.hub.bound > bound:
                come_back = [client for client in here if client in bindings and bindings[client].number > bound]
                if come_back:
                    self._remember(message, come_back)
            yield False
        done(moved)

    def moved_away(self, client: str) -> None:
        """It listens elsewhere from here on."""
        self._moved[client] = self._router.now
        self._moved.move_to_end(client)
        if len(self._moved) > MOVED_MAX:
            self._moved.popitem(last=False)
            self._moved_evicted_at = self._router.now

    def tick(self) -> None:
        """Forget what nobody sends again any more."""
        now = self._router.now
        while self._recent and next(iter(self._recent.values())).expiry <= now:
            self._forget_oldest()
        while self._moved and next(iter(self._moved.values())) + MOVED_S <= now:
            self._moved.popitem(last=False)
