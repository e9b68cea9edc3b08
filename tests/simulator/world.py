"""A cluster in virtual time: real routers, simulated clock, store, links, clients and faults, all from one seed.

Owns: the possible fates of messages and processes, and their times. Must never: know what is right (``history`` checks
that).

* A store call takes effect at one instant between its begin and its end (so the store is linearizable), or fails: the
  store does not answer one endpoint, or any. A failed write may have taken effect all the same.
* The router mostly reads a store that ``reads_memory`` (its ``shape``) at once, at the end of a turn.
* An ``end``, and a ``subscribe`` that replaces, can take two instants (``store`` defines the state between them).
* A link's frames arrive in order after seeded delays. A cut holds them back in one direction or both; when it heals,
  the connection breaks, as TCP's do, and is made again.
* A process can crash (its frames on the way may arrive or not), stall (everything waits for it), or restart.
* A client can stop reading: its socket takes ``socket_bytes`` more, and then nothing until it holds half of that. If an
  endpoint does not read a client, the client's frames and its close wait in the socket.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ingeborg.broker.core.cluster.slots import SlotState
from ingeborg.broker.core.connections import large
from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.outbox import PIECE_BYTES
from ingeborg.broker.core.effects import (
    Act,
    Close,
    Dial,
    DropLink,
    Effects,
    Gone,
    Joined,
    Left,
    PauseOrResume,
    Ping,
    Read,
    StoreCall,
)
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.model import (
    NO_LOAD,
    NO_SETTINGS,
    Endpoint,
    Settings,
    Shape,
    StoreUnavailable,
    Subscription,
    Superseded,
    TooManyFilters,
)
from ingeborg.broker.core.router import Router
from ingeborg.protocol.errors import GOING_AWAY

from .store import Store

TICK_S = 0.1

#: Steps that an endpoint might forget: to tell the core that a socket has drained, to go on writing then, to resume
#: reading a paused connection, and to continue work for which one turn was too short. With bounds also "to wake".
FORGETTABLE = ("to drain", "to write on", "to read on", "to go on")

#: The calls that a store in this machine's memory answers without a wait.
AT_ONCE = frozenset({"subscribers", "locations", "filtered", "subscribed", "subscriptions_of"})


class Client:
    """One client's connection, with the frames in both directions. A reconnect is a new object. ``grant``: the content
    of its token. If the node does not accept that, no connection exists, and ``is_refused`` is set: the token is
    revoked, or the node does not know."""

    def __init__(self, world: World, name: str, node: Node, grant: Grant | None = None) -> None:
        self.world = world
        self.name = name
        self.node = node
        self.begun_at = world.now
        self.closed_at: float | None = None
        self.close_code = 0
        self.ended_full = False  # while the endpoint held messages for which its socket had no room
        self.replies: list[tuple[float, dict[str, Any]]] = []
        self.notes: list[tuple[float, Any, Any]] = []  # (time, key, payload)
        self.on_reply: Callable[[dict[str, Any]], None] = lambda _: None
        self.on_word: Callable[[dict[str, Any]], None] = lambda _: None  # gets all frames but messages and replies
        self.on_named: Callable[[dict[str, Any]], None] = lambda _: None  # gets messages with a `mid`, like ``notes``
        self.on_going_away: Callable[[], None] = lambda: None  # called when its endpoint announces its end
        self.number = next(world.numbers)
        self.grant = grant
        self.written_at: list[float] = []  # times at which the endpoint wrote to its socket
        self.told_to_go_at: float | None = None
        self.core: Connection | None = None
        self.is_refused = grant is not None and not node.lets_in(grant)
        if not self.is_refused:
            self.core = node.router.connected(self.number, world.now, grant, piece_bytes=world.piece_bytes)
            node.clients[self.core] = self
        self.deaf_until = 0.0  # it reads nothing before that time
        self._unread: deque[bytes] = deque()  # frames that its endpoint does not read yet
        self._reads_on = False  # the endpoint reads the next one in a moment
        self._has_left = False  # its close comes after them
        self._unsent = 0  # bytes written to it that it has not read
        self.is_full = False

    def send(self, **fields: Any) -> None:
        """Send a command; it arrives after a delay, in order."""
        data = json.dumps({"client_id": self.name, **fields}).encode()
        self.world.deliver(("client", self.number, "up"), self.world.delay(), self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if self.core is None or not self.node.alive:
            return
        if self._unread or self.core in self.node.paused:
            self._unread.append(data)
        else:
            self._read(self.core, data)

    def _read(self, core: Connection, data: bytes) -> None:
        self.node.event(lambda now: None if core.closed else self.node.router.frame(core, data, now))

    def read_on(self) -> None:
        """Let the endpoint read the connection again: a frame at a time, until it stops."""
        if not self._reads_on:
            self._reads_on = True
            self.world.at(0.0, self._read_next)

    def _read_next(self) -> None:
        self._reads_on = False
        core = self.core
        if core is None or not self.node.alive or core in self.node.paused:
            return
        if self._unread:
            self._read(core, self._unread.popleft())
            self.read_on()
        elif self._has_left:
            self.closed(0)

    def write(self, frames: list[bytes]) -> None:
        """Take what the endpoint writes to the connection's socket."""
        assert not self.is_full, "what is written to a full socket has to wait"
        world = self.world
        if self.told_to_go_at is None:  # a socket that is closing sends nothing more
            self.written_at.append(world.now)
        for frame in frames:
            delay = max(world.delay(), self.deaf_until - world.now)
            self._unsent += len(frame)
            world.deliver(("client", self.number, "down"), delay, self._taken, frame)
        if self._unsent > world.socket_bytes and self.core is not None:
            self.is_full = True
            self.node.blocks += 1
            self.node.router.blocked(self.core, self._unsent, world.now)

    def _taken(self, frame: bytes) -> None:
        self._unsent -= len(frame)
        self.get(frame)
        if self.is_full and self._unsent <= self.world.socket_bytes // 2:
            self.is_full = False
            core = self.core
            if core is None or not self.node.alive or self.world.forgets == "to drain":
                return
            if self.world.forgets == "to write on":
                core.outbox.unblock()
                return
            self.node.event(lambda now: None if core.closed else self.node.router.drained(core, now))

    def pinged(self) -> None:
        """Answer the endpoint's ping at once, if the client reads."""
        world = self.world
        if self.core is not None and self.closed_at is None:
            world.deliver(("client", self.number, "up"), world.delay(), self._answered)

    def _answered(self) -> None:
        core = self.core
        if core is not None and self.node.alive:
            self.node.event(lambda now: None if core.closed else self.node.router.ponged(core, now))

    def cut_off(self, seconds: float) -> None:
        """Break the connection with everything that it has not read. Its endpoint notices after this many seconds."""
        self.closed_at = self.world.now
        self.world.at(seconds, self.closed, 1006)

    def close(self) -> None:
        """Close the connection from the client's side."""
        if self.node.alive and (self._unread or self.core in self.node.paused):
            self._has_left = True
        else:
            self.closed(0)

    def closed(self, code: int) -> None:
        """Handle the end of the connection, from either side."""
        if self.core is None:
            return
        core, self.core = self.core, None
        self.closed_at = self.world.now
        self.close_code = code
        self._unread.clear()
        self.node.clients.pop(core, None)
        self.node.paused.discard(core)
        if self.node.alive:
            self.node.event(lambda now: self.node.router.disconnected(core, now))

    def get(self, data: bytes) -> None:
        """Handle a frame from the endpoint."""
        if self.closed_at is not None:
            return
        message = json.loads(data)
        if "key" in message:
            self.notes.append((self.world.now, message["key"], self.world.payload_name(message["broadcast"])))
            if "mid" in message:
                self.on_named(message)
        elif "result" not in message and "error" not in message:
            self.on_word(message)
        else:
            self.replies.append((self.world.now, message))
            self.on_reply(message)


