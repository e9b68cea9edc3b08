"""Locations that peers announce for some clients while the store is writing a ``listen`` of these clients at this
endpoint. The number that the ``listen`` gets will show which of the two locations is later.

Owns: these locations. Must never: decide where a client listens (``listening`` decides when it has the number).
"""

from __future__ import annotations

from collections.abc import Collection

from ..model import Location


class ConcurrentListens:
    """One endpoint's concurrent listens. ``_there``: the announced location of each client. ``_outlived``: announced
    locations whose connection had gone when the ``listen`` took effect."""

    def __init__(self) -> None:
        self._there: dict[str, Location] = {}
        self._outlived: dict[str, Location] = {}

    def is_there(self, client: str, location: Location) -> None:
        """Note a peer's announcement that the client listens at this location."""
        _keep_the_later(self._there, client, location)

    def was_there(self, client: str, location: Location) -> None:
        """Note a peer's announcement of a ``listen`` that took effect only after its connection had gone."""
        _keep_the_later(self._outlived, client, location)

    def take(self, client: str) -> Location | None:
        """Remove and return the client's location, if a peer has announced a location."""
        return self._there.pop(client, None)

    def forget(self, client: str) -> None:
        """Forget the client, because its ``listen`` here has failed."""
        self._there.pop(client, None)
        self._outlived.pop(client, None)

    def outranked(self, locations: dict[str, Location], here: Collection[str]) -> set[str]:
        """Return the clients that listen here, but whose earlier location at another endpoint has a higher number. They
        have left that endpoint. Because of the higher number, homes would not look for these clients here."""
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
