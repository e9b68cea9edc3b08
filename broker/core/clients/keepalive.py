"""Closes the connections of clients that do not answer pings, and connections whose token has expired. SPEC sections
1.2 and 1.5.

Owns: the time of each connection's next ping, and the expiry of its token. Must never: read a clock. Pings use
monotonic time. Tokens use Unix time, which can jump forwards and backwards.
"""

from __future__ import annotations

import math
from typing import Final

from ingeborg.protocol.errors import PING_TIMEOUT, TOKEN_EXPIRED

from ..connections.hub import Connection
from ..desk import Desk
from ..effects import Ping
from ..metrics import Metric
from ..outgoing.sending import Sending
from ..part import Part
from ..wheel import Wheel

#: Maximum number of consecutive pings without an answer. When another ping becomes due after this many unanswered
#: pings, the endpoint closes the connection.
PINGS_UNANSWERED_MAX: Final = 2

#: The precision of pings in seconds: one slot of the timer wheel. Connections are spread over the slots of a period.
PING_SLOT_S: Final = 0.1


class Keepalive(Part):
    """``ping_s``: the time between two pings of one connection, in seconds."""

    def __init__(self, desk: Desk, sending: Sending, ping_s: float) -> None:
        self._desk = desk
        self._sending = sending
        self._ping_s = ping_s
        self._pings: Wheel[Connection] = Wheel(desk.now, PING_SLOT_S)
        self._expiries: Wheel[Connection] = Wheel(desk.unix_s, 1.0)

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted("pings_unanswered", "Connections closed because two pings went unanswered"),
            self._desk.counted("tokens_expired", "Connections closed because their token expired"),
        ]

    def connected(self, connection: Connection) -> None:
        """Schedule the first ping of a new connection, and the expiry of its token."""
        # The connection's number spreads the pings of simultaneous connections over the period.
        slots = max(1, round(self._ping_s / PING_SLOT_S))
        first = self._desk.now + (connection.number % slots + 1) * PING_SLOT_S
        connection.ping_slot = self._pings.add(connection, first)
        if connection.grant is not None:
            connection.expiry_slot = self._expiries.add(connection, math.ceil(connection.grant.expires_at))

    def ponged(self, connection: Connection) -> None:
        """Record that the client has answered a ping."""
        connection.pings_unanswered = 0

    def disconnected(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        self._pings.remove(connection, connection.ping_slot)
        if connection.grant is not None:
            self._expiries.remove(connection, connection.expiry_slot)

    def tick(self) -> None:
        """Ping the connections that are due. Close the connections that have not answered, and those whose token has
        expired (accurate to the second)."""
        desk = self._desk
        for connection in self._pings.due(desk.now):
            connection.ping_slot = self._pings.add(connection, desk.now + self._ping_s)
            if connection.ends_at is not None or connection.backpressure:
                continue  # it is already closing, or the endpoint does not read its answers
            if connection.pings_unanswered >= PINGS_UNANSWERED_MAX:
                desk.counts["pings_unanswered"] += 1
                self._sending.close(connection, PING_TIMEOUT)
            else:
                connection.pings_unanswered += 1
                desk.emit(Ping(connection))
        for connection in self._expiries.due(desk.unix_s):
            desk.counts["tokens_expired"] += 1
            self._sending.close(connection, TOKEN_EXPIRED)
