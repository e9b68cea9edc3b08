"""Clients that have recently moved away from this endpoint. A broadcast may still look for them here, or miss them.

Owns: the list of these clients, and when each one moved. Must never: know where they listen now.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from ..limits import SIZES, Sizes
from ..links.calls import TIMEOUT_S

#: The time to remember that a client has moved away, in seconds. A broadcast reaches all endpoints in less time.
MOVED_S: Final = 2 * TIMEOUT_S


class MovedAway:
    """Maps each client that has moved away to the time when it moved."""

    def __init__(self, sizes: Sizes = SIZES) -> None:
        self._max = sizes.moved_max
        self._since: OrderedDict[str, float] = OrderedDict()
        self._evicted_at = -math.inf  # when a client was last forgotten too early

    def __contains__(self, client: object) -> bool:
        return client in self._since

    def add(self, client: str, now: float) -> None:
        """Record that the client now listens at another endpoint."""
        self._since[client] = now
        self._since.move_to_end(client)
        if len(self._since) > self._max:
            self._since.popitem(last=False)
            self._evicted_at = now

    def since(self, now: float) -> list[tuple[str, float]]:
        """Return each client, with the seconds since it moved."""
        return [(client, now - since) for client, since in self._since.items()]

    def complete(self, now: float) -> bool:
        """Return whether the list is complete: no client was forgotten too early within the last ``MOVED_S``
        seconds."""
        return self._evicted_at + MOVED_S <= now

    def expire(self, now: float) -> None:
        """Forget the clients that moved so long ago that no current broadcast can miss them."""
        while self._since and next(iter(self._since.values())) + MOVED_S <= now:
            self._since.popitem(last=False)
