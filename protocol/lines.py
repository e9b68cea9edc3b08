"""Several commands or notifications in one text frame, one JSON object a line (SPEC section 1.6).

Owns: splitting a message into lines, some bytes at a time, and joining messages into one. Must never: parse a line, or
know a frame's header.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

#: The WebSocket subprotocol.
LINES: Final = "ingeborg.lines"

#: A frame of more bytes is never split: both sides treat it as one command or one notification.
LINES_BYTES_MAX: Final = 1 << 20

#: Maximum number of lines that an endpoint handles at a time, even if they are very short. Refusing a bad line takes as
#: long as executing a command. No command is shorter than 32 bytes.
LINES_AT_ONCE: Final = 128

_FEED: Final = b"\n"


def is_short(message: bytes, enough: int) -> bool:
    """Return whether a receiver that handles ``enough`` bytes at a time may handle all lines of this frame together."""
    return len(message) <= enough and message.count(_FEED) < LINES_AT_ONCE


def lines_of(message: bytes) -> list[bytes]:
    """Return all lines of a frame. The last line may end with a line feed."""
    if _FEED not in message:
        return [message]
    lines = message.split(_FEED)
    if not lines[-1]:
        lines.pop()
    return lines


class Lined:
    """Splits frames into lines in their order, some lines at a time. A frame stays whole until its turn."""

    __slots__ = ("_at", "_messages", "size")

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._at = 0  # where the next line of the first frame begins
        self.size = 0  # remaining bytes of all frames

    def __bool__(self) -> bool:
        """Return whether lines wait. The compiled form ignores ``__len__`` where an object may be ``None``."""
        return len(self._messages) > 0

    def push(self, message: bytes) -> None:
        """Append a frame. A frame of more than ``LINES_BYTES_MAX`` counts as one line, regardless of its content."""
        self._messages.append(message)
        self.size += len(message)

    def take(self, enough: int) -> list[bytes]:
        """Remove and return the next lines of one frame: up to the end of the line that reaches ``enough`` bytes, and
        at most ``LINES_AT_ONCE``."""
        message = self._messages[0]
        at, end = self._at, len(message)
        if end > LINES_BYTES_MAX:
            stop = end
            lines = [message]
        else:
            stop = message.find(_FEED, min(at + enough, end))
            if stop < 0:
                stop = end
            else:
                stop += 1
            lines = message[at:stop].split(_FEED, LINES_AT_ONCE)
            if len(lines) > LINES_AT_ONCE or (len(lines) > 1 and not lines[-1]):
                stop -= len(lines.pop())
        self.size -= stop - at
        if stop >= end:
            self._messages.popleft()
            stop = 0
        self._at = stop
        return lines

    def clear(self) -> None:
        """Drop all frames."""
        self._messages.clear()
        self._at = self.size = 0


def together(messages: Sequence[bytes], most: int = LINES_BYTES_MAX) -> list[bytes]:
    """Join the messages as lines into as few messages as possible.

    Args:
        messages: messages without a line feed.
        most: maximum number of bytes of a joined message. A longer message is returned unchanged.

    Returns:
        The joined messages, in the same order.
    """
    made: list[bytes] = []
    parts: list[bytes] = []
    size = 0
    for message in messages:
        if parts and size + len(message) > most:
            made.append(parts[0] if len(parts) == 1 else _FEED.join(parts))
            parts, size = [], 0
        parts.append(message)
        size += len(message) + 1  # its line feed
    if parts:
        made.append(parts[0] if len(parts) == 1 else _FEED.join(parts))
    return made
