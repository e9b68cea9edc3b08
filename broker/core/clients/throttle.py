"""How fast a connection may send commands: a token bucket, one second's worth deep.

Owns: the connections' allowances. Must never: refuse a command; what is too fast is read later (SPEC section 1.4).

A command that costs more than is left is taken, and the debt is waited for: a large `subscribe` is as good as many
small ones.
"""

from __future__ import annotations

from ..connections.hub import Connection


class Throttle:
    """``per_s``: what a connection may spend a second; 0: any amount."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._waiting: dict[Connection, float] = {}  # -> until when

    def limit(self, connection: Connection, now: float) -> None:
        """The connection's commands count from here on."""
        if self._per_s:
            connection.allowance = float(self._per_s)
            connection.allowed_at = now

    def spend(self, connection: Connection, cost: int, now: float) -> bool:
        """It has sent that much. True: no more is to be taken from it until it is ``released``."""
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
        """It is closed."""
        self._waiting.pop(connection, None)

    def released(self, now: float) -> list[Connection]:
        """Those that have waited long enough."""
        if not self._waiting:
            return []
        released = [connection for connection, until in self._waiting.items() if until <= now]
        for connection in released:
            del self._waiting[connection]
            connection.throttled = False
        return released
