"""Adds up the bytes that connections hold. When the sum exceeds the bound, it chooses the connections to close. SPEC
section 1.4.

Owns: the sum, and each connection's share. Must never: add any cost to a message that does not have to wait. Bytes that
a socket accepts immediately are not counted.

The sum counts the bytes of incomplete or waiting frames, and of large commands in progress. It also counts long replies
that wait for earlier replies, frames that a socket does not accept yet, and a constant for each client that listens. A
frame that waits in many connections exists once, but counts for each connection, so the sum can be too high. The
endpoint therefore checks the memory of its process before it closes any connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..connections.hub import Connection

#: The bytes to count for each client that listens. They cover its binding, its location, and its entries in sets.
CLIENT_BYTES: Final = 600

#: When the sum exceeds the bound, the endpoint closes connections until the sum is below this fraction of the bound.
#: Otherwise it might have to close another connection in every turn.
FULL: Final = 0.9


class Memory:
    """The sum of held bytes. ``bytes_max`` is the bound. ``resident`` returns the process's memory in bytes, as the
    operating system reports it."""

    def __init__(self, bytes_max: int, resident: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self.total = 0
        self.full = False  # whether the sum has exceeded the bound, so that connections must be closed
        self._resident = resident
        self._holders: dict[Connection, int] = {}

    def wait(self, connection: Connection, size: int) -> None:
        """Add ``size`` to the bytes that wait at the connection. ``size`` may be negative."""
        connection.waiting += size
        self.weigh(connection)

    def weigh(self, connection: Connection) -> None:
        """Update the sum after the connection's bytes have changed."""
        size = connection.unread + connection.waiting + connection.unsent + CLIENT_BYTES * len(connection.clients)
        if not connection.outbox.flowing:
            size += connection.outbox.size
        holders = self._holders
        self.total += size - holders.get(connection, 0)
        if size:
            holders[connection] = size
        else:
            holders.pop(connection, None)
        if self.total > self.bytes_max:
            self.full = True

    def of(self, connection: Connection) -> int:
        """Return the connection's held bytes."""
        return self._holders.get(connection, 0)

    def __len__(self) -> int:
        """Count the connections that hold bytes."""
        return len(self._holders)

    def greatest(self) -> list[Connection]:
        """Return the connections to close so that the sum gets below the bound. The connections that hold the most
        bytes come first. Return an empty list if the process's memory is within the bound, because then the sum counts
        some bytes several times."""
        self.full = False
        if self.total <= self.bytes_max or self._resident() <= self.bytes_max:
            return []
        chosen = []
        left = self.total
        # A connection that holds less than an equal share of the bound can stay open, so the many connections that hold
        # little need no sorting.
        part = FULL * self.bytes_max / len(self._holders)
        great = [item for item in self._holders.items() if item[1] >= part]
        for connection, size in sorted(great, key=lambda item: -item[1]):
            if left <= FULL * self.bytes_max:
                break
            if connection.ends_at is None or connection.backlog:  # otherwise it is closing already
                chosen.append(connection)
            left -= size
        return chosen
