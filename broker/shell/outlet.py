"""Lines for a stream whose reader may stand still: a paused `tee`, a log driver that blocks.

Owns: the lines that wait, and the thread that writes them. Must never: make whoever has a line wait, or hold more than
``HELD_BYTES_MAX``.

A pipe cannot be written without waiting in any simpler way. To make it non-blocking would change it for all processes
that share it, and to open it a second time is not permitted to everybody.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

#: The bytes that may wait to be written. The outlet drops lines beyond that.
HELD_BYTES_MAX = 1 << 20

Write = Callable[[bytes], None]
"""Writes all of it, and may block. Raises ``OSError``."""


def writing(stream: TextIO) -> Write:
    """How bytes get into the stream: past its own buffer, whose lock would hold up whoever else writes to it."""
    try:
        fd = stream.fileno()
    except (OSError, ValueError):  # no real stream: a test's

        def write_text(data: bytes) -> None:
            stream.write(data.decode())
            stream.flush()

        return write_text

    def write(data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:  # somebody who shares the stream has made it so
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()

    return write


class Outlet:
    """One stream's. ``notice``: makes the line that says how many were dropped, once there is room again; ``None``:
    nothing says so."""

    def __init__(self, write: Write, notice: Callable[[int], bytes] | None = None) -> None:
        self.dropped = 0  # lines, since the start
        self._write = write
        self._notice = notice
        self._unsaid = 0  # of these
        self._lines: deque[bytes] = deque()  # the first one is being written
        self._held = 0  # bytes
        self._closed = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def put(self, line: bytes) -> None:
        """Have the line written soon, or drop it, where too much waits already."""
        with self._changed:
            if self._held + len(line) > HELD_BYTES_MAX:
                self.dropped += 1
                self._unsaid += 1
                return
            self._add(line)
            if self._thread is None:  # it dies with the process: nothing waits for a reader that stands still
                self._thread = threading.Thread(target=self._run, name="outlet", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> None:
        """Wait until all lines are written, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, timeout_s)

    def close(self) -> None:
        """Its last line has come: the thread ends when it has written all that there are."""
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
            except (OSError, ValueError):  # its reader is gone, or it is closed: nobody could be told
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
        """The next line to write; ``None``: there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed)
            return self._lines[0] if self._lines else None
