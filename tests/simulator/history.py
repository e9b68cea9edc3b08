"""One random history of a cluster, and the promises of SPEC section 8 about it.

Owns: the actions, the faults, and the facts for the oracle (``ingeborg.bench.oracle``), which decides which clients
must have got which messages. A history is its seed: the same seed gives the same history, event by event.

The oracle learns only what clients see: their commands and the endpoints' frames, with their times. About faults it
learns only that some happened, and which endpoints were taken for dead. A *steady* subscriber of a publish had its
``listen`` and ``subscribe`` confirmed before the publish was sent, and stayed until all was settled: same connection,
no ``unsubscribe``, at an endpoint that neither crashed nor was taken for dead by another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingeborg.bench.oracle import rules
from ingeborg.bench.oracle.facts import (
    FOREVER,
    By,
    Change,
    Copy,
    Disturbance,
    Facts,
    Filtered,
    Kind,
    Line,
    Listed,
    Message,
    Name,
    Note,
    Outcome,
    Place,
    Send,
    Terms,
)
from ingeborg.bench.oracle.judge import Judge
from ingeborg.bench.oracle.verdict import Violation
from ingeborg.broker.core.limits import SIZES, Limits, Sizes
from ingeborg.broker.core.model import Endpoint, Settings, Shape
from ingeborg.protocol.errors import REPLACED, SLOW_CONSUMER

from .tokens import Tokens
from .world import Client, Node, World

#: Virtual seconds from a publish to its outcome and its last delivery.
SETTLE_S = 14.0

#: A cut ends, and links are whole again, well before a request times out (5 s).
CUT_MAX_S, WHOLE_AFTER_S = 2.0, 1.5

#: Seconds within which everything sent has arrived (``World.delay``).
ARRIVED_S = 0.11

NOTHING: Mapping[str, Any] = {}

TOPICS = [f"topic {index}" for index in range(6)]

#: So low that a client reaches them by not reading for a second, or by sending forty commands at once.
SLOW_LIMITS = Limits(outbox_bytes=800, inflight_messages=6)
SLOW_SOCKET_BYTES, SLOW_PIECE_BYTES = 400, 150


@dataclass
class Sending:
    """One publish: its time, its publisher, and the reply."""

    at: float
    client: Client
    number: int  # its place in the order of all sends
    reply: dict[str, Any] = field(default_factory=dict)
    replied_at: float = FOREVER


class Publication:
    """A publish, or several of one payload. ``number``: identifies it."""

    def __init__(self, number: int, topic: str, at: float) -> None:
        self.number = number
        self.topic = topic
        self.payload = f"m{number}"
        self.at = at
        self.sends: list[Sending] = []
        self.own_key = f"k{number}"  # for publishers with keys of their own
        self.rivals: list[Publication] = []  # publications with the same key

    @property
    def conflicts(self) -> list[Sending]:
        """Return the sends that were refused because the key stands for another payload."""
        return [sending for sending in self.sends if sending.reply.get("error") == "conflict"]

    @property
    def accepted(self) -> list[Sending]:
        """Return the sends with a successful reply."""
        return [sending for sending in self.sends if sending.reply.get("result") == "success"]


class Subscriber:
    """A client over all its connections."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections: list[Client] = []
        self.listening_since: dict[Client, float] = {}
        self.went_away = False
        self.was_slow = False
        self.changes: dict[str, list[Change]] = {}  # by topic

    @property
    def connection(self) -> Client | None:
        """The present connection, if open."""
        return self.connections[-1] if self.connections and self.connections[-1].core is not None else None


