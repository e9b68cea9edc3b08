"""Where clients listen, and which of their subscriptions have ended. Each client has one object for both.

Owns: these objects, and the order of the steps of a ``listen``: it reads the ended subscriptions after it has written
the location. Must never: read or write a record of subscriptions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ..base import Ended, Location
from .access import Access
from .flow import each
from .layout import LocationObject, Name

KEPT_S: Final = 600.0
"""How long the store remembers an ended subscription. ``tidy`` sets another time."""


class Locations:
    """See the operations of the same names in ``base.Store``."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._objects = access.objects
        self._buckets = access.buckets
        self.kept_s = KEPT_S

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        found: list[tuple[Location, Ended | None]] = [(Location(0, "", False), None)] * len(clients)
        least = self._access.now_ms

        async def move(position: int) -> None:
            def edit(client_location: LocationObject) -> Location:
                held = client_location.location
                drawn = Location(max(held.number + 1, least) if held else least, incarnation, True)
                client_location.move(drawn)
                return drawn

            drawn = await self._objects.change(self._new, self._buckets.location(clients[position]), edit)
            # Read this only after the write of the location, because otherwise the client could miss an end
            # (``expiry.py``).
            found[position] = drawn, (await self._read(clients[position])).ended()

        await each(range(len(clients)), move, self._access.at_once)
        return found

    async def unlisten(self, batch: Sequence[tuple[str, Location]]) -> None:
        async def leave(entry: tuple[str, Location]) -> None:
            client, given = entry

            def edit(client_location: LocationObject) -> None:
                # This write has the causal context of the read. If a newer ``listen`` is written between the read and
                # this write, the two become siblings, and the greater location wins, which is that of the ``listen``.
                # So this write cannot undo the ``listen``.
                if client_location.location == given and given.online:
                    client_location.move(given._replace(online=False))

            await self._objects.change(self._new, self._buckets.location(client), edit)

        await each(batch, leave, self._access.at_once)

    async def locations(self, clients: Sequence[str]) -> list[Location | None]:
        found = await self._read_all(clients)
        return [found[client].location for client in clients]

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        found = await self._read_all(clients)
        return [found[client].ended() for client in clients]

    async def end(self, names_of: Mapping[str, Collection[Name]]) -> None:
        """Record that these subscriptions of the clients have ended."""

        async def change(client: str) -> None:
            def edit(client_location: LocationObject) -> None:
                self._access.counters["ended_unnamed"] += client_location.end(names_of[client])

            await self._objects.change(self._new, self._buckets.location(client), edit)

        await each(list(names_of), change, self._access.at_once)

    async def back(self, names_of: Mapping[str, Collection[tuple[str, str | None]]]) -> None:
        """Remove these subscriptions from the ended ones, because they did not end after all or the clients subscribed
        again. See ``LocationObject.back``."""

        async def change(client: str) -> None:
            names = names_of[client]
            await self._objects.change(self._new, self._buckets.location(client), lambda found: found.back(names))

        await each(list(names_of), change, self._access.at_once)

    def _new(self) -> LocationObject:
        return LocationObject(self._access.now_ms, round(self.kept_s * 1000))

    async def _read(self, client: str) -> LocationObject:
        return await self._objects.read(self._new, self._buckets.location(client))

    async def _read_all(self, clients: Sequence[str]) -> dict[str, LocationObject]:
        found: dict[str, LocationObject] = {}

        async def read(client: str) -> None:
            found[client] = await self._read(client)

        await each(list(dict.fromkeys(clients)), read, self._access.at_once)
        return found
