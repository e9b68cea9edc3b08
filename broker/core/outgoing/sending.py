"""Moves frames into the outboxes and from there to the sockets, and closes a connection after its last frame.

Owns: the lists of connections that have frames to write, are held back, or are closing. Must never: know a frame's
content.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Final

from ingeborg.protocol.errors import GOING_AWAY, REPLACED, SLOW_CONSUMER, TOKEN_EXPIRED, CloseCode

from ..connections.hub import Connection
from ..desk import Desk
from ..effects import Close
from .memory import Memory

#: The largest number of held-back connections that resume in one slice. This takes about 1 ms, plus the time for their
#: frames.
SENT_AGAIN_PER_SLICE: Final = 500


#: Before the endpoint closes a connection with one of these codes, it sends the messages that the connection's
#: receivers hold (SPEC section 2.8).
LETS_OUT: Final = (GOING_AWAY, REPLACED, TOKEN_EXPIRED)


class Sending:
    """One endpoint's outgoing frames."""

    def __init__(self, desk: Desk, memory: Memory) -> None:
        self._desk = desk
        self._memory = memory
        self.dirty: list[Connection] = []  # connections with frames to write
        self.closing: list[Connection] = []  # connections closed in this turn; their clients are still bound
        #: Connections with a grant whose frames have to wait, or ``None`` while no connection is held back.
        self._held_back: dict[Connection, None] | None = None
        self._going_on: dict[Connection, None] = {}  # released connections that have not resumed yet

    def push(self, connection: Connection, frame: bytes, reply: bool = False) -> None:
        """Put a transport frame into the connection's outbox. If ``reply`` is false, a full outbox may drop the frame
        and keep the connection (``--drop-oldest``)."""
        if connection.closed:
            self._desk.drops["connection_closed"] += 1
            return
        outbox = connection.outbox
        overflowed = outbox.overflowed
        dropped = outbox.push(frame, reply)
        if dropped:
            self._desk.drops["token_revoked" if connection.revoked else "slow_consumer"] += dropped
            if connection.receiver is not None and not overflowed:
                connection.receiver.dropped(dropped)
            if outbox.overflowed and not overflowed:
                self.close(connection, SLOW_CONSUMER)
        if not outbox.flowing:
            self._memory.weigh(connection)
        if not connection.dirty:
            connection.dirty = True
            self.dirty.append(connection)

    def blocked(self, connection: Connection, unsent: int) -> None:
        """Stop writing, because the socket is full. ``unsent`` bytes wait to be written to the socket."""
        outbox = connection.outbox
        outbox.block()
        self._let_pass(connection)  # the socket reports when it accepts more
        connection.unsent = unsent + outbox.leaving_bytes
        self._memory.weigh(connection)

    def drained(self, connection: Connection) -> None:
        """Continue writing, because the socket accepts more bytes again."""
        outbox = connection.outbox
        outbox.unblock()
        connection.unsent = outbox.leaving_bytes
        self._memory.weigh(connection)
        if outbox.more and not connection.dirty:
            connection.dirty = True
            self.dirty.append(connection)
        if connection.receiver is not None:
            connection.receiver.drained()

    def rest(self, connection: Connection) -> list[bytes]:
        """Return the frames that the outbox was writing in pieces. The caller writes them before a frame that bypasses
        the outbox."""
        if self._held_back is not None and connection.grant is not None:
            self.drop(connection, "connection_closed")
            return []
        frames = connection.outbox.rest()
        connection.unsent = 0
        self._memory.weigh(connection)
        return frames

    def write(self) -> list[tuple[Connection, list[bytes]]]:
        """Return the frames to write to each socket in this turn."""
        dirty, self.dirty = self.dirty, []
        if self._held_back is not None:
            dirty = self._hold_some(dirty, self._held_back)
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
        """Leave the remaining frames for the next turns, or until the socket accepts more."""
        outbox = connection.outbox
        if outbox.blocked:
            return
        connection.unsent = outbox.leaving_bytes
        self._memory.weigh(connection)
        if outbox.more:
            connection.dirty = True
            self.dirty.append(connection)
        if outbox.flowing and connection.receiver is not None:  # the last piece has left
            connection.receiver.drained()

    # Held back

    def hold_back(self) -> None:
        """Write nothing to connections with a grant from now on. Their outboxes fill like those of slow readers."""
        if self._held_back is None:
            self._held_back = {}  # connections in ``_going_on`` are added at their next write

    def _hold_some(self, dirty: list[Connection], held: dict[Connection, None]) -> list[Connection]:
        """Hold back connections with a grant, and return all other connections."""
        others = []
        for connection in dirty:
            if connection.grant is None:
                others.append(connection)
                continue
            connection.dirty = False
            if not connection.outbox.blocked:  # otherwise the socket is full and reports when it accepts more
                connection.outbox.block()
                held[connection] = None
            self._memory.weigh(connection)
        return others

    def send_again(self) -> Iterator[bool]:
        """Stop holding back. Return a job that resumes the connections whose frames wait."""
        if self._held_back is not None:
            self._going_on.update(self._held_back)  # an earlier release may not have finished
            self._held_back = None
        return self._send_some()

    def _send_some(self) -> Iterator[bool]:
        while self._going_on:
            for connection in list(islice(self._going_on, SENT_AGAIN_PER_SLICE)):
                del self._going_on[connection]
                self.drained(connection)
            yield False

    def _let_pass(self, connection: Connection) -> None:
        """Remove the connection from those that are held back."""
        if self._held_back:
            self._held_back.pop(connection, None)
        if self._going_on:
            self._going_on.pop(connection, None)

    def close(self, connection: Connection, code: CloseCode) -> None:
        """Close the connection after the frames in its outbox. The connection's clients are unbound at the end of the
        turn, so messages to them in later turns are dropped."""
        if connection.receiver is not None and code in LETS_OUT:
            connection.receiver.release(None)
        self._desk.emit(Close(connection, code))
        if connection.ends_at is None:
            connection.ends_at = math.inf
        self.closing.append(connection)

    def drop(self, connection: Connection, reason: str) -> None:
        """Drop the frames that wait for the connection's socket."""
        self._let_pass(connection)
        dropped = connection.outbox.drop()
        if dropped:
            self._desk.drops[reason] += dropped

    def shut(self, connection: Connection) -> None:
        """Send nothing more to the connection, because its token was revoked."""
        self._let_pass(connection)
        self._desk.drops["token_revoked"] += connection.outbox.shut()
        connection.unsent = 0
        self._memory.weigh(connection)