class History:
    """Runs one seed. ``violations``: the broken promises, in words."""

    def __init__(
        self,
        seed: int,
        *,
        faults: bool = True,
        endpoints: int = 3,
        routing: str = "home",
        drains: bool = False,
        cuts: bool = False,
        slow: bool = False,
        limits: Limits | None = None,
        sizes: Sizes = SIZES,
        shape: Shape | None = None,
        forgets: str = "",
        replication: bool = False,
        crashes: bool = False,
        own_keys: bool = False,
        revokes: bool = False,
        history: str = "off",
    ) -> None:
        """Make the history. ``cuts``: links are cut for less than a request's time-out, so that everything succeeds at
        last. ``limits``, ``sizes``: the routers'. ``shape``: the store's. ``forgets``: see ``World``. ``replication``:
        slots have replicas. ``crashes``: endpoints crash one at a time, whenever every slot has its replica (again).
        ``own_keys``: one client publishes everything, each message with its own key, and now and then it gives a key to
        a second message. ``revokes``: subscribers have tokens, and an operator revokes some now and then. ``history``:
        the cluster's setting."""
        limits = limits or (SLOW_LIMITS if slow else Limits())
        self.world = World(
            seed,
            routing=routing,
            limits=limits,
            sizes=sizes,
            shape=shape,
            forgets=forgets,
            settings=Settings(replication, history),
        )
        if slow:
            self.world.socket_bytes, self.world.piece_bytes = SLOW_SOCKET_BYTES, SLOW_PIECE_BYTES
        self.random = self.world.random
        self.faults = faults and not crashes
        self.crashes = crashes
        self.survives = replication and crashes
        self.crashed = 0
        self.sent = 0
        self.own_keys = own_keys
        self.tokens = Tokens(self) if revokes else None
        self.conflicts_checked = 0  # keys given to two payloads, one of which had to be refused
        self.slow = slow  # clients stop reading for a while, there are bursts, and there is little room for either
        self.blocked = self.paused = self.slow_closed = 0  # how often each was noticed
        self.cuts = cuts
        self.whole_at = 0.0  # when all links are up again
        self.drains = drains  # each endpoint in turn is drained and restarted
        self.draining: Node | None = None
        self.away_s = 0.3  # until its next life begins
        self.drained = 0
        self.routing = routing
        self.topics = TOPICS
        self.names = [f"e-{index}" for index in range(endpoints)]
        self.subscribers = [Subscriber(f"c{index}") for index in range(6)]
        self.publishers: dict[str, Client] = {}
        self.publications: list[Publication] = []
        self.expected: dict[Client, int] = {}  # replies to come
        self.violations: list[str] = []
        self.log: list[str] = []
        self.joined_at: defaultdict[str, list[float]] = defaultdict(list)  # by incarnation
        self.false_deaths: list[tuple[float, str]] = []  # (time, incarnation) of live endpoints taken for dead
        self.disturbed = False
        self.crashed_at: dict[str, float] = {}  # by incarnation
        self.homes_checked = 0
        self.views_checked: set[tuple[tuple[str, int], ...]] = set()  # views without a conflict
        self.moved_deliveries = 0  # to subscribers that never went away, on any of their connections
        self.steady_deliveries = 0  # required deliveries that were checked

    # Actions

    def run(self, seconds: float = 12.0) -> list[str]:
        """Run the whole history; return the violations."""
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
            if self.cuts and world.now > self.whole_at and self.random.random() < 0.2:
                self.cut_off()
            if self.slow and self.random.random() < 0.2:
                self.slow_down()
            if self.crashes and self.random.random() < 0.1:
                self.crash_one()
            if self.tokens is not None and self.random.random() < 0.1:
                self.tokens.revoke_one()
        self.say("no more faults; those under way end by themselves")
        world.run(SETTLE_S + 6.0)
        for subscriber in self.subscribers:  # a client that went on while its socket was full was slow as well
            subscriber.was_slow |= any(client.ended_full for client in subscriber.connections)
        self.check_deliveries()
        self.check_subscriptions()
        self.check_replies()
        self.check_conflicts()
        self.check_tokens()
        for node in world.nodes.values():
            self.paused += node.pauses
            self.blocked += node.blocks
        clients = [client for subscriber in self.subscribers for client in subscriber.connections]
        self.slow_closed = sum(client.close_code == SLOW_CONSUMER.code for client in clients)
        return self.violations

    def say(self, text: str) -> None:
        """Log the text for a replay of the seed."""
        self.log.append(f"{self.world.now - 1000:8.3f} {text}")

    def start(self, name: str) -> Node:
        """Start an endpoint, and watch which peers it takes for dead."""
        node = self.world.start(name)

        def gone(endpoint: Endpoint) -> None:
            other = self.world.nodes[endpoint.incarnation]
            self.say(f"{name} takes {endpoint.name} for gone (alive: {other.alive})")
            if other.alive:
                self.false_deaths.append((self.world.now, endpoint.incarnation))

        def joined() -> None:
            self.joined_at[node.me.incarnation].append(self.world.now)

        node.on_gone = gone
        node.on_joined = joined
        self.say(f"{name} starts as {node.me.incarnation}")
        return node

    def crash(self, node: Node) -> None:
        """Crash the endpoint, as ``kill -9`` does."""
        self.crashed_at[node.me.incarnation] = self.world.now
        self.world.crash(node)

    def node(self) -> Node | None:
        """Choose a process to use."""
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
        """Give the reply to the oldest command: replies leave in order."""
        self.expected[client] -= 1
        then = client.thens.pop(0)  # type: ignore[attr-defined]
        if then is not None:
            then(reply)

    def connect(self, subscriber: Subscriber) -> None:
        """Open a (new) connection that listens; the broker has to close the old one."""
        node = self.node()
        if node is None:
            return
        grant = None if self.tokens is None else self.tokens.grant(subscriber.name)
        client = Client(self.world, subscriber.name, node, grant)
        if self.tokens is not None:
            self.tokens.connected(subscriber, client)
            if client.is_refused:
                return
        client.on_going_away = lambda: self.told_to_go(client)
        subscriber.connections.append(client)
        self.say(f"{subscriber.name} listens at {node.me.name}")

        def then(reply: dict[str, Any]) -> None:
            if reply.get("result") == "success":
                subscriber.listening_since[client] = self.world.now
                self.say(f"{subscriber.name} is listening at {node.me.name}")

        self.command(client, then, command="listen")

    def publisher(self) -> Client | None:
        """Return a publisher's connection. Each endpoint has one, as long as it lasts."""
        node = self.node()
        if node is None:
            return None
        if self.draining is not None and self.draining.alive and self.random.random() < 0.3:
            node = self.draining  # over an earlier connection, if one exists
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
        self.sent += 1
        sending = Sending(self.world.now, client, self.sent)
        publication.sends.append(sending)
        self.say(f"{client.name} publishes {publication.payload} to {publication.topic}")

        def then(reply: dict[str, Any]) -> None:
            sending.reply, sending.replied_at = reply, self.world.now
            self.say(f"{publication.payload}: {reply}")

        own = {"client_id": "p", "dedup": publication.own_key} if self.own_keys else {}
        fields = {"topic": publication.topic, "payload": self.body(publication), "ack": True, **own}
        self.command(client, then, command="publish", **fields)

    def body(self, publication: Publication) -> Any:
        """Return the payload to send."""
        return publication.payload

    def publish_rival(self, former: Publication) -> None:
        """Publish another payload with the key of an earlier one, by mistake."""
        rival = Publication(len(self.publications), former.topic, self.world.now)
        rival.own_key = former.own_key
        for one in (former, *former.rivals):
            one.rivals.append(rival)
            rival.rivals.append(one)
        self.publications.append(rival)
        self.publish(rival)

    def act(self) -> None:
        """Perform one random action of a client."""
        draw = self.random.random()
        subscriber = self.random.choice(self.subscribers)
        topic = self.random.choice(self.topics)
        if draw < 0.45 and self.own_keys and self.publications and self.random.random() < 0.15:
            self.publish_rival(self.random.choice(self.publications[-8:]))
        elif draw < 0.45:
            publication = Publication(len(self.publications), topic, self.world.now)
            self.publications.append(publication)
            self.publish(publication)
        elif draw < 0.55 and self.publications:
            recent = self.publications[-5:]
            self.publish(self.random.choice(recent))
        elif draw < 0.88:
            if subscriber.connection is not None:
                self.change_wish(subscriber, subscriber.connection, topic)
        elif draw < 0.95 or subscriber.connection is None:
            self.connect(subscriber)
        else:
            self.say(f"{subscriber.name} goes away")
            subscriber.went_away = True
            subscriber.connection.close()

    def change_wish(self, subscriber: Subscriber, connection: Client, topic: str) -> None:
        """Subscribe, or take a subscription back."""
        self.send_change(subscriber, connection, topic, self.random.random() < 0.7)

    def send_change(
        self,
        subscriber: Subscriber,
        connection: Client,
        topic: str,
        added: bool,
        filter: str | None = None,
        options: Mapping[str, Any] = NOTHING,
    ) -> None:
        """Send the command. ``filter``: its name; ``options``: the command's options for it."""
        # A failed command may have been carried out, so its uncertainty ends only after a while.
        change = Change(subscriber.name, topic, id(connection), added, self.world.now, FOREVER, False, filter)
        change.replace = "replace" in options
        changes = subscriber.changes.setdefault(topic, [])
        changes.append(change)
        about = f" {dict(options)}" if options else ""
        self.say(f"{subscriber.name} {'subscribes to' if added else 'unsubscribes from'} {topic}{about}")

        def then(reply: dict[str, Any]) -> None:
            if reply.get("result") == "success":
                change.succeeded, change.over_at = True, self.world.now
            elif self.was_refused(reply):
                changes.remove(change)
            self.say(f"{subscriber.name} {topic} {added}{about}: {reply}")

        self.command(connection, then, command="subscribe" if added else "unsubscribe", topic=[topic], **options)

    def was_refused(self, reply: dict[str, Any]) -> bool:
        """Does the reply say that the change never began?"""
        return False

    def slow_down(self) -> None:
        """Make a client stop reading, or one publish a lot at once."""
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
            topic = self.random.choice(self.topics)
            for _ in range(self.random.randint(5, 40)):
                publication = Publication(len(self.publications), topic, self.world.now)
                self.publications.append(publication)
                self.publish(publication)

    def cut_off(self) -> None:
        """Cut two endpoints off from each other; afterwards leave all links whole for a while."""
        live = self.world.live()
        if len(live) < 2:
            return
        one, other = self.random.sample([node.me.name for node in live], 2)
        seconds = self.random.uniform(0.1, CUT_MAX_S)
        self.whole_at = self.world.now + seconds + WHOLE_AFTER_S
        self.say(f"{one} and {other} are cut off from each other for {seconds:.1f} s")
        self.world.cut(one, other, seconds)
        self.world.cut(other, one, seconds)

    def crash_one(self) -> None:
        """Crash an endpoint, if every slot has its replica. When another has taken over, recent messages are published
        again."""
        live, world = self.world.live(), self.world
        if len(live) < len(self.names) or not all(node.router.members.joined for node in live):
            return
        if self.survives and any(
            not node.router.replication.barrier.on or node.router.cluster.replication.without for node in live
        ):
            return
        self.disturbed = True
        node = self.random.choice(live)
        self.say(f"{node.me.name} crashes")
        self.crashed += 1
        self.crash(node)
        world.at(self.random.uniform(0.3, 8.0), self.start, node.me.name)
        for publication in self.publications[-6:]:
            world.at(self.random.uniform(0.0, 6.0), self.publish, publication)

    def fault(self) -> None:
        """Cause one random fault."""
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
            self.crash(node)
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
        """End the first endpoint in order; then start its next life, and go on with the others."""
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
        """Reconnect a client elsewhere: its endpoint ends."""
        subscriber = next((one for one in self.subscribers if one.connection is client), None)
        if subscriber is not None:
            subscriber.went_away = True  # until it listens elsewhere
            self.world.at(self.random.uniform(0.0, 0.3), self.connect, subscriber)

    def restart(self, node: Node, others: list[str]) -> None:
        """Restart the endpoint once it has left. If it has crashed, its next life is already under way."""
        if node.alive and not node.left:
            self.world.at(0.1, self.restart, node, others)
        elif node.alive:
            self.say(f"{node.me.name} has left")
            self.drained += 1
            # Its links close after their last frames, which arrive first.
            self.world.at(ARRIVED_S, self.end, node, others)
        else:
            self.drained_one(others)

    def end(self, node: Node, others: list[str]) -> None:
        """End the process. No client is left at it."""
        if node.alive:
            self.crash(node)
            self.world.at(self.away_s, self.start, node.me.name)
        self.drained_one(others)

    def drained_one(self, others: list[str]) -> None:
        """Go on with the next endpoint."""
        self.draining = None
        if others:
            self.world.at(2.5, self.drain, others)

    # Checks

    def check_homes_regularly(self) -> None:
        """Check regularly that no two endpoints act as home of one slot at the same time."""
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

    def check_deliveries(self) -> None:
        """Let the oracle judge messages, order and connections, as the clients saw them."""
        facts, messages = self.facts(), self.messages()
        judge = Judge(facts, self.violate)
        copies = self.copies()
        for key, message in messages.items():
            for owed in judge.message(message, copies[key]).due.values():
                self.steady_deliveries += bool(owed.connections)
                self.moved_deliveries += owed.roaming
        once = {key: message.sends[0] for key, message in messages.items() if len(message.sends) == 1}
        for subscriber in self.subscribers:
            for line in map(_line, subscriber.connections):
                found = [*rules.published(facts, line, messages), *rules.order(facts, line, once)]
                # An endpoint that stood still begins a `listen` whose connection has ended, and that may be the newest.
                found += () if self.disturbed else rules.replaced(facts, line)
                for violation in found:
                    self.violate(violation)

    def check_subscriptions(self) -> None:
        """Check that the store has exactly the subscriptions that were acknowledged last."""
        facts, now = self.facts(), self.world.now
        for subscriber in self.subscribers:
            names = frozenset(self.stored(subscriber.name))
            for found in rules.subscriptions(facts, Listed(subscriber.name, now, now, names)):
                if isinstance(found, Violation):
                    self.violate(found)

    def stored(self, client: str) -> Iterator[Name]:
        """Return the names of the client's stored subscriptions: topics, and filters at topics."""
        for held in self.world.store.all_of_them():
            if held.client == client:
                yield held.topic if held.filter is None else Filtered(held.topic, held.filter)

    def violate(self, violation: Violation) -> None:
        """Note a violation in words."""
        self.violations.append(str(violation))

    # Facts for the oracle

    def facts(self) -> Facts:
        """Return the facts about clients and about the cluster's faults."""
        # A live endpoint that was taken for dead counts as surviving again when all others have let it in again.
        disturbances = [
            Disturbance(
                when,
                next((at for at in self.joined_at[incarnation] if at > when), FOREVER),
                Kind.GONE,
                incarnation,
            )
            for when, incarnation in self.false_deaths
        ]
        if self.disturbed:  # after any fault: nobody knows when its last effect was over
            disturbances.append(Disturbance(-FOREVER, FOREVER, Kind.CRASH))
        disturbances += [Disturbance(when, FOREVER, Kind.UNION) for when in self.world.posthumous_at]
        if self.routing == "lookup":
            disturbances.append(Disturbance(-FOREVER, FOREVER, Kind.LOOKUP))
        if self.drains:
            disturbances.append(Disturbance(-FOREVER, FOREVER, Kind.MOVES))
            if self.cuts:
                # An endpoint that ends in order has crashed for every endpoint that it cannot reach.
                disturbances += [Disturbance(-FOREVER, FOREVER, kind) for kind in (Kind.CUT_OFF, Kind.CHANGE)]
        return Facts(
            places={one.name: [self._place(one, client) for client in one.connections] for one in self.subscribers},
            changes=[change for one in self.subscribers for of in one.changes.values() for change in of],
            disturbances=disturbances,
            terms=Terms(late=SETTLE_S, survives=self.survives),
            always={} if self.disturbed or self.cuts or self.routing == "lookup" else self._always(),
            refused=frozenset((one.topic, one.payload) for one in self.publications if _is_refused(one)),
        )

    def _always(self) -> dict[Name, float]:
        """Return since when each subscriber must get everything. Without faults, moving subscribers get each message
        once, at the old or the new connection."""
        return {
            one.name: min(one.listening_since.values())
            for one in self.subscribers
            if one.listening_since and not one.went_away and not one.was_slow
        }

    def _place(self, subscriber: Subscriber, client: Client) -> Place:
        ended_at = FOREVER if client.closed_at is None else client.closed_at
        settled_at = -FOREVER if client is subscriber.connections[0] else None  # the first has no predecessor
        if self.drains and len(subscriber.connections) > 1:
            settled_at = FOREVER  # endpoints change, so only a client that never moved has a guaranteed order
        return Place(
            subscriber.name,
            id(client),
            endpoint=client.node.me.name,
            life=client.node.me.incarnation,
            begun_at=client.begun_at,
            answered_at=client.replies[0][0] if client.replies else FOREVER,
            succeeded=client in subscriber.listening_since,
            until=min(ended_at, self.crashed_at.get(client.node.me.incarnation, FOREVER)),
            ended_at=ended_at,
            replaced=client.close_code == REPLACED.code,
            slow=subscriber.was_slow,
            settled_at=settled_at,
        )

    def messages(self) -> dict[tuple[Name | None, Any], Message]:
        """Return everything that was published."""
        return {
            (one.topic, one.payload): Message(
                one.topic, one.payload, [_send(one, sending) for sending in one.sends], met=self.met(one)
            )
            for one in self.publications
            if one.sends and not _is_refused(one)
        }

    def met(self, publication: Publication) -> frozenset[Name]:
        """Return the names of the filters that the publication matches."""
        return frozenset()

    def copies(self) -> defaultdict[tuple[Name | None, Any], defaultdict[Name, list[Copy]]]:
        """Return (topic, payload) -> client -> the copies that came."""
        found: defaultdict[tuple[Name | None, Any], defaultdict[Name, list[Copy]]]
        found = defaultdict(lambda: defaultdict(list))
        for subscriber in self.subscribers:
            for client in subscriber.connections:
                for at, topic, payload in client.notes:
                    found[topic, payload][subscriber.name].append(Copy(subscriber.name, id(client), at))
        return found

    def check_conflicts(self) -> None:
        """Check SPEC section 7: a key stands for one payload."""
        for one in self.publications:
            if one.conflicts and not any(other.sends for other in one.rivals):
                self.violations.append(f"{one.payload} is said to be in conflict, and nothing else had its key")
            for other in one.rivals:
                # A crash can erase an endpoint's knowledge of a key.
                if not one.accepted or (self.disturbed and not self.survives) or self.routing == "lookup":
                    continue
                since = min(sending.replied_at for sending in one.accepted)
                late = [sending for sending in other.sends if sending.at > since and sending.reply]
                self.conflicts_checked += len(late)
                if any(sending in other.accepted for sending in late):
                    self.violations.append(f"{other.payload} was taken with the key of {one.payload}")

    def check_tokens(self) -> None:
        """Check SPEC section 2.4: no endpoint serves a revoked token, and none closes a connection without cause."""
        if self.tokens is not None:
            self.violations += self.tokens.check(self.subscribers)

    def check_replies(self) -> None:
        """Check that every command got its reply, unless its connection broke."""
        for client, waiting in self.expected.items():
            if client.core is not None and waiting:
                self.violations.append(f"{waiting} commands of {client.name} at {client.node.me.name} got no reply")
        for node in self.world.live():
            if node.router.inflight.messages or node.router.inflight.bytes:
                self.violations.append(f"{node.me.name} still counts messages in flight")
            if len(node.router.calls):
                self.violations.append(f"{node.me.name} still has requests under way")


