"""One random history of a cluster, and what SPEC section 8 promises of it.

Owns: the actions, the faults, and the naive model that says who must have got what. A history is its seed: the same
seed gives the same history, event by event.

The model knows only what clients see: what they sent and when, and what came back and when. A *steady* subscriber of a
publish is one whose ``listen`` and ``subscribe`` had succeeded before the publish was sent, and who stayed: same
connection, no ``unsubscribe``, at an endpoint that neither crashed nor was taken for dead by another.
"""

from __future__ import annotations

from typing import Any

from broker.core.limits import Limits
from protocol.errors import SLOW_CONSUMER

from .world import Client, Node, World

#: A publish's outcome and its deliveries are all there so long after it was sent, in virtual seconds.
SETTLE_S = 14.0

TOPICS = [f"topic {index}" for index in range(6)]

#: So little that a client that does not read for a second, or sends forty commands at once, has to be dealt with.
SLOW_LIMITS = Limits(outbox_bytes=800, inflight_messages=6)
SLOW_SOCKET_BYTES, SLOW_PIECE_BYTES = 400, 150


class Publication:
    """A publish (or several of one payload): when, by whom, and what its publishers were told."""

    def __init__(self, topic: str, payload: str, at: float) -> None:
        self.topic = topic
        self.payload = payload
        self.at = at
        self.sends = 0
        self.publisher = ""  # who sent it first
        self.outcomes: list[dict[str, Any]] = []


class Subscriber:
    """A client over all its connections."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections: list[Client] = []
        self.listening_since: dict[Client, float] = {}
        self.went_away = False
        self.was_slow = False
        # topic -> [(time, added, acknowledged at or None)]
        self.changes: dict[str, list[list[Any]]] = {}

    @property
    def connection(self) -> Client | None:
        """The present one, if open."""
        return self.connections[-1] if self.connections and self.connections[-1].core is not None else None

    def listen_over(self, client: Client, before: float) -> bool:
        """Had that connection's ``listen`` its reply, or was the connection gone, by then?"""
        replied = client.replies[0][0] if client.replies else float("inf")
        return min(replied, client.closed_at or float("inf")) < before

    def subscribed(self, topic: str, at: float, until: float) -> bool:
        """Acknowledged before ``at``, and nothing to the contrary begun before ``until`` that may have come after it.

        Commands of one client on two connections are not ordered: an ``unsubscribe`` counts as over only when its
        success came before the ``subscribe`` was sent, or long ago.
        """
        changes = [change for change in self.changes.get(topic, []) if change[0] <= until]
        removals = [(begun, done) for begun, added, done in changes if not added]
        for begun, added, done in changes:
            if added and done is not None and done < at:
                over = [(end is not None and end < begun) or start + SETTLE_S < begun for start, end in removals]
                if all(over):
                    return True
        return False


