"""Frames on their way out: into the outboxes, from there to the sockets, and the end of a connection behind them.

Owns: which connections have something to be written, and which are being closed. Must never: know what a frame says.
"""

from __future__ import annotations

import math

from ingeborg.protocol.errors import SLOW_CONSUMER, CloseCode

from ..desk import Desk
from ..effects import Close
from .hub import Connection
from .memory import Memory


class Sending:
    """One endpoint's."""

    def __init__(self, desk: Desk, memory: Memory) -> None:
        self._desk = desk
        self._memory = memory
        self.dirty: list[Connection] = []  # there is something to write to these
        self.closing: list[Connection] = []  # closed in this turn, and their clients are still bound

    def push(self, connection: Connection, frame: bytes, reply: bool = False) -> None:
        """Put a transport frame into the connection's outbox. ``reply``: a command waits for it."""
        if connection.closed:
            self._desk.drops["connection_closed"] += 1
            return
        outbox = connection.outbox
        overflowed = outbox.overflowed
        dropped = outbox.push(frame, reply)
        if dropped:
            self._desk.drops["slow_consumer"] += dropped
            if outbox.overflowed and not overflowed:
                self.close(connection, SLOW_CONSUMER)
        if not outbox.flowing:
            self._memory.weigh(connection)
        if not connection.dirty:
            connection.dirty = True
            self.dirty.append(connection)

    def blocked(self, connection: Connection, unsent: int) -> None:
        """The connection's socket has enough for now: ``unsent`` bytes that the client does not take."""
        outbox = connection.outbox
        outbox.block()
        connection.unsent = unsent + outbox.leaving_bytes
        self._memory.weigh(connection)

    def drained(self, connection: Connection) -> None:
        """It takes more again."""
        outbox = connection.outbox
        outbox.unblock()
        connection.unsent = outbox.leaving_bytes
        self._memory.weigh(connection)
        if outbox.more and not connection.dirty:
            connection.dirty = True
            self.dirty.append(connection)

    def rest(self, connection: Connection) -> list[bytes]:
        """Something is written to the connection's socket past its outbox: what comes before it."""
        frames = connection.outbox.rest()
        connection.unsent = 0
        self._memory.weigh(connection)
        return frames

    def write(self) -> list[tuple[Connection, list[bytes]]]:
        """What the sockets are written in this turn."""
        dirty, self.dirty = self.dirty, []
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
        self._memory.weigh(connection)
        if outbox.more:
            connection.dirty = True
            self.dirty.append(connection)

    def close(self, connection: Connection, code: CloseCode) -> None:
        """Close the connection, after what is in its outbox. What its clients are sent through it in later turns is
        dropped: they are unbound."""
        self._desk.emit(Close(connection, code))
        if connection.ends_at is None:
            connection.ends_at = math.inf
        self.closing.append(connection)

    def drop(self, connection: Connection, reason: str) -> None:
        """Let go of what waits for the connection's socket."""
        dropped = connection.outbox.drop()
        if dropped:
            self._desk.drops[reason] += dropped
