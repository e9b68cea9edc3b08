"""One connection's bounded send queue, and what becomes of a slow consumer. SPEC section 8.

Owns: the frames not yet handed to the socket. Must never: write to a socket.
"""

from __future__ import annotations

from collections import deque

#: What one turn may bring a connection that is taking everything, in times of the bound: one message to each of many
#: clients on it is no sign of a slow reader. The frames of one message are one object, so this is not memory yet.
BURST = 16


class Outbox:
    """Frames waiting for the socket, ``bytes_max`` at most: over that the connection is a slow consumer.

    The bound is of what a reader may be behind, beside what the kernel and the transport hold for it. While the
    transport takes what it is given (``flowing``), what waits is of this turn only, and may be ``BURST`` times that.
    """

    __slots__ = ("_frames", "bytes_max", "flowing", "overflowed", "size")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0  # bytes waiting
        self.flowing = True  # the transport's buffer has room
        self.overflowed = False
        self._frames: list[bytes] = []

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
        """Everything that waits, for the socket."""
        frames = self._frames
        self._frames = []
        self.size = 0
        return frames


class DroppingOutbox(Outbox):
    """One that drops its oldest notifications, and not the connection. Replies stay, since commands wait for them; full
    of replies it overflows as any other."""

    __slots__ = ("_notifications", "_number", "_row")

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
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
        """Everything that waits, for the socket."""
        frames = list(self._row.values())
        self._row.clear()
        self._notifications.clear()
        self.size = 0
        return frames
