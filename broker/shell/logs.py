"""Writes log lines as text or as one JSON object each, with the ids of the connection and the request.

Owns: the form of lines, and that no code waits for the log's reader. Must never: receive a token, a key or a payload.
The code that logs chooses the content, and has to leave these out.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import orjson
from pythonjsonlogger.json import JsonFormatter

from ingeborg.protocol.redaction import redacted

from .outlet import Outlet, writing
from .terminal import indented

#: The fields that a line can have in addition to its text, in this order.
FIELDS = ("connection", "request", "command", "code", "address")

#: asyncio logs each write to a dead connection. Over TLS, a peer that ended TCP silently and reads nothing causes such
#: a line for each message, until it misses its pings. One line of each kind every ``SELDOM_S`` seconds is enough.
SELDOM_S = 30.0
PER_WRITE = ("SSL connection is closed", "socket.send() raised exception.")

#: Maximum length of a request's id in a line. Clients choose their ids, so longer ids are cut.
ID_CHARS_MAX = 128


#: How long the process waits at its end for its last lines to be written, in seconds.
FLUSH_S = 1.0


class TextFormatter(logging.Formatter):
    """``… INFO ingeborg.endpoint: text connection=7 request="a"``."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the line, without the traceback that may follow it."""
        said = [f" {name}={json.dumps(getattr(record, name))}" for name in FIELDS if hasattr(record, name)]
        return indented(super().formatMessage(record)) + "".join(said)


class Seldom(logging.Filter):
    """Passes each line of ``PER_WRITE`` once every ``SELDOM_S``, with the number of lines left out since the last one.
    Passes all lines of other kinds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # text -> when its last line was logged, and how many lines were left out since then
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide whether to log the record."""
        if record.msg not in PER_WRITE:
            return True
        now = self._clock()
        said_at, left_out = self._said.get(record.msg, (now - SELDOM_S, 0))
        if now - said_at < SELDOM_S:
            self._said[record.msg] = said_at, left_out + 1
            return False
        self._said[record.msg] = now, 0
        if left_out:
            record.msg = f"{record.msg} ({left_out} more in the last {now - said_at:.0f} s)"
        return True


class Sparing:
    """Decides whether a line of a kind is due: the first line, and then at most one line every ``every_s`` seconds."""

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._silent_until: dict[str, float] = {}

    def is_due(self, kind: str = "") -> bool:
        """Return whether to log a line of this kind now. There should be only a few kinds."""
        now = self._clock()
        if now < self._silent_until.get(kind, now):
            return False
        self._silent_until[kind] = now + self._every_s
        return True


class Handler(logging.Handler):
    """Puts lines into the outlet of a stream, in their order. The caller does not wait for the stream."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__()
        self.outlet = outlet

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record's line to the outlet."""
        try:
            line = redacted(self.format(record))
        except Exception:
            self.handleError(record)
        else:
            self.outlet.put(f"{line}\n".encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Wait up to ``FLUSH_S`` until the outlet has written its lines."""
        self.outlet.flush(FLUSH_S)

    def close(self) -> None:
        """Accept no more lines."""
        self.outlet.close()
        super().close()


def lines_dropped() -> int:
    """Return how many lines of this process's log could not be written since the log was set up."""
    return sum(handler.outlet.dropped for handler in logging.root.handlers if isinstance(handler, Handler))


def set_up(form: str, level: str, name: str = "") -> None:
    """Log lines of ``level`` and above to standard error, in the given form (``text`` or ``json``). Every JSON line has
    the endpoint's ``name``."""
    formatter: logging.Formatter
    if form == "json":
        formatter = JsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            datefmt="%Y-%m-%dT%H:%M:%S%z",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
            static_fields={"endpoint": name} if name else {},
        )
    else:
        formatter = TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def notice(dropped: int) -> bytes:
        text = f"{dropped} lines of this log were dropped because its reader was stalled"
        fields = {"name": "ingeborg", "levelno": logging.WARNING, "levelname": "WARNING", "msg": text}
        record = logging.makeLogRecord(fields)
        return f"{formatter.format(record)}\n".encode()

    handler = Handler(Outlet(writing(sys.stderr), notice))
    handler.setFormatter(formatter)
    loop_log = logging.getLogger("asyncio")
    if not any(isinstance(each, Seldom) for each in loop_log.filters):
        loop_log.addFilter(Seldom())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def request_id(frame: object) -> Any:
    """Return the id in a client's frame, for a log line, or ``None`` if the frame has none, or has been decoded."""
    if not isinstance(frame, bytes):
        return None
    try:
        number = orjson.loads(frame)["id"]
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return cut(number) if isinstance(number, str | int) else None


def cut(number: Any) -> Any:
    """Return the id, cut if it is too long for a log line."""
    return number[:ID_CHARS_MAX] if isinstance(number, str) else number
