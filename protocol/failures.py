"""Failures on the client's side of a connection. An endpoint's refusal is a ``ProtocolError`` (``errors``).

Owns: these exceptions. Must never: know who raises them.
"""

from __future__ import annotations


class ClientError(Exception):
    """A failure on this side, not in an error reply (that is ``ProtocolError``)."""


class ConnectFailed(ClientError):
    """The client could not connect to any endpoint of the list; the text has each one's reason."""


class PositionError(ClientError):
    """The client cannot use the file for its position; the text says why, and what to do."""


class ConnectionLost(ClientError):
    """The connection broke before the reply arrived: whether the command took effect is unknown."""


class CommandTimeout(ClientError, TimeoutError):
    """No reply came in time, or no connection to send on: whether the command took effect is unknown."""


class ClosedForGood(ClientError):
    """The endpoint closed with a code that forbids reconnecting (SPEC section 6), or the program called ``close``
    (1000)."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"connection closed, code {code}: {reason}")
        self.code = code
        self.reason = reason
