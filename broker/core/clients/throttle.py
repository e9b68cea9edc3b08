"""Limits the rate of a connection's commands with a token bucket, which holds the allowance of one second.

Owns: the connections' allowances. Must never: refuse a command (if commands come too fast, the endpoint reads them
later; SPEC section 1.4).

A command that costs more than the remaining allowance is accepted, but the connection then waits until it has paid the
debt. So a large `subscribe` costs as much as many small commands.
"""

from __future__ import annotations

from ..connections.hub import Connection


class Throttle:
    """``per_s``: a connection's allowance per second; 0 if it is unlimited."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._waiting: dict[Connection, float] = {}  # connection -> the time until which it waits

    def limit(self, connection: Connection, now: float) -> None:
        """Count the connection's commands from now on."""
        if self._per_s:
            connection.allowance = float(self._per_s)
            connection.allowed_at = now

    def spend(self, connection: Connection, cost: int, now: float) -> bool:
        """Spend ``cost`` of the connection's allowance. Return true if the endpoint must accept no more commands from
        the connection until ``released`` returns the connection."""
        assert connection.allowance is not None
        earned = (now - connection.allowed_at) * self._per_s
        connection.allowance = min(connection.allowance + earned, float(self._per_s)) - cost
        connection.allowed_at = now
        if connection.allowance >= 0 or connection.throttled:
            return False
        connection.throttled = True
        self._waiting[connection] = now - connection.allowance / self._per_s
        return True

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._waiting.pop(connection, None)

    def released(self, now: float) -> list[Connection]:
        """Return the connections that have waited long enough."""
        if not self._waiting:
            return []
        released = [connection for connection, until in self._waiting.items() if until <= now]
        for connection in released:
            del self._waiting[connection]
            connection.throttled = False
        return released
