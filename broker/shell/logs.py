"""Log lines: text for people, or one JSON object each, with the ids of their connection and request.

Owns: the form of lines, and that nobody waits for the log's reader. Must never: see a token, a key or a payload; the
code that logs chooses the content.
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

#: The fields of a line besides its text, in this order.
FIELDS = ("connection", "request", "command", "code", "address")

#: The loop logs each write to a dead connection. Over TLS, a peer that ended TCP silently and reads nothing causes such
#: a line for each message until it misses its pings: one line of a kind in this many seconds is enough.
SELDOM_S = 30.0
PER_WRITE = ("SSL connection is closed", "socket.send() raised exception.")

#: The greatest length of a request's id in a line: clients choose ids, so the line cuts longer ones.
ID_CHARS_MAX = 128


#: Time that the end of the process waits for its last lines, in seconds.
FLUSH_S = 1.0


class TextFormatter(logging.Formatter):
    """``… INFO ingeborg.endpoint: text connection=7 request="a"``."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the line, without the traceback that may follow it."""
        said = [f" {name}={json.dumps(getattr(record, name))}" for name in FIELDS if hasattr(record, name)]
        return indented(super().formatMessage(record)) + "".join(said)


class Seldom(logging.Filter):
    """Passes each of ``PER_WRITE`` once in ``SELDOM_S``, with the number left out since, and passes everything else."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # by text: when the last line was logged, and how many were left out since
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
            record.msg = f"{record.msg} ({left_out} times more in the last {now - said_at:.0f} s)"
        return True


class Sparing:
    """Decides whether a line of a kind is due: the first one, and then one in ``every_s`` seconds."""

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._silent_until: dict[str, float] = {}

    def is_due(self, kind: str = "") -> bool:
        """Return whether to log a line of this kind now. ``kind``: one of a few."""
        now = self._clock()
        if now < self._silent_until.get(kind, now):
            return False
        self._silent_until[kind] = now + self._every_s
        return True


class Handler(logging.Handler):
    """Puts lines into the outlet of a stream, in their order. Nobody waits for the stream."""

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
        """Wait a moment for lines under way."""
        self.outlet.flush(FLUSH_S)

    def close(self) -> None:
        """Accept no more lines."""
        self.outlet.close()
        super().close()


def lines_dropped() -> int:
    """Return how many lines of this process's log could not be written since the log was set up."""
    return sum(handler.outlet.dropped for handler in logging.root.handlers if isinstance(handler, Handler))


def set_up(form: str, level: str, name: str = "") -> None:
    """Log to standard error as ``form`` (``text``, ``json``) from ``level`` on. ``name``: the endpoint's name, in every
    JSON line."""
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
        text = f"{dropped} lines of this log were dropped, since its reader was stalled"
        fields = {"name": "ingeborg", "levelno": logging.WARNING, "levelname": "WARNING", "msg": text}
        record = logging.makeLogRecord(fields)
        return f"{formatter.format(record)}\n".encode()

    handler = Handler(Outlet(writing(sys.stderr), notice))
    handler.setFormatter(formatter)
    loop_log = logging.getLogger("asyncio")
    if not any(isinstance(each, Seldom) for each in loop_log.filters):
        loop_log.addFilter(Seldom())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def request_id(frame: bytes) -> Any:
    """Find the id in a client's frame, for a log line; ``None`` if it has none."""
    try:
        number = orjson.loads(frame)["id"]
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return cut(number) if isinstance(number, str | int) else None


def cut(number: Any) -> Any:
    """Return the id as a log line shows it."""
    return number[:ID_CHARS_MAX] if isinstance(number, str) else number
