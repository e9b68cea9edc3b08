"""What all connections hold together, and whose turn it is to go when that is too much. SPEC section 1.4.

Owns: the sum, and each connection's part of it. Must never: be asked on the way of a message that nobody has to wait
for; what is taken at once is not held.

Counted are bytes: of frames that have not come whole or wait to be begun, of large commands under way, of replies that
wait for earlier ones (unless they are short), of what a socket does not take, and a flat rate for each client that
listens. A frame that many wait for is counted for each of them though it is there once, so the sum may be too much; the
process's memory is asked before anybody has to go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..connections.hub import Connection

#: What a client that listens takes, in bytes: its binding, its location, its place in the sets they are in.
CLIENT_BYTES: Final = 600

#: When the bound is passed the greatest holders go until the sum is below this part of it: not one in every turn.
FULL: Final = 0.9


class Memory:
    """``bytes_max``: the bound. ``resident``: the process's memory in bytes, as the system says."""

    def __init__(self, bytes_max: int, resident: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self.total = 0
        self.full = False  # the bound has been passed: somebody has to go
        self._resident = resident
        self._holders: dict[Connection, int] = {}

    def wait(self, connection: Connection, size: int) -> None:
        """``size`` more bytes that came over the connection wait to be done; fewer, where it is negative."""
        connection.waiting += size
        self.weigh(connection)

    def weigh(self, connection: Connection) -> None:
        """What the connection holds has changed."""
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
        """What the connection holds, in bytes."""
        return self._holders.get(connection, 0)

    def __len__(self) -> int:
        """How many connections hold anything."""
        return len(self._holders)

    def greatest(self) -> list[Connection]:
        """The greatest holders, as many as have to give up what they hold for the rest to be within the bound. None
        where the process's memory says that what is counted several times is there once."""
        self.full = False
        if self.total <= self.bytes_max or self._resident() <= self.bytes_max:
            return []
        chosen = []
        left = self.total
        # Who holds less than an equal part of what may stay can stay. So the many that hold little are not sorted.
        part = FULL * self.bytes_max / len(self._holders)
        great = [item for item in self._holders.items() if item[1] >= part]
        for connection, size in sorted(great, key=lambda item: -item[1]):
            if left <= FULL * self.bytes_max:
                break
            if connection.ends_at is None or connection.backlog:  # else it is on its way out already, and its bytes too
                chosen.append(connection)
            left -= size
        return chosen
