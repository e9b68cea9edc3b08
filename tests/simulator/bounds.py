"""A random history of clients with bounds: load, slow readers, windows, moves, crashes, and what each reader was due.

Owns: the actions, the faults, and the verdict on each promise of SPEC section 8 (12). Must never: know how an endpoint
keeps it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from ingeborg.broker.core.bounds.rules import STALENESS_S_MAX
from ingeborg.broker.core.effects import Effects
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.model import Load

from .world import Client, Node, World

TOPICS = ("t0", "t1", "t2")
ITEMS = (None, "a", "b")

#: The rules that readers draw.
RULES: tuple[Any, ...] = (
    "live",
    "screen",
    "wall",
    [{"prefix": "", "staleness_ms": 300, "priority": -1}],
    [{"prefix": "", "numerical": 5, "interval_ms": 2_000, "deliver": "latest"}],
    [{"topic": "t0", "interval_ms": 500}, {"prefix": "", "staleness_ms": 2_000, "deliver": "latest", "priority": -1}],
    [{"topic": "t1", "numerical": 3, "priority": -1}],
    [],
)

#: Bytes written to a socket in one turn: a release often leaves in several pieces, without the socket being full.
PIECE_BYTES = 300

#: Seconds by which a message may be late: a slot of the wheel.
SLOT_S = 0.011

#: Seconds after which everything held has left, however long its staleness is.
QUIET_S = STALENESS_S_MAX + 4.0


class Line(Client):
    """A reader's connection. ``clients``: those that listen on it; ``window``: 0: it has none."""

    def __init__(self, world: World, name: str, node: Node, clients: Sequence[str], window: int) -> None:
        super().__init__(world, name, node)
        self.clients = list(clients)
        self.window = window
        self.came: list[dict[str, Any]] = []
        self.is_lazy = False  # it confirms nothing for a while
        self.is_whole = True  # nothing has disturbed it: it gets all that it is due
        self.confirmed = 0

    def get(self, data: bytes) -> None:
        """A message from the endpoint."""
        if self.closed_at is None:
            message = json.loads(data)
            if "key" in message:
                self.came.append(message)
                self.confirm()
        super().get(data)

    def confirm(self) -> None:
        """Confirm everything that has come."""
        if self.window and not self.is_lazy and len(self.came) > self.confirmed:
            self.confirmed = len(self.came)
            self.send(command="credit", client_id=self.clients[0], count=self.confirmed)

    def closed(self, code: int) -> None:
        """The connection ends."""
        self.is_whole = False
        super().closed(code)


