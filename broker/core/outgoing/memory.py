"""Sums up the bytes that connections hold, and chooses which must go when these exceed the bound. SPEC section 1.4.

Owns: the sum, and each connection's part. Must never: add any cost to a message that does not have to wait; bytes
that a socket takes at once are not held.

The sum counts the bytes of incomplete or waiting frames, of large commands under way, of replies that wait for earlier
ones (unless they are short), and of frames that a socket does not take. It adds a flat rate for each client that
listens. A frame that many connections wait for counts for each, although it exists once, so the sum can be too high.
The endpoint therefore checks the process's memory before any connection must go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..connections.hub import Connection

#: Bytes of a client that listens: its binding, its location, and their places in sets.
CLIENT_BYTES: Final = 600

#: Above the bound, the endpoint closes the connections that hold the most until the sum is below this part of the
#: bound, instead of one in every turn.
FULL: Final = 0.9


class Memory:
    """The sum of held bytes. ``bytes_max``: the bound. ``resident``: returns the process's memory in bytes, as the
    system reports it."""

    def __init__(self, bytes_max: int, resident: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self.total = 0
        self.full = False  # the sum exceeded the bound: some connection must be closed
        self._resident = resident
        self._holders: dict[Connection, int] = {}

    def wait(self, connection: Connection, size: int) -> None:
        """Count ``size`` more bytes that wait at the connection; fewer if it is negative."""
        connection.waiting += size
        self.weigh(connection)

    def weigh(self, connection: Connection) -> None:
        """Update the sum after a change of the connection's bytes."""
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
        """Return the greatest holders, as many as must go for the rest to fit the bound. Return none if the process's
        memory shows that the sum counts bytes several times."""
        self.full = False
        if self.total <= self.bytes_max or self._resident() <= self.bytes_max:
            return []
        chosen = []
        left = self.total
        # A holder below an equal share of the bound can stay. So the many small holders need no sorting.
        part = FULL * self.bytes_max / len(self._holders)
        great = [item for item in self._holders.items() if item[1] >= part]
        for connection, size in sorted(great, key=lambda item: -item[1]):
            if left <= FULL * self.bytes_max:
                break
            if connection.ends_at is None or connection.backlog:  # otherwise it is closing already, and frees its bytes
                chosen.append(connection)
            left -= size
        return chosen
