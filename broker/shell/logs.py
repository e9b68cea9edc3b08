"""Log lines: for people, or one JSON object each; with the ids of the connection and the request they are about.

Owns: their form, and that nobody waits for whoever reads them. Must never: see a token, a key or a payload; what is
logged is chosen where it is logged.
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

#: What a line may say beside its text, in this order.
FIELDS = ("connection", "request", "command", "code", "address")

#: The loop says of each write that goes nowhere that it does. Over TLS a peer that ended TCP without a word, and reads
#: nothing, has it say so for each message until the pings are missed: one line of a kind in so many seconds will do.
SELDOM_S = 30.0
PER_WRITE = ("SSL connection is closed", "socket.send() raised exception.")

#: An id of a request that is longer is cut: it is the client's, and may be anything.
ID_CHARS_MAX = 128


#: How long the end of the process waits for its last lines to be written, in seconds.
FLUSH_S = 1.0


class TextFormatter(logging.Formatter):
    """``… INFO ingeborg.endpoint: text connection=7 request="a"``."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without what follows it of an exception."""
        said = [f" {name}={json.dumps(getattr(record, name))}" for name in FIELDS if hasattr(record, name)]
        return indented(super().formatMessage(record)) + "".join(said)


class Seldom(logging.Filter):
    """Passes each of ``PER_WRITE`` once in ``SELDOM_S``, with how many were left out since, and all else."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}  # by text: when, and how often it was not since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged."""
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
    """Whether a line of a kind is due: the first one is, and then one in ``every_s`` seconds."""

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._silent_until: dict[str, float] = {}

    def is_due(self, kind: str = "") -> bool:
        """A line of the kind could be said. ``kind``: of few."""
        now = self._clock()
        if now < self._silent_until.get(kind, now):
            return False
        self._silent_until[kind] = now + self._every_s
        return True


class Handler(logging.Handler):
    """Lines for the outlet of a stream. The stream gets them in their order, and nobody waits for it."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__()
        self.outlet = outlet

    def emit(self, record: logging.LogRecord) -> None:
        """Have it written."""
        try:
            line = redacted(self.format(record))
        except Exception:
            self.handleError(record)
        else:
            self.outlet.put(f"{line}\n".encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Wait for what is under way, for a moment."""
        self.outlet.flush(FLUSH_S)

    def close(self) -> None:
        """It gets no more lines."""
        self.outlet.close()
        super().close()


def lines_dropped() -> int:
    """Lines of this process's log that could not be written, since the log was set up."""
    return sum(handler.outlet.dropped for handler in logging.root.handlers if isinstance(handler, Handler))


def set_up(form: str, level: str, name: str = "") -> None:
    """Log to standard error as ``form`` (``text``, ``json``) from ``level`` on. ``name``: the endpoint's, in every
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
        text = f"{dropped} lines of this log were dropped, since whoever reads it stood still"
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
    """The id in a client's frame, for a log line; ``None`` where there is none to be found."""
    try:
        number = orjson.loads(frame)["id"]
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return cut(number) if isinstance(number, str | int) else None


def cut(number: Any) -> Any:
    """An id as it goes into a line."""
    return number[:ID_CHARS_MAX] if isinstance(number, str) else number
