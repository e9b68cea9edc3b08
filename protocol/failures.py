"""What goes wrong on the client's side of a connection. What an endpoint refuses is a ``ProtocolError`` (``errors``).

Owns: these exceptions. Must never: know who raises them.
"""

from __future__ import annotations


class ClientError(Exception):
    """What goes wrong here and not in an error reply (that is ``ProtocolError``)."""


class ConnectFailed(ClientError):
    """No endpoint of the list could be connected to; the text has each one's reason."""


class PositionError(ClientError):
    """The file that is to hold the client's position cannot be used; the text says why, and what to do."""


class ConnectionLost(ClientError):
    """The connection broke before the reply came: whether the command took effect is unknown."""


class CommandTimeout(ClientError, TimeoutError):
    """No reply in time, or no connection to send on: whether the command took effect is unknown."""


class ClosedForGood(ClientError):
    """The endpoint closed with a code that forbids to reconnect (SPEC section 6), or ``close`` was called (1000)."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"connection closed, code {code}: {reason}")
        self.code = code
        self.reason = reason
