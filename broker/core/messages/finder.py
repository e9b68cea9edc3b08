"""Asking the store where clients are that no cache knows: each once, for all messages that wait for it.

Owns: which clients are being looked for, and for whom. Must never: know what waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..desk import Desk
from ..limits import SIZES, Sizes
from ..topics.locations import NEVER_LISTENED, Locations
from ..topics.routes import Search


class Finder:
    """``done`` is told of each search when nobody is left to be found, or when the store does not answer."""

    def __init__(
        self,
        desk: Desk,
        locations: Locations,
        done: Callable[[Search, Exception | None], None],
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._per_slice = sizes.clients_per_slice
        self._locations = locations
        self._done = done
        self.wanted: list[str] = []  # clients to ask for at the end of the turn
        self._waiting: dict[str, list[Search]] = {}  # client -> who waits for its location

    def ask(self, search: Search, clients: list[str]) -> None:
        """Find these, too."""
        search.unfound += len(clients)
        for client in clients:
            waiting = self._waiting.get(client)
            if waiting is None:
                self._waiting[client] = [search]
                self.wanted.append(client)
            else:
                waiting.append(search)

    def flush(self) -> None:
        """End the turn: ask the store for all of them."""
        wanted, self.wanted = self.wanted, []
        for start in range(0, len(wanted), self._per_slice):
            part = wanted[start : start + self._per_slice]
            self._desk.store("locations", (part,), self._found, part)

    def _found(self, clients: list[str], result: Any, error: Exception | None) -> None:
        over: dict[Search, None] = {}
        for index, client in enumerate(clients):
            location = None if error is not None else result[index]
            if error is None:
                self._locations.learn(client, location or NEVER_LISTENED)
            for search in self._waiting.pop(client, ()):
                search.found[client] = location
                search.unfound -= 1
                if error is not None or not search.unfound:
                    over[search] = None
        for search in over:
            self._done(search, error)
