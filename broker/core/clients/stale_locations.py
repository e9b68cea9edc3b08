"""Finds clients that do not listen here, although the store's record says that they do. It asks the store about a
client if the store did not clear the client's location, or if a home looked for the client here in vain. It also asks
if the client's `listen` failed, because the store may have written the `listen` late.

Owns: the times at which to ask the store about these clients. Must never: decide where a client is (``listening`` does,
from the store's answers).

The search is necessary because a subscription that ends at disconnect stays as long as its client seems to listen. For
other subscriptions it would be enough that the next message for the client reveals the stale location.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ..connections.hub import Hub
from ..desk import Desk
from ..model import Location

#: Maximum number of clients to ask the store about later, and of locations to clear later. Beyond it, only the next
#: message for a client reveals its stale location.
LATER_MAX: Final = 100_000

#: Seconds until another attempt to clear a location that the store did not clear.
CLEAR_AGAIN_S: Final = 1.0

#: Seconds from a failed `listen` until this endpoint asks the store about its client. The endpoint waits because the
#: store may write the `listen` late.
LATE_S: Final = 8.0

#: Maximum number of clients in one question to the store.
PER_QUESTION: Final = 500

Place = tuple[str, Location]


class StaleLocations:
    """One endpoint's stale locations. ``me``: the endpoint's incarnation. ``found``: a function to call with the
    clients that are not here, each with its stale location."""

    def __init__(self, desk: Desk, hub: Hub, me: str, found: Callable[[list[Place]], None]) -> None:
        self._desk = desk
        self._hub = hub
        self._me = me
        self._found = found
        self._asked: set[str] = set()  # clients about which the store has yet to answer
        self._later: deque[tuple[float, str]] = deque()  # (when to ask, client)
        self._uncleared: list[Place] = []
        self._clear_at = desk.now

    def look(self, clients: list[str]) -> None:
        """Ask the store whether its record says that these clients listen here."""
        new = [client for client in dict.fromkeys(clients) if client not in self._asked]
        if new:
            self._asked.update(new)
            self._desk.store("locations", (new,), self._looked, new)

    def look_later(self, clients: list[str]) -> None:
        """Ask the store later about clients whose ``listen`` has failed, or may have failed."""
        if len(self._later) < LATER_MAX:
            self._later.extend([(self._desk.now + LATE_S, client) for client in clients])
        else:
            self._desk.counts["stale_mappings_left"] += len(clients)

    def not_cleared(self, places: list[Place]) -> None:
        """Note locations that the store has not cleared."""
        self._desk.counts["stale_mappings_left"] += len(places)
        if len(self._uncleared) < LATER_MAX:
            self._uncleared += places
            self._clear_at = self._desk.now + CLEAR_AGAIN_S

    def due(self) -> list[Place]:
        """Ask the store about the clients that are due. Return the locations that ``listening`` must try to clear
        again."""
        now, clients = self._desk.now, list[str]()
        while self._later and self._later[0][0] <= now and len(clients) < PER_QUESTION:
            clients.append(self._later.popleft()[1])
        if clients:
            self.look(clients)
        if not self._uncleared or now < self._clear_at:
            return []
        places, self._uncleared = self._uncleared, []
        return places

    def _looked(self, clients: list[str], result: Any, error: Exception | None) -> None:
        self._asked.difference_update(clients)
        if error is not None:
            self.look_later(clients)
            return
        absent: list[Place] = []
        for client, location in zip(clients, result, strict=True):
            here = location is not None and location.online and location.incarnation == self._me
            if here and client not in self._hub.bindings:
                absent.append((client, location))
        if absent:
            self._found(absent)
