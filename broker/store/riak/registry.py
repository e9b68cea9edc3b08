"""The registry of endpoints: one directory object of names, and one object per name.

Owns: which process has a name. Must never: list keys (Riak walks all objects for that), or judge which endpoints are
alive.

A heartbeat is one write. This module keeps the causal context of the last write, and the write's answer gives the
number of versions. More than one means that somebody else wrote: then this module reads the entry, and the registration
number decides. Every ``FULL_EVERY`` heartbeats it reads the entry and the directory anyway. In a partitioned cluster
the answer cannot show the other half, and a directory that lost the name in a merge gets it back.
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
"""One heartbeat in this many reads the entry and the directory: once in five seconds at two heartbeats per second."""

NAMES_MAX: Final = 1024
"""Endpoints read from the directory at once: tens are expected, and hundreds of abandoned names do no harm."""


class _Held(NamedTuple):
    """The last write of this process under a name."""

    incarnation: str
    registration: int
    vclock: bytes
    heartbeats: int  # since the entry was last read


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
        """Read which process has the name, and write the heartbeat if it is this incarnation or nobody."""
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
        """Write the entry with this endpoint's new data; return whether it is the only version."""
        entry.present, entry.url, entry.heartbeat = True, endpoint.url, endpoint.heartbeat
        written = await self._objects.put(address, entry.encode(), vclock)
        alone = written.siblings <= 1
        if alone:  # otherwise the context covers another version, and the next write would replace it unread
            self._held[endpoint.name] = _Held(entry.incarnation, entry.registration, written.vclock, heartbeats)
        return alone

    async def _list(self, name: str) -> None:
        await self._objects.change(Directory, self._buckets.directory, lambda directory: directory.add(name))