class History:
    """Runs one seed; ``violations`` says in words what was promised and did not hold."""

    def __init__(
        self,
        seed: int,
        *,
        faults: bool = True,
        endpoints: int = 3,
        routing: str = "home",
        drains: bool = False,
        slow: bool = False,
    ) -> None:
        self.world = World(seed, routing=routing, **({"limits": SLOW_LIMITS} if slow else {}))
        if slow:
            self.world.socket_bytes, self.world.piece_bytes = SLOW_SOCKET_BYTES, SLOW_PIECE_BYTES
        self.random = self.world.random
        self.faults = faults
        self.slow = slow  # clients that do not read for a while, bursts, and little room for either
        self.blocked = self.held = self.slow_closed = 0  # how often that was noticed
        self.drains = drains  # every endpoint in turn is drained and started anew
        self.draining: Node | None = None
        self.drained = 0
        self.routing = routing
        self.names = [f"e-{index}" for index in range(endpoints)]
        self.subscribers = [Subscriber(f"c{index}") for index in range(6)]
        self.publishers: dict[str, Client] = {}
        self.publications: list[Publication] = []
        self.expected: dict[Client, int] = {}  # replies to come
        self.violations: list[str] = []
        self.log: list[str] = []
        self.false_deaths: list[tuple[float, str]] = []  # (when, incarnation) of live endpoints taken for dead
        self.disturbed = False
        self.homes_checked = 0
        self.views_checked: set[tuple[tuple[str, int], ...]] = set()  # found without a conflict
        self.moved_deliveries = 0  # of subscribers that never went away, at whichever of their connections
        self.steady_deliveries = 0  # that had to be, and were looked for

    # What happens

    def run(self, seconds: float = 12.0) -> list[str]:
        """The whole history; returns the violations."""
        world = self.world
        for name in self.names:
            self.start(name)
        world.run(2.5)
        self.check_homes_regularly()
        for subscriber in self.subscribers:
            self.connect(subscriber)
        world.run(0.5)
        if self.drains:
            world.at(0.5, self.drain, list(self.names))
        end = world.now + seconds
        while world.now < end:
            world.run(self.random.expovariate(12.0))
            self.act()
            if self.faults and self.random.random() < 0.03:
                self.fault()
            if self.slow and self.random.random() < 0.2:
                self.slow_down()
        self.say("no more faults; those under way end by themselves")
        world.run(SETTLE_S + 6.0)
        self.check_deliveries()
        self.check_subscriptions()
        self.check_replies()
        for node in world.nodes.values():
            self.held += node.holds
            self.blocked += node.blocks
        clients = [client for subscriber in self.subscribers for client in subscriber.connections]
        self.slow_closed = sum(client.close_code == SLOW_CONSUMER.code for client in clients)
        if not self.disturbed:
            self.check_order()
            self.check_moves()
        return self.violations

    def say(self, text: str) -> None:
        """For whoever replays the seed."""
        self.log.append(f"{self.world.now - 1000:8.3f} {text}")

    def start(self, name: str) -> Node:
        """Start an endpoint, and watch whom it takes for dead."""
        node = self.world.start(name)
        gone = node.router.joining._gone

        def watched(endpoints: list[Any]) -> None:
            for endpoint in endpoints:
                other = self.world.nodes[endpoint.incarnation]
                self.say(f"{name} takes {endpoint.name} for gone (alive: {other.alive})")
                if other.alive:
                    self.false_deaths.append((self.world.now, endpoint.incarnation))
            gone(endpoints)

        node.router.joining._gone = watched  # type: ignore[method-assign]
        self.say(f"{name} starts as {node.me.incarnation}")
        return node

    def node(self) -> Node | None:
        """A process to use."""
        nodes = [
            node for node in self.world.live() if node.stalled_until <= self.world.now and node is not self.draining
        ]
        return self.random.choice(nodes) if nodes else None

    def command(self, client: Client, then: Any = None, **fields: Any) -> None:
        """Send a command that has a reply."""
        waiting = self.expected.setdefault(client, 0)
        if waiting == 0 and not hasattr(client, "thens"):
            client.thens = []  # type: ignore[attr-defined]
            client.on_reply = lambda reply: self.replied(client, reply)
        client.thens.append(then)  # type: ignore[attr-defined]
        self.expected[client] += 1
        client.send(**fields)

    def replied(self, client: Client, reply: dict[str, Any]) -> None:
        """Replies leave in order, so this one is the oldest command's."""
        self.expected[client] -= 1
        then = client.thens.pop(0)  # type: ignore[attr-defined]
        if then is not None:
            then(reply)

    def connect(self, subscriber: Subscriber) -> None:
        """A (new) connection that listens; the old one is left for the broker to close."""
        node = self.node()
        if node is None:
            return
        client = Client(self.world, subscriber.name, node)
        client.on_going = lambda: self.told_to_go(client)
        subscriber.connections.append(client)
        self.say(f"{subscriber.name} listens at {node.me.name}")

        def then(reply: dict[str, Any]) -> None:
            if reply.get("result") == "success":
                subscriber.listening_since[client] = self.world.now
                self.say(f"{subscriber.name} is listening at {node.me.name}")

        self.command(client, then, command="listen")

    def publisher(self) -> Client | None:
        """A publisher's connection, each endpoint's one for as long as it lasts."""
        node = self.node()
        if node is None:
            return None
        if self.draining is not None and self.draining.alive and self.random.random() < 0.3:
            node = self.draining  # over a connection that it has had before, if there is one
        client = self.publishers.get(node.me.incarnation)
        if node is self.draining and (client is None or client.core is None):
            return None
        if client is None or client.core is None:
            client = self.publishers[node.me.incarnation] = Client(self.world, f"p-{node.me.name}", node)
        return client

    def publish(self, publication: Publication) -> None:
        """Publish it (again)."""
        client = self.publisher()
        if client is None:
            return
        publication.sends += 1
        publication.publisher = publication.publisher or client.name
        self.say(f"{client.name} publishes {publication.payload} to {publication.topic}")

        def then(reply: dict[str, Any]) -> None:
            publication.outcomes.append(reply)
            self.say(f"{publication.payload}: {reply}")

        self.command(client, then, command="publish", topic=publication.topic, payload=publication.payload, ack=True)

    def act(self) -> None:
        """One random action of a client."""
        draw = self.random.random()
        subscriber = self.random.choice(self.subscribers)
        topic = self.random.choice(TOPICS)
        if draw < 0.45:
            publication = Publication(topic, f"m{len(self.publications)}", self.world.now)
            self.publications.append(publication)
            self.publish(publication)
        elif draw < 0.55 and self.publications:
            recent = self.publications[-5:]
            self.publish(self.random.choice(recent))
        elif draw < 0.88:
            connection = subscriber.connection
            if connection is None:
                return
            added = self.random.random() < 0.7
            change: list[Any] = [self.world.now, added, None]
            subscriber.changes.setdefault(topic, []).append(change)
            self.say(f"{subscriber.name} {'subscribes to' if added else 'unsubscribes from'} {topic}")

            def then(reply: dict[str, Any]) -> None:
                if reply.get("result") == "success":
                    change[2] = self.world.now
                self.say(f"{subscriber.name} {topic} {added}: {reply}")

            self.command(connection, then, command="subscribe" if added else "unsubscribe", topic=[topic])
        elif draw < 0.95 or subscriber.connection is None:
            self.connect(subscriber)
        else:
            self.say(f"{subscriber.name} goes away")
            subscriber.went_away = True
            subscriber.connection.close()

    def slow_down(self) -> None:
        """A client stops reading, or one publishes a lot at once."""
        seconds = self.random.uniform(0.1, 3.0)
        if self.random.random() < 0.7:
            subscriber = self.random.choice(self.subscribers)
            clients = [(subscriber.name, subscriber.connection)]
            subscriber.was_slow = True
        else:
            clients = [(client.name, client) for client in self.publishers.values()]
        for name, client in clients:
            if client is not None:
                self.say(f"{name} does not read for {seconds:.1f} s")
                client.deaf_until = self.world.now + seconds
        if self.random.random() < 0.3:
            topic = self.random.choice(TOPICS)
            for _ in range(self.random.randint(5, 40)):
                publication = Publication(topic, f"m{len(self.publications)}", self.world.now)
                self.publications.append(publication)
                self.publish(publication)

    def fault(self) -> None:
        """One random fault."""
        self.disturbed = True
        world = self.world
        live = world.live()
        draw = self.random.random()
        if not live:
            return
        node = self.random.choice(live)
        seconds = self.random.uniform(0.3, 6.0)
        if draw < 0.3 and len(live) > 1:
            self.say(f"{node.me.name} crashes")
            world.crash(node)
            world.at(seconds, self.start, node.me.name)
        elif draw < 0.45:
            self.say(f"{node.me.name} stalls for {seconds:.1f} s")
            node.stalled_until = max(node.stalled_until, world.now + seconds)
        elif draw < 0.75:
            other = self.random.choice(live)
            if other is not node:
                self.say(f"{node.me.name} -> {other.me.name} cut for {seconds:.1f} s")
                world.cut(node.me.name, other.me.name, seconds)
                if self.random.random() < 0.6:
                    world.cut(other.me.name, node.me.name, seconds)
        elif draw < 0.85:
            self.say(f"the store is down for {seconds:.1f} s")
            world.store.down = True
            world.at(seconds, setattr, world.store, "down", False)
        elif draw < 0.93:
            self.say(f"{node.me.name} is cut from the store for {seconds:.1f} s")
            world.store.cut.add(node.me.incarnation)
            world.at(seconds, world.store.cut.discard, node.me.incarnation)
        else:
            self.say(f"{node.me.name} cannot write the store for {seconds:.1f} s")
            world.store.readonly.add(node.me.incarnation)
            world.at(seconds, world.store.readonly.discard, node.me.incarnation)

    # A rolling restart

    def drain(self, names: list[str]) -> None:
        """An orderly end of the first one; then its next life, and the others."""
        name, *others = names
        node = next((node for node in self.world.live() if node.me.name == name), None)
        if node is None:
            return
        self.say(f"{name} is drained")
        self.draining = node
        over_s = self.random.choice([0.0, self.random.uniform(0.0, 2.0)])
        node.event(lambda now: node.router.leave(now, over_s))
        self.world.at(0.1, self.restart, node, others)

    def told_to_go(self, client: Client) -> None:
        """Its endpoint ends; it comes back elsewhere."""
        subscriber = next((one for one in self.subscribers if one.connection is client), None)
        if subscriber is not None:
            subscriber.went_away = True  # for a moment: until it listens elsewhere
            self.world.at(self.random.uniform(0.0, 0.3), self.connect, subscriber)

    def restart(self, node: Node, others: list[str]) -> None:
        """Once it has left, unless it has crashed: then its next life is under way."""
        if node.alive and not node.left:
            self.world.at(0.1, self.restart, node, others)
            return
        self.draining = None
        if node.alive:
            self.say(f"{node.me.name} has left")
            self.drained += 1
            self.world.crash(node)  # there is nobody left at it
            self.world.at(0.3, self.start, node.me.name)
        if others:
            self.world.at(2.5, self.drain, others)

    # What must hold

    def check_homes_regularly(self) -> None:
        """No two endpoints act as home of one slot at the same time."""
        self.world.at(0.05, self.check_homes_regularly)
        if self.routing == "lookup":
            return
        now = self.world.now
        acting = [
            node
            for node in self.world.live()
            if node.stalled_until <= now and node.router.members.joined and node.router.members._lease(now)
        ]
        self.homes_checked += len(acting) > 1
        key = tuple((node.me.incarnation, node.router.members.version) for node in acting)
        if key in self.views_checked:
            return
        self.views_checked.add(key)
        for index, one in enumerate(acting):
            for other in acting[index + 1 :]:
                tables = zip(one.router.members.table[::32], other.router.members.table[::32], strict=True)
                if any(a == one.me.incarnation and b == other.me.incarnation for a, b in tables):
                    self.violations.append(f"at {now - 1000:.3f} both {one.me.name} and {other.me.name} act for a slot")

    def steady(self, subscriber: Subscriber, publication: Publication, until: float) -> Client | None:
        """The connection that must have got the publication, if there is one."""
        at = publication.at
        for client, since in subscriber.listening_since.items():
            later = subscriber.connections[subscriber.connections.index(client) + 1 :]
            if since >= at or (later and later[0].begun_at <= until):
                continue
            earlier = subscriber.connections[: subscriber.connections.index(client)]
            if not all(subscriber.listen_over(other, client.begun_at) for other in earlier):
                continue  # an older connection's `listen` may have come after this one's, as the newest
            if client.closed_at is not None and client.closed_at <= until:
                continue
            if not client.node.alive or not subscriber.subscribed(publication.topic, at, until):
                continue
            if any(
                incarnation == client.node.me.incarnation and at - 10 <= when <= until
                for when, incarnation in self.false_deaths
            ):
                continue
            return client
        return None

    def check_deliveries(self) -> None:
        """Everybody steady got what was acknowledged, and nobody got anything twice."""
        for publication in self.publications:
            good = [outcome for outcome in publication.outcomes if "error" not in outcome]
            partial = [outcome for outcome in publication.outcomes if outcome.get("error") == "partial"]
            until = publication.at + SETTLE_S
            for subscriber in self.subscribers:
                for client in subscriber.connections:
                    copies = sum(
                        1 for _, key, note in client.notes if (key, note) == (publication.topic, publication.payload)
                    )
                    # After the crash of a home, or what looked like one, a payload published twice may come twice.
                    most = publication.sends if self.disturbed or self.routing == "lookup" else 1
                    if copies > most:
                        self.violations.append(
                            f"{subscriber.name} got {publication.payload} {copies} times, sent {publication.sends}"
                        )
                if not good or partial:
                    continue
                steady = self.steady(subscriber, publication, until)
                if steady is None:
                    continue
                self.steady_deliveries += 1
                if not any(note == publication.payload for _, _, note in steady.notes):
                    self.violations.append(f"{subscriber.name} never got {publication.payload}, acknowledged {good}")

    def check_order(self) -> None:
        """One publisher's messages on one topic arrive in its order, where nothing was disturbed.

        Not looked at: subscribers that moved, and messages that another publisher repeated (his may come first).
        """
        numbers = {publication.payload: index for index, publication in enumerate(self.publications)}
        publisher_of = {publication.payload: publication.publisher for publication in self.publications}
        once = {publication.payload for publication in self.publications if publication.sends == 1}
        for subscriber in self.subscribers:
            for client in subscriber.connections if len(subscriber.connections) == 1 else ():
                last: dict[tuple[str, Any], int] = {}
                for _, topic, payload in client.notes:
                    if payload not in once:
                        continue
                    key = (publisher_of[payload], topic)
                    if numbers[payload] < last.get(key, -1):
                        self.violations.append(f"{subscriber.name} got {payload} out of order")
                    last[key] = max(last.get(key, -1), numbers[payload])

    def check_moves(self) -> None:
        """Where nothing was disturbed, a subscriber that moves gets everything all the same: once, here or there."""
        for publication in self.publications:
            if publication.sends != 1 or not any("error" not in outcome for outcome in publication.outcomes):
                continue
            until = publication.at + SETTLE_S
            for subscriber in self.subscribers:
                listened = [since for since in subscriber.listening_since.values() if since < publication.at]
                if not listened or subscriber.went_away or subscriber.was_slow or self.routing == "lookup":
                    continue
                copies = sum(
                    1
                    for client in subscriber.connections
                    for _, topic, payload in client.notes
                    if (topic, payload) == (publication.topic, publication.payload)
                )
                least = 1 if subscriber.subscribed(publication.topic, publication.at, until) else 0
                self.moved_deliveries += least
                if not least <= copies <= 1:
                    self.violations.append(f"{subscriber.name}, moving, got {publication.payload} {copies} times")

    def check_subscriptions(self) -> None:
        """What was acknowledged last is in the store."""
        store = self.world.store
        for subscriber in self.subscribers:
            for topic in subscriber.changes:
                if subscriber.subscribed(topic, float("inf"), float("inf")) and subscriber.name not in (
                    store.subscribers_of.get(topic, set())
                ):
                    self.violations.append(f"the subscription of {subscriber.name} to {topic} is lost")

    def check_replies(self) -> None:
        """Every command got its reply, unless its connection broke."""
        for client, waiting in self.expected.items():
            if client.core is not None and waiting:
                self.violations.append(f"{waiting} commands of {client.name} at {client.node.me.name} got no reply")
        for node in self.world.live():
            if node.router.inflight.messages or node.router.inflight.bytes:
                self.violations.append(f"{node.me.name} still counts messages in flight")
            if len(node.router.calls):
                self.violations.append(f"{node.me.name} still has requests under way")
