"""One connection's bounded send queue, and what becomes of a slow consumer. SPEC section 8.

Owns: the frames not yet handed to the socket. Must never: write to a socket.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: What one turn may bring a connection that is taking everything, in times of the bound: one message to each of many
#: clients on it is no sign of a slow reader. The frames of one message are one object, so this is not memory yet.
BURST: Final = 16

#: What a connection is written in one turn, in bytes, to the end of a frame: about 1 ms of the kernel's time.
PIECE_BYTES: Final = 2 << 20


class Outbox:
    """Frames waiting for the socket, ``bytes_max`` at most: over that the connection is a slow consumer.

    The bound is of what a reader may be behind, beside what the kernel and the transport hold for it. While the
    connection is ``flowing``, what waits is of this turn only, and may be ``BURST`` times that.
    """

    __slots__ = (
        "_frames",
        "_leaving",
        "blocked",
        "bytes_max",
        "flowing",
        "leaving_bytes",
        "overflowed",
        "piece_bytes",
        "size",
    )

    def __init__(self, bytes_max: int, piece_bytes: int = PIECE_BYTES) -> None:
        self.bytes_max = bytes_max
        self.piece_bytes = piece_bytes
        self.size = 0  # bytes waiting
        self.blocked = False  # the socket takes no more for now
        self.flowing = True  # it is not blocked, and nothing is leaving in pieces
        self.overflowed = False
        self._frames: list[bytes] = []
        self._leaving: list[bytes] = []  # taken out, and to be written in pieces: the next frame is the last one here
        self.leaving_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def push(self, frame: bytes, reply: bool = False) -> int:
        """Put the frame behind the others. Returns how many frames were dropped by it: 0, or all once it overflows."""
        if self.overflowed:
            return 1
        self._frames.append(frame)
        self.size += len(frame)
        if self.size <= self.bytes_max or (self.flowing and self.size <= BURST * self.bytes_max):
            return 0
        self.overflowed = True
        dropped = len(self._frames)
        self._frames.clear()
        self.size = 0
        return dropped

    def take(self) -> list[bytes]:
        """Everything that waits."""
        frames = self._frames
        self._frames = []
        self.size = 0
        return frames

    def write(self) -> list[bytes]:
        """What is to be written to the socket now: nothing, while it is blocked; else all that waits. Of more than
        ``piece_bytes`` it is the first piece; the next calls return the others, and then what has come meanwhile.
        """
        if self.blocked:
            return []
        if not self._leaving:
            if self.size <= self.piece_bytes:
                return self.take()
            self.leaving_bytes = self.size
            self._leaving = self.take()[::-1]
        leaving = self._leaving
        piece, size = [], 0
        while leaving and size < self.piece_bytes:
            frame = leaving.pop()
            piece.append(frame)
            size += len(frame)
        self.leaving_bytes -= size
        self.flowing = not leaving
        return piece

    def block(self) -> None:
        """The socket takes no more for now."""
        self.blocked = True
        self.flowing = False

    def unblock(self) -> None:
        """It takes more again."""
        self.blocked = False
        self.flowing = not self._leaving

    def rest(self) -> list[bytes]:
        """What is left of what was to leave in pieces, to be written at once: something comes behind it."""
        frames, self._leaving = self._leaving[::-1], []
        self.leaving_bytes = 0
        self.flowing = not self.blocked
        return frames

    @property
    def more(self) -> bool:
        """There is something to write as soon as the socket takes it."""
        return bool(self._leaving or len(self))

    def drop(self) -> int:
        """Let go of everything. Returns how many frames that were."""
        return len(self.rest()) + len(self.take())

    def shut(self) -> int:
        """Let go of everything, and take nothing more. Returns how many frames that were."""
        self.overflowed = True
        return self.drop()


class DroppingOutbox(Outbox):
    """One that drops its oldest notifications, and not the connection. Replies stay, since commands wait for them; full
    of replies it overflows as any other."""

    __slots__ = ("_notifications", "_number", "_row")

    def __init__(self, bytes_max: int, piece_bytes: int = PIECE_BYTES) -> None:
        super().__init__(bytes_max, piece_bytes)
        self._row: dict[int, bytes] = {}  # number -> frame, in their order
        self._notifications: deque[int] = deque()  # numbers in it
        self._number = 0

    def __len__(self) -> int:
        return len(self._row)

    def push(self, frame: bytes, reply: bool = False) -> int:
        """Put the frame behind the others. Returns how many frames were dropped by it."""
        if self.overflowed:
            return 1
        self._number += 1
        self._row[self._number] = frame
        if not reply:
            self._notifications.append(self._number)
        self.size += len(frame)
        bound = BURST * self.bytes_max if self.flowing else self.bytes_max
        dropped = 0
        while self.size > bound and self._notifications:
            self.size -= len(self._row.pop(self._notifications.popleft()))
            dropped += 1
        if self.size <= bound:
            return dropped
        self.overflowed = True
        return dropped + len(self.take())

    def take(self) -> list[bytes]:
        """Everything that waits."""
        frames = list(self._row.values())
        self._row.clear()
        self._notifications.clear()
        self.size = 0
        return frames