class Node:
    """An endpoint process in one of its lives."""

    def __init__(self, world: World, name: str, **options: Any) -> None:
        self.world = world
        incarnation = f"{world.random.getrandbits(64):016x}"
        self.me = Endpoint(name, incarnation, f"ws://{name}", 0)
        self.states = world.make_states()
        options |= {"states": self.states, "settings": world.settings}
        self.router = Router(self.me, world.now, unix_s=world.now, **options)
        self.alive = True
        self.stalled_until = 0.0
        self.clients: dict[Connection, Client] = {}
        self.paused: set[Connection] = set()  # connections that it does not read
        self.on_gone: Callable[[Endpoint], None] = lambda _: None  # called when it takes a peer for gone
        self.on_joined: Callable[[], None] = lambda: None  # called when all others have let it in
        self.left = False  # it has ended in order, with nothing left to do
        self.on_turn: Callable[[], object] = lambda: None  # called before the end of a turn
        self.pauses = self.blocks = 0  # how often it stopped reading a client, and a client stopped taking more
        self._turn_due = False
        self._wake_at = math.inf
        self.links: dict[str, int] = {}  # its connections to others whose end it has not seen
        self._deferred: list[Callable[[float], object]] = []
        world.at(world.random.random() * TICK_S, self._tick)

    def lets_in(self, grant: Grant) -> bool:
        """Let the client in or not, as the shell does."""
        revoking = self.router.clients.revoking
        is_awake = self.alive and self.world.now >= self.stalled_until and not self._deferred
        return is_awake and revoking.knows and not revoking.refuses(grant)

    def event(self, do: Callable[[float], object]) -> None:
        """Handle an event in the process: now, or when it runs again."""
        world = self.world
        if not self.alive:
            return
        if world.now < self.stalled_until or self._deferred:
            if not self._deferred:
                world.at(self.stalled_until - world.now, self._wake)
            self._deferred.append(do)
            return
        self._do(do)

    def _wake(self) -> None:
        """End the stall, unless it was prolonged; handle everything that came meanwhile, in its order."""
        if self.world.now < self.stalled_until:
            self.world.at(self.stalled_until - self.world.now, self._wake)
            return
        deferred, self._deferred = self._deferred, []
        for do in deferred:
            if self.alive:
                self._do(do)

    def _do(self, do: Callable[[float], object]) -> None:
        world = self.world
        do(world.now)
        if not self._turn_due:
            self._turn_due = True
            world.at(0.0, self._turn)

    def _turn(self) -> None:
        if not self.alive:
            return
        if self.world.now < self.stalled_until:
            self.world.at(self.stalled_until - self.world.now, self._turn)
            return
        self._turn_due = False
        world = self.world
        self.on_turn()
        if world.reads_memory:
            world.tell_at_once(self)
        effects = self.router.flush(world.now)
        world.on_effects(self, effects)
        for call in effects.store:
            world.call_store(self, call)
        for incarnation, frames in effects.links:
            for frame in frames:
                world.send_link(self.me.incarnation, incarnation, frame)
        for connection, frames in effects.write:
            client = self.clients.get(connection)
            if client is not None:
                client.write(frames)
        self.router.written(world.now)
        for act in effects.acts:
            self._act(act)
        if effects.more and world.forgets != "to go on":
            world.at(0.0005, self.event, self.router.work)
        if effects.wake_at is not None and effects.wake_at < self._wake_at and world.forgets != "to wake":
            self._wake_at = effects.wake_at
            world.at(max(effects.wake_at - world.now, 0.0), self._wake_up)

    def _wake_up(self) -> None:
        self._wake_at = math.inf
        self.event(lambda now: None)

    def _act(self, act: Act) -> None:
        world = self.world
        match act:
            case Read():
                world.at(world.delay(), self._read, act)
            case Close(connection, code):
                client = self.clients.get(connection)
                if client is not None:
                    client.ended_full = client.is_full
                    client.told_to_go_at = client.told_to_go_at or world.now
                    if code is GOING_AWAY:
                        client.on_going_away()
                    world.deliver(("client", client.number, "down"), world.delay(), client.closed, code.code)
            case PauseOrResume(connection):
                client = self.clients.get(connection)
                if client is not None and connection.paused:
                    self.paused.add(connection)
                    self.pauses += 1
                elif client is not None and world.forgets != "to read on":
                    self.paused.discard(connection)
                    client.read_on()
            case Ping(connection):
                client = self.clients.get(connection)
                if client is not None:
                    world.deliver(("client", client.number, "down"), world.delay(), client.pinged)
            case DropLink(incarnation):
                world.break_link(self.me.incarnation, incarnation)
            case Dial(endpoint):
                world.dial(self.me.incarnation, endpoint.incarnation)
            case Joined():
                self.on_joined()
            case Gone(endpoint):
                self.on_gone(endpoint)
            case Left():
                self.left = True

    def _read(self, call: Read) -> None:
        """Run the reader's turn: it does not stall with its endpoint."""
        if not self.alive:
            return
        outcome = None
        if self.router.read_wanted(call.number):
            arguments = large.pack_arguments(call.is_text, call.payload_bytes_max, call.grant)
            outcome = large.unpack_outcome(large.read_packed(arguments, b"".join(call.pieces)))
        self.world.at(self.world.delay(), self.event, lambda now: self.router.read(call.number, outcome, now))

    def _tick(self) -> None:
        if not self.alive:
            return
        self.event(lambda now: self.router.tick(now, now, self.world.load))  # Unix time is the world's time
        self.world.at(TICK_S, self._tick)


