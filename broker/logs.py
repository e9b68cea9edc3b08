"""Log lines: for people, or one JSON object each; with the ids of the connection and the request they are about.

Owns: their form. Must never: see a token, a key or a payload; what is logged is chosen where it is logged.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import orjson
from pythonjsonlogger.json import JsonFormatter

from .terminal import indented

#: What a line may say beside its text, in this order.
FIELDS = ("connection", "request", "command", "code", "address")

#: An id of a request that is longer is cut: it is the client's, and may be anything.
ID_CHARS_MAX = 128


class TextFormatter(logging.Formatter):
    """``… INFO ingeborg.endpoint: text connection=7 request="a"``."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without what follows it of an exception."""
        said = [f" {name}={json.dumps(getattr(record, name))}" for name in FIELDS if hasattr(record, name)]
        return indented(super().formatMessage(record)) + "".join(said)


def set_up(form: str, level: str, name: str = "") -> None:
    """Log to standard error as ``form`` (``text``, ``json``) from ``level`` on. ``name``: the endpoint's, in every
    JSON line."""
    handler = logging.StreamHandler(sys.stderr)
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
    handler.setFormatter(formatter)
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
