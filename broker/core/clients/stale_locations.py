"""Where the store may have clients listening here that do not: whose place was not cleared, whose `listen` failed and
may have been written late, or whom a home looked for here in vain.

Owns: when the store is asked about them. Must never: say where a client is; ``listening`` does, of what is found.

While there are subscriptions until disconnect such a place is looked for, since they stay as long as their client seems
to listen. Otherwise it is found out at the next message for the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ..connections.hub import Hub
from ..desk import Desk
from ..model import Location

#: Clients that are to be asked about, or cleared, later; of more it is found out as otherwise.
LATER_MAX: Final = 100_000

#: When a place that the store did not clear is to be cleared again, in seconds.
CLEAR_AGAIN_S: Final = 1.0

#: When a `listen` that failed is looked for in the store, in seconds: it may have been written late.
LATE_S: Final = 8.0

#: Clients that one question is about.
PER_QUESTION: Final = 500

Place = tuple[str, Location]


class StaleLocations:
    """One endpoint's, whose incarnation is ``me``. ``found`` is told of clients, each with its place here, that are not
    here."""

    def __init__(self, desk: Desk, hub: Hub, me: str, found: Callable[[list[Place]], None]) -> None:
        self._desk = desk
        self._hub = hub
        self._me = me
        self._found = found
        self._asked: set[str] = set()  # about whom the store is being asked
        self._later: deque[tuple[float, str]] = deque()  # when it is asked about whom
        self._uncleared: list[Place] = []
        self._clear_at = desk.now

    def look(self, clients: list[str]) -> None:
        """Does the store say that these are here?"""
        new = [client for client in dict.fromkeys(clients) if client not in self._asked]
        if new:
            self._asked.update(new)
            self._desk.store("locations", (new,), self._looked, new)

    def look_later(self, clients: list[str]) -> None:
        """A ``listen`` of these has failed, or may."""
        if len(self._later) < LATER_MAX:
            self._later.extend([(self._desk.now + LATE_S, client) for client in clients])
        else:
            self._desk.counts["stale_mappings_left"] += len(clients)

    def not_cleared(self, places: list[Place]) -> None:
        """The store has not written that these are left."""
        self._desk.counts["stale_mappings_left"] += len(places)
        if len(self._uncleared) < LATER_MAX:
            self._uncleared += places
            self._clear_at = self._desk.now + CLEAR_AGAIN_S

    def due(self) -> list[Place]:
        """Time has passed: ask about those whose time it is. Returns what is to be cleared again."""
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
