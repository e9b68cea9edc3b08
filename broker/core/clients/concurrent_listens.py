"""Locations that peers announce for clients whose ``listen`` is still being written here. The number of that ``listen``
will show which of the two is later.

Owns: these locations. Must never: decide where a client listens; ``listening`` does, once it has the number.
"""

from __future__ import annotations

from collections.abc import Collection

from ..model import Location


class ConcurrentListens:
    """One endpoint's concurrent listens. ``there``: where each client listens; ``outlived``: where each client no
    longer listened when its ``listen`` took effect."""

    def __init__(self) -> None:
        self._there: dict[str, Location] = {}
        self._outlived: dict[str, Location] = {}

    def is_there(self, client: str, location: Location) -> None:
        """Note a peer's announcement that the client listens there."""
        _keep_the_later(self._there, client, location)

    def was_there(self, client: str, location: Location) -> None:
        """Note a peer's announcement of a ``listen`` that took effect when its connection was gone."""
        _keep_the_later(self._outlived, client, location)

    def take(self, client: str) -> Location | None:
        """Remove and return the client's location, if a peer has announced one."""
        return self._there.pop(client, None)

    def forget(self, client: str) -> None:
        """Forget the client: its ``listen`` here has failed."""
        self._there.pop(client, None)
        self._outlived.pop(client, None)

    def outranked(self, locations: dict[str, Location], here: Collection[str]) -> set[str]:
        """Return the clients that listen here although a location that they have left has a higher number. By that
        number, no home would look for them here."""
        if not self._outlived:
            return set()
        outlived = self._outlived
        there = {client: outlived.pop(client) for client in locations if client in outlived}
        return {
            client for client, location in there.items() if locations[client].rank < location.rank and client in here
        }


def _keep_the_later(kept: dict[str, Location], client: str, location: Location) -> None:
    known = kept.get(client)
    if known is None or known.rank < location.rank:
        kept[client] = location
