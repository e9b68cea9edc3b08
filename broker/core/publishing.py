"""The way of a message: from its publisher's endpoint to its topic's home, from there to every subscriber's endpoint.

Owns: the messages under way, the routing cache, and the table of duplicates. Must never: write a subscription, or hold
a message for longer than the time-outs of what it waits for.

At the origin a publish is one ``Publish`` until its outcome is known: sent to the home, and to the next home if that
one dies. At the home the same class goes through its topic's queue: duplicate? subscribers? where are they? handed
over to each endpoint; done when all have confirmed. In ``lookup`` routing (thesis listing 5.1) every endpoint is home
of everything and asks the store each of these questions for each message.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from protocol.errors import ProtocolError
from protocol.messages import Command, success

from .calls import TIMEOUT_S, Call, Kind
from .dedup import KEY_BYTES, WAITERS_MAX, Dedup, key_of, payload_hash
from .delivering import DELIVERY_SLICE
from .forwarding import NEVER_LISTENED, Forwarding
from .handing import Handing
from .hub import Connection
from .membership import slot_of
from .message import Publish
from .model import Location
from .repeats import Repeats
from .routes import Locations, Route, Routes

if TYPE_CHECKING:
    from .router import Router

#: Subscribers of one message that are looked for, or read from the store, in one go: 2 to 5 ms.
CLIENTS_PER_SLICE = 5_000

#: When the recipients of this turn's messages are so many, messages for more than ``FEW`` wait for another turn:
#: hundreds may wait for one answer of the store. Some 2 ms.
PLACES_PER_TURN = 5_000
FEW = 20

#: Recipients of messages for many (``DELIVERY_SLICE``) that are being handed over at once, some 70 MB of their names at
#: the endpoints that hold them; the next such message waits.
RECIPIENTS_MAX = 1_000_000

Places = tuple[list[str], dict[str, list[str]], list[str]]
"""Of clients: who is here, who is at which peer, of whom it is not known."""


class Publishing:
    """One endpoint's part in the way of messages, as origin and home (``delivering``: as destination)."""

    def __init__(self, router: Router, dedup_ttl_s: float) -> None:
        limits = router.limits
        self._router = router
        self._me = router.me.incarnation
        self.dedup: Dedup[Publish] = Dedup(dedup_ttl_s, limits.dedup_keys)
        self.repeats = Repeats(dedup_ttl_s)
        self.routes = Routes(limits.routes_topics, limits.routes_ids)
        self.locations = Locations(limits.locations_clients)
        self.inflight = 0
        self.inflight_bytes = 0
        self._links_full = False
        self._parked: list[tuple[float, Publish]] = []
        self.handing = Handing(router, self.dedup, self.repeats)
        self.forwarding = Forwarding(router, self)
        self.recipients = 0  # of messages for many that are being handed over
        self._too_many: deque[tuple[str, Route]] = deque()  # topics whose head is for many, and waits until it is less
        self._placed = 0  # recipients of messages of this turn for more than a few
        self._version = 0  # of the table that the routes are of
        self._read: list[tuple[str, Route]] = []  # sets to read at the end of the turn
        self._find: list[str] = []  # clients to find
        self._wanted: dict[str, list[str]] = {}  # client -> topics whose head waits for its location
        self._unfound: Counter[str] = Counter()  # topic -> clients whose location its head waits for
        self._see: list[tuple[bytes, Publish]] = []  # hashes to look up (lookup routing)

    # Origin

    def publish(self, connection: Connection, command: Command) -> None:
        """A client's ``publish``, or ``broadcast``."""
        router = self._router
        router.counts["publishes_received"] += 1
        message = Publish(command.topics[0] if command.topics else "", command.payload, command.dedup, router.now)
        message.connection = connection
        message.id = command.id
        message.ack = command.ack
        message.origin = self._me
        message.number = router.calls.number()
        self._dispatch(message)
        if message.outcome is not None:
            self._tell(message)
            return
        message.reply = router.expect(connection)
        if self.congested:
            router.slow_down(connection)

    @property
    def congested(self) -> bool:
        """Too much is under way to take more in."""
        limits = self._router.limits
        return (
            self.inflight >= limits.inflight_messages
            or self.inflight_bytes >= limits.inflight_bytes
            or self._links_full
        )

    def links_full(self, unconfirmed_bytes: int) -> None:
        """How much the fullest link holds that its peer has not confirmed."""
        was, self._links_full = self._links_full, unconfirmed_bytes > self._router.limits.inflight_bytes
        if was and not self.congested:
            self._router.speed_up()

    def _dispatch(self, message: Publish) -> None:
        router = self._router
        home = self._me if router.lookup else router.members.table[message.slot]
        if message.key is None and message.dedup and self.dedup.ttl_s > 0 and not router.lookup:
            message.key = key_of(message.slot, message.topic, message.payload)
        if home == self._me:
            self._at_home(message)
            return
        if message.key is not None and self.repeats.known(message.key, router.now):
            router.counts["duplicates_dropped"] += 1
            self._settle(message, True)
            return
        self._wait(message)
        message.travelled = True
        packed = b"" if message.key is None else message.key.to_bytes(KEY_BYTES)
        arguments = (message.topic, message.payload, packed, False)
        router.calls.make_numbered(message.number, Kind.PUBLISH, home, arguments, self, message, router.now)

    def _wait(self, message: Publish) -> None:
        if not message.waits:
            message.waits = True
            self.inflight += 1
            self.inflight_bytes += len(message.payload)

    def _settle(self, message: Publish, outcome: bool | ProtocolError) -> None:
        """The message's way ends here; tell whoever waits for it, if that is not the caller."""
        message.outcome = outcome
        self._forget(message)
        if message.peer is not None:
            if isinstance(outcome, ProtocolError):
                info = [outcome.info, outcome.extra] if outcome.extra else outcome.info
                self._router.decline(message.peer, message.number, outcome.code, info)
            else:
                self._router.answer(message.peer, message.number, outcome)
        elif message.reply is not None:
            self._tell(message)

    def _tell(self, message: Publish) -> None:
        """Give the publisher its reply: none, where it succeeded and no ``ack`` was asked for (SPEC section 2)."""
        assert message.connection is not None
        outcome = message.outcome
        router = self._router
        if message.reply is None:
            router.settled_at_once += 1
        else:
            router.settled_s.append(router.now - message.received)
        if isinstance(outcome, ProtocolError):
            name = "publish" if message.topic else "broadcast"
            router.refuse(message.connection, message.reply, message.id, outcome, name)
        else:
            data = success(message.id, duplicate=outcome) if message.ack else None
            router.reply(message.connection, message.reply, data)

    # The home

    def publish_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """A peer takes us for the home of the message's topic; ``again``: it took another for it before."""
        topic, payload, packed, again = arguments
        message = Publish(topic, payload, bool(packed), self._router.now)
        if packed:
            message.key = int.from_bytes(packed)
        if self._router.lookup or self._router.members.table[message.slot] != self._me:
            self._router.not_home(peer, number)
            return
        message.peer = message.origin = peer
        if again:
            message.begun = -math.inf
        message.number = number
        message.travelled = True
        self._at_home(message)

    def _at_home(self, message: Publish) -> None:
        router = self._router
        if not router.lookup:
            if not router.members.joined:
                self._wait(message)
                self._parked.append((router.now + TIMEOUT_S, message))
                return
            key = message.key
            if key is not None:
                if self.dedup.duplicate(key, router.now):
                    router.counts["duplicates_dropped"] += 1
                    self._settle(message, True)
                    return
                waiters = self.dedup.pending(key)
                if waiters is not None:
                    self._share(message, waiters)
                    return
                message.pending = True
                self.dedup.begin(key)
        route = self.routes.use(message.topic)
        if message.topic:
            self.routes.asked += 1
            if route is None or route.subscribers is None:
                self.routes.misses += 1
        if route is None:
            route = self.routes.add(message.topic)
        if route.queue is not None:
            route.queue.append(message)
        else:
            route.queue = deque((message,))
            self._advance(message.topic, route)
        if message.outcome is None:
            self._wait(message)

    def _share(self, message: Publish, waiters: list[Publish]) -> None:
        """A duplicate of a message that is still being handed over shares its outcome."""
        if len(waiters) >= WAITERS_MAX:
            self._router.drops["duplicate_waiters_full"] += 1
            self._settle(message, ProtocolError("peer_unavailable", "Too many duplicates wait for one message"))
            return
        self._wait(message)
        waiters.append(message)

    def _advance(self, topic: str, route: Route) -> None:
        """Take the topic's messages, in their order, as far as they get without the store."""
        router = self._router
        queue = route.queue
        while queue:
            message = queue[0]
            if router.lookup and message.dedup and self.dedup.ttl_s > 0:
                if message.seen is None:
                    self._see.append((payload_hash(topic, message.payload), message))
                    return
                if message.seen:
                    router.counts["duplicates_dropped"] += 1
                    queue.popleft()
                    self._settle(message, True)
                    continue
            if not topic:
                queue.popleft()
                self.forwarding.broadcast(message)
                continue
            if route.subscribers is None:
                if not route.reading:
                    route.reading = True
                    self._read.append((topic, route))
                return
            count = len(route.subscribers)
            many = count > DELIVERY_SLICE
            if many and self.recipients >= RECIPIENTS_MAX:
                self._too_many.append((topic, route))
                route.places = None  # they may be elsewhere by then
                return
            if route.placing:
                return
            if count > FEW:
                if self._placed >= PLACES_PER_TURN:
                    route.placing = True
                    router.jobs.append(self._rest(topic, route))
                    return
                self._placed += count
            if route.places is not None:
                (local, remote, missing), route.places = route.places, None
            elif count <= CLIENTS_PER_SLICE:
                local, remote, missing = self.places(route.subscribers, route.found or {})
            else:
                route.placing = True
                router.jobs.append(self._place(topic, route, list(route.subscribers)))
                return
            if missing:
                for client in missing:
                    wanted = self._wanted.get(client)
                    if wanted is None:
                        self._wanted[client] = [topic]
                        self._find.append(client)
                    elif topic not in wanted:
                        wanted.append(topic)
                    else:
                        continue
                    self._unfound[topic] += 1
                return
            queue.popleft()
            if many:
                message.recipients = count
                self.recipients += count
            self.forwarding.hand_over(message, local, remote)
            route.found = None
            if router.lookup:
                route.subscribers = None
        route.queue = None
        if router.lookup or not topic:
            self.routes.drop(topic)

    def _rest(self, topic: str, route: Route) -> Iterator[bool]:
        """The topic's messages go on in another turn."""
        route.placing = False
        if self.routes.get(topic) is route:
            self._advance(topic, route)
        yield from ()

    def _place(self, topic: str, route: Route, clients: list[str]) -> Iterator[bool]:
        """Where the many subscribers of the topic's first message are."""
        local, remote, missing = self.places((), {})
        for start in range(0, len(clients), CLIENTS_PER_SLICE):
            more = self.places(clients[start : start + CLIENTS_PER_SLICE], route.found or {})
            local += more[0]
            for endpoint, there in more[1].items():
                remote.setdefault(endpoint, []).extend(there)
            missing += more[2]
            yield False
            if self.routes.get(topic) is not route:
                return  # the topic's messages are another home's by now
        for endpoint in [endpoint for endpoint in remote if not self._router.members.in_view(endpoint)]:
            self._router.drops["endpoint_gone"] += len(remote.pop(endpoint))
        route.placing = False
        route.places = (local, remote, missing)
        self._advance(topic, route)

    def places(self, clients: Collection[str], found: dict[str, Location | None]) -> Places:
        """Where the clients are."""
        known = self.locations.get
        in_view = self._router.members.in_view
        lookup = self._router.lookup
        local: list[str] = []
        remote: dict[str, list[str]] = {}
        missing: list[str] = []
        for client in clients:
            location = None if lookup else known(client)
            if location is None:
                if client not in found:
                    missing.append(client)
                    continue
                location = found[client]
            if location is None or not location.online:
                continue
            incarnation = location.incarnation
            if incarnation == self._me:
                local.append(client)
            elif incarnation in remote:
                remote[incarnation].append(client)
            elif in_view(incarnation):
                remote[incarnation] = [client]
            else:
                self._router.drops["endpoint_gone"] += 1
        if not lookup:
            self.locations.asked += len(clients) - len(found)  # these have been asked for before
            if missing:
                self.locations.misses += len(missing)
        return local, remote, missing

    def ended(self, message: Publish, error: ProtocolError | None) -> None:
        """The home is done with the message; its duplicates share the outcome."""
        router = self._router
        if message.recipients:
            self.recipients -= message.recipients
            message.recipients = 0
            router.jobs.append(self._let_go_on())
        if error is not None:
            router.drops[f"publish_{error.code}"] += 1
        if message.pending:
            message.pending = False
            key = message.key
            assert key is not None
            handed_over = error is None or error.code == "partial"
            for waiter in self.dedup.settle(key, handed_over, router.now):
                if error is None:
                    router.counts["duplicates_dropped"] += 1
                self._settle(waiter, True if error is None else error)
            home = router.members.table[message.slot]
            if handed_over and home != self._me and not router.lookup:
                self.handing.hand_on([(key, self.dedup.ttl_s)])
        self._settle(message, False if error is None else error)

    def _let_go_on(self) -> Iterator[bool]:
        """Topics that waited until less is being handed over: in a turn of their own, and not inside the message's."""
        while self._too_many and self.recipients < RECIPIENTS_MAX:
            topic, route = self._too_many.popleft()
            if self.routes.get(topic) is route:
                self._advance(topic, route)
                yield False

    def answered(self, call: Call, value: Any) -> None:
        """The home has the message."""
        message: Publish = call.context
        if message.key is not None:
            self.repeats.learn(message.key, self._router.now)
        self._settle(message, bool(value))

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It could not take it, or did not answer in time."""
        text, extra = info if isinstance(info, list) else (info, {})
        self._settle(call.context, ProtocolError(code, text, **extra))

    def lost(self, call: Call) -> None:
        """The home is gone, or not the home any more."""
        message = call.context
        home = self._router.members.table[message.slot]
        if home != self._me:
            call.arguments = (*call.arguments[:3], True)
            self._router.calls.send(call, home)
        else:
            self._router.calls.settle(call)
            self._at_home(message)

    # Store

    def flush(self) -> None:
        """End the turn: ask the store, in one call each, for what its messages need to know."""
        self._placed = 0
        if self._read:
            topics = [topic for topic, _ in self._read]
            self._router.store("subscribers", (topics,), self._subscribers, self._read)
            self._read = []
        if self._find:
            for start in range(0, len(self._find), CLIENTS_PER_SLICE):
                part = self._find[start : start + CLIENTS_PER_SLICE]
                self._router.store("locations", (part,), self._found, part)
            self._find = []
        if self._see:
            hashes = [key for key, _ in self._see]
            self._router.store("seen", (hashes, self.dedup.ttl_s), self._seen, [message for _, message in self._see])
            self._see = []

    def _subscribers(self, read: list[tuple[str, Route]], result: Any, error: Exception | None) -> None:
        for index, (topic, route) in enumerate(read):
            if self.routes.get(topic) is not route:
                continue  # dropped meanwhile, with what waited in it
            if error is not None:
                self._give_up(topic, error)
                continue
            self.routes.filled(topic, route, result[index])
            self._advance(topic, route)

    def _found(self, clients: list[str], result: Any, error: Exception | None) -> None:
        topics: dict[str, None] = {}  # that wait for nobody any more
        for index, client in enumerate(clients):
            location = None if error is not None else result[index]
            if error is None and not self._router.lookup:
                self.locations.learn(client, location or NEVER_LISTENED)
            for topic in self._wanted.pop(client, ()):
                self._unfound[topic] -= 1
                if error is not None or not self._unfound[topic]:
                    topics[topic] = None
                route = self.routes.get(topic)
                if route is not None and error is None:
                    if route.found is None:
                        route.found = {}
                    route.found[client] = location
        for topic in topics:
            if not self._unfound[topic]:
                del self._unfound[topic]
            route = self.routes.get(topic)
            if route is None:
                continue
            if error is not None:
                self._give_up(topic, error)
            else:
                self._advance(topic, route)

    def _seen(self, messages: list[Publish], result: Any, error: Exception | None) -> None:
        for index, message in enumerate(messages):
            route = self.routes.get(message.topic)
            if route is None or not route.queue or route.queue[0] is not message:
                continue
            if error is not None:
                self._give_up(message.topic, error)
            else:
                message.seen = result[index]
                self._advance(message.topic, route)

    def _give_up(self, topic: str, error: Exception) -> None:
        """The store could not say what the topic's messages need to know; none of them was handed to anybody."""
        route = self.routes.drop(topic)
        if route is not None:
            for message in route.queue or ():
                self.ended(message, ProtocolError("store_unavailable", str(error) or repr(error)))

    # Changes of subscriptions and of the cluster

    def changed(self, client: str, topics: Iterable[str], added: bool) -> None:
        """A subscription of ours as home was written: it holds from here on, in the cache and in reads under way."""
        for topic in topics:
            self.routes.change(topic, client, added)

    def doubtful(self, topics: Iterable[str]) -> None:
        """A write failed that may yet take effect: read these again before they are used again."""
        for topic in topics:
            route = self.routes.get(topic)
            if route is not None and not route.queue and not route.reading:
                self.routes.drop(topic)

    def view_changed(self) -> None:
        """Slots have new homes: let go of those that went, and hand on what is known of their payloads."""
        members = self._router.members
        if members.version == self._version:
            return
        self._version = members.version
        table = members.table
        me = self._me
        for topic in self.routes.topics():
            if topic and table[slot_of(topic)] != me:
                self._release(topic)
        if not self._router.lookup:
            self.handing.view_changed()

    def lapsed(self) -> None:
        """Others may act for us: nothing cached is to be trusted."""
        for topic in self.routes.topics():
            self._release(topic)
        self.locations.clear()

    def joined(self) -> None:
        """From here on the peers tell us who listens where; what was learnt before may be old."""
        self.locations.clear()

    def _release(self, topic: str) -> None:
        """Forget the topic; the messages that wait in it are its new home's."""
        route = self.routes.get(topic)
        if route is None or self._router.lookup:
            return
        self.routes.drop(topic)
        for message in route.queue or ():
            waiters: list[Publish] = []
            if message.pending:
                assert message.key is not None
                message.pending = False
                waiters = self.dedup.settle(message.key, False, self._router.now)
            for moved in (message, *waiters):
                if moved.peer is not None:
                    self._forget(moved)
                    self._router.not_home(moved.peer, moved.number)
                else:
                    self._dispatch(moved)

    def _forget(self, message: Publish) -> None:
        """It is not in flight here any more; once much less is, publishers are read again."""
        if message.waits:
            message.waits = False
            self.inflight -= 1
            self.inflight_bytes -= len(message.payload)
            limits = self._router.limits
            less = self.inflight * 2 < limits.inflight_messages and self.inflight_bytes * 2 < limits.inflight_bytes
            if less and not self._links_full:
                self._router.speed_up()

    # Time

    def tick(self) -> None:
        """Retry what is parked, expire what is old."""
        router = self._router
        now = router.now
        parked, self._parked = self._parked, []
        for deadline, message in parked:
            if message.topic and router.members.table[message.slot] != self._me:
                if message.peer is not None:
                    self._forget(message)
                    router.not_home(message.peer, message.number)
                else:
                    self._dispatch(message)
            elif router.members.joined:
                self._at_home(message)
            elif deadline <= now:
                self.ended(message, ProtocolError("peer_unavailable", "This endpoint has not joined the others yet"))
            else:
                self._parked.append((deadline, message))
        self.handing.tick()
