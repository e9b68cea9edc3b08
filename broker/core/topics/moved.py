"""Clients that have moved away from this endpoint lately: for a broadcast they are both here and not here.

Owns: clients that listen elsewhere now, and since when. Must never: know where.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from ..limits import SIZES, Sizes
from ..links.calls import TIMEOUT_S

#: How long this endpoint remembers that a client has moved away, in seconds: longer than a broadcast travels.
MOVED_S: Final = 2 * TIMEOUT_S


class MovedAway:
    """Client -> since when it has listened elsewhere."""

    def __init__(self, sizes: Sizes = SIZES) -> None:
        self._max = sizes.moved_max
        self._since: OrderedDict[str, float] = OrderedDict()
        self._evicted_at = -math.inf  # when a client was last forgotten early

    def __contains__(self, client: object) -> bool:
        return client in self._since

    def add(self, client: str, now: float) -> None:
        """Note that the client listens elsewhere from here on."""
        self._since[client] = now
        self._since.move_to_end(client)
        if len(self._since) > self._max:
            self._since.popitem(last=False)
            self._evicted_at = now

    def since(self, now: float) -> list[tuple[str, float]]:
        """Each client, with the seconds since it moved."""
        return [(client, now - since) for client, since in self._since.items()]

    def complete(self, now: float) -> bool:
        """Return whether no client has been forgotten early within the time of a broadcast."""
        return self._evicted_at + MOVED_S <= now

    def expire(self, now: float) -> None:
        """Forget clients that no broadcast under way can miss."""
        while self._since and next(iter(self._since.values())) + MOVED_S <= now:
            self._since.popitem(last=False)
