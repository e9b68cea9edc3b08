"""Several commands or notifications in one text frame, one JSON object a line (SPEC section 1.6).

Owns: how a message is taken apart into lines, some bytes at a time, and how messages are put together into one. Must
never: look into a line, or know a frame's header.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

#: The WebSocket subprotocol.
LINES: Final = "ingeborg.lines"

#: A longer frame is one command, or one notification. So is, to whoever receives it, what is sent in it.
LINES_BYTES_MAX: Final = 1 << 20

#: Lines that are taken at once, at most, however short they are: to refuse one takes as long as to carry one out. No
#: command is shorter than 32 bytes.
LINES_AT_ONCE: Final = 128

_FEED: Final = b"\n"


def is_short(message: bytes, enough: int) -> bool:
    """May all lines of this frame be taken at once, where so many bytes may?"""
    return len(message) <= enough and message.count(_FEED) < LINES_AT_ONCE


def lines_of(message: bytes) -> list[bytes]:
    """All lines of a frame. A line feed may end the last one."""
    if _FEED not in message:
        return [message]
    lines = message.split(_FEED)
    if not lines[-1]:
        lines.pop()
    return lines


class Lined:
    """Frames that are taken apart, in their order, some lines at a time: a frame stays one object until it is."""

    __slots__ = ("_at", "_messages", "size")

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._at = 0  # where the next line of the first one begins
        self.size = 0  # bytes left of all

    def __len__(self) -> int:
        return len(self._messages)

    def push(self, message: bytes) -> None:
        """Behind the others. Of more than ``LINES_BYTES_MAX`` it is one line, whatever is in it."""
        self._messages.append(message)
        self.size += len(message)

    def take(self, enough: int) -> list[bytes]:
        """The next lines, all of one frame: of ``enough`` bytes together, to the end of the line that reaches that, or
        ``LINES_AT_ONCE``."""
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
        """Let go of all."""
        self._messages.clear()
        self._at = self.size = 0


def together(messages: Sequence[bytes], most: int = LINES_BYTES_MAX) -> list[bytes]:
    """Put these messages together as lines of as few messages as possible. ``most``: bytes that go into one; a longer
    message stays by itself, as the same object."""
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
