"""One connection's bounded send queue, and what becomes of a slow consumer. SPEC section 8.

Owns: the frames not yet handed to the socket. Must never: write to a socket.
"""

from __future__ import annotations

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

    def push(self, frame: bytes) -> int:
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
