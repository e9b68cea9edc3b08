"""Event in, effects out: one endpoint's decisions, whole, without a socket, a clock, a store or randomness in it.

Owns: the doors (every event is a method with its time), the tuple of parts, and the order of a turn. Must never: import
asyncio, wait, or ask what time it is. The shell (``broker.shell.driver``) and the simulator
(``tests.simulator``) run the same code.

What is to be done comes out of ``flush``, once per turn of the loop, so that everything of one turn leaves in one
batch. The parts do the rest; a part knows the desk and what it is given here, and no router.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .base import Base
from .cluster.slots import SlotState
from .codec import MESSAGES, Codec
from .connections.grants import Grant
from .connections.hub import Connection
from .connections.large import Large, Outcome
from .connections.outbox import PIECE_BYTES
from .layers import Options, by_homes
from .limits import PATIENCE, SIZES, Limits, Patience, Sizes
from .lookup.assembly import by_lookup
from .metrics import Metric
from .model import NO_INTRODUCTION, NO_SETTINGS, Endpoint, Introduction, Settings, Shape
from .part import bind
from .turns import Turns


class Router(Turns):
    """One endpoint. ``now`` is always monotonic seconds."""

    def __init__(
        self,
        me: Endpoint,
        now: float,
        *,
        routing: str = "home",
        dedup_ttl_s: float = 60.0,
        limits: Limits | None = None,
        sizes: Sizes = SIZES,
        patience: Patience = PATIENCE,
        shape: Shape | None = None,
        figures: Callable[[], dict[str, Any]] = dict,
        resident: Callable[[], int] | None = None,
        alone_at_url: bool = True,
        ping_s: float = 25.0,
        unix_s: float = 0.0,
        states: Sequence[SlotState] = (),
        settings: Settings = NO_SETTINGS,
        grace_s: float = 60.0,
        presence: Sequence[str] = (),
    ) -> None:
        """``routing``: ``home`` or ``lookup``. ``shape``: of the store. ``unix_s``: Unix time now. For the others see
        ``Options``."""
        self.me = me
        base = Base(me, now, unix_s, limits, sizes, shape)
        options = Options(
            dedup_ttl_s, patience, figures, resident, alone_at_url, ping_s, states, settings, grace_s, presence
        )
        self.layers = layers = (by_lookup if routing == "lookup" else by_homes)(base, options)
        self.base, self.cluster, self.outgoing = base, layers.cluster, layers.outgoing
        self.replication, self.topics, self.retained = layers.replication, layers.topics, layers.retained
        self.messages, self.clients, self.history = layers.messages, layers.clients, layers.history
        layers.cluster.observers.bind(layers.parts)
        bound = bind(layers.parts)
        layers.clients.sessions.bind(bound.commands)
        layers.cluster.mesh.bind(bound.requests)
        super().__init__(layers, bound)
        self.frame_under_way = b""  # of a client; for the log, should it make the core fail

    def metrics(self) -> list[Metric]:
        """All that this endpoint's parts count and measure."""
        return self.layers.metrics()

    # Clients

    def connected(
        self,
        number: int,
        now: float,
        grant: Grant | None = None,
        *,
        codec: Codec = MESSAGES,
        throttled: bool = False,
        piece_bytes: int = PIECE_BYTES,
    ) -> Connection:
        """A client has connected; ``number`` is the shell's, unique. ``grant``: what it may do (``None``: all).
        ``codec``: what its outbox holds of a message. ``throttled``: its commands a second are limited.
        ``piece_bytes``: what it is written in one turn."""
        self._at(now)
        connection = self.sessions.connected(number, grant, throttled, piece_bytes, codec)
        self._keepalive.connected(connection)
        return connection

    def disconnected(self, connection: Connection, now: float) -> None:
        """Its connection is gone."""
        self._at(now)
        if connection.closed:
            return
        self.sessions.disconnected(connection)
        self._keepalive.disconnected(connection)
        for closed in self._closed:
            closed(connection)

    def frame(self, connection: Connection, data: bytes | Large, now: float, is_text: bool = True) -> None:
        """A whole message came from a client; that a text is UTF-8 has been seen, unless it is large."""
        self._desk.now = now  # as `_at`, which every message would pay for
        if now >= self.members.holds_until and self.members.lapsed(now):
            self.joining.lease_lapsed()
        self.sessions.frame(connection, data, is_text)

    def frames(self, connection: Connection, messages: list[bytes], now: float, is_text: bool) -> None:
        """Several, that came one behind the other; ``frame_under_way`` is the one whose turn it is."""
        self._at(now)
        frame = self.sessions.frame
        for message in messages:
            self.frame_under_way = message
            frame(connection, message, is_text)

    def unread(self, connection: Connection, size: int, now: float) -> None:
        """``size`` bytes have come over the connection that are no whole message yet."""
        self._at(now)
        self.sessions.unread(connection, size)

    def read_wanted(self, number: int) -> bool:
        """Would the command of the large frame of this ``Read`` still be begun?"""
        return self.sessions.read_wanted(number)

    def read(self, number: int, outcome: Outcome | None, now: float) -> None:
        """What a large frame says; ``None``: it was not read, since it is not wanted any more."""
        self._at(now)
        self.sessions.read(number, outcome)

    def blocked(self, connection: Connection, unsent: int, now: float) -> None:
        """The connection's socket has enough for now: ``unsent`` bytes that the client does not take."""
        self._at(now)
        self._sending.blocked(connection, unsent)

    def drained(self, connection: Connection, now: float) -> None:
        """It takes more again."""
        self._at(now)
        self._sending.drained(connection)

    def rest(self, connection: Connection, now: float) -> list[bytes]:
        """Something is written to the connection's socket past its outbox: what comes before it."""
        self._at(now)
        return self._sending.rest(connection)

    def let_go(self, connection: Connection, now: float) -> None:
        """Its socket holds nothing any more: neither what has come, nor what was to go."""
        self._at(now)
        connection.unread = connection.unsent = 0
        self.memory.weigh(connection)

    def ponged(self, connection: Connection, now: float) -> None:
        """The client has answered a ping."""
        self._at(now)
        self._keepalive.ponged(connection)

    def written(self, now: float) -> None:
        """What the last turn had to write to clients has been given to their sockets."""
        self.counters.written(now)

    # Peers

    def link_up(self, endpoint: Endpoint, now: float, introduction: Introduction = NO_INTRODUCTION) -> bytes:
        """An authenticated connection to the peer is up, which has introduced itself so; the frame to send first."""
        self._at(now)
        first = self.mesh.link_up(endpoint)
        self.joining.link_up(endpoint, introduction)
        return first

    def link_down(self, incarnation: str, now: float) -> None:
        """The connection is gone."""
        self._at(now)
        self.mesh.link_down(incarnation)
        self.joining.link_down(incarnation)

    def link_frame(self, incarnation: str, data: bytes, now: float) -> None:
        """A frame came over the peer's link."""
        self._at(now)
        self.mesh.frame(incarnation, data)

    def dial_failed(self, incarnation: str, now: float) -> None:
        """No link came of a ``Dial``."""
        self._at(now)
        self.mesh.dial_failed(incarnation)

    # The store

    def stored(self, number: int, result: Any, error: Exception | None, now: float) -> None:
        """What came of a store call."""
        self._at(now)
        self.stores.ended(number, result, error, now)

    # Time

    def tick(self, now: float, unix_s: float = 0.0) -> None:
        """Call every 100 ms or so: time-outs, signs of life, expiry. ``unix_s``: Unix time, which tokens go by."""
        self._at(now)
        self._desk.tick(unix_s)
        self.counters.observe()
        self.members.tick(now)
        self.calls.tick(now)
        self.stores.tick(now)
        for tick in self._ticks:
            tick()
        self.sessions.tick()

    def leave(self, now: float, over_s: float) -> None:
        """Begin an orderly end: ``SlotsTransferred``, the clients' closes over so many seconds, then ``Left``."""
        self._at(now)
        self._leaving.begin(over_s)

    def work(self, now: float) -> None:
        """One slice, of a few milliseconds at most, of what is too long for one turn."""
        self._at(now)
        if self._jobs:
            job = self._jobs.popleft()
            if not next(job, True):
                self._jobs.append(job)
