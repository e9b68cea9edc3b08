"""Frames on their way out: into the outboxes, from there to the sockets, and the end of a connection behind them.

Owns: which connections have something to be written, which are held back, and which are being closed. Must never: know
what a frame says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Final

from ingeborg.protocol.errors import SLOW_CONSUMER, CloseCode

from ..connections.hub import Connection
from ..desk import Desk
from ..effects import Close
from .memory import Memory

#: Connections that were held back and may go on, in one slice: some 1 ms, beside what they are then written.
SENT_AGAIN_PER_SLICE: Final = 500


class Sending:
    """One endpoint's."""

    def __init__(self, desk: Desk, memory: Memory) -> None:
        self._desk = desk
        self._memory = memory
        self.dirty: list[Connection] = []  # there is something to write to these
        self.closing: list[Connection] = []  # closed in this turn, and their clients are still bound
        #: Connections with a grant that have something to be written, and are to be written nothing; ``None``: all may.
        self._held_back: dict[Connection, None] | None = None
        self._going_on: dict[Connection, None] = {}  # of these, those that may again, and whose turn has not come

    def push(self, connection: Connection, frame: bytes, reply: bool = False) -> None:
        """Put a transport frame into the connection's outbox. ``reply``: a command waits for it."""
        if connection.closed:
            self._desk.drops["connection_closed"] += 1
            return
        outbox = connection.outbox
        overflowed = outbox.overflowed
        dropped = outbox.push(frame, reply)
        if dropped:
            self._desk.drops["token_revoked" if connection.revoked else "slow_consumer"] += dropped
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
        self._let_pass(connection)  # it is told by itself that it may go on
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
        if connection.receiver is not None:
            connection.receiver.drained()

    def rest(self, connection: Connection) -> list[bytes]:
        """Something is written to the connection's socket past its outbox: what comes before it."""
        if self._held_back is not None and connection.grant is not None:
            self.drop(connection, "connection_closed")
            return []
        frames = connection.outbox.rest()
        connection.unsent = 0
        self._memory.weigh(connection)
        return frames

    def write(self) -> list[tuple[Connection, list[bytes]]]:
        """What the sockets are written in this turn."""
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
        """Not all of it: the rest in the next turns, or when the socket takes more."""
        outbox = connection.outbox
        if outbox.blocked:
            return
        connection.unsent = outbox.leaving_bytes
        self._memory.weigh(connection)
        if outbox.more:
            connection.dirty = True
            self.dirty.append(connection)

    # Held back

    def hold_back(self) -> None:
        """Write nothing to connections with a grant from now on. Their outboxes fill as those of slow readers."""
        if self._held_back is None:
            self._held_back = {}  # those that are still to go on come to it when they are written to

    def _hold_some(self, dirty: list[Connection], held: dict[Connection, None]) -> list[Connection]:
        """The others."""
        others = []
        for connection in dirty:
            if connection.grant is None:
                others.append(connection)
                continue
            connection.dirty = False
            if not connection.outbox.blocked:  # else its socket is full, and says so when it is not any more
                connection.outbox.block()
                held[connection] = None
            self._memory.weigh(connection)
        return others

    def send_again(self) -> Iterator[bool]:
        """They may be written to again, from now on: a job, for those that have something to be written."""
        if self._held_back is not None:
            self._going_on.update(self._held_back)  # to those of a time before
            self._held_back = None
        return self._send_some()

    def _send_some(self) -> Iterator[bool]:
        while self._going_on:
            for connection in list(islice(self._going_on, SENT_AGAIN_PER_SLICE)):
                del self._going_on[connection]
                self.drained(connection)
            yield False

    def _let_pass(self, connection: Connection) -> None:
        """It is none of those that are held back any more."""
        if self._held_back:
            self._held_back.pop(connection, None)
        if self._going_on:
            self._going_on.pop(connection, None)

    def close(self, connection: Connection, code: CloseCode) -> None:
        """Close the connection, after what is in its outbox. What its clients are sent through it in later turns is
        dropped: they are unbound."""
        self._desk.emit(Close(connection, code))
        if connection.ends_at is None:
            connection.ends_at = math.inf
        self.closing.append(connection)

    def drop(self, connection: Connection, reason: str) -> None:
        """Let go of what waits for the connection's socket."""
        self._let_pass(connection)
        dropped = connection.outbox.drop()
        if dropped:
            self._desk.drops[reason] += dropped

    def shut(self, connection: Connection) -> None:
        """Its token has been revoked: it is sent nothing more."""
        self._let_pass(connection)
        self._desk.drops["token_revoked"] += connection.outbox.shut()
        connection.unsent = 0
        self._memory.weigh(connection)