class World:
    """The clock, the network, the store and the processes. ``forgets``: a step that every process omits
    (``FORGETTABLE``), as a bug of ours could. ``options``: the routers'."""

    #: Writes that can take effect although their endpoint learns that they have failed.
    LATE = frozenset(
        {
            *("subscribe", "unsubscribe", "end", "listen", "heartbeat"),
        }
    )

    def __init__(
        self,
        seed: int,
        *,
        forgets: str = "",
        settings: Settings = NO_SETTINGS,
        states: Callable[[], Sequence[SlotState]] = tuple,
        **options: Any,
    ) -> None:
        """Make the world. ``settings``: the cluster's, which an endpoint takes when it starts. ``states``: makes each
        endpoint's slot states."""
        self.random = random.Random(seed)
        self.settings = settings
        self.make_states = states
        self.now = 1000.0
        self.store = Store()
        self.nodes: dict[str, Node] = {}  # by incarnation, dead ones included
        self.numbers = itertools.count(1)
        self.options = {"limits": Limits(), **options}
        shape: Shape | None = options.get("shape")
        self.reads_memory = self.store.tells_slots = shape is not None and shape.reads_memory
        self.forgets = forgets
        self.load = NO_LOAD  # the load of every process
        self.on_effects: Callable[[Node, Effects], object] = lambda node, effects: None  # called after a turn
        self.payload_name: Callable[[Any], Any] = lambda payload: payload  # gives the payload's name in a note
        self.socket_bytes = 1 << 20
        self.piece_bytes = PIECE_BYTES  # bytes that an endpoint writes to a client's socket in one turn
        self.posthumous_at: list[float] = []  # when the store added a subscription of an endpoint that had crashed
        self.cuts: set[tuple[str, str]] = set()  # (from, to) by endpoint name: pairs that nothing passes
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = itertools.count()
        self._last: dict[Any, float] = {}  # channel -> when its last message arrives
        self._connected: dict[frozenset[str], int] = {}  # pair of incarnations -> generation of their connection
        self._generation = itertools.count(1)
        self._held: dict[tuple[str, str], list[bytes]] = {}

    # Time

    def at(self, delay: float, do: Callable[..., object], *arguments: Any) -> None:
        """Do it later."""
        heapq.heappush(self._events, (self.now + delay, next(self._sequence), do, arguments))

    def run(self, seconds: float) -> None:
        """Let this many seconds pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, do, arguments = heapq.heappop(self._events)
            self.store.now = self.now
            do(*arguments)
        self.now = end

    def delay(self) -> float:
        """Return a message's time on the way: mostly below a millisecond, sometimes a hundred."""
        return self.random.uniform(0.0001, 0.001) if self.random.random() < 0.95 else self.random.uniform(0.001, 0.1)

    def deliver(self, channel: Any, delay: float, do: Callable[..., object], *arguments: Any) -> None:
        """Do it after the delay, and after everything sent on the channel before."""
        when = max(self.now + delay, self._last.get(channel, 0.0))
        self._last[channel] = when
        self.at(when - self.now, do, *arguments)

    # Processes

    def start(self, name: str) -> Node:
        """Start an endpoint process."""
        node = Node(self, name, **self.options)
        self.nodes[node.me.incarnation] = node
        return node

    def live(self) -> list[Node]:
        """Return the processes that run."""
        return [node for node in self.nodes.values() if node.alive]

    def crash(self, node: Node) -> None:
        """Crash the process, as ``kill -9`` does."""
        node.alive = False
        for client in list(node.clients.values()):
            self.at(self.delay(), client.closed, 1006)
        for other in self.nodes.values():
            self.break_link(node.me.incarnation, other.me.incarnation)

    # Store

    def tell_at_once(self, node: Node) -> None:
        """Answer the calls that an embedded store can answer without waiting, if it can."""
        while calls := node.router.asks(self.now):
            for call in calls:
                if (
                    call.operation in AT_ONCE
                    and self.store.answers(node.me.incarnation, call.operation)
                    and self.random.random() < 0.9
                ):
                    result = getattr(self.store, call.operation)(*call.arguments)
                    node.router.stored(call.number, result, None, self.now)
                else:
                    self.call_store(node, call)

    def call_store(self, node: Node, call: StoreCall) -> None:
        """Make one call: it takes effect at one instant, and its answer arrives at another."""
        if call.operation == "listen":
            call = call._replace(arguments=(self.store.draw(*call.arguments), call.arguments[1]))
        # No random draw here: revocations must not change the history.
        if call.operation == "revocations":
            self.at(0.0003, self._recorded, node, call)
            return
        self.at(self.delay(), self._apply, node, call)

    def _recorded(self, node: Node, call: StoreCall) -> None:
        found = getattr(self.store, call.operation)()
        answers = self.store.answers(node.me.incarnation, call.operation)
        error = None if answers else StoreUnavailable("the store does not answer")
        self.at(0.0003, node.event, lambda now: node.router.stored(call.number, found if answers else None, error, now))

    def _apply(self, node: Node, call: StoreCall) -> None:
        result: Any = None
        error: Exception | None = None
        delay = self.delay()
        if self.store.answers(node.me.incarnation, call.operation):
            if call.operation == "end" and self.random.random() < 0.5:
                self.store.begin_end(*call.arguments)
                self.at(self.delay(), self._finish_end, node, call)
                return
            try:
                replaces = call.operation == "subscribe" and any(row.replace for row in call.arguments[0])
                if replaces and self.random.random() < 0.5:
                    replaced = self.store.begin_subscribe(*call.arguments)
                    self.at(self.delay(), self._finish_subscribe, node, call, replaced)
                    return
                result = getattr(self.store, call.operation)(*call.arguments)
            except (Superseded, TooManyFilters) as refused:
                error = refused
        else:
            error = StoreUnavailable("the store does not answer")
            delay = self.random.uniform(0.5, 4.0)
            late = call.operation in self.LATE and self.random.random() < 0.3
            if late:  # it took effect, and only its answer was lost
                self.at(self.random.uniform(0, delay), self._apply_late, node, call)
        self.at(delay, node.event, lambda now: node.router.stored(call.number, result, error, now))

    def _finish_subscribe(self, node: Node, call: StoreCall, replaced: list[Subscription]) -> None:
        self.store.finish_subscribe(replaced)
        self.at(self.delay(), node.event, lambda now: node.router.stored(call.number, None, None, now))

    def _finish_end(self, node: Node, call: StoreCall) -> None:
        result = self.store.finish_end(*call.arguments)
        self.at(self.delay(), node.event, lambda now: node.router.stored(call.number, result, None, now))

    def _apply_late(self, node: Node, call: StoreCall) -> None:
        if not node.alive and call.operation == "subscribe":
            self.posthumous_at.append(self.now)
        try:
            getattr(self.store, call.operation)(*call.arguments)
        except (Superseded, TooManyFilters):
            pass

    # Links

    def dial(self, dialler: str, target: str) -> None:
        """Connect the two, if the network lets them."""
        self.at(2 * self.delay(), self._connect, dialler, target)

    def _connect(self, dialler: str, target: str) -> None:
        pair = frozenset((dialler, target))
        ends = [self.nodes.get(dialler), self.nodes.get(target)]
        names = [end.me.name for end in ends if end is not None]
        out_of_reach = any(end is None or not end.alive or end.stalled_until > self.now for end in ends)
        if (
            out_of_reach
            or pair in self._connected
            or (names[0], names[1]) in self.cuts
            or (names[1], names[0]) in self.cuts
        ):
            node = self.nodes[dialler]
            node.event(lambda now: node.router.dial_failed(target, now))
            return
        generation = self._connected[pair] = next(self._generation)
        for one, other in ((ends[0], ends[1]), (ends[1], ends[0])):
            assert one is not None
            assert other is not None
            one.event(partial(self._up, one, other, generation))

    def _up(self, node: Node, peer: Node, generation: int, now: float) -> None:
        if self._connected.get(frozenset((node.me.incarnation, peer.me.incarnation))) == generation:
            node.links[peer.me.incarnation] = generation
            theirs = peer.router.members.introduction
            self.send_link(node.me.incarnation, peer.me.incarnation, node.router.link_up(peer.me, now, theirs))
        else:
            node.router.dial_failed(peer.me.incarnation, now)

    def send_link(self, sender: str, receiver: str, frame: bytes) -> None:
        """Send a frame, if a connection exists."""
        generation = self._connected.get(frozenset((sender, receiver)))
        if generation is not None:
            channel = (sender, receiver, generation)
            self.deliver(channel, self.delay(), self._link_frame, sender, receiver, generation, frame)

    def _link_frame(self, sender: str, receiver: str, generation: int, frame: bytes) -> None:
        pair = frozenset((sender, receiver))
        names = (self.nodes[sender].me.name, self.nodes[receiver].me.name)
        if self._connected.get(pair) != generation:
            return
        if names in self.cuts:
            return  # lost with the connection, which breaks when the cut heals
        node = self.nodes[receiver]
        node.event(lambda now: self._receive(node, sender, generation, frame, now))

    def _receive(self, node: Node, sender: str, generation: int, frame: bytes, now: float) -> None:
        # The process reads what came while it stood still, though the other end has closed the connection since.
        if node.links.get(sender) == generation:
            node.router.link_frame(sender, frame, now)

    def break_link(self, one: str, other: str) -> None:
        """Break the connection between the two. Each notices in its own time; sooner is more likely."""
        if self._connected.pop(frozenset((one, other)), None) is None:
            return
        for node, peer in ((self.nodes[one], other), (self.nodes[other], one)):
            self.at(self.delay(), node.event, lambda now, node=node, peer=peer: self._down(node, peer, now))

    def _down(self, node: Node, peer: str, now: float) -> None:
        if frozenset((node.me.incarnation, peer)) not in self._connected:
            node.links.pop(peer, None)
            node.router.link_down(peer, now)

    def cut(self, sender: str, receiver: str, seconds: float) -> None:
        """Let nothing get from one to the other for this many seconds; then break their connections."""
        self.cuts.add((sender, receiver))
        self.at(seconds, self._heal, sender, receiver)

    def _heal(self, sender: str, receiver: str) -> None:
        self.cuts.discard((sender, receiver))
        for pair in list(self._connected):
            one, other = sorted(pair)
            if {self.nodes[one].me.name, self.nodes[other].me.name} == {sender, receiver}:
                self.break_link(one, other)
