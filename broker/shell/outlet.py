"""Writes lines to a stream whose reader may stall, such as a paused `tee` or a log driver that blocks.

Owns: the waiting lines, and the thread that writes them. Must never: make the caller wait, or hold more than
``HELD_BYTES_MAX``.

There is no simpler way to write to a pipe without waiting. Making the pipe non-blocking would affect all processes that
share it, and not every process is permitted to open it a second time.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

#: Maximum number of bytes that wait to be written. The outlet drops further lines.
HELD_BYTES_MAX = 1 << 20

Write = Callable[[bytes], None]
"""Writes all the bytes, and may block. Raises ``OSError``."""


def writing(stream: TextIO) -> Write:
    """Return a function that writes bytes to the stream unbuffered, since a buffer's lock would block other writers."""
    try:
        fd = stream.fileno()
    except (OSError, ValueError):  # a test's stream, which has no descriptor

        def write_text(data: bytes) -> None:
            stream.write(data.decode())
            stream.flush()

        return write_text

    def write(data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:  # another process that shares the stream has made it non-blocking
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()

    return write


class Outlet:
    """The outlet of one stream. After it has dropped lines and has room again, it writes a line that ``notice`` makes
    from the number of dropped lines. If ``notice`` is ``None``, it writes no such line."""

    def __init__(self, write: Write, notice: Callable[[int], bytes] | None = None) -> None:
        self.dropped = 0  # number of lines dropped since the start
        self._write = write
        self._notice = notice
        self._unsaid = 0  # dropped lines that no notice has counted yet
        self._lines: deque[bytes] = deque()  # the thread is writing the first line
        self._held = 0  # bytes
        self._closed = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def put(self, line: bytes) -> None:
        """Queue the line to be written soon, or drop it if too many bytes wait already."""
        with self._changed:
            if self._held + len(line) > HELD_BYTES_MAX:
                self.dropped += 1
                self._unsaid += 1
                return
            self._add(line)
            if self._thread is None:  # a daemon thread, so that the process does not wait for a stalled reader
                self._thread = threading.Thread(target=self._run, name="outlet", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> None:
        """Wait until all lines are written, or ``timeout_s`` has passed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, timeout_s)

    def close(self) -> None:
        """End the thread when it has written the waiting lines. Later lines are not written."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._held += len(line)

    def _run(self) -> None:
        while (line := self._next()) is not None:
            lost = 0
            try:
                self._write(line)
            except (OSError, ValueError):  # the reader is gone, or the stream is closed: nobody would read a report
                lost = 1
            with self._changed:
                self.dropped += lost
                self._lines.popleft()
                self._held -= len(line)
                if not self._lines and self._unsaid and self._notice is not None:
                    self._add(self._notice(self._unsaid))
                    self._unsaid = 0
                self._changed.notify_all()

    def _next(self) -> bytes | None:
        """Return the next line to write, or ``None`` after the last line of a closed outlet."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed)
            return self._lines[0] if self._lines else None
