"""Places of clients whose ``listen`` is being written here, as peers announce them meanwhile: which is the later one is
known when it has its number.

Owns: these places. Must never: decide where a client listens; ``listening`` does when the number is there.
"""

from __future__ import annotations

from collections.abc import Collection

from ..model import Location


class ConcurrentListens:
    """One endpoint's. ``there``: where each listens; ``outlived``: where each did not any more when that came into
    effect."""

    def __init__(self) -> None:
        self._there: dict[str, Location] = {}
        self._outlived: dict[str, Location] = {}

    def is_there(self, client: str, location: Location) -> None:
        """A peer says that it listens there."""
        _keep_the_later(self._there, client, location)

    def was_there(self, client: str, location: Location) -> None:
        """A peer says that it has, and its connection was gone when that came into effect."""
        _keep_the_later(self._outlived, client, location)

    def take(self, client: str) -> Location | None:
        """Where it listens, as far as has been said."""
        return self._there.pop(client, None)

    def forget(self, client: str) -> None:
        """Its ``listen`` has failed."""
        self._there.pop(client, None)
        self._outlived.pop(client, None)

    def outranked(self, locations: dict[str, Location], here: Collection[str]) -> set[str]:
        """Clients that are here, and whose number has turned out to be lower than that of a place they had left: nobody
        would look for them here by it."""
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
