"""The registry of endpoints: one directory object of names, and one object per name.

Owns: the decision which process holds a name. Must never: list keys (Riak would read all objects), or decide which
endpoints are alive.

A heartbeat is one write. This module keeps the causal context of the last write, and the answer to a write gives the
number of versions. If there is more than one version, another process has written the entry. Then this module reads the
entry, and the registration number decides which process holds the name. At every ``FULL_EVERY``-th heartbeat it reads
the entry and the directory anyway, for two reasons. In a partitioned cluster, the answer cannot show writes on the
other side. And if a merge has removed the name from the directory, it has to be added again.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from ..base import Endpoint, Superseded
from .access import Access
from .flow import each
from .layout import Directory, Entry
from .objects import Address, merged

FULL_EVERY: Final = 10
"""One of this many heartbeats reads the entry and the directory. At two heartbeats per second, that is every five
seconds."""

NAMES_MAX: Final = 1024
"""The largest number of names in the directory that ``endpoints`` reads. A few dozen names are expected, and hundreds
of abandoned names do no harm."""


class _Held(NamedTuple):
    """The last write of this process under a name."""

    incarnation: str
    registration: int
    vclock: bytes
    heartbeats: int  # number of heartbeats since the entry was last read


class Registry:
    """See the operations of the same names in ``base.Store``."""

    def __init__(self, access: Access) -> None:
        self._objects = access.objects
        self._buckets = access.buckets
        self._at_once = access.at_once
        self._held: dict[str, _Held] = {}
        self._lock = asyncio.Lock()  # entries bypass Objects.change, so this lock serializes their writes

    async def register(self, endpoint: Endpoint) -> None:
        async with self._lock:
            address = self._buckets.endpoint(endpoint.name)
            fetched = await self._objects.get(address)
            entry = merged(Entry, address, fetched)
            entry.registration += 1
            entry.incarnation = endpoint.incarnation
            await self._write(address, endpoint, entry, fetched.vclock)
            await self._list(endpoint.name)

    async def heartbeat(self, endpoint: Endpoint) -> None:
        async with self._lock:
            address = self._buckets.endpoint(endpoint.name)
            held = self._held.pop(endpoint.name, None)  # until the write has succeeded, the entry's state is unknown
            if held is None or held.incarnation != endpoint.incarnation or held.heartbeats + 1 >= FULL_EVERY:
                await self._reassert(address, endpoint)
                await self._list(endpoint.name)
                return
            entry = Entry()
            entry.registration, entry.incarnation = held.registration, held.incarnation
            alone = await self._write(address, endpoint, entry, held.vclock, held.heartbeats + 1)
            if not alone:
                await self._reassert(address, endpoint)

    async def deregister(self, endpoint: Endpoint) -> None:
        async with self._lock:
            self._held.pop(endpoint.name, None)

            def leave(entry: Entry) -> bool:
                if entry.incarnation != endpoint.incarnation:
                    return False
                entry.dirty = entry.dirty or entry.present
                entry.present = False
                return True

            if await self._objects.change(Entry, self._buckets.endpoint(endpoint.name), leave):
                await self._objects.change(
                    Directory, self._buckets.directory, lambda directory: directory.discard(endpoint.name)
                )

    async def endpoints(self) -> list[Endpoint]:
        directory = await self._objects.read(Directory, self._buckets.directory)
        found: list[Endpoint] = []

        async def read(name: str) -> None:
            entry = await self._objects.read(Entry, self._buckets.endpoint(name))
            if entry.present:
                found.append(Endpoint(name, entry.incarnation, entry.url, entry.heartbeat))

        await each(sorted(directory.names)[:NAMES_MAX], read, self._at_once)
        return sorted(found)

    async def _reassert(self, address: Address, endpoint: Endpoint) -> None:
        """Read which process holds the name. If this incarnation holds it, or no process does, write the heartbeat.
        Otherwise raise ``Superseded``."""
        fetched = await self._objects.get(address)
        entry = merged(Entry, address, fetched)
        if entry.incarnation != endpoint.incarnation:
            if entry.present:
                raise Superseded(
                    f"another process has registered as endpoint {endpoint.name!r} ({entry.url}); names must differ"
                )
            entry.registration += 1
            entry.incarnation = endpoint.incarnation
        elif not entry.present:
            entry.registration += 1
        await self._write(address, endpoint, entry, fetched.vclock)

    async def _write(
        self, address: Address, endpoint: Endpoint, entry: Entry, vclock: bytes | None, heartbeats: int = 0
    ) -> bool:
        """Write the entry with the endpoint's current data. Return whether the written version is the only one."""
        entry.present, entry.url, entry.heartbeat = True, endpoint.url, endpoint.heartbeat
        written = await self._objects.put(address, entry.encode(), vclock)
        alone = written.siblings <= 1
        if alone:  # otherwise the next write would replace a version that we have not read
            self._held[endpoint.name] = _Held(entry.incarnation, entry.registration, written.vclock, heartbeats)
        return alone

    async def _list(self, name: str) -> None:
        await self._objects.change(Directory, self._buckets.directory, lambda directory: directory.add(name))
