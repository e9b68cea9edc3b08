"""Failures on the client's side of a connection. An endpoint's refusal is a ``ProtocolError`` (``errors``).

Owns: these exceptions. Must never: know who raises them.
"""

from __future__ import annotations


class ClientError(Exception):
    """A failure on the client's side. For an error reply the client raises ``ProtocolError`` instead."""


class ConnectFailed(ClientError):
    """The client could not connect to any endpoint of its list. The text gives the reason for each endpoint."""


class PositionError(ClientError):
    """The client cannot use the file that stores its position. The text says why, and what to do."""


class ConnectionLost(ClientError):
    """The connection broke before the reply arrived, so it is unknown whether the command took effect."""


class CommandTimeout(ClientError, TimeoutError):
    """No reply arrived in time, or there was no connection. It is unknown whether the command took effect."""


class ClosedForGood(ClientError):
    """The endpoint closed the connection with a code that forbids reconnecting (SPEC section 6), or the program called
    ``close`` (1000)."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"connection closed, code {code}: {reason}")
        self.code = code
        self.reason = reason
