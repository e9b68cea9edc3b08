"""Event in, effects out: one endpoint's decisions, whole, without a socket, a clock, a store or randomness in it.

Owns: the order of things. Events come in as method calls with the time; what is to be done comes out of ``flush()``,
once per turn of the loop, so that everything of one turn leaves in one batch. Must never: import asyncio, wait, or ask
what time it is. The shell (``broker.endpoint``) and the simulator (``tests.simulator``) run the same code.

The parts, each with its own state: ``publishing`` and ``delivering`` (the way of a message), ``subscribing``,
``listening``, ``joining`` (membership). The router gives them what they share: connections and replies, calls to
peers, calls to the store.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from protocol.errors import HELD_TOO_MUCH, NOT_UTF8, REPLACED, SLOW_CONSUMER, CloseCode, ProtocolError
from protocol.messages import Command, check, failure, reply_fields, success
from protocol.wire import decode

from .calls import NOT_HOME, TIMEOUT_S, Calls, Kind
from .delivering import Delivering
from .grants import Grant
from .histogram import Histogram
from .hub import Connection, Hub, Reply
from .inspecting import Inspecting
from .joining import Joining
from .large import Large, Outcome
from .links import Item, Link, LinkError, SessionMismatch
from .listening import Listening
from .membership import DEAD_AFTER_S, Membership
from .memory import Memory
from .model import Endpoint, Shape
from .outbox import PIECE_BYTES, DroppingOutbox, Outbox
from .publishing import Publishing
from .subscribing import Subscribing
from .throttle import Throttle

#: A store call that has not come back after this long is treated as failed; longer than the stores' own time-outs.
STORE_TIMEOUT_S = 5.5

#: What a command that is none is counted as.
UNKNOWN = "unknown"

#: Commands of one connection under way; its further ones are not read until half of them are done.
REPLIES_MAX = 2_000

#: Commands of one connection that are read though they have to wait for those before them, and bytes of one. Behind
#: them comes the close of a client that has gone, which is to be seen before what it left here is begun.
READ_AHEAD, READ_AHEAD_BYTES = 16, 16 << 10

#: So much of all that waits behind other commands is begun in one turn, in bytes of frames: a hundred small commands.
BACKLOG_BYTES_PER_TURN = 8 << 10

#: What waits on a connection that is over is begun for so long, in seconds: a client may send all it has to say, and
#: close. Later it would undo what the client has said elsewhere since.
AFTER_CLOSE_S = 1.0

#: Of what waits on one that is over, or that is told to go, only these are begun: a `listen` would take the client away
#: from where it listens now, and nobody is there to be answered.
AFTER_CLOSE = frozenset(("publish", "broadcast", "subscribe", "unsubscribe"))

#: Of these one is under way on a connection: a page may have megabytes, and would wait for those before it.
ONE_BY_ONE = frozenset(("subscriptions",))

#: Replies up to this size are not counted among what a connection holds while they wait for earlier ones.
SHORT_REPLY_BYTES = 256

#: A command is charged as one for each so many bytes of its frame: to read these takes up to as long as a short one.
BYTES_PER_COMMAND = 512


@dataclass(frozen=True)
class Limits:
    """What an endpoint may hold. Every one is a bound on memory; docs/limits.md has the reasons and the bytes."""

    payload_bytes: int = 1 << 20
    outbox_bytes: int = 16 << 20
    drop_oldest: bool = False  # of a full outbox, instead of closing its connection
    routes_topics: int = 50_000
    routes_ids: int = 2_000_000
    locations_clients: int = 500_000
    dedup_keys: int = 1_000_000
    inflight_messages: int = 20_000
    inflight_bytes: int = 64 << 20
    commands_per_s: int = 0  # of one connection; 0: any number
    subscriptions: int = 0  # of one client; 0: any number
    large_bytes: int = 64 << 10  # a longer frame is read away from the loop, which it would keep for 6 ms or more
    held_bytes: int = 1 << 62  # of all connections together


class StoreCall(NamedTuple):
    """Effect: call ``store.<operation>(*arguments)`` and tell the router what came of it."""

    number: int
    operation: str
    arguments: tuple[Any, ...]


class ReadCall(NamedTuple):
    """Effect: read a large frame, ``large.read(…)``, somewhere else, and tell the router what it says."""

    number: int
    size: int
    pieces: Sequence[bytes | bytearray]
    is_text: bool
    payload_bytes_max: int
    grant: Grant | None


class Effects(NamedTuple):
    """What one turn has decided. The order within each list is the order to do it in."""

    write: list[tuple[Connection, list[bytes]]]  # frames for each connection's socket
    store: list[StoreCall]
    read: list[ReadCall]
    forget: list[int]  # numbers of ``read`` effects of now or before: what these frames say is not wanted any more
    links: list[tuple[str, list[bytes]]]  # frames for each peer's link
    close: list[tuple[Connection, CloseCode]]  # after what is written to it in this turn
    hold: list[Connection]  # stop or go on reading, as its ``held`` now says
    written: list[tuple[float, int]]  # when a message was received, and how many connections it was put out for
    drop_links: list[str]  # close the connection to the peer; the link starts afresh
    more: bool  # there is work left for the next turn: call ``work``


StoreDone = Callable[[Any, Any, Exception | None], None]
"""What a part gives with a store call: told (context, result, error)."""


class Router:
    """One endpoint. ``now`` is always monotonic seconds; ``wrap`` makes a transport frame of a message's bytes."""

    def __init__(
        self,
        me: Endpoint,
        now: float,
        *,
        routing: str = "home",
        dedup_ttl_s: float = 60.0,
        limits: Limits | None = None,
        wrap: Callable[[bytes], bytes] = bytes,
        shape: Shape | None = None,
        figures: Callable[[], dict[str, Any]] = dict,
        resident: Callable[[], int] | None = None,
        alone_at_url: bool = True,
    ) -> None:
        """``figures``: what this endpoint tells operators of itself (SPEC section 2.4). ``resident``: the memory of
        this process in bytes; ``None``: nobody knows, and what connections hold is believed as it is counted.
        ``alone_at_url``: see ``Joining``."""
        self.me = me
        self.now = now
        self.lookup = routing == "lookup"
        self.limits = limits or Limits()
        self.wrap = wrap
        self.shape = shape or Shape()  # of the store
        self.hub = Hub()
        held_bytes = self.limits.held_bytes
        self.memory = Memory(held_bytes, resident or (lambda: held_bytes + 1))
        self._large_bytes = self.limits.large_bytes
        self.calls = Calls()
        self.members = Membership(me, now)
        #: Counted since the start; ``web`` shows them as ``ingeborg_<name>_total``.
        self.counts: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()  # by reason
        self.errors: Counter[str] = Counter()  # by code
        self.commands: defaultdict[str, dict[str, int]] = defaultdict(dict)  # kind -> result -> how many
        self.store_results: Counter[tuple[str, str]] = Counter()  # by operation and result
        self.store_times: defaultdict[str, Histogram] = defaultdict(Histogram)  # by operation
        self.publish_times = Histogram()  # from a client's publish to its outcome
        self.delivery_times = Histogram()  # from a message's receipt to the sockets; the shell observes the writes
        #: Of this turn: when messages were received that have been put into outboxes, and into how many.
        self.written: list[tuple[float, int]] = []
        #: Since the last tick: how long publishes took that had to wait for something, and how many had not.
        self.settled_s: list[float] = []
        self.settled_at_once = 0
        self.figures = figures
        #: Told of every refusal: connection's number, request id, kind of command, error.
        self.on_refusal: Callable[[int, Any, str, ProtocolError], None] | None = None
        #: Work in slices. One that yields true waits for something, and is put back by who knows that it has come.
        self.jobs: deque[Iterator[bool]] = deque()
        self.connections: dict[int, Connection] = {}
        self.stopping: str | None = None  # why the shell has to end this process

        self.publishing = Publishing(self, dedup_ttl_s)
        self.delivering = Delivering(self)
        self.subscribing = Subscribing(self)
        self.listening = Listening(self)
        self.joining = Joining(self, alone_at_url=alone_at_url)
        self.inspecting = Inspecting(self)
        self.throttle = Throttle(self.limits.commands_per_s)
        self._requests = {
            Kind.PUBLISH: self.publishing.publish_requested,
            Kind.DELIVER: self.delivering.deliver_requested,
            Kind.BROADCAST: self.delivering.broadcast_requested,
            Kind.SEEN: self.publishing.handing.seen_requested,
            Kind.CHANGE: self.subscribing.change_requested,
            Kind.LISTEN: self.listening.listen_announced,
            Kind.JOIN: self.joining.join_requested,
            Kind.LEAVE: self.joining.leave_announced,
            Kind.FIGURES: self.inspecting.figures_requested,
        }
        self._commands: dict[str, Callable[[Connection, Command], None]] = {
            "publish": self.publishing.publish,
            "broadcast": self.publishing.publish,
            "subscribe": self.subscribing.change,
            "unsubscribe": self.subscribing.change,
            "listen": self.listening.listen,
            "unlisten": self.listening.unlisten,
            "subscriptions": self._subscriptions,
            "endpoints": self.inspecting.endpoints,
            "subscribers": self.inspecting.subscribers,
            "location": self.inspecting.location,
        }
        self._ready: deque[Connection] = deque()  # whose backlog may go on
        self._sessions = 0
        self._store_number = 0
        self._store_calls: dict[int, tuple[float, str, StoreDone, Any]] = {}
        self._read_number = 0
        self._reads: dict[int, tuple[Connection, Large]] = {}  # large frames that are being read
        self._dirty: list[Connection] = []  # there is something to write to it
        self._store: list[StoreCall] = []
        self._read: list[ReadCall] = []
        self._forget: list[int] = []
        self._close: list[tuple[Connection, CloseCode]] = []
        self._hold: list[Connection] = []
        self._holding: dict[Connection, None] = {}
        self._drop_links: list[str] = []
        self._link_frames: dict[str, list[bytes]] = {}
        self._confirm = False  # links confirm in this turn what they have processed

    def _at(self, now: float) -> None:
        """It is ``now``. Comes before everything else: a home whose lease has lapsed is none any more."""
        self.now = now
        if self.members.lapsed(now):
            self.joining.lapsed()

    # Clients

    def connected(
        self,
        number: int,
        grant: Grant | None = None,
        *,
        throttled: bool = False,
        piece_bytes: int = PIECE_BYTES,
    ) -> Connection:
        """A client has connected; ``number`` is the shell's, unique. ``grant``: what it may do (``None``: all).
        ``throttled``: its commands a second are limited. ``piece_bytes``: what it is written in one turn."""
        outbox = DroppingOutbox if self.limits.drop_oldest else Outbox
        connection = Connection(number, outbox(self.limits.outbox_bytes, piece_bytes))
        connection.grant = grant
        if throttled:
            self.throttle.limit(connection, self.now)
        self.connections[number] = connection
        return connection

    def disconnected(self, connection: Connection, now: float) -> None:
        """Its connection is gone. What it published is still handed over; what waits is begun for ``AFTER_CLOSE_S``."""
        self._at(now)
        if connection.closed:
            return
        connection.closed = True
        connection.ends_at = now + AFTER_CLOSE_S
        del self.connections[connection.number]
        dropped = connection.outbox.drop()
        if dropped:
            self.drops["connection_closed"] += dropped
        if connection.throttled:
            self._drop_backlog(connection, 0)
        self._holding.pop(connection, None)
        self.throttle.forget(connection)
        self.listening.connection_closed(connection)
        connection.unread = connection.unsent = 0
        self.memory.weigh(connection)

    def frame(self, connection: Connection, data: bytes | Large, now: float, is_text: bool = True) -> None:
        """A whole message came from a client; that a text is UTF-8 has been seen, unless it is large."""
        self._at(now)
        frame = data
        if len(data) > self._large_bytes and isinstance(data, bytes):
            frame = Large((data,), len(data), is_text)
        if connection.backlog or connection.throttled or not self._command(connection, frame):
            connection.backlog.append(frame)
            self.waits(connection, len(frame))
            if len(connection.backlog) >= READ_AHEAD or len(frame) > READ_AHEAD_BYTES:
                self._held(connection)

    def waits(self, connection: Connection, size: int) -> None:
        """``size`` more bytes that came over the connection wait to be done; fewer, where it is negative."""
        connection.waiting += size
        self.memory.weigh(connection)

    def _command(self, connection: Connection, frame: bytes | Large) -> bool:
        """Begin the command in the frame. False: it has to wait for the commands before it, or to be read."""
        if len(connection.replies) >= REPLIES_MAX:
            return False
        if isinstance(frame, bytes):
            try:
                value = decode(frame)
            except ProtocolError as error:
                return self._refuse(connection, None, error, None, UNKNOWN, len(frame))
            try:
                command = check(value, self.limits.payload_bytes)
                if connection.grant is not None:
                    connection.grant.check(command)
            except ProtocolError as error:
                number, name = reply_fields(value)
                return self._refuse(connection, number, error, name, value.get("command"), len(frame))
        else:
            outcome = frame.outcome
            if outcome is None:
                if frame.number is None:
                    self._ask_to_read(connection, frame)
                return False
            if not outcome.is_text:
                self._drop_backlog(connection, 1)  # what came behind it is not listened to
                self.close(connection, NOT_UTF8)
                return True
            if outcome.error is not None:
                return self._refuse(connection, outcome.id, outcome.error, outcome.name, outcome.kind, len(frame))
            if outcome.command is None:
                self.drops["command_of_closed_connection"] += 1
                return True
            command = outcome.command
        # Commands of one connection take effect in order (SPEC section 1). Those of one kind commute or keep their
        # order on the way, so they overlap; one of another kind waits until everything before it is done.
        kind = command.name
        if connection.ends_at is not None and (kind not in AFTER_CLOSE or self.now >= connection.ends_at):
            self.drops["command_of_closed_connection"] += 1
            return True
        if connection.replies and (kind != connection.kind or kind in ONE_BY_ONE):
            return False
        if kind != connection.kind:
            connection.kind = kind
            connection.tally = self.commands[kind]
        if connection.allowance is not None:
            self._spend(connection, max(len(command.topics), len(frame) // BYTES_PER_COMMAND))
        self._commands[kind](connection, command)
        return True

    def _refuse(
        self, connection: Connection, number: Any, error: ProtocolError, name: str | None, kind: Any, size: int
    ) -> bool:
        """Refuse the command of a frame of ``size`` bytes; ``kind``: what it says that it is."""
        if not isinstance(kind, str) or kind not in self._commands:
            kind = UNKNOWN
        if connection.allowance is not None:
            self._spend(connection, size // BYTES_PER_COMMAND)
        self.reply(connection, None, failure(number, error, name), error.code, kind)
        self.errors[error.code] += 1
        if self.on_refusal is not None:
            self.on_refusal(connection.number, number, kind, error)
        return True

    def _spend(self, connection: Connection, commands: int) -> None:
        if self.throttle.spend(connection, max(commands, 1), self.now):
            self.counts["commands_throttled"] += 1
            self._held(connection)

    # Large frames

    def _ask_to_read(self, connection: Connection, frame: Large) -> None:
        self._read_number += 1
        frame.number = number = self._read_number
        self._reads[number] = (connection, frame)
        bytes_max = self.limits.payload_bytes
        self._read.append(ReadCall(number, len(frame), frame.pieces, frame.is_text, bytes_max, connection.grant))

    def read_wanted(self, number: int) -> bool:
        """Would the command of this large frame still be begun?"""
        if number not in self._reads:
            return False
        ends_at = self._reads[number][0].ends_at
        return ends_at is None or self.now < ends_at

    def read(self, number: int, outcome: Outcome | None, now: float) -> None:
        """What a large frame says; ``None``: it was not read, since it is not wanted any more."""
        self._at(now)
        if number not in self._reads:
            return  # it was dropped meanwhile
        connection, frame = self._reads.pop(number)
        frame.outcome = outcome or Outcome()
        frame.pieces = ()
        self._ready.append(connection)

    def _drop_backlog(self, connection: Connection, beside: int) -> None:
        """What waits on the connection is not begun any more, but for the first ``beside``."""
        backlog = connection.backlog
        while len(backlog) > beside:
            frame = backlog.pop()
            if isinstance(frame, Large) and frame.number is not None and frame.number in self._reads:
                del self._reads[frame.number]
                self._forget.append(frame.number)
            self.waits(connection, -len(frame))
            self.drops["command_of_closed_connection"] += 1

    def _subscriptions(self, connection: Connection, command: Command) -> None:
        context = (connection, self.expect(connection), command)
        self.store("topics", (command.client, command.cursor, command.limit), self._page, context)

    def _page(self, context: Any, result: Any, error: Exception | None) -> None:
        connection, reply, command = context
        if isinstance(error, ValueError):
            self.refuse(connection, reply, command.id, ProtocolError("bad_state", f"Key 'cursor': {error}"))
        elif error is not None:
            self.refuse(connection, reply, command.id, ProtocolError("store_unavailable", str(error) or repr(error)))
        else:
            topics, cursor = result
            self.reply(connection, reply, success(command.id, topic=topics, cursor=cursor))

    # Replies

    def expect(self, connection: Connection) -> Reply:
        """Keep a place in the connection's row of replies."""
        reply = Reply()
        connection.replies.append(reply)
        return reply

    def reply(
        self,
        connection: Connection,
        reply: Reply | None,
        data: bytes | None,
        result: str = "success",
        kind: str | None = None,
    ) -> None:
        """Give a command its reply, ``None``: none. ``reply``: its place; without one it takes the next now.

        It is counted as ``result``, of the ``kind`` of those under way on the connection, if no other is given.
        """
        tally = self.commands[kind] if kind is not None else connection.tally
        tally[result] = tally.get(result, 0) + 1
        if reply is None:
            if not connection.replies:
                if data is not None:
                    self.push(connection, self.wrap(data), True)
                return
            reply = self.expect(connection)
        reply.done = True
        reply.data = data
        replies = connection.replies
        if data is not None and len(data) > SHORT_REPLY_BYTES and replies[0] is not reply:
            reply.held = len(data)
            self.waits(connection, reply.held)
        while replies and replies[0].done:
            first = replies.popleft()
            if first.held:
                self.waits(connection, -first.held)
            if first.data is not None:
                self.push(connection, self.wrap(first.data), True)
        if connection.backlog and len(replies) in (0, REPLIES_MAX // 2):
            self._ready.append(connection)

    def refuse(
        self, connection: Connection, reply: Reply | None, number: Any, error: ProtocolError, name: str | None = None
    ) -> None:
        """Give a command an error reply."""
        self.errors[error.code] += 1
        if self.on_refusal is not None:
            self.on_refusal(connection.number, number, connection.kind, error)
        self.reply(connection, reply, failure(number, error, name), error.code)

    def push(self, connection: Connection, frame: bytes, reply: bool = False) -> None:
        """Put a transport frame into the connection's outbox. ``reply``: a command waits for it."""
        if connection.closed:
            self.drops["connection_closed"] += 1
            return
        outbox = connection.outbox
        overflowed = outbox.overflowed
        dropped = outbox.push(frame, reply)
        if dropped:
            self.drops["slow_consumer"] += dropped
            if outbox.overflowed and not overflowed:
                self.close(connection, SLOW_CONSUMER)
        if not outbox.flowing:
            self.memory.weigh(connection)
        if not connection.dirty:
            connection.dirty = True
            self._dirty.append(connection)

    def blocked(self, connection: Connection, unsent: int) -> None:
        """The connection's socket has enough for now: ``unsent`` bytes that the client does not take."""
        outbox = connection.outbox
        outbox.block()
        connection.unsent = unsent + outbox.leaving_bytes
        self.memory.weigh(connection)

    def drained(self, connection: Connection, now: float) -> None:
        """It takes more again."""
        self._at(now)
        outbox = connection.outbox
        outbox.unblock()
        connection.unsent = outbox.leaving_bytes
        self.memory.weigh(connection)
        if outbox.more and not connection.dirty:
            connection.dirty = True
            self._dirty.append(connection)

    def rest(self, connection: Connection) -> list[bytes]:
        """Something is written to the connection's socket past its outbox: what comes before it."""
        frames = connection.outbox.rest()
        connection.unsent = 0
        self.memory.weigh(connection)
        return frames

    def _write(self) -> list[tuple[Connection, list[bytes]]]:
        """What the sockets are written in this turn."""
        dirty, self._dirty = self._dirty, []
        writes = []
        for connection in dirty:
            connection.dirty = False
            outbox = connection.outbox
            frames = outbox.write()
            if frames:
                writes.append((connection, frames))
            if outbox.size or connection.unsent or not outbox.flowing:
                self._write_on(connection)
        return writes

    def _write_on(self, connection: Connection) -> None:
        """Not all of it: the rest in the next turns, or when the socket takes more."""
        outbox = connection.outbox
        if outbox.blocked:
            return
        connection.unsent = outbox.leaving_bytes
        self.memory.weigh(connection)
        if outbox.more:
            connection.dirty = True
            self._dirty.append(connection)

    def close(self, connection: Connection, code: CloseCode) -> None:
        """Close the connection, after what is in its outbox. What its clients are sent through it from here on
        is dropped: they are unbound, of many some in each turn."""
        self._close.append((connection, code))
        if connection.ends_at is None:
            connection.ends_at = math.inf
        self.listening.connection_closed(connection)

    def replaced(self, connection: Connection) -> None:
        """A client of this connection listens elsewhere now; its last one takes the connection with it."""
        if not connection.clients and not connection.closed:
            self.close(connection, REPLACED)

    def _run_backlogs(self) -> None:
        left = BACKLOG_BYTES_PER_TURN
        while self._ready and left > 0:
            connection = self._ready.popleft()
            backlog = connection.backlog
            while backlog and left > 0 and not connection.throttled and self._command(connection, backlog[0]):
                size = len(backlog.popleft())
                self.waits(connection, -size)
                left -= size
            if backlog and left <= 0:
                self._ready.append(connection)
            if backlog or not connection.held or connection.throttled:
                continue
            if self.publishing.congested:
                self._holding[connection] = None
            else:
                self._release(connection)

    def _let_go(self) -> None:
        """The connections hold more together than they may: the greatest holders go."""
        for connection in self.memory.greatest():
            self._drop_backlog(connection, 0)
            if connection.ends_at is not None:
                continue
            self.counts["connections_held_too_much"] += 1
            dropped = connection.outbox.drop()
            if dropped:
                self.drops["held_too_much"] += dropped
            self.close(connection, HELD_TOO_MUCH)
            self.memory.weigh(connection)

    # Backpressure

    def _held(self, connection: Connection) -> None:
        if not connection.held and not connection.closed:
            connection.held = True
            self._hold.append(connection)

    def _release(self, connection: Connection) -> None:
        connection.held = False
        self._hold.append(connection)

    def slow_down(self, connection: Connection) -> None:
        """Too much is under way: read no more from this publisher until it is less."""
        self._held(connection)
        self._holding[connection] = None

    def speed_up(self) -> None:
        """It is less."""
        for connection in self._holding:
            if connection.held and not connection.backlog and not connection.throttled:
                self._release(connection)
        self._holding.clear()

    # Peers

    def link_up(self, endpoint: Endpoint, now: float) -> bytes:
        """An authenticated connection to the peer is up; the frame to send first."""
        self._at(now)
        link = self.calls.links.get(endpoint.incarnation)
        if link is None:
            link = self._new_link(endpoint.incarnation)
        first = link.connected()
        self.joining.link_up(endpoint)
        return first

    def link_down(self, incarnation: str, now: float) -> None:
        """The connection is gone."""
        self._at(now)
        link = self.calls.links.get(incarnation)
        if link is not None:
            link.disconnected(now)
        self.joining.link_down(incarnation)

    def link_frame(self, incarnation: str, data: bytes, now: float) -> None:
        """A frame came over the peer's link."""
        self._at(now)
        link = self.calls.links.get(incarnation)
        if link is None:
            self._drop_links.append(incarnation)
            return
        try:
            items, again = link.receive(data)
        except SessionMismatch:
            self._drop_links.append(incarnation)
            self._new_link(incarnation)
            self.counts["links_restarted"] += 1
            return
        except LinkError:
            self._drop_links.append(incarnation)
            self.errors["link"] += 1
            return
        self.members.heard(incarnation, now)
        if link.confirmed_sent_at is not None:
            self.members.confirmed(incarnation, link.confirmed_sent_at)
        self.calls.due[incarnation] = None
        if again:
            self._link_frames.setdefault(incarnation, []).extend(again)
        fault: Exception | None = None
        for number, kind, *arguments in items:
            try:
                if number < 0:
                    self.calls.answer(incarnation, -number, kind, arguments[0], now)
                else:
                    self._requests[kind](incarnation, number, arguments)
            except Exception as error:  # one item's fault is not the others'
                fault = error
                if number > 0:
                    self.decline(incarnation, number, "internal", f"a request of kind {kind} failed: {error!r}")
        if fault is not None:
            raise fault

    def _new_link(self, incarnation: str) -> Link:
        self._sessions += 1
        link = Link(f"{self.me.incarnation}.{self._sessions}")
        self.calls.linked(incarnation, link)
        return link

    def _tend_links(self, now: float) -> None:
        full = 0
        for incarnation, link in list(self.calls.links.items()):
            peer = self.members.peers.get(incarnation)
            if link.down_since is not None and now - link.down_since > TIMEOUT_S:
                self.calls.unlink(incarnation)
            elif peer is not None and peer.connected and now - peer.heard_at > DEAD_AFTER_S:
                # Silent, and perhaps for ever: TCP may take a quarter of an hour to say so. Pings come all the time.
                self._drop_links.append(incarnation)
            full = max(full, link.unconfirmed_bytes)
        self.publishing.links_full(full)

    def link_gone(self, incarnation: str) -> None:
        """The peer is dead or has left."""
        self.calls.gone(incarnation)
        self._drop_links.append(incarnation)

    def ask(self, kind: Kind, target: str, arguments: Item, asker: Any, context: Any) -> None:
        """Make a request to a peer."""
        self.calls.make(kind, target, arguments, asker, context, self.now)

    def answer(self, peer: str, number: int, value: Any = None) -> None:
        """Answer a peer's request."""
        self.calls.put(peer, (-number, "", value))

    def decline(self, peer: str, number: int, code: str, info: Any = "") -> None:
        """Refuse a peer's request with an error code, or ``NOT_HOME``."""
        self.calls.put(peer, (-number, code, info))

    def not_home(self, peer: str, number: int) -> None:
        """Refuse a request for a slot that is another's, as far as is known here."""
        self.counts["not_home"] += 1
        self.decline(peer, number, NOT_HOME)

    # Store

    def store(self, operation: str, arguments: tuple[Any, ...], done: StoreDone, context: Any = None) -> None:
        """Call the store; ``done`` is told."""
        self._store_number += 1
        self._store_calls[self._store_number] = (self.now + STORE_TIMEOUT_S, operation, done, context)
        self._store.append(StoreCall(self._store_number, operation, arguments))
        self.counts["store_calls"] += 1

    @property
    def busy(self) -> bool:
        """Something clients wait for is with the store, or on its way."""
        return bool(self._store_calls or self.publishing.inflight)

    def stored(self, number: int, result: Any, error: Exception | None, now: float) -> None:
        """What came of a store call. Later than its time-out it is not listened to."""
        self._at(now)
        call = self._store_calls.pop(number, None)
        if call is not None:
            deadline, operation, done, context = call
            failed = error is not None and not isinstance(error, ValueError)  # which is the asker's fault: a bad cursor
            if failed:
                self.counts["store_errors"] += 1
            self.store_results[(operation, "error" if failed else "success")] += 1
            self.store_times[operation].observe(now - (deadline - STORE_TIMEOUT_S))
            done(context, result, error)

    # Time

    def tick(self, now: float) -> None:
        """Call every 100 ms or so: time-outs, signs of life, expiry."""
        self._at(now)
        self._confirm = True
        self.members.tick(now)
        self.joining.tick()
        self._tend_links(now)
        self.calls.tick(now)
        while self._store_calls:
            number, (deadline, *_) = next(iter(self._store_calls.items()))
            if deadline > now:
                break
            self.stored(number, None, TimeoutError("the store did not answer in time"), now)
        self.publishing.tick()
        self.delivering.tick()
        self.subscribing.tick()
        self.listening.tick()
        self._ready.extend(self.throttle.released(now))
        self.inspecting.tick()

    def observe_publishes(self) -> None:
        """Put the times of the publishes since the last tick into their histogram."""
        settled_s, self.settled_s = self.settled_s, []
        for seconds in settled_s:
            self.publish_times.observe(seconds)
        at_once, self.settled_at_once = self.settled_at_once, 0
        self.publish_times.observe(0.0, at_once)

    def work(self, now: float) -> None:
        """One slice, of a few milliseconds at most, of what is too long for one turn."""
        self._at(now)
        if self.jobs:
            job = self.jobs.popleft()
            try:
                parked = next(job)
            except StopIteration:
                return
            if not parked:
                self.jobs.append(job)

    def _flush_links(self) -> list[tuple[str, list[bytes]]]:
        """Frames for peers. With many peers most turns are about few of them."""
        frames, self._link_frames = self._link_frames, {}
        pings = self.joining.pings()
        due, self.calls.due = self.calls.due, {}
        links = []
        for incarnation in self.calls.links if pings or self._confirm else due:
            link = self.calls.links.get(incarnation)
            if link is None:
                continue
            sent = frames.get(incarnation, [])
            sent.extend(link.flush(self._confirm))
            if incarnation in pings:
                sent.extend(link.ping(self.now))
            if sent:
                links.append((incarnation, sent))
        self._confirm = False
        return links

    def flush(self) -> Effects:
        """End the turn: everything decided since the last call, to be done now."""
        self._run_backlogs()
        self.publishing.flush()
        self.listening.flush()
        if self.memory.full:
            self._let_go()
        writes = self._write()
        links = self._flush_links()
        more = bool(self.jobs or self._ready or self._dirty)
        effects = Effects(
            writes,
            self._store,
            self._read,
            self._forget,
            links,
            self._close,
            self._hold,
            self.written,
            self._drop_links,
            more,
        )
        self._store, self._read, self._close = [], [], []
        self._forget, self._hold, self._drop_links = [], [], []
        if effects.written:
            self.written = []
        return effects


__all__ = ["Effects", "Limits", "ReadCall", "Router", "StoreCall"]