def _is_refused(publication: Publication) -> bool:
    """Was every publish refused?"""
    return bool(publication.sends) and publication.conflicts == publication.sends


def _line(client: Client) -> Line:
    by = By.NOBODY if client.closed_at is None else By.OTHER if client.close_code else By.CLIENT
    return Line(
        id(client),
        client.name,
        client.node.me.name,
        FOREVER if client.closed_at is None else client.closed_at,
        by,
        client.close_code or None,
        notes=[Note(*note) for note in client.notes],
    )


def _send(publication: Publication, sending: Sending) -> Send:
    reply = sending.reply
    outcome = Outcome.CUT_OFF  # if its connection stayed, ``check_replies`` reports it
    reached: frozenset[Name] = frozenset()
    if reply.get("error") == "partial":
        outcome = Outcome.PARTIAL
        if "store" not in reply["failed"]:
            reached = frozenset(reply["delivered"]) - frozenset(reply["failed"])
    elif "error" in reply:
        outcome = Outcome.TOLD
    elif reply:
        outcome = Outcome.DUPLICATE if reply["duplicate"] else Outcome.NEW
    return Send(
        sending.at,
        sending.replied_at,
        outcome,
        endpoint=sending.client.node.me.name,
        row=sending.client.name,
        number=sending.number,
        # The history outlasts every effect, except after `partial`: the retry counts as the success.
        done_at=None if outcome is Outcome.PARTIAL else publication.at + SETTLE_S,
        reached=reached,
    )
