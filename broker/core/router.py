"""The entry point of the core: takes events, and returns effects. The core makes all decisions of one endpoint, without
access to a socket, a clock, a store or randomness.

Owns: a method for each event, which gets the event's time. Must never: import asyncio, wait, or read a clock. Both the
shell (``broker.shell.driver``) and the simulator (``tests.simulator``) run this code.

The shell calls ``flush`` once per turn of the event loop. ``flush`` returns all effects of the turn in one batch. The
parts do all other work. A part knows the desk and the state that it received when it was created, but not the router.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .base import Base
from .bounds.steering import BUSY_TARGET
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
from .model import NO_INTRODUCTION, NO_LOAD, NO_SETTINGS, Endpoint, Introduction, Load, Settings, Shape
from .part import bind
from .turns import Turns


class Router(Turns):
    """One endpoint.

    The shell calls one method for each event, then ``flush``, and carries out the effects that ``flush`` returns. All
    times named ``now`` are monotonic seconds and never go back. No method blocks, and the class is not thread-safe.
    """

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
        bounds: str = "",
        busy_target: float = BUSY_TARGET,
    ) -> None:
        """Make the endpoint's core.

        Args:
            me: this endpoint, as its peers know it.
            now: monotonic seconds.
            routing: ``home`` or ``lookup``.
            dedup_ttl_s: how long homes remember the keys of messages, in seconds.
            limits: the limits on memory. ``None`` for the defaults.
            sizes: the batch sizes.
            patience: how long to wait for other endpoints.
            shape: how to use the store.
            unix_s: Unix time in seconds, at ``now``.

        The other arguments are those of ``Options``.
        """
        self.me = me
        base = Base(me, now, unix_s, limits, sizes, shape)
        options = Options(
            *(dedup_ttl_s, patience, figures, resident, alone_at_url, ping_s, states, settings, grace_s, presence),
            *(bounds, busy_target),
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
        self.frame_under_way: bytes | Large = b""  # a client's frame, for the log if the frame makes the core fail

    def metrics(self) -> list[Metric]:
        """Return the metrics of all this endpoint's parts."""
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
        """Handle a new connection of a client.

        Args:
            number: the shell's unique number for the connection.
            now: monotonic seconds.
            grant: the client's rights. ``None`` if it has all rights.
            codec: turns messages into the outbox's frames.
            throttled: whether to limit the connection's commands per second.
            piece_bytes: the number of bytes to write to the connection in one turn.

        Returns:
            The connection, which the shell passes to the other methods.
        """
        self._at(now)
        connection = self.sessions.connected(number, grant, throttled, piece_bytes, codec)
        self._keepalive.connected(connection)
        return connection

    def disconnected(self, connection: Connection, now: float) -> None:
        """Handle the end of a client's connection."""
        self._at(now)
        if connection.closed:
            return
        self.sessions.disconnected(connection)
        self._keepalive.disconnected(connection)
        for closed in self._closed:
            closed(connection)

    def frame(self, connection: Connection, data: bytes | Large, now: float, is_text: bool = True) -> None:
        """Handle a complete message from a client. The shell has checked that a text message is UTF-8, unless the
        message is large."""
        self._desk.now = now  # a copy of `_at`, which saves a call for every message
        if now >= self.members.holds_until and self.members.lapsed(now):
            self.joining.lease_lapsed()
        self.sessions.frame(connection, data, is_text)

    def frames(self, connection: Connection, messages: Sequence[bytes | Large], now: float, is_text: bool) -> None:
        """Handle several messages that arrived one after the other. ``frame_under_way`` is the message that is being
        handled."""
        self._at(now)
        frame = self.sessions.frame
        for message in messages:
            self.frame_under_way = message
            frame(connection, message, is_text)

    def unread(self, connection: Connection, size: int, now: float) -> None:
        """Record that ``size`` bytes of an incomplete message have arrived over the connection."""
        self._at(now)
        self.sessions.unread(connection, size)

    def read_wanted(self, number: int) -> bool:
        """Return whether the core would still carry out the command in the large frame of this ``Read``."""
        return self.sessions.read_wanted(number)

    def read(self, number: int, outcome: Outcome | None, now: float) -> None:
        """Handle the outcome of a ``Read``. ``outcome`` is ``None`` if the shell did not read the frame, because the
        core no longer needed it."""
        self._at(now)
        self.sessions.read(number, outcome)

    def blocked(self, connection: Connection, unsent: int, now: float) -> None:
        """Handle a full socket of the connection. ``unsent`` bytes wait for the client to read them."""
        self._at(now)
        self._sending.blocked(connection, unsent)

    def drained(self, connection: Connection, now: float) -> None:
        """Continue to write to the connection, because its socket accepts bytes again."""
        self._at(now)
        self._sending.drained(connection)

    def rest(self, connection: Connection, now: float) -> list[bytes]:
        """Return the outbox's frames that the shell must write to the socket before it writes its own bytes."""
        self._at(now)
        return self._sending.rest(connection)

    def let_go(self, connection: Connection, now: float) -> None:
        """Record that the connection's socket holds no more bytes, neither incoming nor outgoing."""
        self._at(now)
        connection.unread = connection.unsent = 0
        self.memory.weigh(connection)

    def ponged(self, connection: Connection, now: float) -> None:
        """Record that the client has answered a ping."""
        self._at(now)
        self._keepalive.ponged(connection)

    def written(self, now: float) -> None:
        """Record that the shell has handed the last turn's frames for clients to their sockets."""
        self.counters.written(now)

    # Peers

    def link_up(self, endpoint: Endpoint, now: float, introduction: Introduction = NO_INTRODUCTION) -> bytes:
        """Handle a new authenticated link to a peer.

        Args:
            endpoint: the peer.
            now: monotonic seconds.
            introduction: the peer's grace time and settings, as the peer sent them.

        Returns:
            The frame to send first.
        """
        self._at(now)
        first = self.mesh.link_up(endpoint)
        self.joining.link_up(endpoint, introduction)
        return first

    def link_down(self, incarnation: str, now: float) -> None:
        """Handle the end of the link to a peer."""
        self._at(now)
        self.mesh.link_down(incarnation)
        self.joining.link_down(incarnation)

    def link_frame(self, incarnation: str, data: bytes, now: float) -> None:
        """Handle a frame from a peer's link."""
        self._at(now)
        self.mesh.frame(incarnation, data)

    def dial_failed(self, incarnation: str, now: float) -> None:
        """Handle the failed connection attempt of a ``Dial``."""
        self._at(now)
        self.mesh.dial_failed(incarnation)

    # The store

    def stored(self, number: int, result: Any, error: Exception | None, now: float) -> None:
        """Handle the outcome of a ``StoreCall``.

        Args:
            number: the call's number.
            result: the store's result, if there was no error.
            error: the store's error. ``None`` if the call succeeded.
            now: monotonic seconds.
        """
        self._at(now)
        self.stores.ended(number, result, error, now)

    # Time

    def tick(self, now: float, unix_s: float = 0.0, load: Load = NO_LOAD) -> None:
        """Handle the passing of time: time-outs, heartbeats, expiry. Call this about every 100 ms.

        Args:
            now: monotonic seconds.
            unix_s: Unix time in seconds, on which the expiry of tokens depends.
            load: the load of this process since the last call.
        """
        self._at(now)
        self._desk.load = load
        self._desk.tick(unix_s)
        self.counters.observe()
        self.members.tick(now)
        self.calls.tick(now)
        self.stores.tick(now)
        for tick in self._ticks:
            tick()
        self.sessions.tick()

    def leave(self, now: float, over_s: float) -> None:
        """Begin an orderly shutdown. The core emits ``SlotsTransferred``, closes the clients' connections over
        ``over_s`` seconds, and then emits ``Left``."""
        self._at(now)
        self._leaving.begin(over_s)

    def work(self, now: float) -> None:
        """Run one slice of work that is too long for one turn. A slice takes a few milliseconds at most."""
        self._at(now)
        if self._jobs:
            job = self._jobs.popleft()
            if not next(job, True):
                self._jobs.append(job)
