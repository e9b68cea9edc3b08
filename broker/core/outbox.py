"""One connection's bounded send queue, and what becomes of a slow consumer. SPEC section 8.

Owns: the frames not yet handed to the socket. Must never: write to a socket.
"""

from __future__ import annotations


class Outbox:
    """Frames waiting for the socket, ``bytes_max`` at most: over that the connection is a slow consumer.

    The bound is of what a reader may be behind, beside what the kernel and the transport hold for it.
    """

    __slots__ = ("_frames", "bytes_max", "overflowed", "size")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0  # bytes waiting
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
        if self.size <= self.bytes_max:
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