class BoundsHistory:
    """Runs one seed. ``forgets``: see ``World``. ``faults``: endpoints crash and clients move. ``outbox_bytes``: the
    limit of each outbox. ``drop_oldest``: of slow readers."""

    def __init__(
        self,
        seed: int,
        *,
        readers: int = 5,
        faults: bool = True,
        forgets: str = "",
        outbox_bytes: int = 4_000,
        drop_oldest: bool = False,
        **options: Any,
    ) -> None:
        limits = Limits(outbox_bytes=outbox_bytes, drop_oldest=drop_oldest)
        self.world = World(seed, forgets=forgets, limits=limits, **options)
        self.random = self.world.random
        self.world.socket_bytes, self.world.piece_bytes = 1_000, PIECE_BYTES
        self.world.on_effects = self._check_turn
        self.faults, self.drops = faults, drop_oldest
        self.lines: list[Line] = []
        self.readers = [f"r{number}" for number in range(readers)]
        self.published: dict[str, list[tuple[int, str | None]]] = {topic: [] for topic in TOPICS}
        self.violations: list[str] = []
        self.sizes: dict[int, int] = {}  # bytes held for connections that do not take, by number
        self.held = self.skipped = 0

    def run(self, seconds: float = 12.0) -> list[str]:
        """Run the whole history; return the violations."""
        world = self.world
        for name in ("a", "b"):
            node = world.start(name)
            node.on_turn = partial(self._check_ages, node)
        world.run(4.0)
        for reader in self.readers:
            self._connect(reader)
        world.run(2.0)
        self.publisher = Client(world, "p", self._node())
        end = world.now + seconds
        while world.now < end:
            world.run(self.random.expovariate(30.0))
            self._act()
        world.load = Load()
        for line in self.lines:
            line.is_lazy = False
            line.confirm()
        world.run(QUIET_S)
        for line in self.lines:
            if line.is_whole:
                self._judge(line)
        for node in world.live():
            holding = node.router.layers.bounds.holding
            conits = sum(len(place.conits) for one in holding.receivers.values() for place in one.places.values())
            if holding.held or holding.held_bytes or holding.conits != conits:
                self.violations.append(f"{node.me.name} still holds {holding.held} messages")
            if node.router.layers.bounds.steering.level:
                self.violations.append(f"{node.me.name} is not back at level 0")
        return self.violations

    def _node(self) -> Node:
        return self.random.choice(self.world.live())

    def _connect(self, reader: str) -> None:
        """Open a connection on which the reader listens, perhaps with a second client."""
        window = self.random.choice((0, 0, 3, 20))
        clients = [reader] if self.random.random() < 0.7 else [reader, f"{reader}+"]
        line = Line(self.world, reader, self._node(), clients, window)
        for client in clients:
            rules = self.random.choice(RULES)
            fields: dict[str, Any] = {"bounds": rules} if rules or self.random.random() < 0.5 else {}
            if window:
                fields["window"] = window
            line.send(command="listen", client_id=client, **fields)
            line.send(command="subscribe", client_id=client, topic=list(TOPICS))
        self.lines.append(line)

    def _act(self) -> None:
        draw = self.random.random()
        line = self.random.choice(self.lines)
        if draw < 0.75:
            self._publish()
        elif draw < 0.82:
            self.world.load = Load(self.random.choice((0.0, 0.7, 1.0)), self.random.choice((0.0, 0.0, 0.05)))
        elif draw < 0.87:
            line.deaf_until = self.world.now + self.random.uniform(0.1, 2.0)
        elif draw < 0.92:
            line.is_lazy = not line.is_lazy
            line.confirm()
        elif draw < 0.95:
            rules = self.random.choice(RULES)
            line.send(command="bounds", client_id=self.random.choice(line.clients), bounds=rules)
        elif self.faults and draw < 0.96:
            line.is_whole = False
            for other in self.lines:
                if other.name == line.name:
                    other.is_whole = False
            self._connect(line.name)
            self.lines[-1].is_whole = False
        elif self.faults and draw < 0.965:
            line.cut_off(self.random.uniform(0.0, 0.3))

    def _publish(self) -> None:
        topic = self.random.choice(TOPICS)
        item = self.random.choice(ITEMS)
        number = len(self.published[topic])
        fields: dict[str, Any] = {} if item is None else {"item": item}
        if self.random.random() < 0.3:
            fields["weight"] = self.random.choice((0, 0.5, 4))
        payload = f"{number}" + "x" * self.random.choice((0, 0, 100))
        self.publisher.send(command="publish", topic=topic, payload=payload, dedup=False, **fields)
        self.published[topic].append((number, item))

    # The verdict

    def _check_ages(self, node: Node) -> None:
        """A turn comes in time for what is due."""
        now = self.world.now
        for receiver in node.router.layers.bounds.holding.receivers.values():
            for conit in receiver.conits:
                age = now - conit.since
                if age > conit.bound.staleness_s + SLOT_S and not conit.is_late and receiver.takes:
                    self.violations.append(f"{conit.client} {conit.topic}: {age:.3f} s old at {now:.3f}")

    def _check_turn(self, node: Node, effects: Effects) -> None:
        """While a client takes, no bound passes."""
        holding = node.router.layers.bounds.holding
        self.held = max(self.held, holding.held)
        now = self.world.now
        for receiver in holding.receivers.values():
            if not receiver.takes or receiver in holding.going:  # its last piece leaves in this turn
                before = self.sizes.get(receiver.connection.number, receiver.size)  # it may have taken until just now
                self.sizes[receiver.connection.number] = receiver.size
                if receiver.size > max(before, receiver.connection.outbox.bytes_max):
                    self.violations.append(f"{receiver.connection.number} holds {receiver.size} bytes at {now:.3f}")
                continue
            self.sizes.pop(receiver.connection.number, None)
            for conit in receiver.conits:
                weight = sum(held.weight for held in conit.held.values())
                if conit.bound.numerical is not None and weight > conit.bound.numerical:
                    self.violations.append(f"{conit.client} {conit.topic}: weight {weight} at {now:.3f}")

    def _judge(self, line: Line) -> None:
        """Check a connection that nothing has disturbed: it got every message, or learned that one was skipped."""
        due: Counter[str] = Counter()
        for topic, messages in self.published.items():
            due[topic] = len(messages) * len(line.clients)
        got: Counter[str] = Counter()
        for one in line.came:
            got[one["key"]] += 1 + one.get("skipped", 0)
            self.skipped += one.get("skipped", 0)
        if due != got and not (self.drops and got <= due):
            self.violations.append(f"{line.name} was due {dict(due)} and got {dict(got)}")
        for topic, messages in self.published.items():
            numbers = [int(one["broadcast"].rstrip("x")) for one in line.came if one["key"] == topic]
            if len(line.clients) == 1 and any(later <= sooner for sooner, later in pairwise(numbers)):
                self.violations.append(f"{line.name} got {topic} in the order {numbers}")
            for item in ITEMS:
                last = [number for number, of in messages if of == item][-1:]
                if last and numbers.count(last[0]) != len(line.clients) and due == got:
                    self.violations.append(f"{line.name} did not get the last of {topic} {item}: {last}")
        core = line.core
        receiver = None if core is None else line.node.router.layers.bounds.holding.receivers.get(core)
        if receiver is not None and line.window and receiver.sent != len(line.came):
            self.violations.append(f"{line.name} got {len(line.came)} and the endpoint counts {receiver.sent}")
