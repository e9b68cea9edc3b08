"""One connection's bounded send queue, and the treatment of a slow consumer. SPEC section 8.

Owns: the frames not yet handed to the socket. Must never: write to a socket.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: If a connection keeps up, one turn can put this many times ``bytes_max`` into its outbox. So a connection with many
#: clients does not count as a slow reader merely because each of its clients gets a message. All frames of one message
#: are the same object, so they take no additional memory before they are written.
BURST: Final = 16

#: Bytes to write to a connection in one turn, rounded up to a whole frame: about 1 ms of the kernel's time.
PIECE_BYTES: Final = 2 << 20


class Outbox:
    """Frames that wait for the socket, at most ``bytes_max`` bytes. A connection with more waiting bytes is a slow
    consumer.

    A reader can fall behind by ``bytes_max``, plus the buffers of the kernel and the transport. While the connection is
    ``flowing``, only this turn's frames wait, and they can have up to ``BURST`` times ``bytes_max`` bytes.
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
        self.blocked = False  # the socket accepts no more frames for now
        self.flowing = True  # it is not blocked, and nothing is leaving in pieces
        self.overflowed = False
        self._frames: list[bytes] = []
        self._leaving: list[bytes] = []  # taken out, to be written in pieces; the next frame is the last of the list
        self.leaving_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def push(self, frame: bytes, reply: bool = False) -> int:
        """Append a frame. Return the number of frames that this call drops: 0, or all frames if the outbox
        overflows."""
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
        """Take everything that waits."""
        frames = self._frames
        self._frames = []
        self.size = 0
        return frames

    def write(self) -> list[bytes]:
        """Return the frames to write to the socket now: none while the socket is blocked, otherwise all waiting frames.
        If these have more than ``piece_bytes``, return only the first piece. The next calls return the other pieces,
        and then the frames that have come meanwhile."""
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
        """Record that the socket accepts no more frames for now."""
        self.blocked = True
        self.flowing = False

    def unblock(self) -> None:
        """Record that the socket accepts frames again."""
        self.blocked = False
        self.flowing = not self._leaving

    def rest(self) -> list[bytes]:
        """Return the pieces that have not been written yet. The caller writes all pieces together, because other bytes
        must follow them."""
        frames, self._leaving = self._leaving[::-1], []
        self.leaving_bytes = 0
        self.flowing = not self.blocked
        return frames

    @property
    def more(self) -> bool:
        """Return whether something waits for the socket."""
        return bool(self._leaving or len(self))

    def drop(self) -> int:
        """Drop everything. Return the number of dropped frames."""
        return len(self.rest()) + len(self.take())

    def shut(self) -> int:
        """Drop everything, and accept nothing more. Return the number of dropped frames."""
        self.overflowed = True
        return self.drop()


class DroppingOutbox(Outbox):
    """An outbox that drops its oldest notifications when it is full, so that the connection stays open. It keeps
    replies, because commands wait for them. If it is full of replies, it overflows like any other outbox."""

    __slots__ = ("_notifications", "_number", "_row")

    def __init__(self, bytes_max: int, piece_bytes: int = PIECE_BYTES) -> None:
        super().__init__(bytes_max, piece_bytes)
        self._row: dict[int, bytes] = {}  # number -> frame, in order
        self._notifications: deque[int] = deque()  # numbers in ``_row``
        self._number = 0

    def __len__(self) -> int:
        return len(self._row)

    def push(self, frame: bytes, reply: bool = False) -> int:
        """Append a frame. Return the number of frames that this call drops."""
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
        """Take everything that waits."""
        frames = list(self._row.values())
        self._row.clear()
        self._notifications.clear()
        self.size = 0
        return frames
