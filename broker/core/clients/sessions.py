"""Incoming commands: begins each connection's commands in order and within its rate limit. If a command must wait for
earlier commands, it begins only when those have ended.

Owns: the connections, their waiting frames, and the choice of connections to read from. Must never: carry out a
command, or hold more frames of a connection than the limits allow.

Commands of one connection take effect in order (SPEC section 1). Commands of one kind commute or stay in order, so
several can be in progress at the same time. A command of another kind waits in the connection's backlog until all
earlier commands are done. A `subscribe` with `replace` also waits for all earlier commands, and all later commands wait
for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ingeborg.protocol.errors import HELD_TOO_MUCH, NOT_UTF8, ProtocolError
from ingeborg.protocol.messages import check, reply_fields
from ingeborg.protocol.wire import decode

from ..codec import MESSAGES, Codec
from ..connections.grants import Grant
from ..connections.hub import Connection
from ..connections.large import Large, Outcome
from ..connections.outbox import DroppingOutbox, Outbox
from ..dedup.inflight import InFlight
from ..desk import Desk
from ..effects import Forget, PauseOrResume, Read
from ..limits import SIZES, Limits, Sizes
from ..metrics import Metric, gauge
from ..outgoing.memory import Memory
from ..outgoing.replies import REPLIES_MAX, Replies
from ..outgoing.sending import Sending
from ..part import CommandSpec
from .throttle import Throttle

#: The name by which metrics count commands that do not exist.
UNKNOWN: Final = "unknown"

#: Maximum number of commands to read from a connection although they must wait for earlier commands, and maximum bytes
#: of one of these commands. By reading ahead, the endpoint can learn that a connection has closed before it begins the
#: commands that the client left behind.
READ_AHEAD: Final = 16
READ_AHEAD_BYTES: Final = 16 << 10

#: Maximum bytes of a command that overtakes others.
OVERTAKING_BYTES: Final = 1024

#: A client may send commands and close its connection immediately. So when a connection has closed or is being closed,
#: the endpoint still begins its waiting commands for this many seconds, if the commands allow it
#: (``CommandSpec.after_close``). If the endpoint began such a command later, the command could undo changes that the
#: client has meanwhile made over another connection. A `listen` does not allow this, because a late `listen` would take
#: the client away from its present connection.
AFTER_CLOSE_S: Final = 1.0

#: For the rate limit, this many bytes of a frame count as one command. Reading this many bytes takes no longer than a
#: short command.
BYTES_PER_COMMAND: Final = 512


class Sessions:
    """The clients of one endpoint, as senders of commands."""

    def __init__(
        self,
        desk: Desk,
        limits: Limits,
        sending: Sending,
        replies: Replies,
        memory: Memory,
        inflight: InFlight,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._backlog_bytes_per_turn = sizes.backlog_bytes_per_turn
        self._limits = limits
        self._large_bytes = limits.large_bytes
        self._sending = sending
        self._replies = replies
        self._memory = memory
        self._inflight = inflight
        self._throttle = Throttle(limits.commands_per_s)
        self._commands: Mapping[str, CommandSpec] = {}
        self.ready = replies.ready  # connections whose backlog can continue
        self.holding: dict[Connection, None] = {}  # connections not read while too much is in flight
        #: The connections with a grant whose commands the endpoint is holding back. ``None`` while it holds back no
        #: commands.
        self._held_back: dict[Connection, None] | None = None
        self._read_number = 0
        self._reads: dict[int, tuple[Connection, Large]] = {}  # large frames that the shell is reading
        self.connections: dict[int, Connection] = {}

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "commands_throttled",
                "Pauses in reading a connection because it sent commands too fast",
            ),
            self._desk.counted(
                "connections_held_too_much",
                "Connections closed because all connections together held more than max-held-bytes",
            ),
            gauge("connections", "Open client connections", len(self.connections)),
        ]

    def bind(self, commands: Mapping[str, CommandSpec]) -> None:
        """Set the handlers of the commands."""
        self._commands = commands

    # Connections

    def connected(
        self, number: int, grant: Grant | None, throttled: bool, piece_bytes: int, codec: Codec = MESSAGES
    ) -> Connection:
        """Add the connection of a new client."""
        outbox = DroppingOutbox if self._limits.drop_oldest else Outbox
        connection = Connection(number, outbox(self._limits.outbox_bytes, piece_bytes), codec)
        connection.grant = grant
        if throttled:
            self._throttle.limit(connection, self._desk.now)
        self.connections[number] = connection
        return connection

    def disconnected(self, connection: Connection) -> None:
        """Remove a connection that is gone. The messages that it has published are still delivered, and its waiting
        commands can still begin for ``AFTER_CLOSE_S`` seconds."""
        connection.closed = True
        if not connection.revoked:
            connection.ends_at = self._desk.now + AFTER_CLOSE_S
        del self.connections[connection.number]
        self._sending.drop(connection, "connection_closed")
        if connection.throttled:
            self._drop_backlog(connection, 0)
        self.holding.pop(connection, None)
        self._throttle.forget(connection)
        connection.unread = connection.unsent = 0
        self._memory.weigh(connection)

    def unread(self, connection: Connection, size: int) -> None:
        """Record that ``size`` bytes of an incomplete message have arrived over the connection."""
        connection.unread = size
        self._memory.weigh(connection)

    def drain(self, connection: Connection) -> None:
        """Stop reading from the client, which will be disconnected soon because this endpoint shuts down."""
        connection.draining = True
        self._desk.emit(PauseOrResume(connection))

    def send_away(self, connection: Connection) -> None:
        """Begin to disconnect the client. From now on the endpoint reads only the client's close frame."""
        connection.draining, connection.closing = False, True
        self._desk.emit(PauseOrResume(connection))

    def let_go(self) -> None:
        """If all connections together hold too many bytes, close those that hold the most."""
        for connection in self._memory.greatest():
            self._drop_backlog(connection, 0)
            if connection.ends_at is not None:
                continue
            self._desk.counts["connections_held_too_much"] += 1
            self._sending.drop(connection, "held_too_much")
            self._sending.close(connection, HELD_TOO_MUCH)
            self._memory.weigh(connection)

    def revoke(self, connection: Connection) -> None:
        """Begin no more commands of a connection whose token has been revoked, and send it no more messages."""
        connection.revoked = True
        connection.ends_at = self._desk.now
        self._drop_backlog(connection, 0)
        self._sending.shut(connection)

    def hold_back(self) -> None:
        """Begin no commands of connections with a grant. Their commands wait, and the endpoint soon stops reading from
        these connections."""
        if self._held_back is None:
            self._held_back = {}

    def serve_again(self) -> None:
        """Let the held-back commands begin."""
        if self._held_back is not None:
            self.ready.extend(self._held_back)
            self._held_back = None

    # Commands

    def frame(self, connection: Connection, data: bytes | Large, is_text: bool) -> None:
        """Handle a complete message from a client. The shell has checked that a text message is UTF-8, unless the
        message is large."""
        if connection.backpressure and connection.closing:  # its outbox will never have room again
            self._desk.drops["command_of_closed_connection"] += 1
            return
        frame = data
        if len(data) > self._large_bytes and isinstance(data, bytes):
            frame = Large((data,), len(data), is_text)
        if connection.backlog or connection.throttled or not self._begin(connection, frame):
            if connection.receiver is not None and self._overtakes(connection, frame):
                return
            connection.backlog.append(frame)
            self._memory.wait(connection, len(frame))
            if len(connection.backlog) >= READ_AHEAD or len(frame) > READ_AHEAD_BYTES:
                self._pause(connection)

    def _overtakes(self, connection: Connection, frame: bytes | Large) -> bool:
        """If the frame's command may overtake waiting commands, begin it and return true. Only short commands may
        overtake."""
        if not isinstance(frame, bytes) or len(frame) > OVERTAKING_BYTES or b"credit" not in frame:
            return False  # excludes most commands without decoding them
        if connection.ends_at is not None:
            return False
        try:
            command = check(decode(frame), self._limits.payload_bytes)
            if connection.grant is not None:
                connection.grant.check(command)
        except ProtocolError:
            return False  # the command will be refused when its turn comes
        spec = self._commands[command.name]
        if not spec.overtakes:
            return False
        if connection.allowance is not None:
            self._spend(connection, 1)
        spec.handler(connection, command)
        return True

    def _begin(self, connection: Connection, frame: bytes | Large) -> bool:
        """Begin the command in the frame. Return false if the command must wait for earlier ones, or if the frame must
        first be read outside the event loop."""
        if len(connection.replies) >= REPLIES_MAX:
            return False
        if self._held_back is not None and connection.grant is not None:
            self._held_back[connection] = None
            return False
        if isinstance(frame, bytes):
            try:
                value = decode(frame)
            except ProtocolError as error:
                return self._refuse(connection, None, error, None, UNKNOWN, len(frame))
            try:
                command = check(value, self._limits.payload_bytes)
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
                self._drop_backlog(connection, 1)  # ignore everything that arrived after this frame
                self._sending.close(connection, NOT_UTF8)
                return True
            if outcome.error is not None:
                return self._refuse(connection, outcome.id, outcome.error, outcome.name, outcome.kind, len(frame))
            if outcome.command is None:
                self._desk.drops["command_of_closed_connection"] += 1
                return True
            command = outcome.command
        kind = command.name
        spec = self._commands[kind]
        if connection.ends_at is not None and (not spec.after_close or self._desk.now >= connection.ends_at):
            self._desk.drops["command_of_closed_connection"] += 1
            return True
        if connection.replies:
            if kind != connection.kind or not spec.overlaps or connection.replaces or command.replace:
                self._replies.hurry(connection)
                return False
        elif connection.replaces:
            connection.replaces = False
        if kind != connection.kind:
            connection.kind = kind
            connection.tally = self._replies.tally(kind)
        if kind == "subscribe" and command.replace:
            connection.replaces = True
        if connection.allowance is not None:
            self._spend(connection, max(len(command.topics), len(frame) // BYTES_PER_COMMAND))
        spec.handler(connection, command)
        if self._inflight.congested and connection.replies and spec.publishes:
            self._pause(connection)
            self.holding[connection] = None
        return True

    def _refuse(
        self, connection: Connection, number: Any, error: ProtocolError, name: str | None, kind: Any, size: int
    ) -> bool:
        """Refuse the command of a frame of ``size`` bytes. ``kind``: the name of the command, as the frame has it."""
        if not isinstance(kind, str) or kind not in self._commands:
            kind = UNKNOWN
        if connection.allowance is not None:
            self._spend(connection, size // BYTES_PER_COMMAND)
        self._replies.refuse_as(connection, None, number, error, name, kind, kind)
        return True

    def _spend(self, connection: Connection, commands: int) -> None:
        if self._throttle.spend(connection, max(commands, 1), self._desk.now):
            self._desk.counts["commands_throttled"] += 1
            self._pause(connection)

    def tick(self) -> None:
        """Resume clients that sent too fast and have now waited long enough."""
        self.ready.extend(self._throttle.released(self._desk.now))

    def go_on(self) -> None:
        """End the turn: begin the commands that need not wait any longer, up to the limit of one turn."""
        if self.holding and self._inflight.eased:
            for connection in self.holding:
                if connection.backpressure and not connection.backlog and not connection.throttled:
                    self._resume(connection)
            self.holding.clear()
        left = self._backlog_bytes_per_turn
        while self.ready and left > 0:
            connection = self.ready.popleft()
            backlog = connection.backlog
            while backlog and left > 0 and not connection.throttled and self._begin(connection, backlog[0]):
                size = len(backlog.popleft())
                self._memory.wait(connection, -size)
                left -= size
            if backlog and left <= 0:
                self.ready.append(connection)
            if backlog or not connection.backpressure or connection.throttled:
                continue
            if self._inflight.congested:
                self.holding[connection] = None
            else:
                self._resume(connection)

    def _pause(self, connection: Connection) -> None:
        if not connection.backpressure and not connection.closed:
            connection.backpressure = True
            self._desk.emit(PauseOrResume(connection))

    def _resume(self, connection: Connection) -> None:
        connection.backpressure = False
        self._desk.emit(PauseOrResume(connection))

    # Large frames

    def _ask_to_read(self, connection: Connection, frame: Large) -> None:
        self._read_number += 1
        frame.number = number = self._read_number
        self._reads[number] = (connection, frame)
        bytes_max = self._limits.payload_bytes
        self._desk.emit(Read(number, len(frame), frame.pieces, frame.is_text, bytes_max, connection.grant))

    def read_wanted(self, number: int) -> bool:
        """Return whether the endpoint would still begin the command of this large frame."""
        if number not in self._reads:
            return False
        ends_at = self._reads[number][0].ends_at
        return ends_at is None or self._desk.now < ends_at

    def read(self, number: int, outcome: Outcome | None) -> None:
        """Handle a large frame's outcome. It is ``None`` if the shell did not read the frame, because the core no
        longer needed it."""
        if number not in self._reads:
            return  # the frame has been dropped meanwhile
        connection, frame = self._reads.pop(number)
        frame.outcome = outcome or Outcome()
        frame.pieces = ()
        self.ready.append(connection)

    def _drop_backlog(self, connection: Connection, beside: int) -> None:
        """Drop the connection's waiting commands, except the first ``beside``."""
        backlog = connection.backlog
        while len(backlog) > beside:
            frame = backlog.pop()
            if isinstance(frame, Large) and frame.number is not None and frame.number in self._reads:
                del self._reads[frame.number]
                self._desk.emit(Forget(frame.number))
            self._memory.wait(connection, -len(frame))
            self._desk.drops["command_of_closed_connection"] += 1
